package spec_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/openwop/spec"
)

// fieldOf returns the first field that a refusal names, "-" if it names none, and "" without a refusal.
func fieldOf(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var own *spec.Error
	if !errors.As(err, &own) {
		t.Fatalf("%v is no refusal", err)
	}
	if own.Code == "unsupported_stream_mode" {
		return "streamMode"
	}
	if own.Status != 400 || own.Code != "validation_error" {
		t.Errorf("%d %s", own.Status, own.Code)
	}
	problems, _ := own.Details["errors"].([]spec.Problem)
	if len(problems) == 0 || problems[0].Field == "" {
		return "-"
	}
	return problems[0].Field
}

func TestBodiesOfForks(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		`{"mode":"branch","fromSeq":0}`:                                                                 "",
		`{"mode":"branch","fromSeq":7,"runOptionsOverlay":{}}`:                                          "",
		`{"mode":"branch","fromSeq":0,"runOptionsOverlay":{"tags":[],"metadata":{},"configurable":{}}}`: "",
		`{"mode":"replay"}`:                                "",
		`{"mode":"branch"}`:                                "fromSeq",
		`{"fromSeq":0}`:                                    "mode",
		`{"mode":"rewind","fromSeq":0}`:                    "mode",
		`{"mode":"Branch","fromSeq":0}`:                    "mode",
		`{"mode":"branch","fromSeq":-1}`:                   "fromSeq",
		`{"mode":"branch","fromSeq":1.5}`:                  "fromSeq",
		`{"mode":"branch","fromSeq":1e2}`:                  "fromSeq",
		`{"mode":"branch","fromSeq":"0"}`:                  "fromSeq",
		`{"mode":"branch","fromSeq":99999999999999999999}`: "fromSeq",
		`{"mode":"branch","fromSeq":null}`:                 "fromSeq",
		`{"mode":"branch","fromSeq":0,"amount":1}`:         "amount",
		`{"mode":"branch","fromSeq":0,"fromSeq":1}`:        "fromSeq",
		`{"mode":"branch","fromSeq":0,"FromSeq":1}`:        "FromSeq",
		`{"mode":"branch","fromSeq":0,"runOptionsOverlay":{"configurable":{"amount":1}}}`: "runOptionsOverlay.configurable",
		`{"mode":"branch","fromSeq":0,"runOptionsOverlay":{"tags":["a"]}}`:                "runOptionsOverlay.tags",
		`{"mode":"branch","fromSeq":0,"runOptionsOverlay":{"inputs":{}}}`:                 "runOptionsOverlay",
		`{"mode":"branch","fromSeq":0,"runOptionsOverlay":[]}`:                            "runOptionsOverlay",
		`{"mode":"replay","runOptionsOverlay":{"configurable":{"a":1}}}`:                  "runOptionsOverlay.configurable",
		`[]`:   "-",
		`{`:    "-",
		``:     "-",
		`null`: "-",
	} {
		_, err := spec.ParseFork([]byte(body))
		if got := fieldOf(t, err); got != field {
			t.Errorf("%s: refused for %q, want %q (%v)", body, got, field, err)
		}
	}
	got, err := spec.ParseFork([]byte(`{"mode":"branch","fromSeq":7}`))
	if err != nil || got != (spec.Fork{Mode: spec.Branch, FromSeq: 7}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBodiesOfCreates(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		`{"workflowId":"settlement"}`:                                            "",
		`{"workflowId":"settlement","inputs":{"a":1},"tenantId":"acme"}`:         "",
		`{"workflowId":"settlement","configurable":{},"tags":[],"metadata":{ }}`: "",
		`{"inputs":{}}`:                                           "workflowId",
		`{"workflowId":""}`:                                       "workflowId",
		`{"workflowId":7}`:                                        "workflowId",
		`{"workflowId":"a","inputs":[]}`:                          "inputs",
		`{"workflowId":"a","inputs":null}`:                        "inputs",
		`{"workflowId":"a","tags":["x"]}`:                         "tags",
		`{"workflowId":"a","metadata":{"x":1}}`:                   "metadata",
		`{"workflowId":"a","configurable":{"model":"x"}}`:         "configurable",
		`{"workflowId":"a","callbackUrl":"https://example.com/"}`: "callbackUrl",
		`{"workflowId":"a","scopeId":"s"}`:                        "scopeId",
		`{"workflowId":"a","priority":1}`:                         "priority",
		`{"workflowId":"a","inputs":{"a":1,"a":2}}`:               "inputs.a",
		`"a"`: "-",
	} {
		_, err := spec.ParseCreate([]byte(body))
		if got := fieldOf(t, err); got != field {
			t.Errorf("%s: refused for %q, want %q (%v)", body, got, field, err)
		}
	}
	got, err := spec.ParseCreate([]byte(`{"workflowId":"w","inputs":{"n":1e400},"tenantId":"acme"}`))
	if err != nil || got.Workflow != "w" || string(got.Inputs) != `{"n":1e400}` || got.Tenant != "acme" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBodiesOfCancelsAndOfTheSeam(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		``: "", `{}`: "", `{"reason":"sent in error"}`: "", `{"reason":7}`: "reason", `{"why":"x"}`: "why",
		`{"reason":"` + strings.Repeat("x", 1001) + `"}`: "reason",
	} {
		_, err := spec.ParseCancel([]byte(body))
		if got := fieldOf(t, err); got != field {
			t.Errorf("%.40s: refused for %q, want %q", body, got, field)
		}
	}
	for body, field := range map[string]string{
		`{"scenario":"exhaust-retries"}`: "", `{"scenario":"fork-after-dead-letter"}`: "", `{"scenario":"other"}`: "scenario", `{}`: "scenario", `x`: "-",
	} {
		if got := fieldOf(t, spec.ParseExhaust([]byte(body))); got != field {
			t.Errorf("%s: refused for %q, want %q", body, got, field)
		}
	}
}

func TestParametersOfPolls(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]struct {
		poll  spec.Poll
		field string
	}{
		"":                         {spec.Poll{After: -1, Timeout: 30 * time.Second}, ""},
		"lastSequence=0":           {spec.Poll{After: 0, Timeout: 30 * time.Second}, ""},
		"lastSequence=7&timeout=1": {spec.Poll{After: 7, Timeout: time.Second}, ""},
		"timeout=60":               {spec.Poll{After: -1, Timeout: time.Minute}, ""},
		"timeout=0":                {field: "timeout"},
		"timeout=61":               {field: "timeout"},
		"timeout=1.5":              {field: "timeout"},
		"lastSequence=x":           {field: "lastSequence"},
		"lastSequence=-2":          {field: "lastSequence"},
		"lastsequence=1":           {field: "lastsequence"},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := spec.ParsePoll(values)
		if field := fieldOf(t, err); field != want.field || got != want.poll {
			t.Errorf("%s: %+v, refused for %q", query, got, field)
		}
	}
}

func TestParametersOfStreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query, last string
		modes       string
		after       int
		buffer      time.Duration
		field       string
	}{
		{"", "", "updates", -1, 0, ""},
		{"streamMode=debug", "4", "debug", 4, 0, ""},
		{"streamMode=updates,messages&bufferMs=100", "", "updates,messages", -1, 100 * time.Millisecond, ""},
		{"bufferMs=99999", "", "updates", -1, 5 * time.Second, ""},
		{"streamMode=values", "", "values", -1, 0, ""},
		{"streamMode=values,updates", "", "", 0, 0, "streamMode"},
		{"streamMode=everything", "", "", 0, 0, "streamMode"},
		{"streamMode=updates,", "", "", 0, 0, "streamMode"},
		{"bufferMs=-1", "", "", 0, 0, "bufferMs"},
		{"", "last", "", 0, 0, "Last-Event-ID"},
		{"", "-1", "", 0, 0, "Last-Event-ID"},
		{"mode=debug", "", "", 0, 0, "mode"},
	} {
		values, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := spec.ParseStream(values, c.last)
		if field := fieldOf(t, err); field != c.field {
			t.Errorf("%s %s: refused for %q, want %q", c.query, c.last, field, c.field)
			continue
		}
		var modes []string
		for _, m := range got.Modes {
			modes = append(modes, string(m))
		}
		if strings.Join(modes, ",") != c.modes || got.After != c.after || got.Buffer != c.buffer {
			t.Errorf("%s %s: %+v", c.query, c.last, got)
		}
	}
}

func TestKeysAreURLSafe(t *testing.T) {
	t.Parallel()
	for key, field := range map[string]string{"a-B_c.9~": "", strings.Repeat("x", 255): "", "": "Idempotency-Key", "a b": "Idempotency-Key", "a/b": "Idempotency-Key", "ä": "Idempotency-Key", strings.Repeat("x", 256): "Idempotency-Key"} {
		if got := fieldOf(t, spec.CheckKey(key)); got != field {
			t.Errorf("%.20q: refused for %q, want %q", key, got, field)
		}
	}
}

// The table of modes and events, as OpenWOP's document of stream modes has it.
func TestWhatEachModeShows(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		spec.RunStarted: "updates values debug", spec.NodeStarted: "values debug", spec.NodeRetried: "debug", spec.NodeCompleted: "updates values debug",
		spec.NodeFailed: "updates values debug", spec.RunDeadLettered: "updates values debug", spec.RunFailed: "updates values debug",
		spec.RunCompleted: "updates values debug", spec.RunCancelled: "updates values debug", spec.AnsweredLate: "debug", spec.EscrowBreached: "debug",
	} {
		var got []string
		for _, m := range spec.Modes {
			if m.Shows(spec.Event{Type: kind}) {
				got = append(got, string(m))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", kind, got, want)
		}
	}
}

func FuzzBodies(f *testing.F) {
	for _, seed := range []string{`{"mode":"branch","fromSeq":0}`, `{"workflowId":"settlement","inputs":{}}`, `{"reason":"x"}`, `{"scenario":"exhaust-retries"}`, `{"a":{"a":1,"a":2}}`, strings.Repeat("[", 10_000), `{"fromSeq":1e400}`, "{\"mode\":\"\x00\"}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, create := spec.ParseCreate(body)
		fork, forkErr := spec.ParseFork(body)
		_, cancel := spec.ParseCancel(body)
		for _, err := range []error{create, forkErr, cancel, spec.ParseExhaust(body)} {
			fieldOf(t, err)
		}
		if forkErr == nil && (fork.FromSeq < 0 || fork.Mode != spec.Branch && fork.Mode != spec.ReplayMode) {
			t.Errorf("%q is the fork %+v", body, fork)
		}
	})
}

func FuzzParameters(f *testing.F) {
	f.Add("lastSequence=1&timeout=30", "3")
	f.Add("streamMode=updates,messages&bufferMs=5000", "")
	f.Fuzz(func(t *testing.T, query, last string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if poll, err := spec.ParsePoll(values); err == nil && (poll.After < -1 || poll.Timeout < time.Second || poll.Timeout > time.Minute) {
			t.Errorf("%q is the poll %+v", query, poll)
		}
		if stream, err := spec.ParseStream(values, last); err == nil && (len(stream.Modes) == 0 || stream.After < -1 || stream.Buffer < 0 || stream.Buffer > 5*time.Second) {
			t.Errorf("%q is the stream %+v", query, stream)
		}
	})
}

package spec_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/retrypolicy"
)

const deadLetter = `{"type":"invoice.generate","queue":"billing","args":[{"customer":"c1"}],"meta":{"a":1.0,"b":{"c":1}},"priority":3,` +
	`"retry":{"max_attempts":4,"initial_interval":"PT2S","on_exhaustion":"dead_letter"},"unique":{"keys":["queue","args"]}}`

// The keys of R002: queue and args replace, meta and retry are merged. All else stays to the byte.
func TestOverridesOfARetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ override, old, new, changes string }{
		{`{}`, ``, ``, ``},
		{`{"queue":"billing-retry"}`, `"queue":"billing"`, `"queue":"billing-retry"`, "queue billing to billing-retry"},
		{`{"args":[1e400, {"x":null}]}`, `"args":[{"customer":"c1"}]`, `"args":[1e400, {"x":null}]`, "args"},
		{`{"args":[]}`, `"args":[{"customer":"c1"}]`, `"args":[]`, "args"},
		{`{"meta":{"retry_source":"manual","b":null}}`, `"meta":{"a":1.0,"b":{"c":1}}`, `"meta":{"a":1.0,"b":null,"retry_source":"manual"}`, "meta (retry_source, b)"},
		{`{"meta":{"b":{"d":2}}}`, `"b":{"c":1}`, `"b":{"d":2}`, "meta (b)"},
		{`{"meta":{}}`, ``, ``, "meta ()"},
		{`{"meta":{"1":1,"2":2,"3":3,"4":4,"5":5}}`, `"b":{"c":1}}`, `"b":{"c":1},"1":1,"2":2,"3":3,"4":4,"5":5}`, "meta (1, 2, 3 and 2 more)"},
		{`{"retry":{"max_attempts":1}}`, `"max_attempts":4`, `"max_attempts":1`, "retry (max_attempts)"},
		{`{"retry":{"initial_interval_ms":5000}}`, `"initial_interval":"PT2S"`, `"initial_interval":"PT5S"`, "retry (initial_interval_ms)"},
		{`{"retry":{"backoff_type":"linear","max_interval_ms":9000}}`, `"dead_letter"}`, `"dead_letter","backoff_strategy":"linear","max_interval":"PT9S"}`, "retry (backoff_type, max_interval_ms)"},
		{`{"retry":{}}`, ``, ``, "retry ()"},
		{`{"queue":"q","meta":{"a":2},"retry":{"jitter":false},"args":["z"]}`, "", "", "queue billing to q; meta (a); retry (jitter); args"},
	} {
		job, err := spec.Override([]byte(deadLetter), []byte(c.override), spec.RunSettings{})
		want := strings.Replace(deadLetter, c.old, c.new, 1)
		if err != nil || job.Changes != c.changes || c.old+c.new != "" && string(job.Stored) != want {
			t.Errorf("%s: %q, %v\n%s, want\n%s", c.override, job.Changes, err, job.Stored, want)
			continue
		}
		again, err := spec.ParseStored(job.Stored)
		if err != nil || again.Queue != job.Queue || again.Policy.Encode() != job.Policy.Encode() || again.Unique.Fingerprint != job.Unique.Fingerprint {
			t.Errorf("%s: %+v, %+v, %v", c.override, job, again, err)
		}
	}
	longest, err := spec.Override([]byte(`{"type":"a","args":[],"retry":{"max_interval":"PT9S","backoff_strategy":"linear"}}`), []byte(`{"retry":{"max_interval_ms":5000,"backoff_type":"constant"}}`), spec.RunSettings{})
	if err != nil || string(longest.Stored) != `{"type":"a","args":[],"retry":{"max_interval":"PT5S","backoff_strategy":"constant"}}` {
		t.Errorf("%s, %v", longest.Stored, err)
	}
	plain, err := spec.Override([]byte(deadLetter), nil, spec.RunSettings{})
	if err != nil || plain.Changes != "" || string(plain.Stored) != deadLetter || plain.Queue != "billing" || plain.Policy.MaxRetryAttempts != 4 || plain.Policy.OnExhaustion != retrypolicy.DeadLetter {
		t.Errorf("%+v, %v", plain, err)
	}
	other, err := spec.Override([]byte(deadLetter), []byte(`{"queue":"q","retry":{"max_attempts":0,"max_interval":"PT3S"}}`), spec.RunSettings{})
	if err != nil || other.Queue != "q" || other.Policy.MaxRetryAttempts != 1 || other.Policy.BaseDelay != 2*time.Second || other.Policy.MaxDelay != 3*time.Second || other.Policy.OnExhaustion != retrypolicy.DeadLetter ||
		other.Unique.Fingerprint == plain.Unique.Fingerprint || other.Priority != 3 {
		t.Errorf("%+v, %v", other, err)
	}
	bare, err := spec.Override([]byte(`{"type":"a","args":[]}`), []byte(`{"meta":{"m":1},"retry":{"max_attempts":1},"queue":"q"}`), spec.RunSettings{})
	if err != nil || string(bare.Stored) != `{"type":"a","args":[],"queue":"q","meta":{"m":1},"retry":{"max_attempts":1}}` || bare.Changes != "queue default to q; meta (m); retry (max_attempts)" {
		t.Errorf("%s, %q, %v", bare.Stored, bare.Changes, err)
	}
}

// What a fork gave the run stays, unless the override has it; of an override without members the envelope stays.
func TestOverridesOfARunThatWasMoved(t *testing.T) {
	t.Parallel()
	policy := retrypolicy.Policy{MaxRetryAttempts: 7, BaseDelay: 3 * time.Second, Backoff: retrypolicy.Linear, Coefficient: 1.5, Jitter: 0.25, NonRetryable: []string{"Fatal"}}.Normalize()
	run := spec.RunSettings{Queue: "moved", Policy: &policy}
	const retry = `"retry":{"max_attempts":7,"initial_interval":"PT3S","max_interval":"PT5M","backoff_strategy":"linear","backoff_coefficient":1.5,"jitter":true,"on_exhaustion":"dead_letter","non_retryable_errors":["Fatal"]}`
	unmoved, err := spec.Override([]byte(deadLetter), []byte(`{}`), run)
	if err != nil || string(unmoved.Stored) != deadLetter || unmoved.GivesQueue || unmoved.GivesRetry {
		t.Errorf("%+v, %v", unmoved, err)
	}
	same := strings.Replace(strings.Replace(deadLetter, `"queue":"billing"`, `"queue":"moved"`, 1), `"retry":{"max_attempts":4,"initial_interval":"PT2S","on_exhaustion":"dead_letter"}`, retry, 1)
	args, err := spec.Override([]byte(deadLetter), []byte(`{"args":["b"]}`), run)
	if want := strings.Replace(same, `[{"customer":"c1"}]`, `["b"]`, 1); err != nil || string(args.Stored) != want || args.GivesQueue || args.GivesRetry || args.Changes != "args" {
		t.Errorf("%v, %+v\n%s, want\n%s", err, args, args.Stored, want)
	}
	queue, err := spec.Override([]byte(deadLetter), []byte(`{"queue":"billing"}`), run)
	if err != nil || !queue.GivesQueue || queue.Queue != "billing" || queue.Changes != "queue moved to billing" || queue.GivesRetry {
		t.Errorf("%+v, %v", queue, err)
	}
	want := policy
	want.MaxRetryAttempts = 2
	given, err := spec.Override([]byte(deadLetter), []byte(`{"retry":{"max_attempts":2}}`), run)
	if err != nil || !given.GivesRetry || given.Policy.Encode() != want.Encode() || given.GivesQueue {
		t.Errorf("%s, want %s, %v", given.Policy.Encode(), want.Encode(), err)
	}
	want.Jitter = 0
	given, err = spec.Override([]byte(deadLetter), []byte(`{"retry":{"max_attempts":2,"jitter":false}}`), run)
	if err != nil || given.Policy.Encode() != want.Encode() {
		t.Errorf("%s, want %s, %v", given.Policy.Encode(), want.Encode(), err)
	}
	if got := string(spec.Render([]byte(deadLetter), spec.Status{ID: jobID, RunSettings: run, State: spec.Available, MaxAttempts: 7})); !strings.Contains(got, strings.TrimPrefix(same[:len(same)-1], "{")) {
		t.Errorf("%s", got)
	}
	asItIs, err := spec.ParseStored([]byte(deadLetter))
	if err != nil {
		t.Fatal(err)
	}
	unchanged := spec.RunSettings{Queue: asItIs.Queue, Policy: &asItIs.Policy}
	if got := string(spec.Render([]byte(deadLetter), spec.Status{ID: jobID, RunSettings: unchanged, State: spec.Available})); !strings.Contains(got, strings.TrimPrefix(deadLetter[:len(deadLetter)-1], "{")) {
		t.Errorf("%s", got)
	}
}

func TestOverridesThatAreRefused(t *testing.T) {
	t.Parallel()
	for override, field := range map[string]string{
		`{"id":"` + jobID + `"}`: "override.id", `{"type":"a"}`: "override.type", `{"state":"completed"}`: "override.state", `{"priority":1}`: "override.priority", `{"Queue":"a"}`: "override.Queue", `{"scheduled_at":"+PT5S"}`: "override.scheduled_at",
		`{"queue":1}`: "override.queue", `{"queue":null}`: "override.queue", `{"queue":"A"}`: "override.queue", `{"queue":""}`: "override.queue",
		`{"args":{}}`: "override.args", `{"args":null}`: "override.args", `{"meta":[]}`: "override.meta", `{"meta":null}`: "override.meta", `{"meta":{"a":1,"a":2}}`: "meta.a", `{"args":["\u0000"]}`: "args",
	} {
		_, err := spec.Override([]byte(deadLetter), []byte(override), spec.RunSettings{})
		refused(t, override, err, 400, "invalid_request", field)
	}
	for override, field := range map[string]string{
		`{"retry":5}`: "override.retry", `{"retry":null}`: "override.retry", `{"retry":{"max_attempts":-1}}`: "override.retry.max_attempts", `{"retry":{"max_attempts":null}}`: "override.retry.max_attempts",
		`{"retry":{"initial_interval":"PT10M"}}`: "override.retry.initial_interval", `{"retry":{"max_interval":"PT1S"}}`: "override.retry.max_interval", `{"retry":{"max_interval_ms":1000}}`: "override.retry.max_interval",
		`{"retry":{"on_exhaustion":"keep"}}`: "override.retry.on_exhaustion", `{"retry":{"retries":1}}`: "override.retry.retries", `{"retry":{"initial_interval":"PT1S","initial_interval_ms":5}}`: "override.retry.initial_interval_ms",
		`{"retry":{"backoff_type":"x"}}`: "override.retry.backoff_type",
	} {
		_, err := spec.Override([]byte(deadLetter), []byte(override), spec.RunSettings{})
		refused(t, override, err, 422, "validation_error", field)
	}
	_, err := spec.Override([]byte(deadLetter), []byte(`{"meta":{"m":"`+strings.Repeat("x", maxMeta)+`"}}`), spec.RunSettings{})
	refused(t, "meta", err, 413, "payload_too_large", "override.meta")
	_, err = spec.Override([]byte(deadLetter), []byte(`{"args":["`+strings.Repeat("x", maxStored)+`"]}`), spec.RunSettings{})
	refused(t, "args", err, 413, "payload_too_large", "override")
	byMember := strings.Replace(deadLetter, `{"keys":["queue","args"]}`, `{"keys":["args"],"args_keys":["customer"]}`, 1)
	_, err = spec.Override([]byte(byMember), []byte(`{"args":[]}`), spec.RunSettings{})
	refused(t, "args without what makes the job unique", err, 400, "invalid_request", "unique.args_keys")
	for _, stored := range []string{"", "null", `{"type":"a"`} {
		_, err := spec.Override([]byte(stored), []byte(`{}`), spec.RunSettings{})
		refused(t, stored, err, 400, "invalid_payload", "")
	}
}

func TestTheBodyOfARetry(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{"": "", " \n": "", "{}": "", `{"override":{}}`: "{}", `{"override": {"queue":"a", "x":1}}`: `{"queue":"a", "x":1}`} {
		if got, err := spec.ParseRetry([]byte(body)); err != nil || string(got) != want {
			t.Errorf("%q: %s, %v", body, got, err)
		}
	}
	for body, field := range map[string]string{`{"queue":"a"}`: "queue", `{"override":null}`: "override", `{"override":[]}`: "override", `{"Override":{}}`: "Override", `{"override":{},"override":{}}`: "override", `{"override":{"queue":"\u0000"}}`: "override"} {
		_, err := spec.ParseRetry([]byte(body))
		refused(t, body, err, 400, "invalid_request", field)
	}
}

// An override that is given again changes nothing more, and its summary is short, whatever is in it.
func TestOverridesAreIdempotentAndSummariesShort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for _, p := range []string{`"queue":"q"`, `"meta":` + drawObject(t, 2), `"retry":{"max_attempts":2}`, `"args":[` + drawJSON(t, 2) + `]`} {
			if rapid.Bool().Draw(t, p) {
				parts = append(parts, p)
			}
		}
		override := "{" + strings.Join(parts, ",") + "}"
		once, err := spec.Override([]byte(deadLetter), []byte(override), spec.RunSettings{})
		if err != nil || len(once.Changes) > 1000 {
			t.Fatalf("%s: %q, %v", override, once.Changes, err)
		}
		twice, err := spec.Override(once.Stored, []byte(override), spec.RunSettings{})
		if err != nil || string(twice.Stored) != string(once.Stored) {
			t.Errorf("%s: %s, then %s, %v", override, once.Stored, twice.Stored, err)
		}
	})
	long := strings.Repeat("n", 128)
	short, err := spec.Override([]byte(deadLetter), []byte(`{"queue":"`+strings.Repeat("q", 128)+`","meta":{"`+long+`1":1,"`+long+`":1,"`+long[1:]+`":1,"`+long[2:]+`":1}}`), spec.RunSettings{})
	if err != nil || len(short.Changes) > 1000 {
		t.Errorf("%d bytes: %v", len(short.Changes), err)
	}
}

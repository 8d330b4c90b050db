package spec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func TestLengthsOfBodyAndMeta(t *testing.T) {
	t.Parallel()
	padded := func(size int) []byte {
		body := withMembers(`"x":""`)
		return []byte(strings.Replace(body, `"x":""`, `"x":"`+strings.Repeat("y", size-len(body))+`"`, 1))
	}
	if job, err := spec.ParseJob(padded(spec.MaxBody), now); err != nil || len(job.Stored) != spec.MaxBody {
		t.Errorf("%d bytes: %v", spec.MaxBody, err)
	}
	_, err := spec.ParseJob(padded(spec.MaxBody+1), now)
	refused(t, "body", err, 413, "payload_too_large", "")
	_, err = spec.ParseStored(padded(maxStored + 1))
	refused(t, "stored", err, 413, "payload_too_large", "")

	meta := func(size int) string { return `{"m":"` + strings.Repeat("y", size-len(`{"m":""}`)) + `"}` }
	for _, form := range []string{`"meta":`, `"options":{"metadata":`} {
		end := strings.Repeat("}", strings.Count(form, "{"))
		parsed(t, withMembers(form+meta(maxMeta)+end))
		_, err = spec.ParseJob([]byte(withMembers(form+meta(maxMeta+1)+end)), now)
		refused(t, form, err, 413, "payload_too_large", "meta")
	}
	_, err = spec.ParseJob([]byte(withMembers(`"meta":{"a":1},"options":{"metadata":`+meta(maxMeta)+`}`)), now)
	refused(t, "merged", err, 413, "payload_too_large", "meta")
	job := parsed(t, withMembers(`"queue":"`+strings.Repeat("q", maxQueue)+`"`))
	if len(job.Queue) != maxQueue {
		t.Error(job.Queue)
	}
	parsed(t, `{"args":[],"type":"`+strings.Repeat("t", maxType)+`"}`)
	_, err = spec.ParseJob([]byte(`{"args":[],"type":"`+strings.Repeat("t", maxType+1)+`"}`), now)
	refused(t, "type", err, 400, "invalid_request", "type")
}

// What servers set is ignored in what clients send, whatever it is; all else comes back.
func TestSystemMembersAreIgnoredAndUnknownOnesKept(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"state", "attempt", "max_attempts", "created_at", "enqueued_at", "started_at", "completed_at", "cancelled_at", "discarded_at", "error", "errors", "result", "retry_delay_ms",
		"next_attempt_at", "visibility_timeout_ms", "re_enqueued_at", "next_retry_at", "activated_at", "previous_state",
	} {
		for _, value := range []string{`null`, `"discarded"`, `7`, `{"a":[]}`} {
			job := parsed(t, withMembers(`"`+name+`":`+value))
			if string(job.Stored) != withMembers("") {
				t.Errorf("%s: %s", name, job.Stored)
			}
		}
	}
	const unknown = `"x_custom_field":"custom_value","x_future":{"nested":true , "version":"2.0.0"},"x_numeric":42.50,"metadata":{"a":null},"é":[1e400],"deduplicated":1`
	if job := parsed(t, withMembers(unknown)); string(job.Stored) != withMembers(unknown) {
		t.Errorf("%s", job.Stored)
	}
	// The name of a member is written with the fewest escapes.
	if job := parsed(t, withMembers(`"\u0008\t\u000a\f\r\u001F\"\\\/\u0061 <\u2028":1`)); string(job.Stored) != withMembers(`"\b\t\n\f\r\u001f\"\\/a <`+"\u2028"+`":1`) {
		t.Errorf("%s", job.Stored)
	}
}

// Numbers of any size and form, nulls and escapes of the client are neither read nor rewritten.
func TestArgsAndMetaAreKeptToTheByte(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`[9007199254740993]`, `[-9007199254740993,1e400,-1E+400,1e-400,0.10,1.0,-0,0e0]`, `[null,{"a":null}]`, `[ 1 ,	2 ]`, `["\u00e9\/\ud83d\ude42<&>"]`, `["é\u007f\u2028"]`, `["\\u0000"]`,
		`[` + strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900) + `]`, `[123456789012345678901234567890.123456789012345678901234567890e-5]`,
	} {
		body := `{"args":` + text + `,"type":"a","meta":{"m":` + text + `}}`
		job := parsed(t, body)
		if string(job.Stored) != body {
			t.Errorf("%s is stored as %s", body, job.Stored)
		}
		got := texts(t, spec.Render(job.Stored, spec.Status{ID: jobID, State: spec.Available}))
		if got["args"] != text || got["meta"] != `{"m":`+text+`}` {
			t.Errorf("%s is rendered as %v", body, got)
		}
	}
}

// drawJSON draws the text of a JSON value with blanks, escapes and numbers as clients write them.
func drawJSON(t *rapid.T, depth int) string {
	blank := rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "blank")
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return blank + rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word") + blank
	case 1:
		return rapid.SampledFrom([]string{"0", "-0", "1.50", "1e400", "9007199254740993", "-12.5E-7", "1e2147483648"}).Draw(t, "number") + blank
	case 2:
		return blank + drawText(t)
	case 3:
		return rapid.SampledFrom([]string{"[]", "{}", "[ ]", "{ }"}).Draw(t, "empty")
	case 4:
		n := rapid.IntRange(1, 3).Draw(t, "n")
		parts := make([]string, n)
		for i := range parts {
			parts[i] = drawJSON(t, depth-1)
		}
		return "[" + blank + strings.Join(parts, ","+blank) + "]"
	}
	return drawObject(t, depth-1)
}

func drawText(t *rapid.T) string {
	return rapid.SampledFrom([]string{`""`, `"a"`, `"\"\\\/\b\f\n\r\t"`, `"\u00e9\ud83d\ude42"`, `"支払い 🙂"`, `"]},{["`, `"\\u0000"`, `"<&>"`}).Draw(t, "text")
}

func drawObject(t *rapid.T, depth int) string {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "x_own", "é", `q\"uote`, `\u0061b`, ""}), 0, 4, rapid.ID[string]).Draw(t, "names")
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = `"` + name + `" :` + drawJSON(t, depth)
	}
	return "{" + strings.Join(parts, " ,") + "}"
}

// drawBody draws the body of a job that is not refused.
func drawBody(t *rapid.T) string {
	list := "[" + drawJSON(t, 2) + "]"
	all := []string{`"type":"a.b"`, `"args":` + list}
	maybe := func(members ...string) {
		for _, m := range members {
			if rapid.Bool().Draw(t, m) {
				all = append(all, m)
			}
		}
	}
	maybe(`"meta":`+drawObject(t, 2), `"x_unknown" : `+drawJSON(t, 2), `"id":"`+jobID+`"`, `"priority":7`, `"tags":["a" ]`, `"schema":"urn:x"`, `"timeout":5`, `"specversion":"1.0"`,
		`"state":"active"`, `"attempt":3`, `"expires_at":"+PT1H"`, `"retry":{"max_attempts":2,"initial_interval_ms":10}`, `"visibility_timeout":"PT5S"`)
	var options []string
	for _, o := range []string{`"queue":"q"`, `"delay_until":"2099-01-01T00:00:00+01:00"`, `"pending":true`, `"timeout_ms":5000`, `"unique":{"key":["q"]}`, `"own":[ 1 ]`} {
		if rapid.Bool().Draw(t, o) {
			options = append(options, o)
		}
	}
	if len(options) > 0 {
		all = append(all, `"options":{`+strings.Join(options, ", ")+`}`)
		if strings.Contains(all[len(all)-1], "unique") {
			all[1] = `"args":[{"q":` + drawJSON(t, 1) + `},` + drawJSON(t, 2) + `]`
		}
	}
	return "{" + strings.Join(rapid.Permutation(all).Draw(t, "order"), ",\n ") + "}"
}

// A stored job reads back as the same job, and is stored the same again. What the client gave and servers
// do not set comes back to the byte, whatever stands around it.
func TestStoredJobsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := drawBody(t)
		job, err := spec.ParseJob([]byte(body), now)
		if err != nil {
			if strings.Contains(err.Error(), "several arguments") {
				return
			}
			t.Fatalf("%s: %v", body, err)
		}
		again, err := spec.ParseStored(job.Stored)
		if err != nil || string(again.Stored) != string(job.Stored) {
			t.Fatalf("%s is stored as %s, which reads as %s, %v", body, job.Stored, again.Stored, err)
		}
		if again.ID != job.ID || again.Type != job.Type || again.Queue != job.Queue || again.Priority != job.Priority || !again.NotBefore.Equal(job.NotBefore) || !again.ExpiresAt.Equal(job.ExpiresAt) ||
			again.Pending != job.Pending || again.Timeout != job.Timeout || again.Visibility != job.Visibility || again.Policy.Encode() != job.Policy.Encode() || (again.Unique == nil) != (job.Unique == nil) ||
			job.Unique != nil && again.Unique.Fingerprint != job.Unique.Fingerprint {
			t.Errorf("%s: %+v, stored %+v", body, job, again)
		}
		var given, wire map[string]json.RawMessage
		rendered := spec.Render(job.Stored, spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 3})
		if json.Unmarshal([]byte(body), &given) != nil || json.Unmarshal(rendered, &wire) != nil {
			t.Fatalf("%s is rendered as %s", body, rendered)
		}
		for _, name := range []string{"type", "args", "meta", "x_unknown", "priority", "tags", "schema", "timeout", "visibility_timeout"} {
			if string(wire[name]) != string(given[name]) && !(name == "priority" && given[name] == nil) {
				t.Errorf("%s of %s is rendered as %s", name, body, wire[name])
			}
		}
	})
}

// A relative time is stored as the time that it meant, and never comes before it.
func TestRelativeTimesAreNeverEarly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "now")))
		d := time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "d"))
		job, err := spec.ParseJob([]byte(withMembers(`"scheduled_at":"+`+spec.FormatDuration(d)+`"`)), at)
		if err != nil || job.NotBefore.Before(at.Add(d)) || job.NotBefore.Sub(at.Add(d)) >= time.Millisecond {
			t.Errorf("%s after %s is %s, %v", d, at, job.NotBefore, err)
		}
	})
}

package spec_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func ms(n int64) time.Time { return now.Add(time.Duration(n) * time.Millisecond) }

func TestTheJobOnTheWire(t *testing.T) {
	t.Parallel()
	failure := spec.Failure{Attempt: 1, Cycle: 1, Type: "ConnectionError", Code: "handler_error", Message: "a < b", Retryable: true, Details: json.RawMessage(`{"host":"db"}`), Backtrace: []string{"at db.go:142"}, OccurredAt: ms(3)}
	const failed = `{"attempt":1,"cycle":1,"type":"ConnectionError","code":"handler_error","message":"a < b","retryable":true,"details":{"host":"db"},"backtrace":["at db.go:142"],"occurred_at":"2026-11-21T10:00:00.003Z"}`
	for _, c := range []struct {
		name, stored, want string
		s                  spec.Status
	}{
		{"a new job", `{"id":"` + jobID + `","type":"settlement.release","queue":"settlement","args":["tx_1"],"meta":{}}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"settlement.release","queue":"settlement","args":["tx_1"],"meta":{},"priority":0,"state":"available","attempt":0,"max_attempts":4,` +
				`"created_at":"2026-11-21T10:00:00.000Z","enqueued_at":"2026-11-21T10:00:00.000Z"}`,
			spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 4, CreatedAt: now, EnqueuedAt: now}},
		{"what the client left out", `{"type":"a","args":[]}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"default","priority":0,"state":"scheduled","attempt":0,"max_attempts":3}`,
			spec.Status{ID: jobID, State: spec.Scheduled, MaxAttempts: 3}},
		{"an active job", `{"type":"a","args":[],"queue":"q","priority":-5,"timeout":30,"x_own":[1.0],"options":{"timeout_ms":30000,"visibility_timeout_ms":60000,"pending":true,"rate_limit":{}}}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":-5,"timeout":30,"x_own":[1.0],"timeout_ms":30000,"visibility_timeout_ms":45000,"options":{"rate_limit":{}},` +
				`"state":"active","attempt":2,"max_attempts":3,"started_at":"2026-11-21T10:00:00.001Z","retry_delay_ms":1500}`,
			spec.Status{ID: jobID, State: spec.Active, Attempt: 2, MaxAttempts: 3, StartedAt: ms(1), RetryDelay: 1500*time.Millisecond + 999*time.Microsecond, Visibility: 45 * time.Second}},
		{"the lease that the job asked for", `{"type":"a","args":[],"queue":"q","priority":1,"options":{"visibility_timeout_ms":60000}}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":1,"visibility_timeout_ms":60000,"state":"available","attempt":0,"max_attempts":1}`,
			spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 1}},
		{"a retryable job", `{"type":"a","args":[],"queue":"q","priority":0}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"state":"retryable","attempt":1,"max_attempts":4,` +
				`"next_attempt_at":"2026-11-21T10:00:01.000Z","next_retry_at":"2026-11-21T10:00:01.000Z","retry_delay_ms":1000,"error":` + failed + `,"errors":[` + failed + `]}`,
			spec.Status{ID: jobID, State: spec.Retryable, Attempt: 1, MaxAttempts: 4, NextAttemptAt: ms(1000), RetryDelay: time.Second, Error: &failure, Errors: []spec.Failure{failure}}},
		{"a completed job", `{"type":"a","args":[],"queue":"q","priority":0}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"state":"completed","attempt":1,"max_attempts":4,"completed_at":"2026-11-21T10:00:00.005Z","result":{ "n":1e400 }}`,
			spec.Status{ID: jobID, State: spec.Completed, Attempt: 1, MaxAttempts: 4, CompletedAt: ms(5), Result: json.RawMessage(`{ "n":1e400 }`)}},
		{"a cancelled job", `{"type":"a","args":[],"queue":"q","priority":0}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"state":"cancelled","attempt":0,"max_attempts":4,"cancelled_at":"2026-11-21T10:00:00.005Z","previous_state":"available"}`,
			spec.Status{ID: jobID, State: spec.Cancelled, MaxAttempts: 4, CancelledAt: ms(5), PreviousState: spec.Available}},
		{"an activated job", `{"type":"a","args":[],"queue":"q","priority":0,"options":{"pending":true}}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"state":"available","attempt":0,"max_attempts":4,"activated_at":"2026-11-21T10:00:00.005Z","previous_state":"pending"}`,
			spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 4, ActivatedAt: ms(5), PreviousState: spec.Pending}},
		{"a dead letter", `{"type":"a","args":[],"queue":"q","priority":0}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"state":"discarded","attempt":1,"max_attempts":1,"created_at":"2026-11-21T10:00:00.000Z",` +
				`"completed_at":"2026-11-21T10:00:00.003Z","discarded_at":"2026-11-21T10:00:00.003Z","error":` + failed + `,"errors":[` + failed + `]}`,
			spec.Status{ID: jobID, State: spec.Discarded, Attempt: 1, MaxAttempts: 1, CreatedAt: now, CompletedAt: ms(3), DiscardedAt: ms(3), Error: &failure, Errors: []spec.Failure{failure}}},
		{"a retried dead letter", `{"type":"a","args":[],"queue":"q","priority":0}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"state":"available","attempt":0,"max_attempts":1,"created_at":"2026-11-21T10:00:00.000Z",` +
				`"enqueued_at":"2026-11-21T10:00:00.009Z","re_enqueued_at":"2026-11-21T10:00:00.009Z","errors":[` + failed + `]}`,
			spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 1, CreatedAt: now, EnqueuedAt: ms(9), ReEnqueuedAt: ms(9), Errors: []spec.Failure{failure}}},
		{"a replayed one", `{"type":"a","args":[],"queue":"q","priority":0,"meta":{"a":1.0,"ojs.replay_rule":"mine"}}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"meta":{"a":1.0,"ojs.replay_rule":"nightly","ojs.replay_count":2,"ojs.last_replayed_at":"2026-11-21T10:00:00.007Z"},` +
				`"state":"available","attempt":0,"max_attempts":1}`,
			spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 1, Replay: &spec.Replay{Count: 2, LastAt: ms(7), Rule: "nightly"}}},
		{"a replayed one without meta", `{"type":"a","args":[],"queue":"q","priority":0}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"meta":{"ojs.replay_count":0},"state":"available","attempt":0,"max_attempts":1}`,
			spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 1, Replay: &spec.Replay{}}},
		{"no result", `{"type":"a","args":[],"queue":"q","priority":0}`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","args":[],"queue":"q","priority":0,"state":"completed","attempt":1,"max_attempts":1}`,
			spec.Status{ID: jobID, State: spec.Completed, Attempt: 1, MaxAttempts: 1, Result: json.RawMessage(`null`)}},
		{"what can be read", `{"type":"a","args":[1,`,
			`{"id":"` + jobID + `","specversion":"1.0","type":"a","queue":"default","priority":0,"state":"available","attempt":0,"max_attempts":1}`, spec.Status{ID: jobID, State: spec.Available, MaxAttempts: 1}},
	} {
		if got := string(spec.Render(json.RawMessage(c.stored), c.s)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// Each entry of errors has what the three shapes in use and strict clients want.
func TestFailuresAreComplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f    spec.Failure
		want string
	}{
		{spec.Failure{Attempt: 2, OccurredAt: now}, `{"attempt":2,"type":"handler_error","code":"handler_error","message":"handler_error","retryable":false,"occurred_at":"2026-11-21T10:00:00.000Z"}`},
		{spec.Failure{Type: "visibility_timeout", OccurredAt: now, Retryable: true}, `{"attempt":0,"type":"visibility_timeout","code":"visibility_timeout","message":"visibility_timeout","retryable":true,"occurred_at":"2026-11-21T10:00:00.000Z"}`},
		{spec.Failure{Code: "timeout", OccurredAt: now}, `{"attempt":0,"type":"timeout","code":"timeout","message":"timeout","retryable":false,"occurred_at":"2026-11-21T10:00:00.000Z"}`},
		{spec.Failure{Code: "c", Type: "T", Message: "é\u2028\"", Details: json.RawMessage(`[1]`), OccurredAt: now}, `{"attempt":0,"type":"T","code":"c","message":"é\u2028\"","retryable":false,"occurred_at":"2026-11-21T10:00:00.000Z"}`},
		{spec.Failure{Code: "c", Details: json.RawMessage(`{"a":`), OccurredAt: now}, `{"attempt":0,"type":"c","code":"c","message":"c","retryable":false,"occurred_at":"2026-11-21T10:00:00.000Z"}`},
		{spec.Failure{Code: "c", Details: json.RawMessage(` {"a": 1e400}`), OccurredAt: now}, `{"attempt":0,"type":"c","code":"c","message":"c","retryable":false,"details":{"a":1e400},"occurred_at":"2026-11-21T10:00:00.000Z"}`},
	} {
		got := texts(t, spec.Render(nil, spec.Status{Error: &c.f, Errors: []spec.Failure{c.f, c.f}}))
		if got["error"] != c.want || got["errors"] != "["+c.want+","+c.want+"]" {
			t.Errorf("%+v is %s, want %s", c.f, got["error"], c.want)
		}
	}
}

// A client can't write what the server says: of each member that a full status writes, the client's own is
// ignored, and one in another case is refused.
func TestClientsCanNotSetWhatServersSet(t *testing.T) {
	t.Parallel()
	full := spec.Status{
		ID: jobID, State: spec.Active, Attempt: 1, MaxAttempts: 1, CreatedAt: now, EnqueuedAt: now, ReEnqueuedAt: now, StartedAt: now, CompletedAt: now, CancelledAt: now, DiscardedAt: now,
		ActivatedAt: now, PreviousState: spec.Pending, NextAttemptAt: now, RetryDelay: time.Second, Visibility: time.Second, Error: &spec.Failure{}, Errors: []spec.Failure{{}}, Result: json.RawMessage(`1`),
	}
	client := []string{"id", "specversion", "queue", "priority"}
	for name := range texts(t, spec.Render(json.RawMessage(`{}`), full)) {
		if slices.Contains(client, name) {
			continue
		}
		if job := parsed(t, withMembers(`"`+name+`":"forged"`)); strings.Contains(string(job.Stored), "forged") {
			t.Errorf("%s: %s", name, job.Stored)
		}
		other := strings.ToUpper(name[:1]) + name[1:]
		_, err := spec.ParseJob([]byte(withMembers(`"`+other+`":"forged"`)), now)
		refused(t, other, err, 400, "invalid_request", other)
	}
}

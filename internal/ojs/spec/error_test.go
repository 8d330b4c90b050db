package spec_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

// The statuses and codes of section 9 of the reference.
func TestRefusalsHaveTheirStatusAndCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e         *spec.Error
		status    int
		code      string
		retryable bool
	}{
		{spec.InvalidPayload("is empty"), 400, "invalid_payload", false},
		{spec.Invalid("queue", "must be a string"), 400, "invalid_request", false},
		{spec.NotFound(spec.KindJob, jobID), 404, "not_found", false},
		{spec.NotFound(spec.KindDeadLetter, jobID), 404, "not_found", false},
		{spec.NotDeadLetter(jobID, spec.Active), 404, "not_found", false},
		{spec.Duplicate(jobID, spec.Active, "the id is taken"), 409, "duplicate", false},
		{spec.Conflict("a rule forbids it"), 409, "conflict", false},
		{spec.TooLarge("meta", maxMeta), 413, "payload_too_large", false},
		{spec.InvalidPolicy("retry.jitter", "must be a boolean"), 422, "validation_error", false},
		{spec.Unsupported("OJS-Version", "must be 1.0"), 422, "unsupported", false},
		{spec.RateLimited("slower"), 429, "rate_limited", true},
		{spec.Backend(), 500, "backend_error", true},
		{spec.Unavailable("later"), 503, "backend_error", true},
		{spec.Own(422, "exceeds_held", "more than is held"), 422, "x_exceeds_held", false},
	} {
		if c.e.Status != c.status || c.e.Code != c.code || c.e.Retryable != c.retryable || c.e.Message == "" || c.e.Error() != "ojs: "+c.code+": "+c.e.Message {
			t.Errorf("%+v", c.e)
		}
		body := object(t, c.e.Body("req_1"))["error"].(map[string]any)
		if body["code"] != c.code || body["type"] != c.code || body["message"] != c.e.Message || body["retryable"] != c.retryable || body["request_id"] != "req_1" {
			t.Errorf("%s: %v", c.code, body)
		}
	}
}

func TestTheEnvelopeOfARefusal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, got, want string }{
		{"not found", string(spec.NotFound(spec.KindDeadLetter, jobID).Body("req_1")),
			`{"error":{"code":"not_found","type":"not_found","message":"there is no such dead letter job","retryable":false,` +
				`"details":{"resource_id":"` + jobID + `","resource_type":"dead_letter_job"},"request_id":"req_1",` +
				`"hint":"Ids are UUIDv7 in lower case. A job is gone once its dead letter was deleted or pruned.",` +
				`"docs_url":"https://github.com/openjobspec/spec/blob/main/spec/ojs-errors.md"}}`},
		{"without details", string(spec.Conflict("a rule forbids it").Body("req_2")),
			`{"error":{"code":"conflict","type":"conflict","message":"a rule forbids it","retryable":false,"request_id":"req_2"}}`},
		{"with a field", string(spec.Invalid("args", "must be a list").Body("req_3")),
			`{"error":{"code":"invalid_request","type":"invalid_request","message":"args must be a list","retryable":false,"details":{"field":"args"},"request_id":"req_3"}}`},
		{"with details", string(spec.Conflict("the gate is closed").With("rule", "reconcile_first").With("existing_job_id", jobID).Body("req_4")),
			`{"error":{"code":"conflict","type":"conflict","message":"the gate is closed","retryable":false,"details":{"existing_job_id":"` + jobID + `","rule":"reconcile_first"},"request_id":"req_4"}}`},
		{"of a body", string(spec.TooLarge("", 10).Body("")),
			`{"error":{"code":"payload_too_large","type":"payload_too_large","message":"the body must be at most 10 bytes","retryable":false,"details":{"limit_bytes":10},"request_id":""}}`},
		{"without a message", string(spec.Conflict("").Body("")), `{"error":{"code":"conflict","type":"conflict","message":"conflict","retryable":false,"request_id":""}}`},
		{"with a detail that is no JSON", string(spec.Conflict("x").With("f", func() {}).Body("")), `{"error":{"code":"conflict","type":"conflict","message":"x","retryable":false,"request_id":""}}`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, c.got, c.want)
		}
	}
}

func TestARefusalOfAnIDThatIsNoneDoesNotRepeatIt(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "x", strings.ToUpper(jobID), "4111 1111 1111 1111", jobID + "0"} {
		for _, e := range []*spec.Error{spec.NotFound(spec.KindJob, id), spec.NotDeadLetter(id, spec.Completed)} {
			if _, repeated := e.Details["resource_id"]; repeated || e.Hint == "" || e.DocsURL == "" {
				t.Errorf("%q: %+v", id, e)
			}
		}
	}
	if e := spec.NotDeadLetter(jobID, spec.Completed); e.Details["current_state"] != spec.Completed || e.Details["resource_id"] != jobID {
		t.Errorf("%+v", e)
	}
}

func TestWithChangesACopy(t *testing.T) {
	t.Parallel()
	e := spec.Duplicate(jobID, "", "the id is taken")
	more := e.With("uniqueness_key", "ab")
	if len(e.Details) != 1 || len(more.Details) != 2 || more.Details["existing_job_id"] != jobID {
		t.Errorf("%v, %v", e.Details, more.Details)
	}
}

// A path in a refusal is bounded, however long and nested the names of the client are.
func TestAPathIsBounded(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("é", 50)
	body := `{"type":"a","args":[],"x":` + strings.Repeat(`{"`+name+`":`, 900) + `{"a":1,"a":2}` + strings.Repeat("}", 901)
	_, err := spec.ParseJob([]byte(body), now)
	refused(t, "deep names", err, 400, "invalid_request", "x."+strings.Repeat(name+".", 2)+strings.Repeat("é", 26)+"...")
}

package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// The codes of refusals. Those of our own begin with "x_": see Own.
const (
	codeInvalidPayload = "invalid_payload" // the body is no JSON object
	codeInvalidRequest = "invalid_request"
	codeNotFound       = "not_found"
	codeDuplicate      = "duplicate"
	codeConflict       = "conflict"
	codeTooLarge       = "payload_too_large"
	codeValidation     = "validation_error" // of a retry policy
	codeUnsupported    = "unsupported"
	codeRateLimited    = "rate_limited"
	codeBackend        = "backend_error"
)

// Error is a refusal on the wire. Its texts hold no value that a client sent.
type Error struct {
	Status    int            // of HTTP
	Code      string         // for programs
	Message   string         // for people; begins with Field, if there is one
	Field     string         // path of the member, or name of the parameter; also in details.field
	Retryable bool           // the same request may succeed later
	Details   map[string]any // strings, numbers and booleans
	Hint      string
	DocsURL   string
}

// Error returns the code and the message.
func (e *Error) Error() string { return "ojs: " + e.Code + ": " + e.Message }

// With returns a copy with one more detail.
func (e *Error) With(name string, value any) *Error {
	out := *e
	out.Details = maps.Clone(e.Details)
	if out.Details == nil {
		out.Details = map[string]any{}
	}
	out.Details[name] = value
	return &out
}

// InBatch returns the refusal of a batch because of one of its jobs.
func (e *Error) InBatch(index int) *Error {
	out := e.With("index", index)
	at := fmt.Sprintf("jobs[%d]", index)
	if out.Field == "" {
		out.Message = at + ": " + out.Message
		return out
	}
	out.Field, out.Message = bounded(at+"."+out.Field), at+"."+out.Message
	return out
}

// envelope is the body of a refusal. type repeats the code: some clients read the one, some the other.
type envelope struct {
	Error struct {
		Code      string         `json:"code"`
		Type      string         `json:"type"`
		Message   string         `json:"message"`
		Retryable bool           `json:"retryable"`
		Details   map[string]any `json:"details,omitempty"`
		RequestID string         `json:"request_id"`
		Hint      string         `json:"hint,omitempty"`
		DocsURL   string         `json:"docs_url,omitempty"`
	} `json:"error"`
}

// Body returns the body of the answer to the request that is refused. code, type, message, retryable and
// request_id are always there; an empty message is replaced by the code.
func (e *Error) Body(requestID string) []byte {
	if e.Field != "" {
		e = e.With("field", e.Field)
	}
	var out envelope
	out.Error.Code, out.Error.Type, out.Error.Message, out.Error.Retryable = e.Code, e.Code, e.Message, e.Retryable
	out.Error.Details, out.Error.RequestID, out.Error.Hint, out.Error.DocsURL = e.Details, requestID, e.Hint, e.DocsURL
	if e.Message == "" {
		out.Error.Message = e.Code
	}
	body, err := json.Marshal(out)
	if err != nil { // a detail that is no JSON
		out.Error.Details = nil
		body, _ = json.Marshal(out)
	}
	return body
}

// InvalidPayload refuses a body that is not a JSON object: 400.
func InvalidPayload(problem string) *Error {
	return &Error{Status: 400, Code: codeInvalidPayload, Message: "the body " + problem}
}

// InvalidRequest refuses a request for what no single member is to blame for: 400.
func InvalidRequest(problem string) *Error {
	return &Error{Status: 400, Code: codeInvalidRequest, Message: problem}
}

// Invalid refuses a member or parameter: 400. The problem is a format, and must not repeat the value.
func Invalid(field, problem string, args ...any) *Error {
	return atField(400, codeInvalidRequest, field, fmt.Sprintf(problem, args...))
}

// InvalidPolicy refuses a member of a retry policy: 422. The retry document names another code, and the
// catalogue of errors 400; clients and the API document want this.
func InvalidPolicy(field, problem string, args ...any) *Error {
	return atField(422, codeValidation, field, fmt.Sprintf(problem, args...))
}

// TooLarge refuses what is longer than a limit in bytes: 413. The field is empty for a body.
func TooLarge(field string, limit int) *Error {
	e := atField(413, codeTooLarge, field, fmt.Sprintf("must be at most %d bytes", limit))
	if field == "" {
		e.Message = fmt.Sprintf("the body must be at most %d bytes", limit)
	}
	return e.With("limit_bytes", limit)
}

func atField(status int, code, field, problem string) *Error {
	field = bounded(field)
	return &Error{Status: status, Code: code, Field: field, Message: field + " " + problem}
}

// maxField bounds the path of a member in a refusal: names of members are the client's, and nest.
const maxField = 256

// bounded cuts a path at maxField bytes.
func bounded(field string) string {
	if len(field) <= maxField {
		return field
	}
	return strings.ToValidUTF8(field[:maxField], "") + "..."
}

// The kinds of what is not found.
const (
	KindJob        = "job"
	KindDeadLetter = "dead_letter_job"
)

// docsNotFound describes refusals. Strict clients want a link in every not_found.
const docsNotFound = "https://github.com/openjobspec/spec/blob/main/spec/ojs-errors.md"

// NotFound refuses a request for something that is not there: 404. An id that is none of a job is not
// repeated.
func NotFound(kind, id string) *Error {
	e := &Error{Status: 404, Code: codeNotFound, Message: "there is no such " + strings.ReplaceAll(kind, "_", " "), Details: map[string]any{"resource_type": kind},
		Hint: "Ids are UUIDv7 in lower case. A job is gone once its dead letter was deleted or pruned.", DocsURL: docsNotFound}
	if ValidID(id) {
		e.Details["resource_id"] = id
	}
	return e
}

// NotDeadLetter refuses to retry, show or delete a job that exists and is no dead letter: 404, with
// details.current_state. 409 could be defended; the public servers, the API document and the SDK know
// 404 only.
func NotDeadLetter(id string, s State) *Error {
	e := NotFound(KindDeadLetter, id).With("current_state", s)
	e.Hint = "The job exists and is not a dead letter: it has not failed for good, was retried, or its policy discards it."
	return e
}

// Duplicate refuses a job whose id or content another job has: 409. The id of the other job and its state may be empty.
func Duplicate(existing string, s State, problem string) *Error {
	e := &Error{Status: 409, Code: codeDuplicate, Message: problem, Details: map[string]any{}}
	if existing != "" {
		e.Details["existing_job_id"] = existing
	}
	if s != "" {
		e.Details["existing_job_state"] = s
	}
	return e
}

// Conflict refuses what a rule or the state of something forbids: 409. Say which by With.
func Conflict(problem string) *Error {
	return &Error{Status: 409, Code: codeConflict, Message: problem}
}

// Unsupported refuses a version or an ability that the server does not have: 422.
func Unsupported(field, problem string, args ...any) *Error {
	return atField(422, codeUnsupported, field, fmt.Sprintf(problem, args...))
}

// RateLimited refuses one request too many: 429.
func RateLimited(problem string) *Error {
	return &Error{Status: 429, Code: codeRateLimited, Message: problem, Retryable: true}
}

// Backend reports that the server failed: 500.
func Backend() *Error {
	return &Error{Status: 500, Code: codeBackend, Message: "the server failed; whether the request had an effect is unknown", Retryable: true}
}

// Unavailable reports that the store can't be reached: 503.
func Unavailable(problem string) *Error {
	return &Error{Status: 503, Code: codeBackend, Message: problem, Retryable: true}
}

// Own returns a refusal with a code of our own: "x_" and the name.
func Own(status int, name, message string) *Error {
	return &Error{Status: status, Code: "x_" + name, Message: message}
}

// ofJSON returns the refusal of a text that strictjson refuses. One that names a member is an invalid
// request: the body is JSON, and means two things.
func ofJSON(err error) *Error {
	var wrong *strictjson.Error
	switch {
	case !errors.As(err, &wrong):
		return InvalidPayload("is not readable")
	case wrong.Field != "":
		return Invalid(wrong.Field, "%s", wrong.Problem)
	}
	return InvalidPayload(wrong.Problem)
}

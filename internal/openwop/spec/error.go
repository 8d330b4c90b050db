package spec

import "encoding/json"

// Error is a refusal on the wire.
type Error struct {
	Status  int            `json:"-"`
	Code    string         `json:"error"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Body returns the envelope. It has no members but error, message and details.
func (e *Error) Body() []byte {
	text, err := json.Marshal(e)
	if err != nil { // a detail that has no form in JSON
		return []byte(`{"error":"internal_error","message":"the refusal can't be written"}`)
	}
	return text
}

// With returns the refusal with one more detail.
func (e *Error) With(name string, value any) *Error {
	out := *e
	out.Details = map[string]any{name: value}
	for k, v := range e.Details {
		out.Details[k] = v
	}
	return &out
}

// Problem is what is wrong with one member or parameter.
type Problem struct {
	Field   string `json:"field,omitempty"`
	Problem string `json:"problem"`
}

// maxProblems is how many problems one refusal names.
const maxProblems = 20

// Invalid returns the refusal of a request whose members or parameters are wrong.
func Invalid(problems ...Problem) *Error {
	problems = problems[:min(len(problems), maxProblems)]
	message := "the request is invalid"
	if len(problems) > 0 {
		message = problems[0].Problem
		if problems[0].Field != "" {
			message = problems[0].Field + " " + message
		}
	}
	return &Error{Status: 400, Code: "validation_error", Message: message, Details: map[string]any{"errors": problems}}
}

// NotFound returns the refusal of a run that does not exist, is another tenant's, or is over its
// retention: one body for all three.
func NotFound() *Error { return &Error{Status: 404, Code: "not_found", Message: "run not found"} }

// Conflict returns the refusal of a request because of the state of a run, which it names.
func Conflict(code, message, run string) *Error {
	out := &Error{Status: 409, Code: code, Message: message}
	if run != "" {
		out.Details = map[string]any{"runId": run}
	}
	return out
}

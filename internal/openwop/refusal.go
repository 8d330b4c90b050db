package openwop

import (
	"errors"
	"net/http"
	"slices"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// refusalOf returns an error of an operation as a refusal of the door. Errors that the door knows better
// are returned as they are.
func refusalOf(err error) error {
	var own *spec.Error
	switch {
	case errors.As(err, &own):
	case errors.Is(err, refusal.ErrNotFound):
		own = spec.NotFound()
	default:
		return err
	}
	return door.NewRefusal(own.Status, own.Code, "%s", own.Message).WithCause(own)
}

// writeRefusal writes the envelope of a refusal, whoever refuses.
func writeRefusal(w http.ResponseWriter, _ *http.Request, refused *door.Refusal) error {
	var own *spec.Error
	if !errors.As(refused, &own) {
		own = ofDoor(refused)
	}
	if refused.RetryAfter > 0 {
		own = own.With("retryAfter", refused.RetryAfter)
	}
	safe := *own // names of members and parameters are the client's
	safe.Message = redact.Text(own.Message)
	if problems, are := own.Details["errors"].([]spec.Problem); are {
		named := slices.Clone(problems)
		for i := range named {
			named[i].Field, named[i].Problem = redact.Text(named[i].Field), redact.Text(named[i].Problem)
		}
		safe = *safe.With("errors", named)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(safe.Status)
	_, err := w.Write(append(safe.Body(), '\n'))
	return err
}

// finalCodes are the codes of refusals that stay as they are, so that a repeated request is answered the same.
var finalCodes = []string{
	"not_found", "already_executed", "run_terminal", string(postadjudication.CaseEnded), string(postadjudication.StaleGeneration), string(postadjudication.RetryKeyMismatch),
	string(postadjudication.Cancelled), string(postadjudication.Superseded),
}

// isFinal reports whether a refusal stays as it is. What depends on a run at work, on what a person finds out
// or on an open dead letter may be answered otherwise later.
func isFinal(refused *door.Refusal) bool { return slices.Contains(finalCodes, refused.Code) }

// codes are the codes of OpenWOP for refusals of the door. Others keep their code.
var codes = map[string]struct {
	status int // 0: the door's
	code   string
}{
	"key_missing":             {0, "unauthenticated"},
	"key_invalid":             {0, "unauthenticated"},
	"role_missing":            {0, "forbidden"},
	"tenant_mismatch":         {0, "forbidden"},
	"cross_origin":            {0, "forbidden"},
	"host_unknown":            {0, "forbidden"},
	"no_such_path":            {0, "not_found"},
	"idempotency_mismatch":    {http.StatusConflict, "idempotency_key_mismatch"},
	"idempotency_in_progress": {http.StatusConflict, "idempotency_in_flight"},
	"too_large":               {0, "payload_too_large"},
	"internal":                {0, "internal_error"},
}

// ofDoor returns a refusal of the door, or of the service, as OpenWOP has it.
func ofDoor(refused *door.Refusal) *spec.Error {
	own := &spec.Error{Status: refused.Status, Code: refused.Code, Message: refused.Detail}
	if known, is := codes[refused.Code]; is {
		own.Code = known.code
		if known.status != 0 {
			own.Status = known.status
		}
	}
	switch {
	case len(refused.Fields) > 0:
		problems := make([]spec.Problem, len(refused.Fields))
		for i, f := range refused.Fields {
			problems[i] = spec.Problem{Field: f.Field, Problem: f.Problem}
		}
		return spec.Invalid(problems...)
	case refused.Status == http.StatusTooManyRequests:
		own.Code = "rate_limited"
	case refused.Status == http.StatusBadRequest || refused.Code == "invalid":
		own.Status, own.Code = http.StatusBadRequest, "validation_error"
	}
	if len(refused.Needs) > 0 {
		own = own.With("needsOneOf", refused.Needs)
	}
	if refused.Done != "" {
		own = own.With("done", refused.Done)
	}
	return own
}

package ojs

import (
	"errors"
	"net/http"
	"strings"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// refusalOf returns an error of an operation as a refusal of the door. Errors that the door knows better
// are returned as they are.
func refusalOf(err error) error {
	var own *spec.Error
	var conflict *jobs.ConflictError
	switch {
	case errors.As(err, &own):
	case errors.As(err, &conflict):
		own = spec.Conflict(conflict.Reason).With("job_id", conflict.Status.ID)
	case errors.Is(err, refusal.ErrNotFound):
		own = spec.NotFound(spec.KindJob, "")
	default:
		return err
	}
	return door.NewRefusal(own.Status, own.Code, "%s", own.Message).WithCause(own)
}

// writeRefusal writes the envelope of a refusal, whoever refuses.
func (s *Server) writeRefusal(w http.ResponseWriter, _ *http.Request, refused *door.Refusal) error {
	var own *spec.Error
	if !errors.As(refused, &own) {
		own = ofDoor(refused)
	}
	safe := *own // names of members and parameters are the client's
	safe.Message, safe.Field = redact.Text(own.Message), redact.Text(own.Field)
	w.WriteHeader(safe.Status)
	_, err := w.Write(append(safe.Body(w.Header().Get(requestIDHeader)), '\n'))
	return err
}

// ofDoor returns a refusal of the door, or of the service, as the specification has it.
func ofDoor(refused *door.Refusal) *spec.Error {
	own := spec.Own(refused.Status, refused.Code, refused.Detail)
	var gate *refusal.RefusedError
	switch {
	case errors.As(refused, &gate):
		own = spec.Conflict(refused.Detail).With("rule", string(gate.Gate))
	case len(refused.Fields) > 0:
		return spec.Invalid(inEnvelope(refused.Fields[0].Field), "%s", refused.Fields[0].Problem)
	case refused.Status == http.StatusNotFound:
		own = spec.NotFound("path", "")
	case refused.Code == door.EncodingUnsupported:
		return spec.Invalid("Content-Encoding", "must be absent: send the body as it is")
	case refused.Status == http.StatusUnsupportedMediaType:
		return spec.Invalid("Content-Type", "must be %s or application/json, in UTF-8", mediaType)
	case refused.Status == http.StatusBadRequest, refused.Code == "invalid":
		return spec.InvalidRequest(refused.Detail)
	case refused.Status == http.StatusRequestEntityTooLarge:
		return spec.TooLarge("", spec.MaxBody)
	case refused.Status == http.StatusTooManyRequests:
		own = spec.RateLimited(refused.Detail)
	case refused.Status == http.StatusConflict:
		own = spec.Conflict(refused.Detail).With("rule", refused.Code)
		own.Retryable = refused.RetryAfter > 0
	case refused.Status == http.StatusServiceUnavailable:
		own = spec.Unavailable(refused.Detail)
	case refused.Status >= http.StatusInternalServerError:
		own = spec.Backend()
	}
	if len(refused.Needs) > 0 {
		own = own.With("needs_one_of", access.JoinRoles(refused.Needs))
	}
	if refused.Done != "" {
		own = own.With("done", string(refused.Done))
	}
	return own
}

// inEnvelope returns the name of a field as clients of this door know it.
func inEnvelope(field string) string {
	field = strings.TrimPrefix(field, "payload.")
	if rest, is := strings.CutPrefix(field, "policy."); is {
		return "retry." + rest
	}
	return field
}

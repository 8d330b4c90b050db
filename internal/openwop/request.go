package openwop

import (
	"context"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
)

// request is a request whose caller may make it.
type request struct {
	*http.Request
	caller   door.Caller
	body     []byte
	operator postadjudication.Operator // of the caller's tenant, in the caller's name
}

// created is the answer to a create and, with what only a fork has, to a fork.
type created struct {
	Run       string        `json:"runId"`
	Source    string        `json:"sourceRunId,omitempty"`
	FromSeq   *int          `json:"fromSeq,omitempty"`
	Mode      spec.ForkMode `json:"mode,omitempty"`
	Status    spec.Status   `json:"status"`
	EventsURL string        `json:"eventsUrl"`
	StatusURL string        `json:"statusUrl,omitempty"`
}

// madeBefore reports whether a run was created by an earlier request with this Idempotency-Key that was
// interrupted. See door.InterruptedAt.
func (s *Server) madeBefore(ctx context.Context, q request, run background.RunID) (bool, error) {
	first := door.InterruptedAt(q.Context())
	if first.IsZero() || run.IsZero() {
		return false, nil
	}
	log, _, err := s.openRun(ctx, q.caller.Tenant, run.String())
	if err != nil {
		return false, err
	}
	receipt := log.Submission()
	return receipt.Actor == q.caller.Principal && !receipt.At.Before(first.Truncate(time.Microsecond)), nil
}

// noParameters refuses query parameters where there are none. It returns nil if there is none.
func noParameters(q request) error {
	for name := range q.URL.Query() {
		return spec.Invalid(spec.Problem{Field: name, Problem: "is no parameter here"})
	}
	return nil
}

// reasonPrefix begins the reasons that receipts of this door's requests have.
const reasonPrefix = "OpenWOP: "

package openwop

import (
	"net/http"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
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

// runOfRequest returns the run of a case that this request made before: an earlier handler of it was
// interrupted, or is slow. It is zero if the request made none, or has no Idempotency-Key.
func (s *Server) runOfRequest(q request, of background.CaseID) (run background.RunID, err error) {
	asked := door.RequestID(q.Context())
	if asked == "" || of.IsZero() {
		return run, nil
	}
	err = s.inReadSlot(q.Context(), q.caller.Tenant, func() error {
		return eachReceipt(q.Context(), s.Service, q.caller.Tenant, of, 0, func(r receipts.Receipt) error {
			if r.Subtype != receipts.Submitted || !run.IsZero() {
				return nil
			}
			p, err := r.Known()
			if err == nil && p.RequestID == asked {
				run = r.Run
			}
			return err
		})
	})
	return run, err
}

// noParameters refuses query parameters where there are none. It returns nil if there is none.
func noParameters(q request) error {
	for name := range q.URL.Query() {
		return spec.Invalid(spec.Problem{Field: name, Problem: "is no parameter here"})
	}
	return nil
}

// caseHeader is the header of answers about a run that names its case, whose receipts /api/v1 shows.
const caseHeader = "Recourse-Case"

// reasonPrefix begins the reasons that receipts of this door's requests have.
const reasonPrefix = "OpenWOP: "

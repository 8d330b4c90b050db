package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
)

// Retry tries a job again that any run of its lineage stands for, as Open Job Spec
// has it: to the outside the job keeps its id and begins anew at attempt 0, with the
// policy it had and with its history. Inside it is Fork of the newest run, with all
// its gates: Lineage tells which run that is, and Status of each older one where it
// went. Of several who retry at once, one does; the others are refused, naming the
// run that stands there.
func (s *Service) Retry(ctx context.Context, tenant string, id background.RunID, actor, reason string) (Submitted, error) {
	q := ForkRequest{Actor: actor, Reason: reason}
	if err := q.validate(); err != nil {
		return Submitted{}, err
	}
	lineage, err := s.Lineage(ctx, tenant, id)
	if err != nil {
		return Submitted{}, err
	}
	return s.Fork(ctx, tenant, lineage.Newest, q)
}

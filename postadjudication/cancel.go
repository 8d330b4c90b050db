package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
)

// Cancel cancels a waiting run that has moved no money, at once. For a running run it records a
// request: when the attempt ends and certainly paid nothing, the run is cancelled, otherwise
// the request has no effect. The returned status shows which: State is cancelled, or
// CancelRequested is set. The actor of As and a reason are required; the receipt records them.
//
// Cancelling frees the run's reservation. The reservation of a fork stays, as it did for its
// dead letter: PlanFree frees it, or a higher generation takes it over.
func (t TenantCases) Cancel(ctx context.Context, id background.RunID, reason string) (casestatus.Status, error) {
	run, err := t.operator.s.applier.Cancel(ctx, t.operator.tenant, id, t.actor, reason)
	if run.ID.IsZero() {
		return casestatus.Status{}, err
	}
	return casestatus.StatusOf(run), err
}

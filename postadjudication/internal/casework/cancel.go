package casework

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Cancel cancels a waiting run of a tenant that has moved no money, at once. For a running one it
// records a request, which is decided when the attempt ends. It returns the run as it is then, which
// was cancelled or has CancelRequested set.
//
// Errors: refusal.ErrNotFound; refusal.ErrEnded; background.ErrReconcileFirst; *refusal.FieldError.
func (c *Applier) Cancel(ctx context.Context, tenant string, id background.RunID, actor, reason string) (_ background.Run, err error) {
	if err := validate.Actor(actor, reason); err != nil {
		return background.Run{}, err
	}
	defer func() {
		err = c.Refusals.RecordGateRefusal(ctx, ActionRequest{Action: "cancel", Run: id, Actor: actor, Reason: reason}, err)
	}()
	for transition := NewID(); ; {
		snap, err := c.OwnRun(ctx, tenant, id)
		switch {
		case err != nil:
			return background.Run{}, err
		case snap.Run.State == background.Cancelled || snap.Run.State == background.Running && snap.Run.CancelRequested:
			return snap.Run, nil
		case !snap.Run.State.Live():
			return snap.Run, refusal.ErrEnded
		case snap.Run.State == background.Running:
			if err := c.requestCancel(ctx, &snap, actor, reason); err != nil {
				return background.Run{}, err
			}
			continue
		}
		tr := background.Transition{ID: transition, Run: snap.Run, Subtype: receipts.Cancelled, At: c.Now(), Actor: actor, Reason: reason}
		run, err := c.Recorder(snap.Run.Family).Record(ctx, tr)
		if errors.Is(err, background.ErrConflict) {
			continue
		}
		if err == nil {
			c.Engine.Wake(id)
		}
		return run, err
	}
}

// requestCancel records the request to cancel a running run.
func (c *Applier) requestCancel(ctx context.Context, s *journal.Snapshot, actor, reason string) error {
	_, err := c.Journal.RequestCancel(ctx, s.Run, receipts.Draft{Actor: actor, At: c.Now(), Payload: receipts.Payload{Attempt: s.Run.Attempt, Reason: validate.Clean(reason, 1024)}})
	return err
}

package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Cancel cancels a waiting run that has moved no money, at once. For a running run it records a
// request: when the attempt ends and certainly paid nothing, the run is cancelled, otherwise
// the request has no effect. The returned status shows which: State is cancelled, or
// CancelRequested is set. The actor of As and a reason are required; the receipt records them.
//
// Cancelling frees the run's reservation. The reservation of a fork stays, as it did for its
// dead letter: PlanFree frees it, or a higher generation takes it over.
func (t TenantCases) Cancel(ctx context.Context, id background.RunID, reason string) (_ casestatus.Status, err error) {
	if t.actor == "" || len(t.actor) > 128 || !validate.PlainText(t.actor) {
		return casestatus.Status{}, &refusal.FieldError{Field: "actor", Problem: "must be 1 to 128 bytes of plain text"}
	}
	if err := validate.NoSecret("actor", t.actor); err != nil {
		return casestatus.Status{}, err
	}
	if reason == "" || len(reason) > 1024 || !validate.PlainText(reason) {
		return casestatus.Status{}, &refusal.FieldError{Field: "reason", Problem: "must be 1 to 1024 bytes of plain text"}
	}
	defer func() {
		err = t.operator.s.applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "cancel", Run: id, Actor: t.actor, Reason: reason}, err)
	}()
	transition := casework.NewID()
	for {
		snap, err := t.operator.s.applier.OwnRun(ctx, t.operator.tenant, id)
		switch {
		case err != nil:
			return casestatus.Status{}, err
		case snap.Run.State == background.Cancelled || snap.Run.State == background.Running && snap.Run.CancelRequested:
			return casestatus.StatusOf(snap.Run), nil
		case !snap.Run.State.Live():
			return casestatus.StatusOf(snap.Run), refusal.ErrEnded
		case snap.Run.State == background.Running:
			asked := receipts.Draft{Actor: t.actor, At: t.operator.s.now(), Payload: receipts.Payload{Attempt: snap.Run.Attempt, Reason: validate.Clean(reason, 1024)}}
			if _, err := t.operator.s.journal.RequestCancel(ctx, snap.Run, asked); err != nil {
				return casestatus.Status{}, err
			}
			continue
		}
		m := background.Transition{ID: transition, Run: snap.Run, Event: receipts.Cancelled, At: t.operator.s.now(), Actor: t.actor, Reason: reason}
		run, err := t.operator.s.applier.Recorder(snap.Run.Family).Record(ctx, m)
		if errors.Is(err, background.ErrConflict) {
			continue
		}
		if err != nil {
			return casestatus.StatusOf(run), err
		}
		t.operator.s.manager.Wake(id)
		return casestatus.StatusOf(run), nil
	}
}

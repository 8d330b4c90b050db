package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// Errors of Cancel besides ErrNotFound.
var (
	// ErrReconcileFirst: an attempt's outcome is unknown, so cancelling could hide a payment.
	ErrReconcileFirst = background.ErrReconcileFirst
	// ErrEnded: the run has ended, so there is nothing to cancel.
	ErrEnded = errors.New("postadjudication: the run has ended")
)

// Cancel cancels a waiting run that has moved no money, at once. For a running run it records a
// request: when the attempt ends and certainly paid nothing, the run is cancelled, otherwise
// the request has no effect. The returned status shows which: State is cancelled, or
// CancelAsked is set. The actor of As and a reason are required; the receipt records them.
//
// Cancelling frees the run's reservation. The reservation of a fork stays, as it did for its
// dead letter: PlanFree frees it, or a higher generation takes it over.
func (t TenantCases) Cancel(ctx context.Context, id background.RunID, reason string) (_ Status, err error) {
	if t.actor == "" || len(t.actor) > 128 || !isPlainText(t.actor) {
		return Status{}, &FieldError{Field: "actor", Problem: "must be 1 to 128 bytes of plain text"}
	}
	if err := rejectSecret("actor", t.actor); err != nil {
		return Status{}, err
	}
	if reason == "" || len(reason) > 1024 || !isPlainText(reason) {
		return Status{}, &FieldError{Field: "reason", Problem: "must be 1 to 1024 bytes of plain text"}
	}
	defer func() { err = t.s.recordGateRefusal(ctx, actionRequest{"cancel", id, t.actor, reason}, err) }()
	transition := newID()
	for {
		snap, err := t.s.journal.Cases.Snapshot(ctx, id)
		switch {
		case err != nil:
			return Status{}, err
		case t.tenant == "" || snap.Run.Tenant != t.tenant:
			return Status{}, ErrNotFound
		case snap.Run.State == background.Cancelled || snap.Run.State == background.Running && snap.Run.CancelRequested:
			return statusOf(snap.Run), nil
		case !snap.Run.State.Live():
			return statusOf(snap.Run), ErrEnded
		case snap.Run.State == background.Running:
			asked := receipts.Draft{Actor: t.actor, At: t.s.now(), Payload: receipts.Payload{Attempt: snap.Run.Attempt, Reason: cleanText(reason, 1024)}}
			if _, err := t.s.journal.RequestCancel(ctx, snap.Run, asked); err != nil {
				return Status{}, err
			}
			continue
		}
		m := background.Transition{ID: transition, Run: snap.Run, Event: receipts.Cancelled, At: t.s.now(), Actor: t.actor, Reason: reason}
		run, err := t.s.recorder(snap.Run.Family).Record(ctx, m)
		if errors.Is(err, background.ErrConflict) {
			continue
		}
		if err != nil {
			return statusOf(run), err
		}
		t.s.manager.Wake(id)
		return statusOf(run), nil
	}
}

// recorder returns the adapter that records transitions of a family's runs. A process without
// an executor can still record a person's request.
func (s *Service) recorder(name string) interface {
	Record(context.Context, background.Transition) (background.Run, error)
} {
	if p, ok := s.plainFamilies[name]; ok {
		return p
	}
	if name != Family {
		return &plainAdapter{journal: s.journal}
	}
	return s.settlements
}

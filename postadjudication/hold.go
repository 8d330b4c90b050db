package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// HoldRequest says who holds a letter, or lets it go, and why. Both are required.
type HoldRequest struct {
	Actor  string
	Reason string
}

func (q HoldRequest) validate() error {
	return errors.Join(identified("actor", q.Actor, 128), named("reason", q.Reason, 1024))
}

// Hold keeps an open letter: while it is held, retention, Purge and Clear pass it by,
// and no rule replays it. A person who names it may still fork or reconcile it, and
// a re-adjudication supersedes it: a hold keeps the evidence, not the money. The
// letter of a fork that dies is another one, and not held. It is a *RefusedError of
// GateHeld when the letter is held.
func (s *Service) Hold(ctx context.Context, tenant string, id background.RunID, q HoldRequest) (Desk, error) {
	if err := q.validate(); err != nil {
		return Desk{}, err
	}
	desk, err := s.desked(ctx, tenant, id, q.place(s.now()))
	return desk, s.noted(ctx, request{"hold", id, q.Actor, q.Reason}, err)
}

func (q HoldRequest) place(at time.Time) deskDecision {
	return func(f postgres.Filed, move background.MoveID) (postgres.Change, error) {
		if f.Desk.Held {
			return postgres.Change{}, refusedBy(GateHeld, f.Snapshot)
		}
		desk := f.Desk
		desk.Held, desk.HoldReason = true, clean(q.Reason, 1024)
		ch := deskChange(f, move, desk)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.HoldPlaced, Actor: q.Actor, At: at, Payload: receipts.Payload{Reason: desk.HoldReason}}}
		return ch, nil
	}
}

// ReleaseHold lets a held letter go: its retention applies again, counted from its
// death as ever, but its end is announced anew, so that there is time to hold it again:
// what was announced before the hold, and may have been why, is void. It is a *RefusedError of GateNotHeld when nobody holds it.
func (s *Service) ReleaseHold(ctx context.Context, tenant string, id background.RunID, q HoldRequest) (Desk, error) {
	if err := q.validate(); err != nil {
		return Desk{}, err
	}
	desk, err := s.desked(ctx, tenant, id, q.release(s.now()))
	return desk, s.noted(ctx, request{"release", id, q.Actor, q.Reason}, err)
}

func (q HoldRequest) release(at time.Time) deskDecision {
	return func(f postgres.Filed, move background.MoveID) (postgres.Change, error) {
		if !f.Desk.Held {
			return postgres.Change{}, refusedBy(GateNotHeld, f.Snapshot)
		}
		desk := f.Desk
		desk.Held, desk.HoldReason, desk.EndsAt = false, "", time.Time{}
		ch := deskChange(f, move, desk)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.HoldReleased, Actor: q.Actor, At: at, Payload: receipts.Payload{Reason: clean(q.Reason, 1024)}}}
		return ch, nil
	}
}

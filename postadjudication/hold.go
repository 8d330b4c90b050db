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
	return errors.Join(requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024))
}

// Hold keeps an open letter: while it is held, retention, Purge and Clear pass it by,
// and no rule replays it. A person who names it may still fork or reconcile it, and
// a re-adjudication supersedes it: a hold keeps the evidence, not the money. The
// letter of a fork that dies is another one, and not held. It is a *RefusedError of
// GateHeld when the letter is held.
func (s *Service) Hold(ctx context.Context, tenant string, id background.RunID, q HoldRequest) (Annotations, error) {
	if err := q.validate(); err != nil {
		return Annotations{}, err
	}
	annotations, err := s.annotate(ctx, tenant, id, q.placeHold(s.now()))
	return annotations, s.recordGateRefusal(ctx, actionRequest{"hold", id, q.Actor, q.Reason}, err)
}

func (q HoldRequest) placeHold(at time.Time) annotationDecision {
	return func(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
		if f.Annotations.Held {
			return postgres.Change{}, refusedBy(GateHeld, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason = true, cleanText(q.Reason, 1024)
		ch := annotationChange(f, transition, annotations)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.HoldPlaced, Actor: q.Actor, At: at, Payload: receipts.Payload{Reason: annotations.HoldReason}}}
		return ch, nil
	}
}

// ReleaseHold lets a held letter go: its retention applies again, counted from its
// death as ever, but its end is announced anew, so that there is time to hold it again:
// what was announced before the hold, and may have been why, is void. It is a *RefusedError of GateNotHeld when nobody holds it.
func (s *Service) ReleaseHold(ctx context.Context, tenant string, id background.RunID, q HoldRequest) (Annotations, error) {
	if err := q.validate(); err != nil {
		return Annotations{}, err
	}
	annotations, err := s.annotate(ctx, tenant, id, q.releaseHold(s.now()))
	return annotations, s.recordGateRefusal(ctx, actionRequest{"release", id, q.Actor, q.Reason}, err)
}

func (q HoldRequest) releaseHold(at time.Time) annotationDecision {
	return func(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
		if !f.Annotations.Held {
			return postgres.Change{}, refusedBy(GateNotHeld, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason, annotations.RetentionEndsAt = false, "", time.Time{}
		ch := annotationChange(f, transition, annotations)
		ch.Drafts = []receipts.Draft{{Run: f.Run.ID, Subtype: receipts.HoldReleased, Actor: q.Actor, At: at, Payload: receipts.Payload{Reason: cleanText(q.Reason, 1024)}}}
		return ch, nil
	}
}

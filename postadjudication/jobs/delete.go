package jobs

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/receipts"
)

// Delete removes a dead letter: the job is not found from then on, and its envelope is erased. Its id
// stays taken; its receipts and its case stay.
//
// Errors: refusal.ErrNotFound; *ConflictError if the job is not an open dead letter; ErrNeedsPlan for an
// adjudication; *refusal.RefusedError with the gate held; *refusal.FieldError.
func (l DeadLetters) Delete(ctx context.Context, id, reason string) (err error) {
	if err := validate.Actor(l.actor, reason); err != nil {
		return err
	}
	letter, err := l.openLetter(ctx, id, background.RunID{})
	if err != nil {
		return err
	}
	if isAdjudication(&letter.Run) {
		return ErrNeedsPlan
	}
	defer func() {
		err = l.s.applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "purge", Run: letter.Run.ID, Actor: l.actor, Reason: reason}, err)
	}()
	found, err := l.s.applier.OpenLetter(ctx, l.tenant, letter.Run.ID)
	if err != nil {
		return l.letterError(ctx, id, err)
	}
	at := l.s.now()
	purge := casework.Purging(func(f journal.LetterRow) receipts.Draft {
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: l.actor, At: at, Payload: receipts.Payload{Reason: validate.Clean(reason, 1024), DeadLetteredAt: f.Run.DeadAt}}
	})
	results, err := l.s.applier.ApplyMany(ctx, []journal.LetterRow{found}, purge, l.s.applier.Archiving(at, casework.Batch{Alone: 1}))
	if err == nil {
		err = results[0].Err
	}
	return l.letterError(ctx, id, err)
}

// ErrNeedsPlan refuses to delete the dead letter of an adjudication alone.
var ErrNeedsPlan = errors.New("jobs: the dead letter of an adjudication is purged by a plan, which takes two people")

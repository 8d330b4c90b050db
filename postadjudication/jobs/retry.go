package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Retry is how a dead letter is retried.
type Retry struct {
	Reason  string              // required
	Of      background.RunID    // the dead letter that the changes were made for; zero: the newest
	Queue   string              // empty: the same
	Policy  *retrypolicy.Policy // nil: the same
	Payload json.RawMessage     // nil: the same
}

const notDeadLettered = "only an open dead letter can be retried or deleted"

// Retry starts a dead-lettered job again: it keeps its id and its history, and can be fetched at once,
// with attempt 1. Of several calls one succeeds.
//
// Errors: refusal.ErrNotFound; *ConflictError if the job is not an open dead letter, or no longer
// that of Retry.Of; *refusal.RefusedError with the gate unique_job_live; *refusal.FieldError.
func (j Jobs) Retry(ctx context.Context, id string, q Retry) (Status, error) {
	letter, err := j.openLetter(ctx, id, q.Of)
	if err != nil {
		return Status{}, err
	}
	if q.Queue != "" {
		if err := validate.Identifier("queue", q.Queue, 128); err != nil {
			return Status{}, err
		}
		if err := j.rememberQueue(ctx, q.Queue); err != nil {
			return Status{}, err
		}
	}
	forked, err := j.letters().Fork(ctx, letter.Run.ID, deadletter.Fork{Reason: q.Reason, Policy: q.Policy, Queue: q.Queue, Payload: q.Payload})
	if err != nil {
		return Status{}, j.letterError(ctx, id, err)
	}
	snap, err := j.s.journal.Cases.Snapshot(ctx, forked.Run)
	if err != nil {
		return Status{}, err
	}
	out := statusOf(snap)
	out.Retried = true
	return out, j.addHistory(ctx, &out)
}

// Delete removes a dead letter: the job is not found from then on, and its envelope is erased. Its id
// stays taken; its receipts and its case stay.
//
// Errors: refusal.ErrNotFound; *ConflictError if the job is not an open dead letter;
// *refusal.RefusedError with the gate held; *refusal.FieldError.
func (j Jobs) Delete(ctx context.Context, id, reason string) (err error) {
	if err := validate.Actor(j.actor, reason); err != nil {
		return err
	}
	letter, err := j.openLetter(ctx, id, background.RunID{})
	if err != nil {
		return err
	}
	defer func() {
		err = j.s.applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "purge", Run: letter.Run.ID, Actor: j.actor, Reason: reason}, err)
	}()
	found, err := j.s.applier.OpenLetter(ctx, j.tenant, letter.Run.ID)
	if err != nil {
		return j.letterError(ctx, id, err)
	}
	at := j.s.now()
	purge := casework.Purging(func(f journal.LetterRow) receipts.Draft {
		return receipts.Draft{Run: f.Run.ID, Subtype: receipts.Purged, Actor: j.actor, At: at, Payload: receipts.Payload{Reason: validate.Clean(reason, 1024), DeadLetteredAt: f.Run.DeadAt}}
	})
	results, err := j.s.applier.ApplyMany(ctx, []journal.LetterRow{found}, purge, j.s.applier.Archiving(at, casework.Batch{Alone: 1}))
	if err == nil {
		err = results[0].Err
	}
	return j.letterError(ctx, id, err)
}

// letters returns the dead letters of the tenant.
func (j Jobs) letters() deadletter.Letters { return j.s.letters.As(j.tenant, j.actor) }

// openLetter reads the newest run of a job, which must be an open dead letter.
func (j Jobs) openLetter(ctx context.Context, id string, run background.RunID) (journal.Snapshot, error) {
	snap, err := j.snapshot(ctx, id)
	if err == nil && (casework.OpenGate(snap) != "" || !run.IsZero() && snap.Run.ID != run) {
		err = &ConflictError{Status: statusOf(snap), Reason: notDeadLettered}
	}
	return snap, err
}

// letterError returns the error of a change of a dead letter, with the job as it is now if another
// change was first.
func (j Jobs) letterError(ctx context.Context, id string, err error) error {
	var refused *refusal.RefusedError
	if errors.As(err, &refused) && refused.Gate != refusal.GateNotOpen && refused.Gate != refusal.GateNotALetter || refused == nil && !errors.Is(err, casework.ErrLetterChanged) {
		return err
	}
	snap, readErr := j.snapshot(ctx, id)
	if readErr != nil {
		return readErr
	}
	return &ConflictError{Status: statusOf(snap), Reason: notDeadLettered}
}

// UniqueHolder returns the id of the live job that is unique in the same way as a dead letter; empty if
// there is none.
func (j Jobs) UniqueHolder(ctx context.Context, dead Status) (string, error) {
	name, err := j.s.journal.Cases.FingerprintHolder(ctx, dead.Case, j.s.now())
	return strings.TrimPrefix(name, subject("")), err
}

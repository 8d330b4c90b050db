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
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Retry is how a dead letter is retried.
type Retry struct {
	Reason  string              // required
	Request string              // identifies the request that asks for it, for the receipt; empty: none
	Of      background.RunID    // the dead letter that the changes were made for; zero: the newest
	Queue   string              // empty: the same
	Policy  *retrypolicy.Policy // nil: the same
	Payload json.RawMessage     // nil: the same
	// Fingerprint is what a unique job is unique by with the Payload; nil: the same.
	Fingerprint *[32]byte
}

const notDeadLettered = "only an open dead letter can be retried or deleted"

// Retry starts a dead-lettered job again: it keeps its id and its history, and can be fetched at once,
// with attempt 1. Of several calls one succeeds.
//
// Errors: refusal.ErrNotFound; *ConflictError if the job is not an open dead letter, or no longer
// that of Retry.Of; *refusal.RefusedError with another gate of deadletter.Letters.Fork, such as
// unique_job_live; *refusal.FieldError, and the others of that Fork. After any other error it is unknown whether
// the job was retried: MadeBy reports it of Retry.Request.
func (l DeadLetters) Retry(ctx context.Context, id string, q Retry) (Status, error) {
	letter, err := l.openLetter(ctx, id, q.Of)
	if err != nil {
		return Status{}, err
	}
	forked, err := l.letters().Fork(ctx, letter.Run.ID, deadletter.Fork{Reason: q.Reason, RequestID: q.Request, Policy: q.Policy, Queue: q.Queue, Payload: q.Payload, Fingerprint: q.Fingerprint})
	if err != nil {
		return Status{}, l.letterError(ctx, id, err)
	}
	snap, err := l.s.journal.Cases.Snapshot(ctx, forked.Run)
	if err != nil {
		return Status{}, err
	}
	if isAdjudication(&snap.Run) {
		return l.Find(ctx, id)
	}
	out := statusOf(snap.Run)
	out.Retried = true
	return out, l.addHistory(ctx, &out, nil)
}

// letters returns the dead letters of the tenant.
func (l DeadLetters) letters() deadletter.Letters { return l.s.letters.As(l.tenant, l.actor) }

// openLetter reads the newest run of a job, which must be an open dead letter. If run is not zero, the
// newest run must be that one.
func (l DeadLetters) openLetter(ctx context.Context, id string, run background.RunID) (journal.Snapshot, error) {
	snap, err := l.snapshot(ctx, id)
	if err == nil && (casework.OpenGate(snap) != "" || !run.IsZero() && snap.Run.ID != run) {
		err = &ConflictError{Status: statusOf(snap.Run), Reason: notDeadLettered}
	}
	return snap, err
}

// letterError returns the error of a change of a dead letter, with the job as it is now if another
// change was first.
func (l DeadLetters) letterError(ctx context.Context, id string, err error) error {
	var refused *refusal.RefusedError
	changed := errors.Is(err, casework.ErrLetterChanged)
	if errors.As(err, &refused) {
		changed = refused.Gate == refusal.GateNotOpen || refused.Gate == refusal.GateNotALetter
	}
	if !changed {
		return err
	}
	snap, readErr := l.snapshot(ctx, id)
	if readErr != nil {
		return readErr
	}
	return &ConflictError{Status: statusOf(snap.Run), Reason: notDeadLettered}
}

// UniqueHolder returns the id of the live job that is unique in the same way as a dead letter; empty if
// there is none.
func (l DeadLetters) UniqueHolder(ctx context.Context, dead Status) (string, error) {
	name, err := l.s.journal.Cases.FingerprintHolder(ctx, dead.Case, l.s.now())
	return strings.TrimPrefix(name, subject("")), err
}

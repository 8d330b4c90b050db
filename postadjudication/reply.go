package postadjudication

import (
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/settlement"
)

// Reply is what became of a submission. Replies are values, not errors: each is
// a fact that the caller can act on.
type Reply string

// The replies.
const (
	// Created: the run is committed and will execute. Everything else leaves the
	// case as it was.
	Created Reply = "created"
	// Deduplicated: the same adjudication is being executed by the run named.
	Deduplicated Reply = "deduplicated"
	// AlreadyExecuted: the same adjudication moved money, in full or in part, and
	// Settlement says how much.
	AlreadyExecuted Reply = "already_executed"
	// Superseded: the same adjudication was accepted, as the run named, and a higher
	// generation has taken its place since: that of Settlement.
	Superseded Reply = "superseded"
	// DeadLettered: the run named died on it; fork that one.
	DeadLettered Reply = "dead_lettered"
	// ReconcileFirst: it is not known whether money moved; find out first.
	ReconcileFirst Reply = "reconcile_first"
	// RetryKeyMismatch: the same generation came with other content.
	RetryKeyMismatch Reply = "retry_key_mismatch"
	// Cancelled: the same adjudication was accepted, as the run named, and ended by a
	// person, whom Actor and Reason tell, before money moved. It stays so: only a higher
	// generation begins anew.
	Cancelled Reply = "cancelled"
	// CaseEnded: the case is settled or refunded by another adjudication. The refusal is
	// in its receipts.
	CaseEnded Reply = "case_ended"
	// StaleGeneration: a higher generation was accepted before, and this was not.
	StaleGeneration Reply = "stale_generation"
	// Conflicting: the same generation came with another outcome, or a higher generation
	// while a run is live.
	Conflicting Reply = "conflicting_adjudication"
	// ExceedsHeld: the escrow holds less than this and what it has committed.
	ExceedsHeld Reply = "exceeds_held"
	// EscrowMismatch: the escrow is known with another sum or currency, or the case with
	// another escrow.
	EscrowMismatch Reply = "escrow_mismatch"
	// Busy: another transaction holds the case or its escrow; ask again.
	Busy Reply = "busy"
	// IsolationUnsupported: the caller's transaction is not READ COMMITTED.
	IsolationUnsupported Reply = "isolation_unsupported"
)

// Accepted reports whether the adjudication is, or has been, taken care of. That of
// one that was accepted before stays so, unless it is at a dead letter or was
// cancelled: then a person acts, and to submit it again does nothing.
func (r Reply) Accepted() bool {
	return r == Created || r == Deduplicated || r == AlreadyExecuted || r == Superseded
}

// Submitted is what became of a submission, and the run that it is about: the new
// one, or the one that stands in its place.
type Submitted struct {
	Reply Reply
	Run   background.RunID
	Case  background.CaseID
	State background.State

	Settlement Settlement // of the case as it is now; empty where there is none

	// Of Cancelled only.

	Actor  string // who ended the run
	Reason string // why, in that person's words

	run    background.Run
	notify func(context.Context, background.Run) error
}

// String tells the reply, the run and its case, and nothing that was handed over: a
// payload has no place in a log.
func (s Submitted) String() string {
	if s.Run.IsZero() {
		return string(s.Reply)
	}
	return fmt.Sprintf("%s: run %s (%s) of case %s", s.Reply, s.Run, s.State, s.Case)
}

// GoString is String: no format prints what is not exported.
func (s Submitted) GoString() string { return s.String() }

// Settlement is how far a case has come, in minor units of its currency.
type Settlement struct {
	settlement.State
	Currency string `json:"currency"`
}

// Notify rings the run's bell, so that a worker takes it at once. After SubmitTx
// call it when the transaction has committed; it is optional, the sweeper rings
// for every run that nobody rang for. It does nothing for other replies than
// Created.
func (s Submitted) Notify(ctx context.Context) error {
	if s.Reply != Created || s.notify == nil {
		return nil
	}
	return s.notify(ctx, s.run)
}

// replyError carries a reply through the journal's Decide.
type replyError Reply

func (r replyError) Error() string { return "postadjudication: " + string(r) }

// replyOf tells the reply behind what the journal returned; ok is false when it
// is no reply but a fault.
func replyOf(err error) (r Reply, ok bool) {
	var refused replyError
	switch {
	case err == nil:
		return Created, true
	case errors.As(err, &refused):
		return Reply(refused), true
	case errors.Is(err, postgres.ErrExceedsHeld):
		return ExceedsHeld, true
	case errors.Is(err, postgres.ErrEscrowMismatch):
		return EscrowMismatch, true
	case errors.Is(err, postgres.ErrBusy):
		return Busy, true
	case errors.Is(err, postgres.ErrIsolation):
		return IsolationUnsupported, true
	}
	return "", false
}

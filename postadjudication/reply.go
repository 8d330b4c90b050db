package postadjudication

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Reply is the outcome of a submission. Replies are values, not errors: each is
// a fact that the caller can act on.
type Reply string

// The replies.
const (
	// Created: the run is committed, or written by the caller's transaction, and will execute. Every other
	// reply leaves the case as it is; CaseEnded and TargetChanged add a receipt.
	Created Reply = "created"
	// Deduplicated: Run is executing the same adjudication.
	Deduplicated Reply = "deduplicated"
	// AlreadyExecuted: the same adjudication moved money, in full or in part.
	// Settlement holds the amounts of the case. Of a task with Once: the same task has ended.
	AlreadyExecuted Reply = "already_executed"
	// Superseded: the same adjudication was accepted as Run, and a higher generation
	// replaced it since. Settlement is that of the higher generation.
	Superseded Reply = "superseded"
	// DeadLettered: the same adjudication was accepted, and Run, its newest run, is dead-lettered. If the letter
	// is open, fork it; that of paid_under_older_key can't be forked, and a higher generation takes its place or
	// a finding of not_executed closes it. If it was purged, a higher generation starts again, or a plan frees
	// what is reserved.
	DeadLettered Reply = "dead_lettered"
	// ReconcileFirst: it is unknown whether money moved; reconcile Run first.
	ReconcileFirst Reply = "reconcile_first"
	// RetryKeyMismatch: the same generation was submitted with other content.
	RetryKeyMismatch Reply = "retry_key_mismatch"
	// Cancelled: the same adjudication was accepted as Run, and Actor ended it before money
	// moved: by a cancel, by a finding that closed its dead letter, or by freeing its
	// reservation. Only a higher generation starts again.
	Cancelled Reply = "cancelled"
	// CaseEnded: the case is settled or refunded by another adjudication. The refusal is
	// in its receipts, once a content and day.
	CaseEnded Reply = "case_ended"
	// StaleGeneration: a higher generation was accepted before; this one was not.
	StaleGeneration Reply = "stale_generation"
	// Conflicting: the same generation was submitted with another outcome, or a higher
	// generation while a run is live.
	Conflicting Reply = "conflicting_adjudication"
	// TargetChanged: a higher generation names another target than Run, which must not be paid elsewhere by one person.
	// A plan of two people permits it: bulk.Plans.PlanMove. The refusal is in the case's receipts, once a content and day.
	TargetChanged Reply = "target_changed"
	// ExceedsHeld: the amount and the escrow's commitments exceed what the escrow holds.
	ExceedsHeld Reply = "exceeds_held"
	// EscrowMismatch: the escrow is known with another held amount or currency, or the case
	// with another escrow.
	EscrowMismatch Reply = "escrow_mismatch"
	// Busy: another transaction holds the case or its escrow; submit again.
	Busy Reply = "busy"
	// IsolationUnsupported: the caller's transaction is not READ COMMITTED.
	IsolationUnsupported Reply = "isolation_unsupported"
)

// Accepted reports whether the adjudication is executing or done, or replaced by a higher
// generation. It is false for one that was accepted but is dead-lettered or cancelled: a
// person must act, and submitting it again does nothing.
func (r Reply) Accepted() bool {
	return r == Created || r == Deduplicated || r == AlreadyExecuted || r == Superseded
}

// Submitted is the outcome of a submission. Run is the new run for Created, and the run that the same
// adjudication was accepted as for Superseded. For every other reply it is the newest run of the case, also
// where that is of another adjudication: it is what stands in the way for Conflicting and ReconcileFirst, and
// only names the case for CaseEnded, RetryKeyMismatch and StaleGeneration. Run and Case are zero where a case
// was not found or not opened: for IsolationUnsupported, and for ExceedsHeld, EscrowMismatch and Busy of
// a new case. They are zero also where a caller of Submit may not read the run, and Submit did not accept the adjudication.
type Submitted struct {
	Reply Reply
	Run   background.RunID
	Case  background.CaseID
	State background.State

	Settlement Settlement // of the case now; empty where there is no case

	// For Cancelled only.

	Actor  string // who ended the run or closed its dead letter
	Reason string // why, in the actor's words

	run    background.Run
	notify func(context.Context, background.Run) error
}

// String returns the reply, the run and its case, and nothing that was submitted: a payload
// must not reach a log.
func (s Submitted) String() string {
	if s.Run.IsZero() {
		return string(s.Reply)
	}
	return fmt.Sprintf("%s: run %s (%s) of case %s", s.Reply, s.Run, s.State, s.Case)
}

// GoString is String, so that no format verb prints the unexported fields.
func (s Submitted) GoString() string { return s.String() }

// Settlement is the progress of a case, in minor units of its currency.
type Settlement struct {
	settlement.State
	Currency string `json:"currency"`
}

// Notify enqueues the run in Redis, so that a worker starts it at once. After SubmitTx
// call it when the transaction has committed. It is optional: the sweeper enqueues every
// committed run that has no task. It does nothing for other replies than Created, nor in a Service
// without a Redis.
//
// Errors: that of Redis, if the run was not enqueued or this is not known, or of ctx. It may be called again.
func (s Submitted) Notify(ctx context.Context) error {
	if s.Reply != Created || s.notify == nil {
		return nil
	}
	return s.notify(ctx, s.run)
}

// replyError carries a reply through the journal's Decide.
type replyError Reply

func (r replyError) Error() string { return "postadjudication: " + string(r) }

// replyOf returns the reply for what the journal returned: Created for nil, the reply that Decide returned as
// an error, or that for an error of the journal. ok is false if the error is none of these: a fault, after
// which the outcome may be unknown.
func replyOf(err error) (r Reply, ok bool) {
	var refused replyError
	switch {
	case err == nil:
		return Created, true
	case errors.As(err, &refused):
		return Reply(refused), true
	case errors.Is(err, journal.ErrExceedsHeld):
		return ExceedsHeld, true
	case errors.Is(err, journal.ErrEscrowMismatch):
		return EscrowMismatch, true
	case errors.Is(err, journal.ErrBusy):
		return Busy, true
	case errors.Is(err, journal.ErrIsolation):
		return IsolationUnsupported, true
	}
	return "", false
}

// outcomeOf returns the outcome of a submission from what the journal answered: the snapshot, and an error that
// may stand for a reply.
func (s *submissions) outcomeOf(snap *journal.Snapshot, err error) (Submitted, error) {
	reply, ok := replyOf(err)
	if !ok {
		return Submitted{}, err
	}
	out := Submitted{
		Reply: reply, Run: snap.Run.ID, Case: snap.Case.ID, State: snap.Run.State, Settlement: Settlement{snap.Case.State, snap.Case.Currency}, run: snap.Run,
	}
	if !s.applier.WithoutRedis {
		out.notify = s.applier.Engine.Notify
	}
	return out, nil
}

// answerIfKnown answers an adjudication that is refused if it is new, for its refusalIfNew. If the same
// adjudication was accepted before, the reply is that of a repetition: what was accepted is never refused later.
// With wait, it waits for a transaction that holds the case: see completeReply.
func (s *submissions) answerIfKnown(ctx context.Context, a *admission, wait bool) (Submitted, error) {
	seen, err := s.journal.Cases.SubjectSnapshot(ctx, a.Tenant, journal.KindSettlement, a.TransactionReceiptID)
	switch {
	case errors.Is(err, refusal.ErrNotFound):
		return Submitted{}, a.refusalIfNew
	case err != nil:
		return Submitted{}, err
	}
	reply := a.reply(&seen)
	switch reply {
	case AlreadyExecuted, Deduplicated, DeadLettered, Cancelled, StaleGeneration:
	default:
		return Submitted{}, a.refusalIfNew
	}
	out, err := s.outcomeOf(&seen, replyError(reply))
	if err == nil {
		out, err = s.completeReply(ctx, a, out, wait)
	}
	if err == nil && out.Reply == StaleGeneration {
		return Submitted{}, a.refusalIfNew
	}
	return out, err
}

// completeReply adds to a reply what only the receipts show: that the submission was accepted
// before a higher generation, or who cancelled it. A refusal because the case has ended is
// recorded as a receipt before it is returned. Without wait, the reply is Busy if another
// transaction holds the case.
func (s *submissions) completeReply(ctx context.Context, a *admission, out Submitted, wait bool) (Submitted, error) {
	switch out.Reply {
	case StaleGeneration:
		return s.addSuperseded(ctx, a, out)
	case Cancelled:
		return s.addCancellation(ctx, a, out)
	case CaseEnded:
		return s.recordRefusal(ctx, a, out, wait)
	}
	return out, nil
}

// recordRefusal writes the receipt of a refused submission, once a content and day, and returns the reply.
func (s *submissions) recordRefusal(ctx context.Context, a *admission, out Submitted, wait bool) (Submitted, error) {
	err := s.journal.Operations.RecordRefusalOnce(ctx, a.Tenant, out.Case, a.refusalReceipt(out.Reply), a.at.UTC().Truncate(validate.Day), wait)
	if reply, ok := replyOf(err); err != nil && ok {
		return Submitted{Reply: reply}, nil
	}
	return out, err
}

// submitMoving submits an adjudication, and again with the permit for its target if it needs one and has one. It records a
// refusal for its target as completeReply does.
func (s *submissions) submitMoving(ctx context.Context, a *admission, wait bool, submit func() (Submitted, error)) (Submitted, error) {
	out, err := submit()
	if err != nil || out.Reply != TargetChanged {
		return out, err
	}
	people, err := s.applier.RequiredPeople(ctx, a.Tenant)
	if err == nil && people > 1 {
		a.permit, err = s.plans.PermitOf(ctx, a.Tenant, out.Run, a.target())
	}
	switch {
	case err != nil:
		return Submitted{}, err
	case people > 1 && a.permit == (bulk.MovePermit{}):
		return s.recordRefusal(ctx, a, out, wait)
	}
	a.movable = out.Run
	return submit()
}

// readableReply returns a reply as the caller may read it. One that does not accept the adjudication says nothing else of a run
// that the caller may not read.
func (s *submissions) readableReply(ctx context.Context, tenant string, out Submitted, err error) (Submitted, error) {
	if err != nil || out.Reply.Accepted() || out.Run.IsZero() {
		return out, err
	}
	may, err := casework.Permitted(ctx, s.journal, tenant, []background.RunID{out.Run})
	if err != nil || may(out.Run) {
		return out, err
	}
	return Submitted{Reply: out.Reply}, nil
}

// addSuperseded looks up the run of an adjudication of a lower generation, if that was ever
// accepted. An accepted adjudication stays accepted.
func (s *submissions) addSuperseded(ctx context.Context, a *admission, out Submitted) (Submitted, error) {
	accepted, err := s.journal.Receipts.OfCase(ctx, a.Tenant, out.Case, receipts.Submitted)
	if err != nil {
		return Submitted{}, err
	}
	for _, r := range accepted {
		p, err := r.Payload()
		if err != nil {
			return Submitted{}, err
		}
		if p.ParentRun.IsZero() && p.Generation == a.Generation && p.ContentDigest == hex.EncodeToString(a.digest[:]) {
			out.Reply, out.Run = Superseded, r.Run
		}
	}
	if out.Reply != Superseded {
		return out, nil
	}
	made, err := s.journal.Cases.Snapshot(ctx, out.Run)
	if err != nil {
		return Submitted{}, err
	}
	out.State = made.Run.State
	return out, nil
}

// addCancellation adds who ended the adjudication's run, and why.
func (s *submissions) addCancellation(ctx context.Context, a *admission, out Submitted) (Submitted, error) {
	ends, err := s.journal.Receipts.OfCase(ctx, a.Tenant, out.Case, receipts.Cancelled, receipts.Reconciled, receipts.ReservationFreed)
	if err != nil {
		return Submitted{}, err
	}
	for _, r := range ends {
		p, err := r.Payload()
		if err != nil {
			return Submitted{}, err
		}
		if r.Run == out.Run && (r.Subtype != receipts.Reconciled || p.LetterClosed) {
			out.Actor, out.Reason = r.Actor, p.Reason
		}
	}
	return out, nil
}

// refusalReceipt is the receipt of a refused submission.
func (a *admission) refusalReceipt(r Reply) receipts.Draft {
	return receipts.Draft{Actor: a.actor(), At: a.at, Payload: receipts.Payload{
		AskedFor: "submit", RefusedBy: string(r), AdjudicationID: a.AdjudicationID, SubmissionReceiptID: a.SubmissionReceiptID,
		TransactionReceiptID: a.TransactionReceiptID, EscrowReference: a.EscrowReference, Outcome: string(a.Outcome), Generation: a.Generation,
		Amount: a.Amount.Minor, Held: a.Held.Minor, Currency: a.Amount.Currency, ContentDigest: hex.EncodeToString(a.digest[:]),
	}}
}

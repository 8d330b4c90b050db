package postadjudication

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/settlement"
)

// submissions accepts adjudications and tasks.
type submissions struct {
	journal  *journal.Journal
	applier  *casework.Applier
	policies *policyStore
	tracer   trace.Tracer // nil: nothing is traced
	now      func() time.Time
	calls    calls // of what submits
}

// Submit hands over an adjudication. When it returns Created, the run is committed and will
// execute, whatever happens to this process or to Redis. It waits for Redis only if hundreds
// of notifications already wait, and then for seconds at most.
//
// Errors: a *FieldError for bad input (joined, one per field), and nothing is created. After
// any other error it is unknown whether the run was created: submit the same again. If it
// was created, the reply is one for an earlier submission, such as Deduplicated or
// AlreadyExecuted.
func (s *submissions) Submit(ctx context.Context, a Adjudication) (Submitted, error) {
	if !s.calls.begin() {
		return Submitted{}, ErrClosed
	}
	defer s.calls.end()
	ad, err := s.admission(ctx, a)
	if err != nil {
		return Submitted{}, err
	}
	if ad.unsafeErr != nil {
		return s.answerUnaccepted(ctx, &ad, true)
	}
	return s.submit(ctx, ad.submission(), func(ctx context.Context, out Submitted) (Submitted, error) {
		return s.completeReply(ctx, &ad, out, true)
	})
}

// submit hands a submission to the journal. complete adds to the reply what only a read shows.
func (s *submissions) submit(ctx context.Context, sub journal.Submission, complete func(context.Context, Submitted) (Submitted, error)) (Submitted, error) {
	ctx, endSpan := s.startSpan(ctx, sub.Tenant)
	snap, err := s.journal.Submit(ctx, sub)
	out, err := s.submitted(snap, err)
	problem := "not known to be submitted"
	if err == nil && complete != nil {
		problem = "submitted before or refused, the reply could not be completed"
		out, err = complete(ctx, out)
	}
	s.notifyCreated(ctx, out)
	endSpan(out, err, problem)
	return out, err
}

// notifyCreated notifies workers of a run that was just committed. It does not wait, since
// Submit promises only the commit.
func (s *submissions) notifyCreated(ctx context.Context, out Submitted) {
	if out.Reply == Created {
		s.applier.NotifyRuns(ctx, &out.run)
	}
}

// SubmitTx hands over an adjudication inside the caller's transaction: the run
// exists if and only if that commits. Call Submitted.Notify after the commit. SubmitTx
// never waits for another transaction, and never aborts the caller's: it replies Busy
// when another transaction holds the case or escrow, and IsolationUnsupported when the
// isolation level is not READ COMMITTED. Bad input is a *FieldError (joined, one per field).
func (s *submissions) SubmitTx(ctx context.Context, tx *sql.Tx, a Adjudication) (Submitted, error) {
	if !s.calls.begin() {
		return Submitted{}, ErrClosed
	}
	defer s.calls.end()
	ad, err := s.admission(ctx, a)
	if err != nil {
		return Submitted{}, err
	}
	if ad.unsafeErr != nil {
		return s.answerUnaccepted(ctx, &ad, false)
	}
	out, err := s.submitted(s.journal.SubmitTx(ctx, tx, ad.submission()))
	if err != nil {
		return out, err
	}
	return s.completeReply(ctx, &ad, out, false)
}

// SubmitBatch hands over many adjudications; they share commits. It returns one result and
// one error for each adjudication, in the order of the input. Adjudications of one
// transaction are submitted in the order given.
func (s *submissions) SubmitBatch(ctx context.Context, as []Adjudication) ([]Submitted, []error) {
	out, errs := make([]Submitted, len(as)), make([]error, len(as))
	type subject struct{ tenant, transaction string }
	order := make(map[subject][]int)
	for i, a := range as {
		k := subject{a.Tenant, a.TransactionReceiptID}
		order[k] = append(order[k], i)
	}
	const maxConcurrent = 512
	slots := make(chan struct{}, maxConcurrent)
	var wg sync.WaitGroup
	for _, group := range order {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, i := range group {
				out[i], errs[i] = s.Submit(ctx, as[i])
			}
		})
	}
	wg.Wait()
	return out, errs
}

func (s *submissions) submitted(snap *journal.Snapshot, err error) (Submitted, error) {
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

// Reply is the outcome of a submission. Replies are values, not errors: each is
// a fact that the caller can act on.
type Reply string

// The replies.
const (
	// Created: the run is committed and will execute. Every other reply leaves the
	// case unchanged.
	Created Reply = "created"
	// Deduplicated: Run is executing the same adjudication.
	Deduplicated Reply = "deduplicated"
	// AlreadyExecuted: the same adjudication moved money, in full or in part.
	// Settlement holds the amount.
	AlreadyExecuted Reply = "already_executed"
	// Superseded: the same adjudication was accepted as Run, and a higher generation
	// replaced it since. Settlement is that of the higher generation.
	Superseded Reply = "superseded"
	// DeadLettered: the same adjudication was accepted as Run and dead-lettered; fork Run.
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
	// in its receipts.
	CaseEnded Reply = "case_ended"
	// StaleGeneration: a higher generation was accepted before; this one was not.
	StaleGeneration Reply = "stale_generation"
	// Conflicting: the same generation was submitted with another outcome, or a higher
	// generation while a run is live.
	Conflicting Reply = "conflicting_adjudication"
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

// Submitted is the outcome of a submission. Run is the new run, or the existing run that
// answers for the adjudication.
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

// replyOf returns the reply for an error of the journal; ok is false if the error is a
// fault.
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

// startSpan starts the span of a submission, as a child of the caller's span if there is one.
// Notifications sent within it carry the trace to the attempts.
func (s *submissions) startSpan(ctx context.Context, tenant string) (_ context.Context, endSpan func(out Submitted, err error, problem string)) {
	if s.tracer == nil {
		return ctx, func(Submitted, error, string) {}
	}
	ctx, span := s.tracer.Start(ctx, "submit", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attribute.String("recourse.tenant", tenant)))
	return ctx, func(out Submitted, err error, problem string) {
		span.SetAttributes(attribute.String("recourse.reply", string(out.Reply)), attribute.String("recourse.run", out.Run.String()))
		if err != nil {
			span.SetStatus(codes.Error, problem) // not the error's text: only logs are redacted
		}
		span.End()
	}
}

package postadjudication

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// submissions accepts adjudications and tasks.
type submissions struct {
	journal  *journal.Journal
	applier  *casework.Applier
	policies *policyStore
	plans    *bulk.Planner
	tracer   trace.Tracer // nil: nothing is traced
	now      func() time.Time
	calls    calls // of what submits
}

// Submit hands over an adjudication. When it returns Created, the run is committed and will
// execute, whatever happens to this process or to Redis. ctx bounds the wait for a turn to validate a
// long payload, and the reads. While another transaction holds the case or its escrow, Submit tries again. A try
// waits 2 s at most for the case and 2 s for its escrow; none begins later than 2 s after the first. So Busy comes
// after 6 s at most, unless others open the case meanwhile or its escrow is corrected: then the tries begin anew.
// While others change the case, Submit decides again until ctx ends. Once the run is queued for a commit, Submit
// returns only with its outcome.
// The notification is sent in the background; while 512 are being sent, Submit sends it itself, for 5 s
// and until ctx ends at most.
//
// Errors: a *FieldError for bad input (joined, one per field), ErrClosed, and background.ErrUnrecordable for a
// value that Postgres refuses: nothing was written. After any other error it is unknown whether the run was
// created: submit the same again. If it was created, the reply is one for an earlier submission, such as
// Deduplicated or AlreadyExecuted.
func (s *submissions) Submit(ctx context.Context, a Adjudication) (Submitted, error) {
	if !s.calls.begin() {
		return Submitted{}, ErrClosed
	}
	defer s.calls.end()
	ad, err := s.admit(ctx, a)
	if err != nil {
		return Submitted{}, err
	}
	if ad.refusalIfNew != nil {
		out, err := s.answerIfKnown(ctx, &ad, true)
		return s.readableReply(ctx, a.Tenant, out, err)
	}
	out, err := s.submitMoving(ctx, &ad, true, func() (Submitted, error) {
		return s.submit(ctx, ad.submission(), func(ctx context.Context, out Submitted) (Submitted, error) {
			return s.completeReply(ctx, &ad, out, true)
		})
	})
	return s.readableReply(ctx, a.Tenant, out, err)
}

// submit hands a submission to the journal, traces it, and notifies workers of the run that it created.
// complete, unless it is nil, adds to the reply what only the receipts show, and records a refusal.
func (s *submissions) submit(ctx context.Context, sub journal.Submission, complete func(context.Context, Submitted) (Submitted, error)) (Submitted, error) {
	ctx, endSpan := s.startSpan(ctx, sub.Tenant)
	snap, err := s.journal.Submit(ctx, sub)
	out, err := s.outcomeOf(snap, err)
	problem := "not known to be submitted"
	if err == nil && complete != nil {
		problem = "submitted before or refused, the reply could not be completed"
		out, err = complete(ctx, out)
	}
	s.notifyCreated(ctx, out)
	endSpan(out, err, problem)
	return out, err
}

// notifyCreated notifies workers of a run that was just committed: see background.Manager.NotifyAsync. An
// error is logged only, since Submit promises only the commit.
func (s *submissions) notifyCreated(ctx context.Context, out Submitted) {
	if out.Reply == Created {
		s.applier.NotifyRuns(ctx, &out.run)
	}
}

// SubmitTx hands over an adjudication inside the caller's transaction: the run
// exists if and only if that commits. Call Submitted.Notify after the commit. Where another transaction
// holds the case or its escrow, the reply is Busy. SubmitTx waits for no lock but that of an escrow which
// another transaction is inserting. Where the isolation level is not READ COMMITTED, the reply is
// IsolationUnsupported. After every reply, and after a *FieldError, the transaction can go on.
//
// Two things are committed immediately, outside the transaction: the row of an escrow that is new, with
// nothing reserved, and the receipt of a refusal with CaseEnded or TargetChanged.
//
// Errors: as of Submit, and background.ErrOtherDatabase where the transaction belongs to another database than
// that of the Service: nothing is written in either, and ErrSubmitRole. After any other than a *FieldError, ErrClosed
// or ErrSubmitRole the transaction may be aborted: roll it back.
func (s *submissions) SubmitTx(ctx context.Context, tx *sql.Tx, a Adjudication) (Submitted, error) {
	if !s.calls.begin() {
		return Submitted{}, ErrClosed
	}
	defer s.calls.end()
	ad, err := s.admit(ctx, a)
	if err != nil {
		return Submitted{}, err
	}
	if ad.refusalIfNew != nil {
		if err := s.journal.Database.CheckTx(ctx, tx); err != nil && !errors.Is(err, journal.ErrIsolation) {
			return Submitted{}, err
		}
		return s.answerIfKnown(ctx, &ad, false)
	}
	out, err := s.submitMoving(ctx, &ad, false, func() (Submitted, error) { return s.outcomeOf(s.journal.SubmitTx(ctx, tx, ad.submission())) })
	if err != nil {
		return out, err
	}
	return s.completeReply(ctx, &ad, out, false)
}

// maxConcurrent bounds the settled transactions (Adjudication.Transaction) whose adjudications a SubmitBatch
// submits concurrently.
const maxConcurrent = 512

// SubmitBatch hands over many adjudications; they share commits with each other and with other calls. It
// returns one result and one error for each adjudication, in the order of the input, each as of Submit:
// nothing is atomic over the batch. Adjudications of one transaction are submitted in the order given, also
// after an error of one before. Those of 512 transactions are submitted concurrently.
func (s *submissions) SubmitBatch(ctx context.Context, as []Adjudication) ([]Submitted, []error) {
	out, errs := make([]Submitted, len(as)), make([]error, len(as))
	type transactionKey struct{ tenant, transaction string }
	order := make(map[transactionKey][]int)
	for i, a := range as {
		k := transactionKey{a.Tenant, a.TransactionReceiptID}
		order[k] = append(order[k], i)
	}
	running := make(chan struct{}, maxConcurrent)
	var wg sync.WaitGroup
	for _, group := range order {
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			for _, i := range group {
				out[i], errs[i] = s.Submit(ctx, as[i])
			}
		})
	}
	wg.Wait()
	return out, errs
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

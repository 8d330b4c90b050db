package postadjudication

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// Submit hands over an adjudication. When it returns Created, the run is
// committed and will execute, whatever happens to this process or to Redis. It
// waits for Redis only where hundreds of bells do already, and for seconds at most.
// The error is a *FieldError (joined, one per field) for bad input; any other error
// leaves it unknown whether the run was created: submit the same again, it will be
// answered as one that was accepted before (such as Deduplicated or AlreadyExecuted) if
// it was.
func (s *Service) Submit(ctx context.Context, a Adjudication) (Submitted, error) {
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

// submit hands a submission to the journal. answer completes what is told of it.
func (s *Service) submit(ctx context.Context, sub postgres.Submission, complete func(context.Context, Submitted) (Submitted, error)) (Submitted, error) {
	ctx, endSpan := s.startSpan(ctx, sub.Tenant)
	snap, err := s.journal.Submit(ctx, sub)
	out, err := s.submitted(snap, err)
	if err == nil && complete != nil {
		out, err = complete(ctx, out)
	}
	s.notifyCreated(ctx, out)
	endSpan(out, err)
	return out, err
}

// notifyCreated rings for what was just committed, and does not wait for it: that it is
// committed is all that was promised.
func (s *Service) notifyCreated(ctx context.Context, out Submitted) {
	if out.Reply == Created {
		s.notifyRuns(ctx, &out.run)
	}
}

// notifyRuns rings for runs that were just committed.
func (s *Service) notifyRuns(ctx context.Context, created ...*background.Run) {
	if s.withoutRedis {
		return
	}
	for _, r := range created {
		s.manager.NotifyAsync(ctx, *r)
	}
}

// SubmitTx hands over an adjudication inside the caller's transaction: the run
// exists if and only if that commits. Call Ring on the result after the commit. It
// never waits for another transaction, and never fails the caller's: a case or
// escrow that another transaction holds is answered Busy, an isolation level other
// than READ COMMITTED IsolationUnsupported.
func (s *Service) SubmitTx(ctx context.Context, tx *sql.Tx, a Adjudication) (Submitted, error) {
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

// SubmitBatch hands over many adjudications; they share commits. Results and
// errors stand in the order of the input, one of each for every adjudication.
// Adjudications of one transaction are taken in the order given.
func (s *Service) SubmitBatch(ctx context.Context, as []Adjudication) ([]Submitted, []error) {
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

// admission fixes everything that a submission needs, so that the journal may
// decide about it as often as it must.
func (s *Service) admission(ctx context.Context, a Adjudication) (admission, error) {
	if a.Generation == 0 {
		a.Generation = 1
	}
	wrong, err := a.problemsInTurn(ctx)
	if err != nil {
		return admission{}, err
	}
	if wrong.malformed() != nil {
		return admission{}, errors.Join(wrong.malformed(), wrong.unsafe())
	}
	problem := wrong.unsafe()
	if _, known := s.settlements.targets[a.target()]; !known {
		problem = errors.Join(problem, unknownTargetError(s.settlements.targets))
	}
	if err := s.manager.MeasureClock(ctx); err != nil {
		return admission{}, err
	}
	return admission{
		Adjudication: a, run: background.RunID(newID()), caseID: background.CaseID(newID()), transition: newID(),
		queue: s.manager.Queue(Family, a.RetryKey()), policy: s.policies.policyFor(ctx, a.Tenant, Family, s.policy), request: a.requestOf(wrong.canonical), digest: a.contentDigest(wrong.canonical), at: s.now(), unsafeErr: problem,
	}, nil
}

func (a admission) submission() postgres.Submission {
	return postgres.Submission{
		Tenant: a.Tenant, Kind: postgres.KindSettlement, Subject: a.TransactionReceiptID, Run: a.run, Open: a.openCase, Decide: a.decide,
	}
}

func (s *Service) submitted(snap *postgres.Snapshot, err error) (Submitted, error) {
	reply, ok := replyOf(err)
	if !ok {
		return Submitted{}, err
	}
	return Submitted{
		Reply: reply, Run: snap.Run.ID, Case: snap.Case.ID, State: snap.Run.State, Settlement: Settlement{snap.Case.State, snap.Case.Currency},
		run: snap.Run, notify: s.manager.Notify,
	}, nil
}

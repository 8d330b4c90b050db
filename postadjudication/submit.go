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
	if ad.problem != nil {
		return s.submitAgain(ctx, &ad, true)
	}
	return s.submit(ctx, ad.submission(), func(ctx context.Context, out Submitted) (Submitted, error) { return s.answer(ctx, &ad, out, true) })
}

// submit hands a submission to the journal. answer completes what is told of it.
func (s *Service) submit(ctx context.Context, sub postgres.Submission, answer func(context.Context, Submitted) (Submitted, error)) (Submitted, error) {
	ctx, ended := s.traced(ctx, sub.Tenant)
	snap, err := s.journal.Submit(ctx, sub)
	out, err := s.submitted(snap, err)
	if err == nil && answer != nil {
		out, err = answer(ctx, out)
	}
	s.ring(ctx, out)
	ended(out, err)
	return out, err
}

// ring rings for what was just committed, and does not wait for it: that it is
// committed is all that was promised.
func (s *Service) ring(ctx context.Context, out Submitted) {
	if out.Reply == Created {
		s.ringFor(ctx, &out.run)
	}
}

// ringFor rings for runs that were just committed.
func (s *Service) ringFor(ctx context.Context, begun ...*background.Run) {
	if s.deaf {
		return
	}
	for _, r := range begun {
		s.manager.BellBeside(ctx, *r)
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
	if ad.problem != nil {
		return s.submitAgain(ctx, &ad, false)
	}
	out, err := s.submitted(s.journal.SubmitTx(ctx, tx, ad.submission()))
	if err != nil {
		return out, err
	}
	return s.answer(ctx, &ad, out, false)
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
	const atOnce = 512
	room := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, group := range order {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
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
		problem = errors.Join(problem, errTarget(s.settlements.targets))
	}
	if err := s.manager.MeasureClock(ctx); err != nil {
		return admission{}, err
	}
	return admission{
		Adjudication: a, run: background.RunID(newID()), kase: background.CaseID(newID()), move: newID(),
		queue: s.manager.Queue(Family, a.RetryKey()), policy: s.policies.of(ctx, a.Tenant, Family, s.policy), request: a.requestOf(wrong.canonical), digest: a.content(wrong.canonical), at: s.now(), problem: problem,
	}, nil
}

func (a admission) submission() postgres.Submission {
	return postgres.Submission{
		Tenant: a.Tenant, Kind: postgres.KindSettlement, Subject: a.TransactionReceiptID, Run: a.run, Open: a.open, Decide: a.decide,
	}
}

func (s *Service) submitted(snap *postgres.Snapshot, err error) (Submitted, error) {
	reply, ok := replyOf(err)
	if !ok {
		return Submitted{}, err
	}
	return Submitted{
		Reply: reply, Run: snap.Run.ID, Case: snap.Case.ID, State: snap.Run.State, Settlement: Settlement{snap.Case.State, snap.Case.Currency},
		run: snap.Run, bell: s.manager.Bell,
	}, nil
}

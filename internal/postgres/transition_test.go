package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/receipts"
)

func submit(t testing.TB, j *postgres.Journal) postgres.Snapshot {
	t.Helper()
	run := plainRun(receipts.CaseID(uuid.New()), "acme")
	s, err := j.Submit(context.Background(), postgres.Submission{
		Tenant: "acme", Kind: postgres.KindPlain, Subject: "case:" + run.Case.String(), Run: run.ID,
		Open: func() (postgres.Change, error) { return opening(run, submitted(run)), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// decide returns the decision of a plain family for a transition.
func decide(m background.Transition) postgres.Decision {
	return func(s *postgres.Snapshot) (postgres.Change, error) {
		after, err := m.Apply(s.Run)
		if err != nil {
			return postgres.Change{}, err
		}
		p := receipts.Payload{Attempt: after.Attempt, BudgetSpent: after.BudgetSpent, Recoveries: after.Recoveries,
			OutcomeClass: string(after.Class), UnknownOpen: after.UnresolvedUnknowns, NextRetryAt: m.NextRetryAt}
		switch m.Event {
		case receipts.DeadLettered:
			p.DeadLetteredAt = m.At
		case receipts.AnsweredLate:
			p.Attempt = m.Run.Attempt
		}
		return postgres.Change{Transition: m.ID, Before: s, After: &postgres.Snapshot{Case: s.Case, Run: after},
			Drafts: []receipts.Draft{{Run: after.ID, Subtype: m.Event, Actor: "test", At: m.At, Payload: p}}}, nil
	}
}

func transition(fact receipts.Subtype, seen background.Run) background.Transition {
	m := background.Transition{ID: uuid.New(), Run: seen, Event: fact, At: time.Now().UTC().Truncate(time.Microsecond), Token: seen.Token}
	switch fact {
	case receipts.AttemptStarted:
		m.Token, m.Session = uuid.New(), session
	case receipts.RetryScheduled:
		m.NextRetryAt, m.Charge, m.Result.Class = m.At, background.ChargeAttempt, background.NotExecuted
	case receipts.AttemptInterrupted:
		m.NextRetryAt, m.Charge, m.Result.Class = m.At, background.ChargeRecovery, background.Unknown
	case receipts.DeadLettered:
		m.Charge, m.Result.Class, m.Reason = background.ChargeAttempt, background.NotExecuted, background.ReasonFinal
	case receipts.AttemptSucceeded:
		m.Result.Class = background.Executed
	}
	return m
}

// When two processes make transitions of one run at once, decided on the same snapshot, the
// trail is one of a sequential order.
func TestTwoTransitionsOfOneRunRace(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	journals := []*postgres.Journal{open(t, url), open(t, url)}
	ends := []receipts.Subtype{receipts.AttemptSucceeded, receipts.RetryScheduled, receipts.DeadLettered, receipts.AttemptInterrupted, receipts.Cancelled}
	starts := []receipts.Subtype{receipts.AttemptStarted, receipts.Cancelled}
	pairs := func(facts []receipts.Subtype, running bool) {
		for _, a := range facts {
			for _, b := range facts {
				t.Run(fmt.Sprintf("%s and %s", a, b), func(t *testing.T) {
					t.Parallel()
					for range 10 {
						racePair(t, journals, a, b, running)
					}
				})
			}
		}
	}
	pairs(starts, false)
	pairs(ends, true)
}

func racePair(t *testing.T, journals []*postgres.Journal, a, b receipts.Subtype, running bool) {
	t.Helper()
	ctx := context.Background()
	seen := submit(t, journals[0])
	if running {
		m := transition(receipts.AttemptStarted, seen.Run)
		now, err := journals[0].Apply(ctx, seen.Run.ID, m.ID, decide(m))
		if err != nil {
			t.Fatal(err)
		}
		seen = *now
	}
	moves, errs := []background.Transition{transition(a, seen.Run), transition(b, seen.Run)}, make([]error, 2)
	var both sync.WaitGroup
	for i := range moves {
		both.Go(func() { _, errs[i] = journals[i].Apply(ctx, seen.Run.ID, moves[i].ID, decide(moves[i])) })
	}
	both.Wait()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, background.ErrConflict):
			t.Errorf("%s: %v", moves[i].Event, err)
		}
	}
	if won != 1 {
		t.Errorf("%s and %s: %d won (%v)", a, b, won, errs)
	}
	auditPlain(t, journals[0], seen)
}

// auditPlain checks one case's chain, and the stored run against its receipts.
func auditPlain(t testing.TB, j *postgres.Journal, s postgres.Snapshot) {
	t.Helper()
	runs, trail, err := j.Cases.WithTrail(context.Background(), "acme", s.Case.ID)
	if err != nil {
		t.Fatal(err)
	}
	head, err := receipts.Verifier{}.Verify(s.Case.ID, trail)
	if err != nil || head != runs[0].Case.Head {
		t.Errorf("chain: %v; ends at %d, head of the case %d", err, head.Seq, runs[0].Case.Head.Seq)
	}
	h, err := receipts.Fold(trail)
	if err != nil {
		t.Fatal(err)
	}
	r, fromReceipts := runs[0].Run, h.Runs[s.Run.ID]
	if fromReceipts.State != string(r.State) || fromReceipts.Attempts != r.Attempt || fromReceipts.BudgetSpent != r.BudgetSpent || fromReceipts.Recoveries != r.Recoveries {
		t.Errorf("stored %+v, from receipts %+v", r, fromReceipts)
	}
}

// The same transition applied again, as after a commit of unknown outcome, takes effect
// once.
func TestATransitionRecordedAgainTakesEffectOnce(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, other := open(t, url), open(t, url)
	s := submit(t, j)
	m := transition(receipts.AttemptStarted, s.Run)
	for i, journal := range []*postgres.Journal{j, j, other} {
		after, err := journal.Apply(context.Background(), s.Run.ID, m.ID, decide(m))
		if err != nil || after.Run.Attempt != 1 || after.Run.Token != m.Token || after.Case.Head.Seq != 2 {
			t.Errorf("time %d: %+v, %v", i+1, after.Run, err)
		}
	}
	auditPlain(t, j, s)
}

// A row that the server refuses fails alone; the other rows of its batch are written.
func TestARefusedRowFailsAlone(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j := open(t, url)
	var all sync.WaitGroup
	for i := range 64 {
		s := submit(t, j)
		all.Go(func() {
			m := transition(receipts.AttemptStarted, s.Run)
			_, err := j.Apply(context.Background(), s.Run.ID, m.ID, func(s *postgres.Snapshot) (postgres.Change, error) {
				ch, err := decide(m)(s)
				if i%8 == 0 {
					ch.After.Run.BudgetSpent = 99 // violates the constraint budgets_in_attempts
				}
				return ch, err
			})
			if (err != nil) != (i%8 == 0) {
				t.Errorf("row %d: %v", i, err)
			}
			auditPlain(t, j, s)
		})
	}
	all.Wait()
}

// Postgres is restarted, and killed, during writes: every transition is written once.
func TestTransitionsSurviveARestartOfPostgres(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := localpg.Start(ctx, localpg.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	migrateFor(t, postgres.Migration{DatabaseURL: server.URL("postgres"), AppRole: localpg.AppRole})
	j := open(t, server.AppURL("postgres"))
	cases := make([]postgres.Snapshot, 20)
	for i := range cases {
		cases[i] = submit(t, j)
	}
	const rounds = 60
	var writers sync.WaitGroup
	half := make(chan struct{}, len(cases))
	for i := range cases {
		writers.Go(func() {
			run := cases[i].Run
			for n := range rounds {
				run = applyUntilRecorded(t, j, transition(receipts.AttemptStarted, run))
				run = applyUntilRecorded(t, j, transition(receipts.AttemptInterrupted, run))
				if n == rounds/3 {
					half <- struct{}{}
				}
			}
		})
	}
	for _, disturb := range []func() error{
		func() error { return server.Restart(ctx, localpg.Fast) },
		func() error { return server.Restart(ctx, localpg.Immediate) },
		func() error { return errors.Join(server.Kill(), server.Restart(ctx, localpg.Fast)) },
	} {
		<-half
		if err := disturb(); err != nil {
			t.Fatal(err)
		}
	}
	writers.Wait()
	for _, s := range cases {
		now, err := j.Cases.Snapshot(ctx, s.Run.ID)
		if err != nil || now.Run.Attempt != rounds || now.Case.Head.Seq != 1+2*rounds {
			t.Errorf("%d attempts, %d receipts, %v; want %d and %d", now.Run.Attempt, now.Case.Head.Seq, err, rounds, 1+2*rounds)
		}
		auditPlain(t, j, s)
	}
}

// applyUntilRecorded applies a transition until it succeeds, like a worker that holds an
// outcome.
func applyUntilRecorded(t testing.TB, j *postgres.Journal, m background.Transition) background.Run {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		s, err := j.Apply(context.Background(), m.Run.ID, m.ID, decide(m))
		if err == nil {
			return s.Run
		}
		if errors.Is(err, background.ErrConflict) || time.Now().After(deadline) {
			t.Errorf("%s of attempt %d: %v", m.Event, m.Run.Attempt, err)
			return s.Run
		}
	}
}

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// When two processes make transitions of one run at once, decided on the same snapshot, the
// trail is one of a sequential order.
func TestTwoTransitionsOfOneRunRace(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	journals := []*journal.Journal{journaltest.Open(t, url), journaltest.Open(t, url)}
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

func racePair(t *testing.T, journals []*journal.Journal, a, b receipts.Subtype, running bool) {
	t.Helper()
	ctx := context.Background()
	seen := journaltest.Submit(t, journals[0])
	if running {
		m := journaltest.Transition(receipts.AttemptStarted, seen.Run)
		now, err := journals[0].CommitTransition(ctx, seen.Run.ID, m.ID, journaltest.Decide(m))
		if err != nil {
			t.Fatal(err)
		}
		seen = *now
	}
	moves, errs := []background.Transition{journaltest.Transition(a, seen.Run), journaltest.Transition(b, seen.Run)}, make([]error, 2)
	var both sync.WaitGroup
	for i := range moves {
		both.Go(func() {
			_, errs[i] = journals[i].CommitTransition(ctx, seen.Run.ID, moves[i].ID, journaltest.Decide(moves[i]))
		})
	}
	both.Wait()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, background.ErrConflict):
			t.Errorf("%s: %v", moves[i].Subtype, err)
		}
	}
	if won != 1 {
		t.Errorf("%s and %s: %d won (%v)", a, b, won, errs)
	}
	auditPlain(t, journals[0], seen)
}

// auditPlain checks one case's chain, and the stored run against its receipts.
func auditPlain(t testing.TB, j *journal.Journal, s journal.Snapshot) {
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
	if fromReceipts.State != string(r.State) || fromReceipts.AttemptCount != r.Attempt || fromReceipts.BudgetSpent != r.BudgetSpent || fromReceipts.Recoveries != r.Recoveries {
		t.Errorf("stored %+v, from receipts %+v", r, fromReceipts)
	}
}

// The same transition applied again, as after a commit of unknown outcome, takes effect
// once.
func TestATransitionRecordedAgainTakesEffectOnce(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, other := journaltest.Open(t, url), journaltest.Open(t, url)
	s := journaltest.Submit(t, j)
	m := journaltest.Transition(receipts.AttemptStarted, s.Run)
	for i, journal := range []*journal.Journal{j, j, other} {
		after, err := journal.CommitTransition(context.Background(), s.Run.ID, m.ID, journaltest.Decide(m))
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
	j := journaltest.Open(t, url)
	var all sync.WaitGroup
	for i := range 64 {
		s := journaltest.Submit(t, j)
		all.Go(func() {
			m := journaltest.Transition(receipts.AttemptStarted, s.Run)
			_, err := j.CommitTransition(context.Background(), s.Run.ID, m.ID, func(s *journal.Snapshot) (journal.Change, error) {
				ch, err := journaltest.Decide(m)(s)
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
	migrateFor(t, schema.Migration{DatabaseURL: server.URL("postgres"), AppRole: localpg.AppRole})
	j := journaltest.Open(t, server.AppURL("postgres"))
	cases := make([]journal.Snapshot, 20)
	for i := range cases {
		cases[i] = journaltest.Submit(t, j)
	}
	const rounds = 60
	var writers sync.WaitGroup
	half := make(chan struct{}, len(cases))
	for i := range cases {
		writers.Go(func() {
			run := cases[i].Run
			for n := range rounds {
				run = applyUntilRecorded(t, j, journaltest.Transition(receipts.AttemptStarted, run))
				run = applyUntilRecorded(t, j, journaltest.Transition(receipts.AttemptInterrupted, run))
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
func applyUntilRecorded(t testing.TB, j *journal.Journal, m background.Transition) background.Run {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		s, err := j.CommitTransition(context.Background(), m.Run.ID, m.ID, journaltest.Decide(m))
		if err == nil {
			return s.Run
		}
		if errors.Is(err, background.ErrConflict) || time.Now().After(deadline) {
			t.Errorf("%s of attempt %d: %v", m.Subtype, m.Run.Attempt, err)
			return s.Run
		}
	}
}

// Every transition of an existing case counts, whatever batch it shares.
func TestEveryBatchOfTransitionsCounts(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	counted := func() uint64 {
		transitions, _ := j.BatchStats()
		return transitions.Rows
	}
	apply := func(seen journal.Snapshot, fact receipts.Subtype, more func(*journal.Change)) journal.Snapshot {
		t.Helper()
		before, m := counted(), journaltest.Transition(fact, seen.Run)
		if seen.Run.Remote && fact == receipts.AttemptStarted {
			m.Lease = &lease.Lease{}
		}
		after, err := j.CommitTransition(t.Context(), seen.Run.ID, m.ID, func(s *journal.Snapshot) (journal.Change, error) {
			ch, err := journaltest.Decide(m)(s)
			more(&ch)
			return ch, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := counted() - before; n != 1 {
			t.Errorf("%s: %d transitions are counted", fact, n)
		}
		return *after
	}
	asItIs := func(*journal.Change) {}
	running := apply(journaltest.Submit(t, j), receipts.AttemptStarted, asItIs)
	apply(running, receipts.DeadLettered, func(ch *journal.Change) {
		handler := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
		ch.SideEffect = journal.LetterHandler{Letter: ch.After.Run.ID, Opens: journaltest.Opening(handler, journaltest.Submitted(handler))}
	})
	run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
	run.Remote = true
	remote, err := j.Submit(t.Context(), submissionOf(run, journaltest.Submitted(run)))
	if err != nil {
		t.Fatal(err)
	}
	apply(apply(*remote, receipts.AttemptStarted, asItIs), receipts.AttemptSucceeded, asItIs)
}

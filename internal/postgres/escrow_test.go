package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// reservation opens a case that reserves an amount of an escrow that holds ten.
func reservation(escrow, subject string, amount int64) postgres.Submission {
	s := settlementOf(escrow, subject)
	ch, err := s.Open()
	ch.After.Case.State.Asked, ch.After.Case.State.Reserved = amount, amount
	s.Open = func() (postgres.Change, error) { return ch, err }
	return s
}

// applyState moves what a run's case has reserved and released, as a cancel or a payment does.
func applyState(t testing.TB, j *postgres.Journal, run postgres.Snapshot, to func(*settlement.State)) {
	t.Helper()
	m := transition(receipts.Cancelled, run.Run)
	if _, err := j.Apply(context.Background(), run.Run.ID, m.ID, func(s *postgres.Snapshot) (postgres.Change, error) {
		ch, err := decide(m)(s)
		if err == nil {
			to(&ch.After.Case.State)
		}
		return ch, err
	}); err != nil {
		t.Error(err)
	}
}

func mustReserve(t testing.TB, j *postgres.Journal, escrow, subject string, amount int64) postgres.Snapshot {
	t.Helper()
	s, err := j.Submit(context.Background(), reservation(escrow, subject, amount))
	if err != nil {
		t.Error(err)
	}
	return *s
}

func mustFindEscrow(t testing.TB, j *postgres.Journal, reference string) postgres.Escrow {
	t.Helper()
	e, err := j.FindEscrow(context.Background(), "acme", reference)
	if err != nil {
		t.Error(err)
	}
	return e
}

// Of two that want the room that one delta frees, one gets it, whoever folds the delta:
// either of them, or the loop. A statement that counted what it saw instead of what it
// deleted let both in.
func TestADeltaIsCountedOnceByWhoeverFoldsIt(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	journals := []*postgres.Journal{open(t, url), open(t, url), open(t, url)}
	const workers, rounds = 8, 125
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for n := range rounds {
				escrow := fmt.Sprintf("esc_%d_%d", w, n)
				full := mustReserve(t, journals[w%3], escrow, escrow+"/full", 10)
				applyState(t, journals[w%3], full, func(s *settlement.State) { s.Reserved = 6 })
				raceForRoom(t, journals, escrow)
			}
		})
	}
	all.Wait()
}

func raceForRoom(t *testing.T, journals []*postgres.Journal, escrow string) {
	ctx := context.Background()
	begin, errs := make(chan struct{}), make([]error, 2)
	var race sync.WaitGroup
	for i := range errs {
		race.Go(func() {
			<-begin
			_, errs[i] = journals[i].Submit(ctx, reservation(escrow, fmt.Sprintf("%s/%d", escrow, i), 4))
		})
	}
	race.Go(func() {
		<-begin
		if _, err := journals[2].FoldDeltas(ctx); err != nil && !errors.Is(err, postgres.ErrBusy) {
			t.Error(err)
		}
	})
	close(begin)
	race.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, postgres.ErrExceedsHeld) && !errors.Is(err, postgres.ErrBusy):
			t.Error(err)
		}
	}
	if _, err := journals[2].FoldDeltas(ctx); err != nil && !errors.Is(err, postgres.ErrBusy) {
		t.Error(err)
	}
	committed, sum, err := journals[2].EscrowSums(ctx, "acme", escrow)
	if e := mustFindEscrow(t, journals[2], escrow); err != nil || won != 1 || committed != 10 || sum != 10 || e.Breached != 0 {
		t.Errorf("%s: %d got in (%v), committed %d, its cases add up to %d, %+v: %v", escrow, won, errs, committed, sum, e, err)
	}
}

// What a move frees or adds waits for nobody who holds the escrow; it counts in the sum
// at once, frees room when it is folded, and is folded by whoever locks the row next.
func TestATransitionNeverWaitsForItsEscrow(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := open(t, url), database(t, url)
	ctx := context.Background()
	first := mustReserve(t, j, "esc", "first", 6)
	second := mustReserve(t, j, "esc", "second", 4)
	letGo := holdLocks(t, db, `SELECT FROM recourse.escrows FOR UPDATE`)
	defer letGo()
	applyState(t, j, first, func(s *settlement.State) { s.Reserved, s.Released = 0, 2 })  // in part: frees 4
	applyState(t, j, second, func(s *settlement.State) { s.Reserved, s.Released = 0, 9 }) // beyond it: adds 5
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 11 || e.OpenDeltas != 1 || e.Breached != 0 {
		t.Errorf("while the row is locked: %+v", e)
	}
	if n, err := j.FoldDeltas(ctx); n != 0 || err != nil {
		t.Errorf("%d folded of a locked escrow, %v", n, err)
	}
	letGo()
	if n, err := j.FoldDeltas(ctx); n != 2 || err != nil {
		t.Errorf("%d folded, %v", n, err)
	}
	if n, err := j.FoldDeltas(ctx); n != 0 || err != nil {
		t.Errorf("%d folded twice, %v", n, err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 11 || e.OpenDeltas != 0 || e.Breached != 1 {
		t.Errorf("folded: %+v", e)
	}
	if b, err := j.Breaches(ctx); b.Escrows != 1 || b.Overdrawn != 1 || err != nil {
		t.Errorf("%+v, %v", b, err)
	}
}

// An admission folds before it looks for room: what was freed lets it in, and what was
// paid beyond the escrow keeps it out, without a fold in between.
func TestAnAdmissionFoldsBeforeItLooksForRoom(t *testing.T) {
	t.Parallel()
	j := open(t, testkit.Migrated(t))
	full := mustReserve(t, j, "esc", "full", 10)
	if _, err := j.Submit(context.Background(), reservation("esc", "early", 1)); !errors.Is(err, postgres.ErrExceedsHeld) {
		t.Errorf("before anything is freed: %v", err)
	}
	applyState(t, j, full, func(s *settlement.State) { s.Reserved, s.Released = 0, 3 })
	next := mustReserve(t, j, "esc", "next", 7)
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 10 || e.OpenDeltas != 0 || e.Breached != 0 {
		t.Errorf("with what was freed: %+v", e)
	}
	applyState(t, j, next, func(s *settlement.State) { s.Reserved, s.Released = 0, 8 })
	if _, err := j.Submit(context.Background(), reservation("esc", "late", 1)); !errors.Is(err, postgres.ErrExceedsHeld) {
		t.Errorf("into a breached escrow: %v", err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 11 || e.Breached != 1 || e.OpenDeltas != 0 {
		t.Errorf("the refused admission folded: %+v", e)
	}
}

// The sum of an escrow is right at every moment, while it is reserved, paid, freed and
// folded.
func TestTheSumOfAnEscrowIsRightAtEveryMoment(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, other := open(t, url), open(t, url)
	ctx := context.Background()
	over := make(chan struct{})
	var folding, working sync.WaitGroup
	for _, k := range []*postgres.Journal{j, other} {
		folding.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if _, err := k.FoldDeltas(ctx); err != nil && !errors.Is(err, postgres.ErrBusy) {
					t.Error(err)
				}
				committed, sum, err := k.EscrowSums(ctx, "acme", "esc")
				if err != nil && !errors.Is(err, sql.ErrNoRows) || committed != sum {
					t.Errorf("committed %d, its cases add up to %d: %v", committed, sum, err)
				}
			}
		})
	}
	for w := range 4 {
		working.Go(func() {
			for range 60 {
				s, err := []*postgres.Journal{j, other}[w%2].Submit(ctx, reservation("esc", uuid.NewString(), 2))
				switch {
				case errors.Is(err, postgres.ErrBusy) || errors.Is(err, postgres.ErrExceedsHeld):
					continue
				case err != nil:
					t.Error(err)
					return
				}
				applyState(t, j, *s, func(s *settlement.State) { s.Reserved = 0 })
			}
		})
	}
	working.Wait()
	close(over)
	folding.Wait()
	if _, err := j.FoldDeltas(ctx); err != nil {
		t.Fatal(err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.OpenDeltas != 0 || e.Breached != 0 {
		t.Errorf("%+v", e)
	}
}

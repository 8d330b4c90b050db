package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// reservation is a submission that reserves an amount of an escrow that holds ten.
func reservation(escrow, subject string, amount int64) journal.Submission {
	s := settlementOf(escrow, subject)
	ch, err := s.Open()
	ch.After.Case.State.Asked, ch.After.Case.State.Reserved = amount, amount
	s.Open = func() (journal.Change, error) { return ch, err }
	return s
}

// applyState changes the money of a run's case, as a cancel or a payment does.
func applyState(t testing.TB, j *journal.Journal, run journal.Snapshot, to func(*settlement.State)) {
	t.Helper()
	m := journaltest.Transition(receipts.Cancelled, run.Run)
	if _, err := j.CommitTransition(context.Background(), run.Run.ID, m.ID, func(s *journal.Snapshot) (journal.Change, error) {
		ch, err := journaltest.Decide(m)(s)
		if err == nil {
			to(&ch.After.Case.State)
		}
		return ch, err
	}); err != nil {
		t.Error(err)
	}
}

func mustReserve(t testing.TB, j *journal.Journal, escrow, subject string, amount int64) journal.Snapshot {
	t.Helper()
	s, err := j.Submit(context.Background(), reservation(escrow, subject, amount))
	if err != nil {
		t.Error(err)
	}
	return *s
}

func mustFindEscrow(t testing.TB, j *journal.Journal, reference string) journal.Escrow {
	t.Helper()
	e, err := j.Escrows.Find(context.Background(), "acme", reference)
	if err != nil {
		t.Error(err)
	}
	return e
}

// Of two reservations that want the room freed by one delta, exactly one is admitted,
// whether a reservation or the loop folds the delta. A statement that counted the deltas it
// saw instead of those it deleted would admit both.
func TestADeltaIsCountedOnceByWhoeverFoldsIt(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	journals := []*journal.Journal{journaltest.Open(t, url), journaltest.Open(t, url), journaltest.Open(t, url)}
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

func raceForRoom(t *testing.T, journals []*journal.Journal, escrow string) {
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
		if _, err := journals[2].Escrows.FoldDeltas(ctx); err != nil && !errors.Is(err, journal.ErrBusy) {
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
		case !errors.Is(err, journal.ErrExceedsHeld) && !errors.Is(err, journal.ErrBusy):
			t.Error(err)
		}
	}
	if _, err := journals[2].Escrows.FoldDeltas(ctx); err != nil && !errors.Is(err, journal.ErrBusy) {
		t.Error(err)
	}
	committed, sum, err := journals[2].Escrows.Sums(ctx, "acme", escrow)
	if e := mustFindEscrow(t, journals[2], escrow); err != nil || won != 1 || committed != 10 || sum != 10 || e.Breached != 0 {
		t.Errorf("%s: %d admitted (%v), committed %d, sum of its cases %d, %+v: %v", escrow, won, errs, committed, sum, e, err)
	}
}

// A transition that frees or adds to the committed sum does not wait for the escrow's lock.
// The change counts in the sum at once, frees room when it is folded, and is folded by
// whoever locks the row next.
func TestATransitionNeverWaitsForItsEscrow(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	ctx := context.Background()
	first := mustReserve(t, j, "esc", "first", 6)
	second := mustReserve(t, j, "esc", "second", 4)
	release := holdLocks(t, db, `SELECT FROM recourse.escrows FOR UPDATE`)
	defer release()
	applyState(t, j, first, func(s *settlement.State) { s.Reserved, s.Released = 0, 2 })  // in part: frees 4
	applyState(t, j, second, func(s *settlement.State) { s.Reserved, s.Released = 0, 9 }) // beyond it: adds 5
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 11 || e.OpenDeltas != 1 || e.Breached != 0 {
		t.Errorf("while the row is locked: %+v", e)
	}
	if n, err := j.Escrows.FoldDeltas(ctx); n != 0 || err != nil {
		t.Errorf("folded %d deltas of a locked escrow, %v", n, err)
	}
	release()
	if n, err := j.Escrows.FoldDeltas(ctx); n != 2 || err != nil {
		t.Errorf("folded %d deltas, want 2, %v", n, err)
	}
	if n, err := j.Escrows.FoldDeltas(ctx); n != 0 || err != nil {
		t.Errorf("folded %d deltas twice, %v", n, err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 11 || e.OpenDeltas != 0 || e.Breached != 1 {
		t.Errorf("after folding: %+v", e)
	}
	if b, err := j.Escrows.Breaches(ctx); b.Escrows != 1 || b.Overdrawn != settlement.SumOf(1) || err != nil {
		t.Errorf("%+v, %v", b, err)
	}
}

// A reservation folds before it checks the room: freed amounts let it in, and payments beyond
// the escrow keep it out, without a fold in between.
func TestAReservationFoldsBeforeItLooksForRoom(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	full := mustReserve(t, j, "esc", "full", 10)
	if _, err := j.Submit(context.Background(), reservation("esc", "early", 1)); !errors.Is(err, journal.ErrExceedsHeld) {
		t.Errorf("admitted to a full escrow: %v", err)
	}
	applyState(t, j, full, func(s *settlement.State) { s.Reserved, s.Released = 0, 3 })
	next := mustReserve(t, j, "esc", "next", 7)
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 10 || e.OpenDeltas != 0 || e.Breached != 0 {
		t.Errorf("after the reservation: %+v", e)
	}
	applyState(t, j, next, func(s *settlement.State) { s.Reserved, s.Released = 0, 8 })
	if _, err := j.Submit(context.Background(), reservation("esc", "late", 1)); !errors.Is(err, journal.ErrExceedsHeld) {
		t.Errorf("admitted to a breached escrow: %v", err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 11 || e.Breached != 1 || e.OpenDeltas != 0 {
		t.Errorf("after the refused reservation: %+v", e)
	}
}

// The sum of an escrow is right at every moment, during reservations, payments, cancels and
// folds.
func TestTheSumOfAnEscrowIsRightAtEveryMoment(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, other := journaltest.Open(t, url), journaltest.Open(t, url)
	ctx := context.Background()
	over := make(chan struct{})
	var folding, working sync.WaitGroup
	for _, k := range []*journal.Journal{j, other} {
		folding.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if _, err := k.Escrows.FoldDeltas(ctx); err != nil && !errors.Is(err, journal.ErrBusy) {
					t.Error(err)
				}
				committed, sum, err := k.Escrows.Sums(ctx, "acme", "esc")
				if err != nil && !errors.Is(err, sql.ErrNoRows) || committed != sum {
					t.Errorf("committed %d, sum of its cases %d: %v", committed, sum, err)
				}
			}
		})
	}
	for w := range 4 {
		working.Go(func() {
			for range 60 {
				s, err := []*journal.Journal{j, other}[w%2].Submit(ctx, reservation("esc", uuid.NewString(), 2))
				switch {
				case errors.Is(err, journal.ErrBusy) || errors.Is(err, journal.ErrExceedsHeld):
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
	if _, err := j.Escrows.FoldDeltas(ctx); err != nil {
		t.Fatal(err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.OpenDeltas != 0 || e.Breached != 0 {
		t.Errorf("%+v", e)
	}
}

// A submission that states another sum held corrects an escrow that no case has used, and no other: also not one whose only
// case moved nothing and reserves nothing any more, nor one that says of itself that it was used, whose cases are lost.
func TestOnlyAnEscrowThatNoCaseHasUsedIsCorrected(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	ctx := context.Background()
	more := func(escrow, subject string) journal.Submission {
		s := reservation(escrow, subject, 15)
		ch, err := s.Open()
		ch.OpeningEscrow.Held = 20
		s.Open = func() (journal.Change, error) { return ch, err }
		return s
	}
	if _, err := j.Submit(ctx, reservation("unused", "too-much", 11)); !errors.Is(err, journal.ErrExceedsHeld) {
		t.Fatal(err)
	}
	if _, err := j.Submit(ctx, more("unused", "corrected")); err != nil || mustFindEscrow(t, j, "unused").Held != 20 {
		t.Errorf("an escrow without a case: %v, %+v", err, mustFindEscrow(t, j, "unused"))
	}
	freed := mustReserve(t, j, "used", "freed", 10)
	applyState(t, j, freed, func(s *settlement.State) { s.Reserved = 0 })
	if _, err := j.Escrows.FoldDeltas(ctx); err != nil {
		t.Fatal(err)
	}
	if e := mustFindEscrow(t, j, "used"); e.Committed != 0 {
		t.Fatalf("%+v", e)
	}
	if _, err := j.Submit(ctx, more("used", "more")); !errors.Is(err, journal.ErrEscrowMismatch) || mustFindEscrow(t, j, "used").Held != 10 {
		t.Errorf("an escrow of an ended case: %v, %+v", err, mustFindEscrow(t, j, "used"))
	}
	if _, err := db.Exec(`INSERT INTO recourse.escrows (tenant, reference, currency, held, committed, breached) VALUES ('acme', 'committed', 'EUR', 10, 5, 0), ('acme', 'breached', 'EUR', 10, 0, 3)`); err != nil {
		t.Fatal(err)
	}
	for _, lost := range []string{"committed", "breached"} {
		if _, err := j.Submit(ctx, more(lost, lost)); !errors.Is(err, journal.ErrEscrowMismatch) || mustFindEscrow(t, j, lost).Held != 10 {
			t.Errorf("an escrow with lost cases: %v, %+v", err, mustFindEscrow(t, j, lost))
		}
	}
}

// A transition that reserves more than its escrow has left is refused, as a submission is.
func TestATransitionReservesNoMoreThanIsLeft(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	first := mustReserve(t, j, "esc", "first", 6)
	m := journaltest.Transition(receipts.Cancelled, first.Run)
	_, err := j.CommitTransition(t.Context(), first.Run.ID, m.ID, func(s *journal.Snapshot) (journal.Change, error) {
		ch, err := journaltest.Decide(m)(s)
		ch.After.Case.State.Reserved, ch.Reserve = 11, true
		return ch, err
	})
	if e := mustFindEscrow(t, j, "esc"); !errors.Is(err, journal.ErrExceedsHeld) || e.Committed != 6 || e.Breached != 0 {
		t.Errorf("%v, %+v", err, e)
	}
}

// An escrow whose sum Postgres refuses keeps its deltas and is named; the deltas of others are folded, and their
// submissions written, though they share its statements.
func TestAnEscrowWhoseSumIsRefusedTakesNoOtherAlong(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	for _, escrow := range []string{"overflows", "fine"} {
		freed := mustReserve(t, j, escrow, escrow, 10)
		applyState(t, j, freed, func(s *settlement.State) { s.Reserved = 4 })
	}
	if _, err := db.Exec(`INSERT INTO recourse.escrow_deltas (escrow_id, case_id, seq, delta) SELECT id, gen_random_uuid(), 1, 9223372036854775807 FROM recourse.escrows WHERE reference = 'overflows'`); err != nil {
		t.Fatal(err)
	}
	if n, err := j.Escrows.FoldDeltas(t.Context()); n != 1 || err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("%d deltas were folded, %v", n, err)
	}
	if e := mustFindEscrow(t, j, "fine"); e.Committed != 4 || e.OpenDeltas != 0 {
		t.Errorf("%+v", e)
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if _, err := j.Submit(t.Context(), reservation("fine", fmt.Sprintf("fine/%d", i), 1)); err != nil {
				t.Error(err)
			}
			if _, err := j.Submit(t.Context(), reservation("overflows", fmt.Sprintf("overflows/%d", i), 1)); !errors.Is(err, background.ErrUnrecordable) {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestAnyBreachCounts(t *testing.T) {
	t.Parallel()
	for _, b := range []journal.Breaches{{Excesses: 1}, {Contradictions: 1}, {Escrows: 1}} {
		if !b.Any() {
			t.Errorf("%+v is none", b)
		}
	}
	if (journal.Breaches{}).Any() {
		t.Error("nothing is a breach")
	}
}

// A payment beyond what is reserved is counted once, and never waits for its escrow, also where its change has more than a change of
// its run and its case.
func TestAPaymentBesidesAnotherChangeIsCountedOnce(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	paid := mustReserve(t, j, "esc", "paid", 4)
	release := holdLocks(t, db, `SELECT FROM recourse.escrows FOR UPDATE`)
	defer release()
	m := journaltest.Transition(receipts.Cancelled, paid.Run)
	if _, err := j.CommitTransition(t.Context(), paid.Run.ID, m.ID, func(s *journal.Snapshot) (journal.Change, error) {
		ch, err := journaltest.Decide(m)(s)
		ch.After.Case.State.Reserved, ch.After.Case.State.Released = 0, 9
		ch.Drafts = append(ch.Drafts, receipts.Draft{Run: s.Run.ID, Subtype: receipts.Marked, Actor: "test", At: m.At})
		return ch, err
	}); err != nil {
		t.Fatal(err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 9 || e.OpenDeltas != 5 {
		t.Errorf("while the row is locked: %+v", e)
	}
	release()
	if n, err := j.Escrows.FoldDeltas(t.Context()); n != 1 || err != nil {
		t.Errorf("folded %d deltas, %v", n, err)
	}
	if e := mustFindEscrow(t, j, "esc"); e.Committed != 9 || e.OpenDeltas != 0 {
		t.Errorf("after folding: %+v", e)
	}
}

// A later submission of a case that asks for more than its escrow has is refused, and nothing of it is written.
func TestALaterSubmissionTakesNoMoreThanItsEscrowHas(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	for asked, want := range map[int64]error{10: nil, 11: journal.ErrExceedsHeld} {
		name := fmt.Sprint(asked)
		first := mustReserve(t, j, name, name, 3)
		next := journaltest.PlainRun(first.Run.Case, "acme")
		s := reservation(name, name, asked)
		s.Run, s.Decide = next.ID, func(seen *journal.Snapshot) (journal.Change, error) {
			after := *seen
			after.Run.State, after.Case.ActiveRun, after.Case.State.Reserved = background.Cancelled, next.ID, asked
			return journal.Change{Before: seen, After: &after, NewRun: &next, Reserve: true, Drafts: []receipts.Draft{journaltest.Submitted(next)}}, nil
		}
		if _, err := j.Submit(t.Context(), s); !errors.Is(err, want) {
			t.Errorf("asked %d of 10: %v", asked, err)
		}
		if e := mustFindEscrow(t, j, name); want != nil && e.Committed != 3 || want == nil && e.Committed != asked {
			t.Errorf("asked %d of 10: committed %d", asked, e.Committed)
		}
	}
}

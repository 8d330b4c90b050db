package settlement_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/settlement"
)

func TestPayments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                         string
		asked, moved, reserved, paid int64
		outcome                      settlement.Outcome
		to                           settlement.Status
		effect                       settlement.Effect
	}{
		{"all of a release", 100, 0, 100, 100, settlement.Release, settlement.Settled, settlement.Effect{0, 0}},
		{"all of a refund", 100, 0, 100, 100, settlement.Refund, settlement.Refunded, settlement.Effect{0, 0}},
		{"a part frees the rest", 100, 0, 100, 30, settlement.Release, settlement.PartiallySettled, settlement.Effect{-70, 0}},
		{"more than asked is an excess", 100, 0, 100, 130, settlement.Release, settlement.Settled, settlement.Effect{30, 30}},
		{"the rest of a part, nothing reserved", 100, 60, 0, 40, settlement.Release, settlement.Settled, settlement.Effect{40, 0}},
		{"still a part", 100, 60, 0, 39, settlement.Refund, settlement.PartiallySettled, settlement.Effect{39, 0}},
		{"more than the rest of a part", 100, 60, 0, 50, settlement.Release, settlement.Settled, settlement.Effect{50, 10}},
		{"all of what was freed", 100, 0, 0, 100, settlement.Release, settlement.Settled, settlement.Effect{100, 0}},
		{"a part of what was freed", 100, 0, 0, 30, settlement.Release, settlement.PartiallySettled, settlement.Effect{30, 0}},
		{"more than was freed", 100, 0, 0, 130, settlement.Release, settlement.Settled, settlement.Effect{130, 30}},
		{"more reserved than asked is left", 100, 60, 100, 40, settlement.Release, settlement.Settled, settlement.Effect{-60, 0}},
	} {
		s := settlement.State{Outcome: settlement.Release, Progression: settlement.InProgress, Lifecycle: settlement.HoldActive, Generation: 1, Asked: c.asked, Moved: c.moved, Reserved: c.reserved}
		got, effect, err := settlement.Apply(s, settlement.Event{Fact: settlement.Executed, Outcome: c.outcome, Paid: c.paid})
		if err != nil || effect != c.effect || got.Progression != c.to || got.Moved != c.moved+c.paid || got.Reserved != 0 || got.Lifecycle != settlement.NoDispute || got.Outcome != settlement.Release {
			t.Errorf("%s: %+v, %+v, %v; want %s, %+v", c.name, got, effect, err, c.to, c.effect)
		}
		paid := map[settlement.Outcome]int64{settlement.Release: got.Released, settlement.Refund: got.Refunded}
		if paid[c.outcome] != c.paid || got.Released+got.Refunded != c.paid {
			t.Errorf("%s: released %d, refunded %d", c.name, got.Released, got.Refunded)
		}
		if c.to.Ended() && got.Reason != "post-adjudication execution completed" {
			t.Errorf("%s: %q", c.name, got.Reason)
		}
	}
}

// A payment of an older generation comes out of the present one's reservation: an escrow
// that pays no more than it holds is not breached.
func TestPaymentsUnderAnOlderKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                    string
		reserved, paid, left    int64
		committed, held, breach int64
		undercut                bool
	}{
		{"all of it, of an escrow that is full", 1000, 1000, 0, 1000, 1000, 0, true},
		{"a part of it", 1000, 400, 600, 1000, 1000, 0, true},
		{"more than is reserved", 1000, 1200, 0, 1000, 1000, 200, true},
		{"more than is reserved, and there is room", 1000, 1200, 0, 1000, 3000, 0, true},
		{"nothing is reserved", 0, 300, 0, 500, 1000, 0, true},
		{"nothing is reserved, and there is no room", 0, 300, 0, 1000, 1000, 300, true},
	} {
		for _, from := range settlement.Statuses[1:] {
			s := settlement.State{Outcome: settlement.Refund, Progression: from, Reason: "before", Lifecycle: settlement.ReEscalated, Generation: 2, Asked: 1000, Reserved: c.reserved, Refunded: 5}
			got, effect, err := settlement.Apply(s, settlement.Event{Fact: settlement.ExecutedOlder, Outcome: settlement.Release, Paid: c.paid})
			want := s
			want.Reserved, want.Released = c.left, c.paid
			beyond := c.paid - (c.reserved - c.left) // what is reserved
			excess := beyond
			if c.reserved == 0 && !from.Ended() {
				excess = 0 // it is no more than was decided
			}
			if err != nil || got != want || effect != (settlement.Effect{Committed: beyond, Excess: excess}) {
				t.Errorf("%s, at %q: %+v, %+v, %v", c.name, from, got, effect, err)
			}
			if escrow := (settlement.Escrow{Held: c.held, Committed: c.committed}).Record(effect.Committed); escrow.Breached != c.breach {
				t.Errorf("%s: breached by %d, want %d", c.name, escrow.Breached, c.breach)
			}
			if got.Underfunded() != (c.undercut && !from.Ended()) {
				t.Errorf("%s, at %q: undercut %v", c.name, from, got.Underfunded())
			}
		}
	}
}

// A payment under an older key leaves less to be paid for the present generation, also where
// its reservation was freed since. A payment from before the generation began does not.
func TestPaymentsOfWhatWasFreedAfterOlderOnes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                  string
		fact                  settlement.Fact
		released, older, paid int64
		needs                 bool
		excess                int64
	}{
		{"nothing was paid before", settlement.Executed, 0, 0, 1000, false, 0},
		{"an earlier generation had its part", settlement.Executed, 400, 0, 1000, true, 0},
		{"an older key took from it", settlement.Executed, 400, 400, 1000, true, 400},
		{"both", settlement.Executed, 700, 400, 600, true, 0},
		{"an older key took all of it", settlement.Executed, 1000, 1000, 1000, true, 1000},
		{"another older key", settlement.ExecutedOlder, 400, 400, 700, true, 100},
	} {
		s := settlement.State{Outcome: settlement.Release, Progression: settlement.ReviewNeeded, Generation: 2, Asked: 1000, Released: c.released}
		_, effect, err := settlement.Apply(s, settlement.Event{Fact: c.fact, Outcome: settlement.Release, Paid: c.paid, OlderPaid: c.older})
		if err != nil || effect.Committed != c.paid || effect.Excess != c.excess || s.NeedsOlderPaid() != c.needs {
			t.Errorf("%s: %+v, %v, needs %v", c.name, effect, err, s.NeedsOlderPaid())
		}
	}
	for name, s := range map[string]settlement.State{
		"reserved": {Progression: settlement.InProgress, Asked: 1000, Reserved: 600, Released: 400},
		"settled":  {Progression: settlement.Settled, Asked: 1000, Moved: 1000, Released: 1400},
		"a part":   {Progression: settlement.PartiallySettled, Asked: 1000, Moved: 400, Released: 400},
	} {
		if s.NeedsOlderPaid() {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// What is on record of an operation key is not paid again by saying it again, nor taken back by saying less.
func TestARepeatedPaymentChangesNothing(t *testing.T) {
	t.Parallel()
	for _, fact := range []settlement.Fact{settlement.Executed, settlement.ExecutedOlder} {
		for _, from := range settlement.Statuses[1:] {
			for _, paid := range []int64{100, 99, 1, 0, -1} {
				s := settlement.State{Progression: from, Asked: 100, Moved: 100, Released: 100}
				got, effect, err := settlement.Apply(s, settlement.Event{Fact: fact, Outcome: settlement.Release, Paid: paid, Recorded: 100})
				if err != nil || got != s || effect != (settlement.Effect{}) {
					t.Errorf("%d, %s at %q: %+v, %+v, %v", paid, fact, from, got, effect, err)
				}
			}
		}
	}
}

// An answer that states more under a key that has paid is a payment of the difference, as if that were paid by itself.
func TestAHigherSumUnderAKeyIsAPaymentOfTheDifference(t *testing.T) {
	t.Parallel()
	for _, fact := range []settlement.Fact{settlement.Executed, settlement.ExecutedOlder} {
		for _, from := range settlement.Statuses[1:] {
			for _, asked := range []int64{400, 700, 1000} {
				s := settlement.State{Outcome: settlement.Release, Progression: from, Generation: 1, Asked: asked, Moved: 400, Released: 400}
				want, wantEffect, wantErr := settlement.Apply(s, settlement.Event{Fact: fact, Outcome: settlement.Release, Paid: 600})
				got, effect, err := settlement.Apply(s, settlement.Event{Fact: fact, Outcome: settlement.Release, Paid: 1000, Recorded: 400})
				if err != nil || wantErr != nil || got != want || effect != wantEffect || got.Released != 1000 || effect.Committed != 600 {
					t.Errorf("%d asked, %s at %q: %+v, %+v, %v; want %+v, %+v, %v", asked, fact, from, got, effect, err, want, wantEffect, wantErr)
				}
			}
		}
	}
}

func TestParticularsThatNoFactCanHave(t *testing.T) {
	t.Parallel()
	fresh := settlement.State{}
	partial := settlement.State{Progression: settlement.PartiallySettled, Generation: 4, Asked: 100, Moved: 30, Released: 30}
	running := settlement.State{Progression: settlement.InProgress, Generation: 1, Asked: 100, Reserved: 100}
	full := settlement.State{Progression: settlement.InProgress, Generation: 1, Refunded: settlement.MaxMinor - 5}
	paid := settlement.State{Progression: settlement.Settled, Generation: 1, Asked: 100, Moved: 100, Released: settlement.MaxMinor, Refunded: settlement.MaxMinor}
	for _, c := range []struct {
		name, field string
		s           settlement.State
		e           settlement.Event
	}{
		{"no outcome", "outcome", fresh, settlement.Event{Fact: settlement.Adjudicated, Generation: 1, Amount: 1}},
		{"no generation", "generation", fresh, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Refund, Amount: 1}},
		{"generation too high", "generation", fresh, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Refund, Amount: 1, Generation: settlement.MaxGeneration + 1}},
		{"no amount", "amount", fresh, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Refund, Generation: 1}},
		{"negative amount", "amount", fresh, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Refund, Generation: 1, Amount: -1}},
		{"amount too high", "amount", fresh, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Refund, Generation: 1, Amount: settlement.MaxMinor + 1}},
		{"lower generation", "generation", partial, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 3, Amount: 70}},
		{"a generation that paid, again", "generation", partial, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 4, Amount: 70}},
		{"re-adjudicated in the same generation", "generation", partial, settlement.Event{Fact: settlement.Readjudicated, Outcome: settlement.Release, Generation: 4, Amount: 70}},
		{"nothing paid", "paid", running, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release}},
		{"a negative payment", "paid", running, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: -1}},
		{"a payment too high", "paid", running, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: settlement.MaxMinor + 1}},
		{"a sum too high", "paid", full, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Refund, Paid: 6}},
		{"paid for nothing", "outcome", running, settlement.Event{Fact: settlement.Executed, Paid: 1}},
		{"paid under an older key, nothing", "paid", running, settlement.Event{Fact: settlement.ExecutedOlder, Outcome: settlement.Release}},
		{"nothing came back", "amount", paid, returned(1, 0, 0)},
		{"a negative return", "amount", paid, returned(1, -1, 0)},
		{"a return too high for one payment", "amount", paid, returned(1, settlement.MaxMinor+1, 0)},
		{"a return of no generation", "generation", paid, returned(0, 1, 0)},
		{"paid at an end, nothing", "paid", settlement.State{Progression: settlement.Settled}, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release}},
	} {
		got, effect, err := settlement.Apply(c.s, c.e)
		var f *settlement.FieldError
		if !errors.As(err, &f) || f.Field != c.field || got != c.s || effect != (settlement.Effect{}) {
			t.Errorf("%s: %+v, %+v, %v; want an error about %s", c.name, got, effect, err, c.field)
		}
	}
	if _, _, err := settlement.Apply(full, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Refund, Paid: 5}); err != nil {
		t.Error("the highest sum:", err)
	}
}

// No code begins a cancelled generation again, but stored receipts have such cases.
func TestACancelledGenerationCanBeginAgain(t *testing.T) {
	t.Parallel()
	s := play(t, settlement.State{}, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 1, Amount: 10}, settlement.Event{Fact: settlement.Cancelled},
		settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 1, Amount: 10})
	if s.Progression != settlement.ApprovedForSettlement || s.Reserved != 10 {
		t.Errorf("%+v", s)
	}
}

func TestAForkOfADeadLetterCanExecute(t *testing.T) {
	t.Parallel()
	s := play(t, settlement.State{}, settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Refund, Generation: 1, Amount: 10}, settlement.Event{Fact: settlement.AttemptStarted}, settlement.Event{Fact: settlement.RetryScheduled},
		settlement.Event{Fact: settlement.AttemptStarted}, settlement.Event{Fact: settlement.DeadLettered})
	want := settlement.State{
		Outcome: settlement.Refund, Progression: settlement.DisputeReady, ReasonCode: settlement.Escalate, Reason: "post-adjudication execution dead-lettered",
		Lifecycle: settlement.ReEscalated, Generation: 1, Asked: 10, Reserved: 10,
	}
	if s != want {
		t.Errorf("the letter: %+v, want %+v", s, want)
	}
	s = play(t, s, settlement.Event{Fact: settlement.Reconciled}, settlement.Event{Fact: settlement.Forked}, settlement.Event{Fact: settlement.AttemptStarted}, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Refund, Paid: 10})
	want = settlement.State{
		Outcome: settlement.Refund, Progression: settlement.Refunded, ReasonCode: settlement.Approve, Reason: "post-adjudication execution completed",
		Generation: 1, Asked: 10, Moved: 10, Refunded: 10,
	}
	if s != want {
		t.Errorf("the fork: %+v, want %+v", s, want)
	}
}

func play(t *testing.T, s settlement.State, events ...settlement.Event) settlement.State {
	t.Helper()
	for _, e := range events {
		next, _, err := settlement.Apply(s, e)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	return s
}

func anyEvent(t *rapid.T, s settlement.State) settlement.Event {
	return settlement.Event{
		Fact:         rapid.SampledFrom(settlement.Facts).Draw(t, "fact"),
		Outcome:      rapid.SampledFrom([]settlement.Outcome{settlement.Release, settlement.Refund, settlement.Release, settlement.Refund, ""}).Draw(t, "outcome"),
		Generation:   s.Generation + rapid.IntRange(-1, 2).Draw(t, "generation"),
		Amount:       rapid.OneOf(rapid.Int64Range(-1, 200), rapid.Int64Range(settlement.MaxMinor-1, settlement.MaxMinor+1), rapid.Int64()).Draw(t, "amount"),
		Paid:         rapid.OneOf(rapid.Int64Range(-1, 200), rapid.Int64Range(settlement.MaxMinor-1, settlement.MaxMinor+1), rapid.Int64()).Draw(t, "paid"),
		Recorded:     max(0, rapid.Int64Range(-400, 100).Draw(t, "recorded")),
		KeepReserved: rapid.Bool().Draw(t, "kept"),
	}
}

func TestMoneyIsConservedWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		escrow := settlement.Escrow{Held: rapid.Int64Range(1, 500).Draw(t, "held")}
		cases := make([]settlement.State, 3)
		began, older := make([]int64, len(cases)), make([]int64, len(cases)) // paid before the present generation, and under older keys since
		over := make([]int64, len(cases))                                    // paid beyond what was decided
		present := make([]int64, len(cases))                                 // paid for the present generation, and not come back
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			i := rapid.IntRange(0, len(cases)-1).Draw(t, "case")
			before := cases[i]
			e := anyEvent(t, before)
			e.OlderPaid, e.Overpaid = older[i], over[i]
			if paid := present[i]; e.Fact == settlement.Returned && (e.Generation == before.Generation && e.Amount > paid || e.Generation < before.Generation && e.Amount > paidIn(before)-paid) {
				continue // no payment of that generation can come back: callers know the payment, and refuse that
			}
			next, effect, err := settlement.Apply(before, e)
			if err != nil {
				if next != before || effect != (settlement.Effect{}) {
					t.Fatalf("an error changes %+v to %+v, %+v", before, next, effect)
				}
				continue
			}
			if change := sum(next) - sum(before); change != effect.Committed {
				t.Fatalf("%+v changes the sum of %+v by %d, its effect is %+v", e, before, change, effect)
			}
			if e.Fact == settlement.Executed || e.Fact == settlement.ExecutedOlder {
				escrow = escrow.Record(effect.Committed)
			} else if escrow, err = escrow.Add(effect.Committed); err != nil {
				continue
			}
			checkState(t, before, next, effect)
			if excess := max(0, paidIn(next)-max(paidIn(before), began[i]+before.Asked)); effect.Excess != excess {
				t.Fatalf("%+v at %+v, which began with %d paid, has an excess of %d: %d", e, before, began[i], excess, effect.Excess)
			}
			over[i] += effect.Excess
			switch e.Fact {
			case settlement.Returned:
				over[i] -= min(over[i], e.Amount)
				if e.Generation < before.Generation {
					began[i] -= e.Amount
				} else {
					present[i] -= e.Amount
				}
			case settlement.Adjudicated, settlement.Readjudicated:
				began[i], older[i] = paidIn(next), 0
				if next.Generation > before.Generation {
					present[i] = 0
				}
			case settlement.Executed:
				present[i] += paidIn(next) - paidIn(before)
			case settlement.ExecutedOlder:
				older[i] += paidIn(next) - paidIn(before)
			}
			cases[i] = next
			checkEscrow(t, escrow, cases)
		}
	})
}

// paidIn is what was paid and did not come back.
func paidIn(s settlement.State) int64 { return s.Released + s.Refunded - s.Returned }

func sum(s settlement.State) int64 { return s.Reserved + s.Released + s.Refunded - s.Returned }

func checkState(t *rapid.T, before, next settlement.State, effect settlement.Effect) {
	if min(next.Asked, next.Moved, next.Reserved, next.Released, next.Refunded, next.Returned, paidIn(next), effect.Excess) < 0 {
		t.Fatalf("an amount below zero: %+v, %+v", next, effect)
	}
	if before.Progression.Ended() && next.Progression != before.Progression && next.Returned == before.Returned {
		t.Fatalf("an end at %q became %q", before.Progression, next.Progression)
	}
	if next.Progression.Ended() && next.Reserved != 0 {
		t.Fatalf("%d are still reserved at an end", next.Reserved)
	}
	if next.Generation < before.Generation {
		t.Fatalf("%+v becomes %+v, %+v", before, next, effect)
	}
}

func checkEscrow(t *rapid.T, e settlement.Escrow, cases []settlement.State) {
	var total int64
	for _, s := range cases {
		total += sum(s)
	}
	if e.Committed != total || e.Committed < 0 || e.Breached < 0 || e.Committed > e.Held+e.Breached {
		t.Fatalf("%+v for cases with %d", e, total)
	}
}

func TestStateHasTheSpecifiedJSONNames(t *testing.T) {
	t.Parallel()
	s := settlement.State{settlement.Release, settlement.InProgress, settlement.Approve, "why", settlement.HoldActive, 1, 2, 3, 4, 5, 6, 0}
	text, err := json.Marshal(s)
	const want = `{"escrow_adjudication":"release","settlement_progression_status":"in-progress","settlement_progression_reason_code":"approve",` +
		`"settlement_progression_reason":"why","dispute_lifecycle_status":"hold-active","generation":1,"asked":2,"moved":3,"reserved":4,"released":5,"refunded":6}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	s.Returned = 7
	if text, err := json.Marshal(s); err != nil || string(text) != want[:len(want)-1]+`,"returned":7}` {
		t.Errorf("%s, %v", text, err)
	}
}

func FuzzApply(f *testing.F) {
	f.Add("in-progress", "executed", "release", int64(100), int64(0), int64(100), int64(100), int64(0))
	f.Add("settled", "executed", "refund", int64(1), int64(1), int64(0), int64(settlement.MaxMinor), int64(0))
	f.Add("", "adjudicated", "refund", int64(0), int64(0), int64(0), int64(5), int64(3))
	f.Fuzz(func(t *testing.T, from, fact, outcome string, asked, moved, reserved, amount, recorded int64) {
		s := settlement.State{Progression: settlement.Status(from), Generation: 1, Asked: asked, Moved: moved, Reserved: reserved}
		e := settlement.Event{Fact: settlement.Fact(fact), Outcome: settlement.Outcome(outcome), Generation: 2, Amount: amount, Paid: amount, Recorded: recorded}
		next, effect, err := settlement.Apply(s, e)
		if err != nil && (next != s || effect != settlement.Effect{}) {
			t.Errorf("an error changes %+v to %+v, %+v", s, next, effect)
		}
		if err == nil && sum(next)-sum(s) != effect.Committed {
			t.Errorf("%+v at %+v: %+v, %+v", e, s, next, effect)
		}
	})
}

func TestAReservationIsWithinHeldOrRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		e     settlement.Escrow
		delta int64
		want  int64
		err   error
	}{
		{"all of it", settlement.Escrow{Held: 100}, 100, 100, nil},
		{"one too many", settlement.Escrow{Held: 100}, 101, 0, settlement.ErrExceedsHeld},
		{"what is left", settlement.Escrow{Held: 100, Committed: 60}, 40, 100, nil},
		{"more than is left", settlement.Escrow{Held: 100, Committed: 60}, 41, 60, settlement.ErrExceedsHeld},
		{"no overflow", settlement.Escrow{Held: settlement.MaxMinor, Committed: settlement.MaxMinor}, math.MaxInt64, settlement.MaxMinor, settlement.ErrExceedsHeld},
		{"nothing into a breached escrow", settlement.Escrow{Held: 100, Committed: 130, Breached: 30}, 1, 130, settlement.ErrExceedsHeld},
		{"freeing in a breached escrow", settlement.Escrow{Held: 100, Committed: 130, Breached: 30}, -10, 120, nil},
		{"freeing all", settlement.Escrow{Held: 100, Committed: 60}, -60, 0, nil},
		{"nothing", settlement.Escrow{Held: 100, Committed: 100}, 0, 100, nil},
	} {
		got, err := c.e.Add(c.delta)
		if !errors.Is(err, c.err) || got != (settlement.Escrow{c.e.Held, c.want, c.e.Breached}) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestAPaymentOverWhatIsHeldRaisesBreachedAndNothingLowersIt(t *testing.T) {
	t.Parallel()
	e := settlement.Escrow{Held: 100, Committed: 90}
	for _, c := range []struct{ delta, committed, breached int64 }{
		{10, 100, 0}, {1, 101, 1}, {-50, 51, 1}, {60, 111, 11}, {-111, 0, 11},
	} {
		if e = e.Record(c.delta); e != (settlement.Escrow{100, c.committed, c.breached}) {
			t.Errorf("after %+d: %+v", c.delta, e)
		}
	}
}

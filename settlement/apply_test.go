package settlement

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestPayments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                         string
		asked, moved, reserved, paid int64
		outcome                      Outcome
		to                           Status
		effect                       Effect
	}{
		{"all of a release", 100, 0, 100, 100, Release, Settled, Effect{0, 0}},
		{"all of a refund", 100, 0, 100, 100, Refund, Refunded, Effect{0, 0}},
		{"a part frees the rest", 100, 0, 100, 30, Release, PartiallySettled, Effect{-70, 0}},
		{"more than asked is an excess", 100, 0, 100, 130, Release, Settled, Effect{30, 30}},
		{"the rest of a part, nothing reserved", 100, 60, 0, 40, Release, Settled, Effect{40, 0}},
		{"still a part", 100, 60, 0, 39, Refund, PartiallySettled, Effect{39, 0}},
		{"more than the rest of a part", 100, 60, 0, 50, Release, Settled, Effect{50, 10}},
		{"all of what was freed", 100, 0, 0, 100, Release, Settled, Effect{100, 0}},
		{"a part of what was freed", 100, 0, 0, 30, Release, PartiallySettled, Effect{30, 0}},
		{"more than was freed", 100, 0, 0, 130, Release, Settled, Effect{130, 30}},
		{"more reserved than asked is left", 100, 60, 100, 40, Release, Settled, Effect{-60, 0}},
	} {
		s := State{Outcome: Release, Progression: InProgress, Lifecycle: HoldActive, Generation: 1, Asked: c.asked, Moved: c.moved, Reserved: c.reserved}
		got, effect, err := Apply(s, Event{Fact: Executed, Outcome: c.outcome, Paid: c.paid})
		if err != nil || effect != c.effect || got.Progression != c.to || got.Moved != c.moved+c.paid || got.Reserved != 0 || got.Lifecycle != NoDispute || got.Outcome != Release {
			t.Errorf("%s: %+v, %+v, %v; want %s, %+v", c.name, got, effect, err, c.to, c.effect)
		}
		paid := map[Outcome]int64{Release: got.Released, Refund: got.Refunded}
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
		for _, from := range Statuses[1:] {
			s := State{Outcome: Refund, Progression: from, Reason: "before", Lifecycle: ReEscalated, Generation: 2, Asked: 1000, Reserved: c.reserved, Refunded: 5}
			got, effect, err := Apply(s, Event{Fact: ExecutedOlder, Outcome: Release, Paid: c.paid})
			want := s
			want.Reserved, want.Released = c.left, c.paid
			beyond := c.paid - (c.reserved - c.left) // what is reserved
			excess := beyond
			if c.reserved == 0 && !from.Ended() {
				excess = 0 // it is no more than was decided
			}
			if err != nil || got != want || effect != (Effect{Committed: beyond, Excess: excess}) {
				t.Errorf("%s, at %q: %+v, %+v, %v", c.name, from, got, effect, err)
			}
			if escrow := (Escrow{Held: c.held, Committed: c.committed}).Record(effect.Committed); escrow.Breached != c.breach {
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
		fact                  Fact
		released, older, paid int64
		needs                 bool
		excess                int64
	}{
		{"nothing was paid before", Executed, 0, 0, 1000, false, 0},
		{"an earlier generation had its part", Executed, 400, 0, 1000, true, 0},
		{"an older key took from it", Executed, 400, 400, 1000, true, 400},
		{"both", Executed, 700, 400, 600, true, 0},
		{"an older key took all of it", Executed, 1000, 1000, 1000, true, 1000},
		{"another older key", ExecutedOlder, 400, 400, 700, true, 100},
	} {
		s := State{Outcome: Release, Progression: ReviewNeeded, Generation: 2, Asked: 1000, Released: c.released}
		_, effect, err := Apply(s, Event{Fact: c.fact, Outcome: Release, Paid: c.paid, OlderPaid: c.older})
		if err != nil || effect.Committed != c.paid || effect.Excess != c.excess || s.NeedsOlderPaid() != c.needs {
			t.Errorf("%s: %+v, %v, needs %v", c.name, effect, err, s.NeedsOlderPaid())
		}
	}
	for name, s := range map[string]State{
		"reserved": {Progression: InProgress, Asked: 1000, Reserved: 600, Released: 400},
		"settled":  {Progression: Settled, Asked: 1000, Moved: 1000, Released: 1400},
		"a part":   {Progression: PartiallySettled, Asked: 1000, Moved: 400, Released: 400},
	} {
		if s.NeedsOlderPaid() {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestARepeatedPaymentChangesNothing(t *testing.T) {
	t.Parallel()
	for _, fact := range []Fact{Executed, ExecutedOlder} {
		for _, from := range Statuses[1:] {
			s := State{Progression: from, Asked: 100, Moved: 100, Released: 100}
			got, effect, err := Apply(s, Event{Fact: fact, Outcome: Release, Paid: 100, Repeated: true})
			if err != nil || got != s || effect != (Effect{}) {
				t.Errorf("%s at %q: %+v, %+v, %v", fact, from, got, effect, err)
			}
		}
	}
}

func TestParticularsThatNoFactCanHave(t *testing.T) {
	t.Parallel()
	fresh := State{}
	partial := State{Progression: PartiallySettled, Generation: 4, Asked: 100, Moved: 30, Released: 30}
	running := State{Progression: InProgress, Generation: 1, Asked: 100, Reserved: 100}
	full := State{Progression: InProgress, Generation: 1, Refunded: MaxMinor - 5}
	for _, c := range []struct {
		name, field string
		s           State
		e           Event
	}{
		{"no outcome", "outcome", fresh, Event{Fact: Adjudicated, Generation: 1, Amount: 1}},
		{"no generation", "generation", fresh, Event{Fact: Adjudicated, Outcome: Refund, Amount: 1}},
		{"generation too high", "generation", fresh, Event{Fact: Adjudicated, Outcome: Refund, Amount: 1, Generation: MaxGeneration + 1}},
		{"no amount", "amount", fresh, Event{Fact: Adjudicated, Outcome: Refund, Generation: 1}},
		{"negative amount", "amount", fresh, Event{Fact: Adjudicated, Outcome: Refund, Generation: 1, Amount: -1}},
		{"amount too high", "amount", fresh, Event{Fact: Adjudicated, Outcome: Refund, Generation: 1, Amount: MaxMinor + 1}},
		{"lower generation", "generation", partial, Event{Fact: Adjudicated, Outcome: Release, Generation: 3, Amount: 70}},
		{"a generation that paid, again", "generation", partial, Event{Fact: Adjudicated, Outcome: Release, Generation: 4, Amount: 70}},
		{"re-adjudicated in the same generation", "generation", partial, Event{Fact: Readjudicated, Outcome: Release, Generation: 4, Amount: 70}},
		{"nothing paid", "paid", running, Event{Fact: Executed, Outcome: Release}},
		{"a negative payment", "paid", running, Event{Fact: Executed, Outcome: Release, Paid: -1}},
		{"a payment too high", "paid", running, Event{Fact: Executed, Outcome: Release, Paid: MaxMinor + 1}},
		{"a sum too high", "paid", full, Event{Fact: Executed, Outcome: Refund, Paid: 6}},
		{"paid for nothing", "outcome", running, Event{Fact: Executed, Paid: 1}},
		{"paid at an end, nothing", "paid", State{Progression: Settled}, Event{Fact: Executed, Outcome: Release}},
	} {
		got, effect, err := Apply(c.s, c.e)
		var f *FieldError
		if !errors.As(err, &f) || f.Field != c.field || got != c.s || effect != (Effect{}) {
			t.Errorf("%s: %+v, %+v, %v; want an error about %s", c.name, got, effect, err, c.field)
		}
	}
	if _, _, err := Apply(full, Event{Fact: Executed, Outcome: Refund, Paid: 5}); err != nil {
		t.Error("the highest sum:", err)
	}
}

// No code begins a cancelled generation again, but stored receipts have such cases.
func TestACancelledGenerationCanBeginAgain(t *testing.T) {
	t.Parallel()
	s := play(t, State{}, Event{Fact: Adjudicated, Outcome: Release, Generation: 1, Amount: 10}, Event{Fact: Cancelled},
		Event{Fact: Adjudicated, Outcome: Release, Generation: 1, Amount: 10})
	if s.Progression != ApprovedForSettlement || s.Reserved != 10 {
		t.Errorf("%+v", s)
	}
}

func TestAForkOfADeadLetterCanExecute(t *testing.T) {
	t.Parallel()
	s := play(t, State{}, Event{Fact: Adjudicated, Outcome: Refund, Generation: 1, Amount: 10}, Event{Fact: AttemptStarted}, Event{Fact: RetryScheduled},
		Event{Fact: AttemptStarted}, Event{Fact: DeadLettered})
	want := State{
		Outcome: Refund, Progression: DisputeReady, ReasonCode: Escalate, Reason: "post-adjudication execution dead-lettered",
		Lifecycle: ReEscalated, Generation: 1, Asked: 10, Reserved: 10,
	}
	if s != want {
		t.Errorf("the letter: %+v, want %+v", s, want)
	}
	s = play(t, s, Event{Fact: Reconciled}, Event{Fact: Forked}, Event{Fact: AttemptStarted}, Event{Fact: Executed, Outcome: Refund, Paid: 10})
	want = State{
		Outcome: Refund, Progression: Refunded, ReasonCode: Approve, Reason: "post-adjudication execution completed",
		Generation: 1, Asked: 10, Moved: 10, Refunded: 10,
	}
	if s != want {
		t.Errorf("the fork: %+v, want %+v", s, want)
	}
}

func play(t *testing.T, s State, events ...Event) State {
	t.Helper()
	for _, e := range events {
		next, _, err := Apply(s, e)
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	return s
}

func anyEvent(t *rapid.T, s State) Event {
	return Event{
		Fact:         rapid.SampledFrom(Facts).Draw(t, "fact"),
		Outcome:      rapid.SampledFrom([]Outcome{Release, Refund, Release, Refund, ""}).Draw(t, "outcome"),
		Generation:   s.Generation + rapid.IntRange(-1, 2).Draw(t, "generation"),
		Amount:       rapid.OneOf(rapid.Int64Range(-1, 200), rapid.Int64Range(MaxMinor-1, MaxMinor+1), rapid.Int64()).Draw(t, "amount"),
		Paid:         rapid.OneOf(rapid.Int64Range(-1, 200), rapid.Int64Range(MaxMinor-1, MaxMinor+1), rapid.Int64()).Draw(t, "paid"),
		Repeated:     rapid.IntRange(0, 4).Draw(t, "repeated") == 0,
		KeepReserved: rapid.Bool().Draw(t, "kept"),
	}
}

func TestMoneyIsConservedWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		escrow := Escrow{Held: rapid.Int64Range(1, 500).Draw(t, "held")}
		cases := make([]State, 3)
		began, older := make([]int64, len(cases)), make([]int64, len(cases)) // paid before the present generation, and under older keys since
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			i := rapid.IntRange(0, len(cases)-1).Draw(t, "case")
			before := cases[i]
			e := anyEvent(t, before)
			e.OlderPaid = older[i]
			next, effect, err := Apply(before, e)
			if err != nil {
				if next != before || effect != (Effect{}) {
					t.Fatalf("an error changes %+v to %+v, %+v", before, next, effect)
				}
				continue
			}
			if change := sum(next) - sum(before); change != effect.Committed {
				t.Fatalf("%+v changes the sum of %+v by %d, its effect is %+v", e, before, change, effect)
			}
			if e.Fact == Executed || e.Fact == ExecutedOlder {
				escrow = escrow.Record(effect.Committed)
			} else if escrow, err = escrow.Add(effect.Committed); err != nil {
				continue
			}
			checkState(t, before, next, effect)
			if excess := max(0, paidIn(next)-max(paidIn(before), began[i]+before.Asked)); effect.Excess != excess {
				t.Fatalf("%+v at %+v, which began with %d paid, has an excess of %d: %d", e, before, began[i], excess, effect.Excess)
			}
			switch e.Fact {
			case Adjudicated, Readjudicated:
				began[i], older[i] = paidIn(next), 0
			case ExecutedOlder:
				older[i] += paidIn(next) - paidIn(before)
			}
			cases[i] = next
			checkEscrow(t, escrow, cases)
		}
	})
}

func paidIn(s State) int64 { return s.Released + s.Refunded }

func sum(s State) int64 { return s.Reserved + s.Released + s.Refunded }

func checkState(t *rapid.T, before, next State, effect Effect) {
	if min(next.Asked, next.Moved, next.Reserved, next.Released, next.Refunded, effect.Excess) < 0 {
		t.Fatalf("an amount below zero: %+v, %+v", next, effect)
	}
	if before.Progression.Ended() && next.Progression != before.Progression {
		t.Fatalf("an end at %q became %q", before.Progression, next.Progression)
	}
	if next.Progression.Ended() && next.Reserved != 0 {
		t.Fatalf("%d are still reserved at an end", next.Reserved)
	}
	if next.Generation < before.Generation {
		t.Fatalf("%+v becomes %+v, %+v", before, next, effect)
	}
}

func checkEscrow(t *rapid.T, e Escrow, cases []State) {
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
	s := State{Release, InProgress, Approve, "why", HoldActive, 1, 2, 3, 4, 5, 6}
	text, err := json.Marshal(s)
	const want = `{"escrow_adjudication":"release","settlement_progression_status":"in-progress","settlement_progression_reason_code":"approve",` +
		`"settlement_progression_reason":"why","dispute_lifecycle_status":"hold-active","generation":1,"asked":2,"moved":3,"reserved":4,"released":5,"refunded":6}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
}

func FuzzApply(f *testing.F) {
	f.Add("in-progress", "executed", "release", int64(100), int64(0), int64(100), int64(100), false)
	f.Add("settled", "executed", "refund", int64(1), int64(1), int64(0), int64(MaxMinor), false)
	f.Add("", "adjudicated", "refund", int64(0), int64(0), int64(0), int64(5), true)
	f.Fuzz(func(t *testing.T, from, fact, outcome string, asked, moved, reserved, amount int64, repeated bool) {
		s := State{Progression: Status(from), Generation: 1, Asked: asked, Moved: moved, Reserved: reserved}
		e := Event{Fact: Fact(fact), Outcome: Outcome(outcome), Generation: 2, Amount: amount, Paid: amount, Repeated: repeated}
		next, effect, err := Apply(s, e)
		if err != nil && (next != s || effect != Effect{}) {
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
		e     Escrow
		delta int64
		want  int64
		err   error
	}{
		{"all of it", Escrow{Held: 100}, 100, 100, nil},
		{"one too many", Escrow{Held: 100}, 101, 0, ErrExceedsHeld},
		{"what is left", Escrow{Held: 100, Committed: 60}, 40, 100, nil},
		{"more than is left", Escrow{Held: 100, Committed: 60}, 41, 60, ErrExceedsHeld},
		{"no overflow", Escrow{Held: MaxMinor, Committed: MaxMinor}, math.MaxInt64, MaxMinor, ErrExceedsHeld},
		{"nothing into a breached escrow", Escrow{Held: 100, Committed: 130, Breached: 30}, 1, 130, ErrExceedsHeld},
		{"freeing in a breached escrow", Escrow{Held: 100, Committed: 130, Breached: 30}, -10, 120, nil},
		{"freeing all", Escrow{Held: 100, Committed: 60}, -60, 0, nil},
		{"nothing", Escrow{Held: 100, Committed: 100}, 0, 100, nil},
	} {
		got, err := c.e.Add(c.delta)
		if !errors.Is(err, c.err) || got != (Escrow{c.e.Held, c.want, c.e.Breached}) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestAPaymentOverWhatIsHeldRaisesBreachedAndNothingLowersIt(t *testing.T) {
	t.Parallel()
	e := Escrow{Held: 100, Committed: 90}
	for _, c := range []struct{ delta, committed, breached int64 }{
		{10, 100, 0}, {1, 101, 1}, {-50, 51, 1}, {60, 111, 11}, {-111, 0, 11},
	} {
		if e = e.Record(c.delta); e != (Escrow{100, c.committed, c.breached}) {
			t.Errorf("after %+d: %+v", c.delta, e)
		}
	}
}

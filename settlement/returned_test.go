package settlement_test

import (
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/settlement"
)

// settledRelease is a case that has released what was decided.
func settledRelease(t *testing.T, amount int64) settlement.State {
	t.Helper()
	return play(t, settlement.State{},
		settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 1, Amount: amount},
		settlement.Event{Fact: settlement.AttemptStarted},
		settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: amount})
}

func returned(generation int, amount, overpaid int64) settlement.Event {
	return settlement.Event{Fact: settlement.Returned, Generation: generation, Amount: amount, Overpaid: overpaid}
}

// A payment that came back is decided again in a higher generation, for as much as came back.
func TestAReturnedPaymentIsDecidedAgain(t *testing.T) {
	t.Parallel()
	s := settledRelease(t, 10)
	s = play(t, s, returned(1, 4, 0), returned(1, 6, 0))
	want := settlement.State{
		Outcome: settlement.Release, Progression: settlement.DisputeReady, ReasonCode: settlement.Escalate, Reason: "payment returned", Lifecycle: settlement.ReEscalated,
		Generation: 1, Asked: 10, Released: 10, Returned: 10,
	}
	if s != want || s.Committed() != 0 || !s.Underfunded() {
		t.Errorf("%+v, want %+v", s, want)
	}
	var wrong *settlement.FieldError
	for field, e := range map[string]settlement.Event{"amount": returned(1, 1, 0), "generation": returned(2, 1, 0)} {
		if _, _, err := settlement.Apply(s, e); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%+v: %v", e, err)
		}
	}
	s = play(t, s, settlement.Event{Fact: settlement.Readjudicated, Outcome: settlement.Refund, Generation: 2, Amount: 10},
		settlement.Event{Fact: settlement.AttemptStarted}, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Refund, Paid: 10})
	if s.Progression != settlement.Refunded || s.Released != 10 || s.Refunded != 10 || s.Returned != 10 || s.Committed() != 10 {
		t.Errorf("%+v", s)
	}
}

// What was paid twice and came back once corrects itself: what was decided stays paid, and a third payment is beyond it.
func TestAReturnCorrectsWhatWasPaidBeyondTheDecisionFirst(t *testing.T) {
	t.Parallel()
	twice := settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: 10}
	s, effect, err := settlement.Apply(settledRelease(t, 10), twice)
	if err != nil || effect.Excess != 10 {
		t.Fatalf("%+v, %v", effect, err)
	}
	corrected := play(t, s, returned(1, 10, 10))
	if corrected.Progression != settlement.Settled || corrected.Moved != 10 || corrected.Committed() != 10 {
		t.Errorf("%+v", corrected)
	}
	if _, effect, err := settlement.Apply(corrected, twice); err != nil || effect.Excess != 10 {
		t.Errorf("a third payment: %+v, %v", effect, err)
	}
	more := play(t, s, returned(1, 14, 10))
	if more.Progression != settlement.DisputeReady || more.Moved != 6 || more.Committed() != 6 {
		t.Errorf("more than that: %+v", more)
	}
	if _, effect, err := settlement.Apply(more, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: 5}); err != nil || effect.Excess != 1 {
		t.Errorf("a payment of more than came back: %+v, %v", effect, err)
	}
}

// A decision was carried out, and its case has a dead letter all the same. When an older payment comes back, no attempt
// of that letter may begin: nothing is reserved for it.
func TestNoAttemptBeginsForADecisionThatWasCarriedOutBeforeAReturn(t *testing.T) {
	t.Parallel()
	s := play(t, settlement.State{},
		settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 1, Amount: 10},
		settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: 6},
		settlement.Event{Fact: settlement.Readjudicated, Outcome: settlement.Release, Generation: 2, Amount: 4},
		settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: 4},
		settlement.Event{Fact: settlement.DeadLettered},
		returned(1, 6, 0))
	if s.Progression != settlement.DisputeReady || s.Moved != 4 || s.Reserved != 0 || !s.Underfunded() {
		t.Errorf("%+v", s)
	}
	kept := play(t, settlement.State{},
		settlement.Event{Fact: settlement.Adjudicated, Outcome: settlement.Release, Generation: 1, Amount: 10},
		settlement.Event{Fact: settlement.AttemptStarted}, settlement.Event{Fact: settlement.DeadLettered})
	if kept.Underfunded() {
		t.Errorf("an ordinary dead letter: %+v", kept)
	}
}

// A run is called while its case is ended by another payment, which comes back: the end of the attempt is recorded.
func TestAnAttemptEndsAlsoAfterThePaymentOfItsCaseCameBack(t *testing.T) {
	t.Parallel()
	s := play(t, settledRelease(t, 10), returned(1, 10, 0))
	for _, end := range []settlement.Fact{settlement.RetryScheduled, settlement.AttemptInterrupted, settlement.DeadLettered, settlement.Cancelled} {
		if got := play(t, s, settlement.Event{Fact: end}); got != s {
			t.Errorf("%s: %+v", end, got)
		}
	}
	if _, _, err := settlement.Apply(s, settlement.Event{Fact: settlement.AttemptStarted}); err == nil {
		t.Error("an attempt begins")
	}
}

package settlement_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/settlement"
)

// A higher generation begins with nothing moved, also after a part was paid: what is left to move is all that it asks for.
func TestAHigherGenerationBeginsWithNothingMoved(t *testing.T) {
	t.Parallel()
	partial := settlement.State{Outcome: settlement.Release, Progression: settlement.PartiallySettled, Generation: 1, Asked: 100, Moved: 30, Released: 30}
	got, effect, err := settlement.Apply(partial, settlement.Event{Fact: settlement.Readjudicated, Outcome: settlement.Refund, Generation: 2, Amount: 70})
	if err != nil || got.Moved != 0 || got.Asked != 70 || got.Reserved != 70 || got.Released != 30 || effect.Committed != 70 {
		t.Errorf("%+v, %+v, %v", got, effect, err)
	}
	paid, _, err := settlement.Apply(got, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Refund, Paid: 40})
	if err != nil || paid.Progression != settlement.PartiallySettled || paid.Moved != 40 {
		t.Errorf("%+v, %v: 40 of 70 are a part, whatever was paid before", paid, err)
	}
}

// The same generation is not decided again, also where it has moved nothing.
func TestAGenerationIsNotReadjudicated(t *testing.T) {
	t.Parallel()
	dead := settlement.State{Outcome: settlement.Release, Progression: settlement.DisputeReady, Generation: 2, Asked: 100, Reserved: 100}
	_, _, err := settlement.Apply(dead, settlement.Event{Fact: settlement.Readjudicated, Outcome: settlement.Refund, Generation: 2, Amount: 100})
	if f := (*settlement.FieldError)(nil); !errors.As(err, &f) || f.Field != "generation" {
		t.Errorf("%v", err)
	}
}

// The error of a payment that is too high states the limit, and that of a sum says that it is a sum.
func TestAPaymentThatIsTooHighSaysSo(t *testing.T) {
	t.Parallel()
	running := settlement.State{Outcome: settlement.Release, Progression: settlement.InProgress, Generation: 1, Asked: 100, Reserved: 100}
	for paid, want := range map[int64]string{settlement.MaxMinor + 1: "is not between", settlement.MaxMinor: "brings the case's sum over"} {
		running.Released = 1
		_, _, err := settlement.Apply(running, settlement.Event{Fact: settlement.Executed, Outcome: settlement.Release, Paid: paid})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", paid, err)
		}
	}
}

// Only a payment can be on record already: any other fact happens although an event says so.
func TestOnlyAPaymentIsRepeated(t *testing.T) {
	t.Parallel()
	running := settlement.State{Outcome: settlement.Release, Progression: settlement.InProgress, Generation: 1, Asked: 100, Reserved: 100}
	got, _, err := settlement.Apply(running, settlement.Event{Fact: settlement.DeadLettered, Recorded: 1})
	if err != nil || got.Progression != settlement.DisputeReady {
		t.Errorf("%+v, %v", got, err)
	}
}

// A decision is underfunded while its reservation does not cover what it has left to move; one that has ended is not.
func TestUnderfunded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		s    settlement.State
		want bool
	}{
		"covered":                   {settlement.State{Progression: settlement.InProgress, Asked: 100, Reserved: 100}, false},
		"covered, after a part":     {settlement.State{Progression: settlement.InProgress, Asked: 100, Moved: 40, Reserved: 60}, false},
		"less than is left":         {settlement.State{Progression: settlement.InProgress, Asked: 100, Moved: 40, Reserved: 59}, true},
		"less than is left, at end": {settlement.State{Progression: settlement.Settled, Asked: 100, Moved: 40}, false},
		"nothing is decided":        {settlement.State{}, false},
		"all came back":             {settlement.State{Progression: settlement.DisputeReady, Asked: 100, Moved: 100}, true},
	} {
		if got := tc.s.Underfunded(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What was paid under older keys matters only while nothing is reserved, something is left, and the case has paid more
// than its generation.
func TestNeedsOlderPaid(t *testing.T) {
	t.Parallel()
	needs := settlement.State{Progression: settlement.DisputeReady, Asked: 100, Moved: 10, Released: 10, Refunded: 20}
	if !needs.NeedsOlderPaid() {
		t.Errorf("%+v does not", needs)
	}
	for name, change := range map[string]func(*settlement.State){
		"at an end":       func(s *settlement.State) { s.Progression = settlement.Refunded },
		"reserved":        func(s *settlement.State) { s.Reserved = 1 },
		"nothing left":    func(s *settlement.State) { s.Moved, s.Released = 100, 100 },
		"nothing but its": func(s *settlement.State) { s.Refunded = 0 },
	} {
		s := needs
		if change(&s); s.NeedsOlderPaid() {
			t.Errorf("%s: %+v does", name, s)
		}
	}
}

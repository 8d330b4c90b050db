package background

import (
	"errors"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/receipts"
)

// Each call is known by the number of its attempt: the answer of one says nothing of another.
func TestACallIsOutstandingUntilItsOwnAnswer(t *testing.T) {
	t.Parallel()
	run := runIn(Running)
	run.OutstandingCalls = nil
	ends := func(attempt int) Run {
		run.Attempt, run.State = attempt, Running
		after, err := Transition{ID: thisTransition, Run: run, Event: receipts.RetryScheduled, Result: vague, NextRetryAt: noon, CallStillRunning: true}.Apply(run)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	for _, attempt := range []int{64, 1, 63, 127} {
		run = ends(attempt)
	}
	if !slices.Equal(run.OutstandingCalls, []int{1, 63, 64, 127}) {
		t.Fatalf("outstanding %v", run.OutstandingCalls)
	}
	before := run
	answer := func(attempt int, res Result) (Run, error) {
		seen := run
		seen.Attempt = attempt
		return Transition{ID: thisTransition, Run: seen, Event: receipts.AnsweredLate, Result: res}.Apply(run)
	}
	for _, c := range []struct {
		attempt int
		left    []int
	}{{64, []int{1, 63, 127}}, {1, []int{63, 127}}, {127, []int{63}}, {63, nil}} {
		after, err := answer(c.attempt, refused)
		if err != nil || !slices.Equal(after.OutstandingCalls, c.left) {
			t.Errorf("attempt %d: %v, %v", c.attempt, after.OutstandingCalls, err)
		}
		run = after
		if _, err := answer(c.attempt, refused); !errors.Is(err, ErrConflict) {
			t.Errorf("attempt %d told again: %v", c.attempt, err)
		}
	}
	if run.OutstandingCalls != nil || run.HasOutstandingCall() || !slices.Equal(before.OutstandingCalls, []int{1, 63, 64, 127}) {
		t.Errorf("left %v, and of the copy %v", run.OutstandingCalls, before.OutstandingCalls)
	}
}

func TestALateAnswerThatPaidIsRecordedThoughNobodyAwaitsIt(t *testing.T) {
	t.Parallel()
	run := runIn(Running)
	run.OutstandingCalls, run.Class, run.UnresolvedUnknowns = []int{1}, Unknown, 1
	late := Transition{ID: thisTransition, Run: run, Event: receipts.AnsweredLate, Result: paid}
	after, err := late.Apply(run)
	if err != nil || after.Class != Executed || after.UnresolvedUnknowns != 0 || !slices.Equal(after.OutstandingCalls, []int{1}) {
		t.Errorf("%+v, %v", after, err)
	}
	after.LastTransition = TransitionID(newToken) // something else happened since
	if _, err := late.Apply(after); !errors.Is(err, ErrConflict) {
		t.Errorf("recorded again: %v", err)
	}
}

func TestARunWithTooManyOutstandingCallsIsNotClaimed(t *testing.T) {
	t.Parallel()
	run := runIn(Scheduled)
	run.OutstandingCalls = nil
	for n := range MaxOutstandingCalls {
		run = run.withOutstandingCall(n + 1)
	}
	claim := Transition{ID: thisTransition, Event: receipts.AttemptStarted, At: noon, Token: newToken}
	got, err := claim.Apply(run)
	checkRefused(t, run, got, err, ErrTooManyOutstandingCalls)
	run, _ = run.withoutOutstandingCall(3)
	if got, err := claim.Apply(run); err != nil || got.State != Running {
		t.Errorf("%+v, %v", got, err)
	}
}

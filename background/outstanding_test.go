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
	run := in(Running)
	run.OutstandingCalls = nil
	ends := func(attempt int) Run {
		run.Attempt, run.State = attempt, Running
		after, err := Move{ID: thisMove, Run: run, Fact: receipts.RetryScheduled, Result: vague, NextRetryAt: noon, CallGoesOn: true}.Apply(run)
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
		return Move{ID: thisMove, Run: seen, Fact: receipts.AnsweredLate, Result: res}.Apply(run)
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
		if _, err := answer(c.attempt, refused); !errors.Is(err, ErrLostGuard) {
			t.Errorf("attempt %d told again: %v", c.attempt, err)
		}
	}
	if run.OutstandingCalls != nil || run.CallIsOut() || !slices.Equal(before.OutstandingCalls, []int{1, 63, 64, 127}) {
		t.Errorf("left %v, and of the copy %v", run.OutstandingCalls, before.OutstandingCalls)
	}
}

func TestAnAnswerThatNobodyAwaitsIsAFactIfItPaid(t *testing.T) {
	t.Parallel()
	run := in(Running)
	run.OutstandingCalls, run.Class, run.UnknownOpen = []int{1}, Unknown, 1
	late := Move{ID: thisMove, Run: run, Fact: receipts.AnsweredLate, Result: paid}
	after, err := late.Apply(run)
	if err != nil || after.Class != Executed || after.UnknownOpen != 0 || !slices.Equal(after.OutstandingCalls, []int{1}) {
		t.Errorf("%+v, %v", after, err)
	}
	after.LastMove = MoveID(newToken) // something else happened since
	if _, err := late.Apply(after); !errors.Is(err, ErrLostGuard) {
		t.Errorf("recorded again: %v", err)
	}
}

func TestARunWithTooManyCallsOutIsNotClaimed(t *testing.T) {
	t.Parallel()
	run := in(Scheduled)
	run.OutstandingCalls = nil
	for n := range MaxOutstandingCalls {
		run = run.withCallOut(n + 1)
	}
	claim := Move{ID: thisMove, Fact: receipts.AttemptStarted, At: noon, Token: newToken}
	got, err := claim.Apply(run)
	refuses(t, run, got, err, ErrCallsOut)
	run, _ = run.withCallBack(3)
	if got, err := claim.Apply(run); err != nil || got.State != Running {
		t.Errorf("%+v, %v", got, err)
	}
}

package background

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestBrakeMovesByTheTable(t *testing.T) {
	t.Parallel()
	const pulled, easing, released = BrakePulled, BrakeEasing, BrakeReleased
	type move struct{ byHand, release bool }
	auto, hand, release := move{}, move{byHand: true}, move{release: true}
	for _, tc := range []struct {
		from   BrakeState
		byHand bool
		move   move
		to     BrakeState
		toHand bool
		moved  bool
	}{
		{released, false, auto, pulled, false, true},
		{released, false, hand, pulled, true, true},
		{released, false, release, released, false, false},
		{pulled, false, auto, pulled, false, false},
		{pulled, false, hand, pulled, true, true},
		{pulled, true, auto, pulled, true, false},
		{pulled, true, hand, pulled, true, false},
		{pulled, false, release, easing, false, true},
		{pulled, true, release, easing, false, true},
		{easing, false, auto, pulled, false, true},
		{easing, false, hand, pulled, true, true},
		{easing, false, release, released, false, true},
	} {
		was := Brake{Target: Target{"t", "f", "n"}, State: tc.from, ByHand: tc.byHand, Version: 7, Probe: RunID(uuid.New()), LetGo: Cursor{DueAt: noon}}
		var now Brake
		var moved bool
		if tc.move.release {
			now, moved = was.Release("who", "cause", "why", noon)
		} else {
			now, moved = was.Pull(tc.move.byHand, "who", "cause", "why", noon)
		}
		if now.State != tc.to || now.ByHand != tc.toHand || moved != tc.moved || now.Target != was.Target {
			t.Errorf("%s by hand %v, %+v: %+v, %v", tc.from, tc.byHand, tc.move, now, moved)
		}
		switch {
		case !moved && now != was:
			t.Errorf("%s: changed though it did not move: %+v", tc.from, now)
		case moved && (now.Version != 8 || !now.Probe.IsZero() || now.LetGo != (Cursor{}) || now.Actor != "who" || now.Cause != "cause" || now.Reason != "why" || now.At != noon):
			t.Errorf("%s: %+v", tc.from, now)
		case moved && now.State == easing && now.Goal != noon:
			t.Errorf("the goal is %s", now.Goal)
		}
	}
}

func TestBrakeBarsWhatWasNotLetGo(t *testing.T) {
	t.Parallel()
	low, high := RunID{1}, RunID{2}
	at := func(d time.Duration, id RunID) Run { return Run{ID: id, DueAt: noon.Add(d)} }
	frontier := Cursor{DueAt: noon, ID: low}
	for _, tc := range []struct {
		brake Brake
		run   Run
		bars  bool
	}{
		{Brake{State: BrakeReleased}, at(0, low), false},
		{Brake{}, at(0, low), false},
		{Brake{State: BrakePulled}, at(0, low), true},
		{Brake{State: BrakePulled, Probe: low}, at(0, low), true},
		{Brake{State: BrakeEasing}, at(0, low), true},
		{Brake{State: BrakeEasing, LetGo: frontier}, at(-1, high), false},
		{Brake{State: BrakeEasing, LetGo: frontier}, at(0, low), false},
		{Brake{State: BrakeEasing, LetGo: frontier}, at(0, high), true},
		{Brake{State: BrakeEasing, LetGo: frontier}, at(1, low), true},
	} {
		if got := tc.brake.Bars(tc.run); got != tc.bars {
			t.Errorf("%+v, run %s due %s: %v", tc.brake, tc.run.ID, tc.run.DueAt, got)
		}
	}
}

// A probe's failure is the target's, not the run's.
func TestProbeSpendsNothingButOtherwiseEndsAsAnyAttempt(t *testing.T) {
	t.Parallel()
	no := Result{Class: NotExecuted, Retry: true, Failure: &Failure{Type: "busy"}}
	run := Run{Attempt: 3, BudgetSpent: 2, State: Running}
	run.Policy.MaxRetryAttempts = 3
	if end, ask := probed(run, no, nil, noon); ask || end.fact != "retry-scheduled" || end.spend != SpendNothing || end.reason != ReasonProbe || end.next.Before(noon.Add(100*time.Millisecond)) {
		t.Errorf("the last of the budget: %+v, %v", end, ask)
	}
	if end, _ := decide(run, no, nil, noon); end.fact != "dead-lettered" {
		t.Errorf("without a probe: %+v", end)
	}
	run.Attempt = 60
	if end, _ := probed(run, no, nil, noon); end.next.After(noon.Add(probeDelayMax + time.Second)) {
		t.Errorf("waits until %s", end.next)
	}
	run.CancelAsked = true
	if end, _ := probed(run, no, nil, noon); end.fact != "cancelled" {
		t.Errorf("asked to cancel: %+v", end)
	}
	run.CancelAsked = false
	if end, _ := probed(run, Result{Class: NotExecuted, Failure: &Failure{Type: "refused"}}, nil, noon); end.fact != "dead-lettered" || end.spend != SpendAttempt {
		t.Errorf("refused: %+v", end)
	}
	if end, _ := probed(run, Result{Class: Executed}, nil, noon); end.fact != "attempt-succeeded" {
		t.Errorf("executed: %+v", end)
	}
}

func TestTallyTellsWhatABatchShows(t *testing.T) {
	t.Parallel()
	before := map[RunID]Run{{1}: {Attempt: 1, State: Scheduled}, {2}: {State: Pending}}
	for _, tc := range []struct {
		now          Run
		done, failed int
	}{
		{Run{ID: RunID{1}, Attempt: 1, State: Scheduled}, 0, 0},
		{Run{ID: RunID{1}, Attempt: 2, State: Running}, 0, 0},
		{Run{ID: RunID{1}, Attempt: 2, State: Scheduled}, 1, 1},
		{Run{ID: RunID{1}, Attempt: 2, State: Succeeded}, 1, 0},
		{Run{ID: RunID{1}, Attempt: 2, State: DeadLettered, Letter: LetterOpen, Reason: ReasonRetryExhausted}, 1, 1},
		{Run{ID: RunID{1}, Attempt: 2, State: DeadLettered, Letter: LetterOpen, Reason: ReasonFinal}, 1, 0},
		{Run{ID: RunID{2}, State: Pending}, 0, 0},
		{Run{ID: RunID{2}, State: Cancelled}, 1, 0},
	} {
		if done, failed := tally(before, []Run{tc.now}); done != tc.done || failed != tc.failed {
			t.Errorf("%+v: %d done, %d failed", tc.now, done, failed)
		}
	}
}

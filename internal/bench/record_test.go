package main

import (
	"slices"
	"testing"
	"time"
)

func TestGapsAreMeasuredFromDue(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	r := newRecord(3)
	r.tasks[0].began = [maxAttempts]time.Duration{10 * ms, 38 * ms, 90 * ms} // due at 36 and 89
	r.tasks[0].returned = [maxAttempts]time.Duration{11 * ms, 39 * ms, 91 * ms}
	r.tasks[1].began = [maxAttempts]time.Duration{10 * ms, 15 * ms} // early, and no third
	r.tasks[1].returned = [maxAttempts]time.Duration{10 * ms, 16 * ms}
	r.tasks[2].began = [maxAttempts]time.Duration{10 * ms} // no second
	got, early := r.gaps()
	if want := []time.Duration{2 * ms, 1 * ms, -20 * ms}; !slices.Equal(got, want) || early != 1 {
		t.Errorf("gaps %v, %d early; want %v, 1", got, early, want)
	}
}

func TestTheClocksGrainIsNotEarly(t *testing.T) {
	t.Parallel()
	r := newRecord(2)
	for i, off := range []time.Duration{0, clockResolution + 1} {
		r.tasks[i].began = [maxAttempts]time.Duration{1, 1 + baseDelay - off}
		r.tasks[i].returned = [maxAttempts]time.Duration{1}
	}
	if _, early := r.gaps(); early != 1 {
		t.Errorf("%d early, want only the one by more than a microsecond", early)
	}
}

func TestLatencyCountsFromTheLaterOfSubmitAndStart(t *testing.T) {
	t.Parallel()
	r := newRecord(2)
	r.tasks[0].submitted, r.tasks[0].ended = 5, 30
	r.tasks[1].submitted, r.tasks[1].ended = 20, 30
	if got := r.latencies(10); !slices.Equal(got, []time.Duration{20, 10}) {
		t.Errorf("latencies %v", got)
	}
}

func TestStraysAreCounted(t *testing.T) {
	t.Parallel()
	r := newRecord(1)
	r.began(0, 1)
	r.ended(0)
	select {
	case <-r.done:
	default:
		t.Error("not done after the last end")
	}
	if n := r.extraAttempts.Load(); n != 0 {
		t.Errorf("%d strays of a clean task", n)
	}
	r.began(0, maxAttempts+1)
	r.ended(0)
	if n := r.extraAttempts.Load(); n != 2 {
		t.Errorf("%d strays, want the attempt over the budget and the second end", n)
	}
}

func TestARecordOfNoTasksIsDone(t *testing.T) {
	t.Parallel()
	select {
	case <-newRecord(0).done:
	default:
		t.Error("a record of no tasks is never done")
	}
}

func TestDelaysDouble(t *testing.T) {
	t.Parallel()
	if a, b := delayAfter(1), delayAfter(2); a != 25*time.Millisecond || b != 50*time.Millisecond {
		t.Errorf("delays %v, %v", a, b)
	}
}

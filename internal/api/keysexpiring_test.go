package api

import (
	"testing"
	"time"
)

// A key that is rotated or revoked is not shown any more: an alarm about its end can be cleared.
func TestAKeyThatIsNotShownAnyMoreIsForgotten(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	end := began.Add(20 * 24 * time.Hour)
	e := keyEnds{by: map[string]keyEnding{}}
	for _, step := range []struct {
		after time.Duration
		logs  bool
	}{{0, true}, {time.Hour, false}, {23 * time.Hour, false}, {24 * time.Hour, true}, {40 * time.Hour, false}} {
		if got := e.note("aaa", end, began.Add(step.after)); got != step.logs {
			t.Errorf("shown after %s: logs %v", step.after, got)
		}
	}
	if e.forget(began.Add(63 * time.Hour)); len(e.by) != 1 {
		t.Error("it is forgotten, and was shown within a day")
	}
	if e.forget(began.Add(64 * time.Hour)); len(e.by) != 0 {
		t.Error("it is remembered a day after it was shown last")
	}
	e.note("bbb", began.Add(time.Hour), began)
	if e.forget(began.Add(time.Hour)); len(e.by) != 0 {
		t.Error("it is remembered, and has ended")
	}
}

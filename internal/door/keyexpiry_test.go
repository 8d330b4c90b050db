package door

import (
	"testing"
	"time"
)

// A rotated or revoked key is no longer used, and its expiry alarm clears.
func TestAnExpiringKeyThatIsNotUsedAnyMoreIsForgotten(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	end := began.Add(20 * 24 * time.Hour)
	e := expiringKeys{byPrefix: map[string]expiringKey{}}
	for _, step := range []struct {
		after time.Duration
		logs  bool
	}{{0, true}, {time.Hour, false}, {23 * time.Hour, false}, {24 * time.Hour, true}, {40 * time.Hour, false}} {
		if got := e.record("aaa", end, began.Add(step.after)); got != step.logs {
			t.Errorf("shown after %s: logs %v", step.after, got)
		}
	}
	if e.prune(began.Add(63 * time.Hour)); len(e.byPrefix) != 1 {
		t.Error("a key that was used within a day is forgotten")
	}
	if e.prune(began.Add(64 * time.Hour)); len(e.byPrefix) != 0 {
		t.Error("a key is remembered a day after its last use")
	}
	e.record("bbb", began.Add(time.Hour), began)
	if e.prune(began.Add(time.Hour)); len(e.byPrefix) != 0 {
		t.Error("an expired key is remembered")
	}
}

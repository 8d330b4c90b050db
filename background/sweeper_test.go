package background

import (
	"testing"
	"time"
)

func TestWillBeDelivered(t *testing.T) {
	t.Parallel()
	for state, want := range map[string][3]bool{ // overdue for a moment, for long, and for a moment after a process was lost
		"pending": {true, true, true}, "retry": {true, true, true}, "scheduled": {true, true, true},
		"active":   {true, false, false}, // a dead worker holds it
		"archived": {}, "completed": {}, "": {}, "unknown state": {},
	} {
		if got := [3]bool{willBeDelivered(state, time.Second, false), willBeDelivered(state, time.Hour, false), willBeDelivered(state, time.Second, true)}; got != want {
			t.Errorf("%q: %v, want %v", state, got, want)
		}
	}
}

// Seconds after a loss at which a sweep counts an active task as lost, with one sweep a second.
func TestLostDeliveriesAreSearchedAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for name, tc := range map[string]struct {
		lost []int // seconds
		want map[int]bool
	}{
		"never":            {nil, map[int]bool{}},
		"once":             {[]int{0}, seconds(0, 1, 2, 10, 11, 12, 30, 31, 32)},
		"twice in a stall": {[]int{0, 4}, seconds(0, 1, 2, 4, 5, 6, 14, 15, 16, 34, 35, 36)},
		"after a while":    {[]int{0, 60}, seconds(0, 1, 2, 10, 11, 12, 30, 31, 32, 60, 61, 62, 70, 71, 72)},
	} {
		var g lostDeliveries
		lost := tc.lost
		for s := range 80 {
			now := start.Add(time.Duration(s) * time.Second)
			if len(lost) > 0 && lost[0] == s {
				lost = lost[1:]
				g.schedule(now)
			}
			if began := g.due(now); began && !g.active() {
				t.Errorf("%s: a search began at %d s, and none is active", name, s)
			}
			if g.active() != tc.want[s] {
				t.Errorf("%s: at %d s a search is active: %v, want %v", name, s, g.active(), tc.want[s])
			}
			g.passDone()
		}
	}
}

// A process that stood still for a minute makes up for all missed searches with one.
func TestMissedSearchesAreMadeUpForOnce(t *testing.T) {
	t.Parallel()
	var g lostDeliveries
	start := time.Now()
	g.schedule(start)
	if !g.due(start.Add(time.Minute)) || g.due(start.Add(time.Minute)) {
		t.Error("not searched exactly once")
	}
	for range lostDeliveryPasses {
		if !g.active() {
			t.Error("the search ended early")
		}
		g.passDone()
	}
	if g.active() || g.due(start.Add(time.Hour)) {
		t.Error("the search does not end")
	}
}

func seconds(of ...int) map[int]bool {
	set := map[int]bool{}
	for _, s := range of {
		set[s] = true
	}
	return set
}

// The session of a lost process is kept until nothing runs under it and no claim can be on its way.
func TestTheSessionOfALostProcessIsKeptWhileItMayHaveAttempts(t *testing.T) {
	t.Parallel()
	elsewhere := attempted()
	elsewhere.Family = "mail" // a process that has the family recovers it
	for name, c := range map[string]struct {
		lost      bool
		attempts  []Run
		unchanged time.Duration
		removed   bool
	}{
		"nothing left":          {true, nil, removeSessionAfter, true},
		"a claim may be coming": {true, nil, removeSessionAfter - 1, false},
		"an attempt is left":    {true, []Run{elsewhere}, removeSessionAfter, false},
		"it sends heartbeats":   {false, nil, 0, false},
	} {
		m, j := unconnected(t, elsewhere)
		j.attempts = c.attempts
		err := m.recoverer.checkSession(t.Context(), Session{ID: SessionID{1}, Lost: c.lost}, c.unchanged)
		if err != nil || (len(j.removed) > 0) != c.removed {
			t.Errorf("%s: removed %v, %v", name, j.removed, err)
		}
	}
}

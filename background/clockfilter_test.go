package background

import (
	"context"
	"strings"
	"testing"
	"time"
)

// Times and round trips go in, decisions come out.
func TestClockFilter(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type step struct {
		trip   time.Duration // the round trip
		server string
		db     time.Duration // by how much the database's clock is ahead of its first server's
		wall   time.Duration // the same of this machine's
		others []time.Duration

		held   time.Duration // the time in use, as db
		jumped int           // the number of the step that first read what the clock was set to; 0 if it never was
		refuse string        // part of the reason; empty: claiming is allowed
	}
	many := func(n int, s step) (out []step) {
		for range n {
			out = append(out, s)
		}
		return out
	}
	for name, steps := range map[string][]step{
		"the first counts at once, whatever this machine's clock says": {
			{trip: ms, wall: 3 * time.Hour}, {trip: ms, wall: -5 * time.Second},
		},
		"a change within the error is not followed": {
			{trip: 20 * ms}, {trip: 30 * ms, db: 5 * ms}, {trip: 20 * ms, db: 10 * ms},
		},
		"the shortest round trip counts": {
			{trip: 40 * ms, db: 15 * ms, held: 15 * ms}, {trip: 2 * ms, held: 0}, {trip: 40 * ms, db: 15 * ms}, {trip: 40 * ms, db: -15 * ms},
		},
		"a drift beyond the errors is followed": {
			{trip: 2 * ms}, {trip: 2 * ms, db: 10 * ms, held: 10 * ms}, {trip: 2 * ms, db: 20 * ms, held: 20 * ms},
		},
		"a drift beyond the errors is not followed by a sample that took longer": {
			{trip: ms}, {trip: 300 * ms, db: 151 * ms}, {trip: ms, db: ms / 2}, {trip: 300 * ms, db: -151 * ms}, {trip: ms, db: 3 * ms, held: 3 * ms},
		},
		"after 60 samples the best is dropped": append(append(
			[]step{{trip: ms / 10}}, many(59, step{trip: 4 * ms, db: ms})...),
			step{trip: 3 * ms, db: 2 * ms, held: 2 * ms}),
		"another server, whose clock is 2s behind: three agree, then it is used": {
			{trip: ms, server: "a"}, {trip: ms, server: "b", db: -2 * time.Second, refuse: "has changed"},
			{trip: ms, server: "b", db: -2 * time.Second, refuse: "has changed"}, {trip: ms, server: "b", db: -2 * time.Second, held: -2 * time.Second, jumped: 2},
			{trip: ms, server: "b", db: -2 * time.Second, held: -2 * time.Second, jumped: 2},
		},
		"another server whose clock is the same pauses too": {
			{trip: ms, server: "a"}, {trip: ms, server: "b", refuse: "has changed"}, {trip: ms, server: "b", refuse: "has changed"}, {trip: ms, server: "b"},
		},
		"three that do not agree start again": {
			{trip: ms}, {trip: ms, db: 5 * time.Second, refuse: "has changed"}, {trip: ms, db: 9 * time.Second, refuse: "has changed"},
			{trip: ms, db: 9 * time.Second, refuse: "has changed"}, {trip: ms, db: 9 * time.Second, held: 9 * time.Second, jumped: 3},
		},
		"a third server in between starts again": {
			{trip: ms, server: "a"}, {trip: ms, server: "b", refuse: "has changed"}, {trip: ms, server: "b", refuse: "has changed"},
			{trip: ms, server: "c", refuse: "has changed"}, {trip: ms, server: "c", refuse: "has changed"}, {trip: ms, server: "c"},
		},
		"a slow answer of a stalled database is no jump": {
			{trip: ms}, {trip: 10 * time.Second, db: 4 * time.Second},
		},
		"this clock is off and the others are not": {
			{trip: ms, wall: 1500 * ms, others: []time.Duration{0}, refuse: "the clock of this machine is 1.5s"},
			{trip: ms, wall: 900 * ms, others: []time.Duration{0}},
			{trip: ms, wall: -2 * time.Second, others: []time.Duration{0, 2 * time.Second, -ms}, refuse: "that of 2 of 3"},
		},
		"all machines are off from the database's alike": {
			{trip: ms, wall: -2 * time.Second, others: []time.Duration{2 * time.Second, 2100 * ms}},
			{trip: ms, wall: -2 * time.Second, others: []time.Duration{2 * time.Second, 0}},
		},
		"alone": {{trip: ms, wall: 12 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var j clockFilter
			for i, s := range steps {
				at := time.Duration(i+1) * time.Second
				j.observe(clockSample{sent: at, received: at + s.trip, wall: begin.Add(at + s.trip + s.wall),
					read: ClockReading{At: begin.Add(at + s.trip/2 + s.db), Server: s.server}})
				if held := j.current.origin.Sub(begin); held != s.held {
					t.Errorf("step %d: %s is in use, want %s", i, held, s.held)
				}
				var jumped time.Time
				if s.jumped > 0 {
					jumped = begin.Add(time.Duration(s.jumped)*time.Second + steps[s.jumped-1].trip/2 + steps[s.jumped-1].db)
				}
				if !j.changedTo.Equal(jumped) {
					t.Errorf("step %d: the clock was set to %s, want %s", i, j.changedTo, jumped)
				}
				if why := j.blockReason(s.others); (why == "") != (s.refuse == "") || !strings.Contains(why, s.refuse) {
					t.Errorf("step %d: %q, want %q", i, why, s.refuse)
				}
			}
		})
	}
}

// setStore is a store whose clock is ahead of this machine's.
type setStore struct {
	Store
	ahead time.Duration
}

func (s *setStore) Clock(context.Context) (ClockReading, error) {
	return ClockReading{At: time.Now().Add(s.ahead)}, nil
}

// A process without a session measures by itself, and finds that the clock was set since it measured before.
func TestAProcessWithoutASessionFindsThatTheClockWasSet(t *testing.T) {
	t.Parallel()
	c, store := &clock{wall: time.Now}, &setStore{}
	for _, step := range []struct{ ahead, changedTo time.Duration }{{0, 0}, {0, 0}, {time.Hour, time.Hour}, {time.Hour, time.Hour}, {time.Minute, time.Minute}} {
		store.ahead = step.ahead
		if err := c.measure(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		got := *c.unchanged.Load()
		if off := time.Until(got) - step.changedTo; got.IsZero() != (step.changedTo == 0) || !got.IsZero() && off.Abs() > 30*time.Second {
			t.Errorf("the clock is %s ahead: unchanged since %s", step.ahead, got)
		}
	}
}

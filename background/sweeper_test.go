package background

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
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

// A process that lost a delivery leaves its session behind until the last search for it is over.
func TestADeliveryMayBeLostUntilItsLastSearch(t *testing.T) {
	t.Parallel()
	s := newSweeper(&Manager{cfg: Config{SweepEvery: time.Second}})
	if s.mayHaveLost() {
		t.Error("nothing was lost")
	}
	for ago, want := range map[time.Duration]bool{0: true, 30 * time.Second: true, time.Minute: false} {
		at := time.Now().Add(-ago)
		if s.lostLocallyAt.Store(&at); s.mayHaveLost() != want {
			t.Errorf("lost %s ago: %v", ago, !want)
		}
	}
}

// A waiting run is notified of again if asynq will not deliver its task. A run that is being attempted needs none, and
// what becomes of its task is no tampering.
func TestASweepNotifiesOfWaitingRunsThatNobodyDelivers(t *testing.T) {
	t.Parallel()
	m, j := connected(t, attempted())
	of := func(state string) Run { return taskIn(t, m, j, 2*time.Second, state) }
	missing, archived, active, runs, archivedRuns, inFlight := of(""), of("archived"), of("active"), of(""), of("archived"), of("")
	of("pending")
	for _, run := range []Run{runs, archivedRuns} {
		j.change(run, func(r *Run) { r.State = Running })
	}
	m.inFlight.acquire(inFlight.ID, 1)
	sweep := func(what string, want ...Run) {
		t.Helper()
		j.renewed, j.recorded = nil, nil
		if err := m.sweeper.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids := make([]RunID, len(want))
		for i, r := range want {
			ids[i] = r.ID
		}
		if !slices.Equal(j.renewed, ids) {
			t.Errorf("%s: notified of %v, want %v", what, j.renewed, ids)
		}
		if len(j.recorded) != 1 || j.recorded[0].Run.ID != archived.ID || j.recorded[0].Reason != TaskArchived {
			t.Errorf("%s: recorded %+v", what, j.recorded)
		}
	}
	sweep("as asynq has them", missing, archived)
	m.sweeper.reportLost()
	sweep("after a loss", missing, archived, active)
}

// Each pass of a search for lost deliveries reads the due runs to their end, however many there are.
func TestASearchForLostDeliveriesReadsAllDueRuns(t *testing.T) {
	t.Parallel()
	m, j := connected(t, attempted())
	for range (shortScanPages + 1) * sweepPage {
		j.due = append(j.due, Run{ID: RunID(uuid.New()), Family: "pay", Queue: "pay:0", State: Running, DueAt: noon})
	}
	lost := taskIn(t, m, j, 2*time.Second, "active")
	sweep := func() {
		if err := m.sweeper.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sweep() // reads all because it has not seen this Redis before
	m.sweeper.reportLost()
	for pass := range lostDeliveryPasses {
		if sweep(); len(j.renewed) != pass+1 || j.renewed[pass] != lost.ID {
			t.Errorf("pass %d: notified of %v", pass+1, j.renewed)
		}
	}
}

// A task that waits for a time of another machine's clock, far ahead, is delivered by nobody. It waits as asynq put it
// back, or as somebody scheduled it.
func TestATaskThatWaitsForAFarTimeIsOrphaned(t *testing.T) {
	t.Parallel()
	m, j := connected(t, attempted())
	var want []RunID
	for _, state := range []string{"retry", "scheduled"} {
		for _, at := range []time.Time{noon.Add(time.Minute), noon.Add(24 * time.Hour)} {
			run := taskIn(t, m, j, time.Hour, state)
			if err := m.redis.ZAdd(t.Context(), queueKey(run.Queue, state), redis.Z{Score: float64(at.Unix()), Member: taskID(run)}).Err(); err != nil {
				t.Fatal(err)
			}
			if at.Sub(noon) > orphanedAfter {
				want = append(want, run.ID)
			}
		}
	}
	if err := m.sweeper.sweep(t.Context()); err != nil || !slices.Equal(j.renewed, want) {
		t.Errorf("notified of %v, want %v, %v", j.renewed, want, err)
	}
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

// The run of a lost worker that goes on is notified of at once. One that has ended needs no delivery.
func TestARecoveredRunIsNotifiedOfIfItGoesOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lookup     Result
		recoveries int // before
		notified   int
	}{
		"it goes on":           {vague, 0, 1},
		"it has paid":          {paid, 0, 0},
		"it was the last loss": {vague, 5, 0},
	} {
		run := attempted()
		run.Recoveries = c.recoveries
		m, j := unconnected(t, run)
		j.answer = func(context.Context) Result { return c.lookup }
		m.recoverer.recoverAll(t.Context(), Session{}, []Run{run})
		if len(j.recorded) != 1 || len(j.renewed) != c.notified {
			t.Errorf("%s: recorded %+v, notified of %v", name, j.recorded, j.renewed)
		}
	}
}

// A server that sends its client to another one is a node of a Cluster. A client of the Cluster follows.
func TestARedisThatRedirectsIsANodeOfACluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply   error
		nodes   *redis.ClusterClient
		refused bool
	}{
		"moved":                       {RedisError("MOVED 1 127.0.0.1:2"), nil, true},
		"asked for elsewhere":         {RedisError("ASK 1 127.0.0.1:2"), nil, true},
		"moved, to a client of it":    {RedisError("MOVED 1 127.0.0.1:2"), &redis.ClusterClient{}, false},
		"another error":               {RedisError("LOADING"), nil, false},
		"not reached":                 {errors.New("MOVED away"), nil, false},
		"the keys are at this server": {nil, nil, false},
	} {
		m, _ := unconnected(t, attempted())
		m.redisOwner.nodes = c.nodes
		m.redisOwner.observe("", nil, c.reply)
		err := m.redisOwner.err()
		if refused := errors.Is(err, ErrUnsuitableRedis) && strings.Contains(err.Error(), "redis-cluster://"); refused != c.refused || err != nil != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if m.redisOwner.observe("", nil, nil); m.redisOwner.err() != nil {
			t.Errorf("%s: it is refused once it answers", name)
		}
	}
}

// A process gives way to an older one with another Redis only while that one works.
func TestAProcessGivesWayToAnOlderOneThatWorks(t *testing.T) {
	t.Parallel()
	own := Session{ID: SessionID{2}, StartedAt: noon, Redis: "ours"}
	older := Session{ID: SessionID{1}, StartedAt: noon.Add(-time.Hour), Redis: "another", Worker: "older"}
	with := func(change func(*Session)) Session {
		s := older
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		other    Session
		beats    bool
		givesWay bool
	}{
		"it works":                  {older, true, true},
		"it sends no heartbeats":    {older, false, false},
		"it is lost":                {with(func(s *Session) { s.Lost = true }), true, false},
		"its servers are unusable":  {with(func(s *Session) { s.ClaimsBlockedBy = BlockedByServers }), true, false},
		"its clock is off":          {with(func(s *Session) { s.ClaimsBlockedBy = BlockedByClock }), true, false},
		"it has seen no Redis yet":  {with(func(s *Session) { s.Redis = "" }), true, false},
		"it has the same Redis":     {with(func(s *Session) { s.Redis = "ours" }), true, false},
		"it is younger":             {with(func(s *Session) { s.StartedAt = noon.Add(time.Hour) }), true, false},
		"both began together":       {with(func(s *Session) { s.StartedAt = noon }), true, true},
		"together, by the later id": {with(func(s *Session) { s.StartedAt, s.ID = noon, SessionID{3} }), true, false},
	} {
		m, _ := unconnected(t, attempted(), func(c *Config) { c.LostAfter = time.Nanosecond }) // it gives way at once
		m.redisOwner.observe("ours", nil, nil)
		m.redisOwner.compare([]Session{c.other, own}, own.ID, func(s Session) bool { return c.beats })
		if err := m.redisOwner.err(); err != nil != c.givesWay || err != nil && !strings.Contains(err.Error(), "older") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A start that is called off while it watches a process with another Redis does not go on as if there were none.
func TestAStartThatIsCalledOffReportsIt(t *testing.T) {
	t.Parallel()
	m, j := unconnected(t, attempted())
	j.sessions = []Session{{ID: SessionID{1}, Redis: "another"}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.redisOwner.checkOtherProcesses(ctx, "ours", false); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

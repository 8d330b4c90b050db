package background

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
)

func TestTamperingChangesNoRun(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Pending, Running, Scheduled, Succeeded, DeadLettered, Cancelled} {
		now := Run{ID: RunID(uuid.New()), State: state, Attempt: 2, NotificationNumber: 3, Class: Unknown, UnknownOpen: 1, LastTransition: uuid.New()}
		if state == DeadLettered {
			now.Letter = LetterOpen
		}
		tr := Transition{ID: uuid.New(), Run: Run{ID: now.ID}, Subtype: receipts.OutOfBandChangeDetected, Reason: ArchivedTaskRequeued}
		after, err := applied(&tr, now)
		if err != nil || !reflect.DeepEqual(after, now) {
			t.Errorf("%s: %+v became %+v, %v", state, now, after, err)
		}
	}
}

func TestATaskIsReportedRemovedOnlyIfItWasSeen(t *testing.T) {
	t.Parallel()
	run := Run{ID: RunID(uuid.New()), Attempt: 1, NotificationNumber: 2}
	resent, tried := run, run
	resent.NotificationNumber++
	tried.Attempt++
	for name, tc := range map[string]struct {
		seen    Run
		state   string // in which the task was seen
		turns   int
		emptied bool
		now     Run
		overdue time.Duration
		want    string
	}{
		"seen in the sweep before":                {seen: run, state: "pending", turns: 1, now: run, want: TaskRemoved},
		"seen waiting for its time":               {seen: run, state: "retry", turns: 1, now: run, want: TaskRemoved},
		"seen too long ago":                       {seen: run, state: "pending", turns: 2, now: run},
		"never seen":                              {seen: resent, state: "pending", turns: 1, now: run},
		"resent since":                            {seen: run, state: "pending", turns: 1, now: resent},
		"attempted since":                         {seen: run, state: "pending", turns: 1, now: tried},
		"seen with a worker":                      {seen: run, state: "active", turns: 1, now: run},
		"Redis was emptied":                       {seen: run, state: "pending", turns: 1, emptied: true, now: run},
		"due for so long that it counts as stuck": {seen: run, state: "pending", turns: 1, now: run, overdue: deadWorkerTimeout},
	} {
		var s taskObservations
		if kind := s.record(tc.seen, tc.state, 0); kind != "" {
			t.Errorf("%s: %q at the first sight", name, kind)
		}
		for range tc.turns {
			s.rotate(tc.emptied)
		}
		if got := s.record(tc.now, "", tc.overdue); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	var s taskObservations
	if got := s.record(run, "archived", 0); got != TaskArchived {
		t.Errorf("archived: %q", got)
	}
}

func TestRunIDOf(t *testing.T) {
	t.Parallel()
	id := RunID(uuid.New())
	for text, want := range map[string]RunID{
		id.String() + ".7": id, id.String(): id, "": {}, "somebody else's": {}, "x." + id.String(): {},
	} {
		if got := runIDOf(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// What a sweep saw of a task may be older than its run is now. A run in flight has its task with this process, and one
// that is or was paused has none.
func TestTamperingIsRecordedOnlyOfARunThatIsAsItWasSeen(t *testing.T) {
	t.Parallel()
	paused := circuit.Breaker{Scope: circuit.Scope{Family: "pay"}, State: circuit.Open, Version: 1, Openings: 1}
	for name, c := range map[string]struct {
		state    State
		kind     string
		since    func(*Run) // what changed since
		inFlight bool
		breaker  circuit.Breaker
		recorded int
	}{
		"removed":               {Scheduled, TaskRemoved, nil, false, circuit.Breaker{}, 1},
		"removed, and paused":   {Scheduled, TaskRemoved, nil, false, paused, 0},
		"archived":              {Scheduled, TaskArchived, nil, false, circuit.Breaker{}, 1},
		"archived, and paused":  {Scheduled, TaskArchived, nil, false, paused, 1},
		"in flight":             {Scheduled, TaskArchived, nil, true, circuit.Breaker{}, 0},
		"attempted since":       {Scheduled, TaskArchived, func(r *Run) { r.Attempt++ }, false, circuit.Breaker{}, 0},
		"notified of since":     {Scheduled, TaskArchived, func(r *Run) { r.NotificationNumber++ }, false, circuit.Breaker{}, 0},
		"cancelled since":       {Scheduled, TaskArchived, func(r *Run) { r.State = Cancelled }, false, circuit.Breaker{}, 0},
		"its letter is open":    {DeadLettered, ArchivedTaskRemoved, nil, false, circuit.Breaker{}, 1},
		"its letter was forked": {DeadLettered, ArchivedTaskRemoved, func(r *Run) { r.Letter = LetterForked }, false, circuit.Breaker{}, 0},
	} {
		seen := runIn(c.state)
		seen.ID, seen.Family = RunID(uuid.New()), "pay"
		now := seen
		if c.since != nil {
			c.since(&now)
		}
		m, j := unconnected(t, now)
		if j.breaker = c.breaker; c.inFlight {
			m.inFlight.acquire(seen.ID, 1)
		}
		if m.tampering.verify(t.Context(), seen, c.kind); len(j.recorded) != c.recorded {
			t.Errorf("%s: recorded %+v", name, j.recorded)
		}
	}
}

// archived adds a run whose task is in asynq's archive.
func archived(t *testing.T, m *Manager, j *memoryJournal, change func(*Run)) Run {
	t.Helper()
	run := taskIn(t, m, j, time.Second, "archived")
	if err := m.redis.ZAdd(t.Context(), queueKey(run.Queue, "archived"), redis.Z{Score: float64(noon.Unix()), Member: taskID(run)}).Err(); err != nil {
		t.Fatal(err)
	}
	j.change(run, change)
	return run
}

// The archive keeps the tasks of open dead letters. It keeps the archived task of a run that waits too: the sweeper
// reports it as tampering.
func TestTheArchiveKeepsTheTasksOfWhatIsNotClosed(t *testing.T) {
	t.Parallel()
	m, j := connected(t, attempted())
	var want []string
	for _, c := range []struct {
		state  State
		letter LetterStatus
		kept   bool
	}{
		{Scheduled, NoLetter, true}, {Running, NoLetter, true}, {DeadLettered, LetterOpen, true}, {DeadLettered, LetterForked, false},
		{DeadLettered, LetterPurged, false}, {DeadLettered, LetterReconciled, false}, {Succeeded, NoLetter, false},
	} {
		run := archived(t, m, j, func(r *Run) { r.State, r.Letter = c.state, c.letter })
		if c.kept {
			want = append(want, taskID(run))
		}
	}
	if err := m.archive.scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept, err := m.redis.ZRange(t.Context(), queueKey("pay:0", "archived"), 0, -1).Result()
	slices.Sort(want)
	if err != nil || !slices.Equal(kept, want) {
		t.Errorf("kept %v, want %v, %v", kept, want, err)
	}
}

// The archived task of an open dead letter that is missing was removed by somebody, unless asynq delivers a task of the
// run now: the same one, which was run again, or that of a newer notification.
func TestAMissingArchivedTaskIsTamperingIfNothingIsDelivered(t *testing.T) {
	t.Parallel()
	m, j := connected(t, attempted())
	before, now := archiveSnapshot{diedAt: map[string]time.Time{}}, archiveSnapshot{prunedUntil: noon.Add(-time.Hour)}
	gone := func(letter LetterStatus, newest int, delivered ...int) Run {
		run := runIn(DeadLettered)
		run.ID, run.Family, run.Queue, run.Letter, run.NotificationNumber = RunID(uuid.New()), "pay", "pay:0", letter, 1
		before.diedAt[taskID(run)] = noon
		for _, run.NotificationNumber = range delivered {
			if err := m.notifier.notify(t.Context(), run); err != nil {
				t.Fatal(err)
			}
		}
		run.NotificationNumber = newest
		j.runs[run.ID] = run
		return run
	}
	want := []RunID{gone(LetterOpen, 1).ID, gone(LetterOpen, 2).ID}
	gone(LetterOpen, 1, 1)
	gone(LetterOpen, 2, 1)
	gone(LetterOpen, 2, 2)
	gone(LetterForked, 1)
	m.archive.detectRemoved(t.Context(), "pay:0", before, now)
	var got []RunID
	for _, tr := range j.recorded {
		if got = append(got, tr.Run.ID); tr.Reason != ArchivedTaskRemoved {
			t.Errorf("%+v", tr)
		}
	}
	sorted := func(ids []RunID) []RunID {
		slices.SortFunc(ids, func(a, b RunID) int { return bytes.Compare(a[:], b[:]) })
		return ids
	}
	if !slices.Equal(sorted(got), sorted(want)) {
		t.Errorf("recorded for %v, want %v", got, want)
	}
}

// A lease is watched from when its attempt was seen first. Only a newer version restarts its length, and only a newer
// attempt replaces it.
func TestALeaseIsWatchedByItsAttemptAndVersion(t *testing.T) {
	t.Parallel()
	id, old := RunID(uuid.New()), time.Now().Add(-time.Hour)
	of := func(attempt int, version int64) lease.Lease {
		return lease.Lease{Run: id, Attempt: attempt, Version: version, Length: 2 * time.Hour}
	}
	for name, c := range map[string]struct {
		do             func(*leaseReaper)
		attempt        int
		version        int64
		since, restart bool // whether the length, and the time of the attempt, begin again
	}{
		"claimed again by a repeated fetch": {func(r *leaseReaper) { r.onClaimed(Claimed{Run: Run{ID: id}, Lease: of(2, 5)}) }, 2, 5, false, false},
		"claimed":                           {func(r *leaseReaper) { r.onClaimed(Claimed{Run: Run{ID: id}, Lease: of(3, 1)}) }, 3, 1, true, true},
		"extended":                          {func(r *leaseReaper) { r.onExtended(of(2, 6)) }, 2, 6, true, false},
		"an older heartbeat":                {func(r *leaseReaper) { r.onExtended(of(2, 5)) }, 2, 5, false, false},
		"extended, of another attempt":      {func(r *leaseReaper) { r.onExtended(of(3, 6)) }, 3, 6, true, true},
		"read, of an older attempt":         {func(r *leaseReaper) { r.observe([]lease.Lease{of(1, 9)}, time.Time{}) }, 2, 5, false, false},
		"read, of a newer version":          {func(r *leaseReaper) { r.observe([]lease.Lease{of(2, 6)}, time.Time{}) }, 2, 6, true, false},
		"read as it was":                    {func(r *leaseReaper) { r.observe([]lease.Lease{of(2, 5)}, time.Time{}) }, 2, 5, false, false},
	} {
		r := newLeaseReaper(nil, nil)
		r.seen[id] = leaseObservation{lease: of(2, 5), since: old, began: old}
		c.do(r)
		got := r.seen[id]
		if got.lease.Attempt != c.attempt || got.lease.Version != c.version || got.since.After(old) != c.since || got.began.After(old) != c.restart {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// endedLease is a store with a lease whose end is marked.
type endedLease struct {
	LeaseStore
	run Run
	err error
}

func (s endedLease) EndLease(context.Context, lease.Lease) (bool, error) { return true, nil }

func (s endedLease) FindLease(context.Context, string, RunID) (Run, lease.Lease, error) {
	return s.run, lease.Lease{Run: s.run.ID, Attempt: s.run.Attempt}, s.err
}

// Once the end of a lease is marked, another process may end the attempt, and a worker fetch the run again. Its newer
// attempt goes on.
func TestTheEndOfALeaseEndsNoLaterAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempts int // of the run, by now
		find     error
		want     []receipts.Subtype
	}{
		"the attempt is the last":   {2, nil, []receipts.Subtype{receipts.AttemptInterrupted}},
		"a worker fetched it again": {3, nil, nil},
		"nobody has it":             {2, ErrNotFound, nil},
	} {
		run := attempted()
		run.Remote = true
		ended := lease.Lease{Run: run.ID, Tenant: run.Tenant, Attempt: run.Attempt, Ended: lease.Expired}
		run.Attempt = c.attempts
		m, j := unconnected(t, run, func(cfg *Config) { cfg.Leases = endedLease{run: run, err: c.find} })
		if err := m.fetcher.leases.end(t.Context(), ended); err != nil || !slices.Equal(j.subtypes(m), c.want) {
			t.Errorf("%s: recorded %+v, %v", name, j.recorded, err)
		}
	}
}

// countedLeases is a store without leases that counts how often they are read.
type countedLeases struct {
	LeaseStore
	reads int
}

func (s *countedLeases) Leases(context.Context) ([]lease.Lease, error) { s.reads++; return nil, nil }

func (*countedLeases) ExpiredRuns(context.Context, time.Time, int) ([]Run, error) { return nil, nil }

func (*countedLeases) UnrepeatableRuns(context.Context, time.Time, int) ([]Run, error) {
	return nil, nil
}

// A process that shuts down reads the leases no more.
func TestLeasesAreReadUntilTheProcessShutsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, _ := unconnected(t, attempted())
		s := &countedLeases{}
		ctx, cancel := context.WithCancel(t.Context())
		go newLeaseReaper(m, s).run(ctx)
		<-time.After(2*leaseScanEvery + 1)
		cancel()
		if synctest.Wait(); s.reads != 3 {
			t.Errorf("read %d times", s.reads)
		}
	})
}

package background

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

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
		after, err := tr.Apply(now)
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

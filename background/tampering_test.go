package background

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

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

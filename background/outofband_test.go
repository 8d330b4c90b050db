package background

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
)

func TestWhatIsDoneToATaskChangesNoRunInAnyState(t *testing.T) {
	t.Parallel()
	for _, state := range []State{Pending, Running, Scheduled, Succeeded, DeadLettered, Cancelled} {
		now := Run{ID: RunID(uuid.New()), State: state, Attempt: 2, Bell: 3, Class: Unknown, UnknownOpen: 1, LastMove: uuid.New()}
		if state == DeadLettered {
			now.Letter = LetterOpen
		}
		mv := Move{ID: uuid.New(), Run: Run{ID: now.ID}, Fact: receipts.OutOfBandChangeDetected, Reason: MirrorRun}
		after, err := mv.Apply(now)
		if err != nil || !reflect.DeepEqual(after, now) {
			t.Errorf("%s: %+v became %+v, %v", state, now, after, err)
		}
	}
}

func TestABellIsMissedOnlyWhereItWasSeen(t *testing.T) {
	t.Parallel()
	run := Run{ID: RunID(uuid.New()), Attempt: 1, Bell: 2}
	rung, tried := run, run
	rung.Bell++
	tried.Attempt++
	for name, tc := range map[string]struct {
		seen    Run
		state   string // in which it was seen
		turns   int
		emptied bool
		now     Run
		overdue time.Duration
		want    string
	}{
		"seen in the sweep before":           {seen: run, state: "pending", turns: 1, now: run, want: BellRemoved},
		"seen waiting for its time":          {seen: run, state: "retry", turns: 1, now: run, want: BellRemoved},
		"seen too long ago":                  {seen: run, state: "pending", turns: 2, now: run},
		"never seen":                         {seen: rung, state: "pending", turns: 1, now: run},
		"rung again since":                   {seen: run, state: "pending", turns: 1, now: rung},
		"tried since":                        {seen: run, state: "pending", turns: 1, now: tried},
		"seen with a worker":                 {seen: run, state: "active", turns: 1, now: run},
		"Redis was emptied":                  {seen: run, state: "pending", turns: 1, emptied: true, now: run},
		"due for so long that it was no use": {seen: run, state: "pending", turns: 1, now: run, overdue: stuckAfter},
	} {
		var s sightings
		if what := s.saw(tc.seen, tc.state, 0); what != "" {
			t.Errorf("%s: %q at the first sight", name, what)
		}
		for range tc.turns {
			s.turn(tc.emptied)
		}
		if got := s.saw(tc.now, "", tc.overdue); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	var s sightings
	if got := s.saw(run, "archived", 0); got != BellArchived {
		t.Errorf("archived: %q", got)
	}
}

func TestTheRunIsReadOutOfATaskId(t *testing.T) {
	t.Parallel()
	id := RunID(uuid.New())
	for text, want := range map[string]RunID{
		id.String() + ".7": id, id.String(): id, "": {}, "somebody else's": {}, "x." + id.String(): {},
	} {
		if got := runOf(text); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

package background

import (
	"testing"
	"time"
)

func TestWillBeDelivered(t *testing.T) {
	t.Parallel()
	for state, want := range map[string][3]bool{ // overdue for a moment, for long, and for a moment after a process was lost
		"pending": {true, true, true}, "retry": {true, true, true}, "scheduled": {true, true, true},
		"active":   {true, false, false}, // a worker that is gone holds it
		"archived": {}, "completed": {}, "": {}, "of a later asynq": {},
	} {
		if got := [3]bool{willBeDelivered(state, time.Second, false), willBeDelivered(state, time.Hour, false), willBeDelivered(state, time.Second, true)}; got != want {
			t.Errorf("%q: %v, want %v", state, got, want)
		}
	}
}

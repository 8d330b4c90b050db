package background

import (
	"testing"
	"time"
)

func TestRingsUnlessTheTaskWillNeverBeDelivered(t *testing.T) {
	t.Parallel()
	for state, want := range map[string][2]bool{ // overdue for a moment, and for long
		"pending": {true, true}, "retry": {true, true}, "scheduled": {true, true},
		"active":   {true, false}, // a worker that is gone holds it
		"archived": {}, "completed": {}, "": {}, "of a later asynq": {},
	} {
		if got := [2]bool{rings(state, time.Second), rings(state, time.Hour)}; got != want {
			t.Errorf("%q: %v, want %v", state, got, want)
		}
	}
}

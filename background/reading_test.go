package background_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// The wait for the next attempt counts from the very time that its receipt has.
func TestANextAttemptIsDueItsDelayAfterTheTransition(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(context.Context, background.Attempt) background.Result { return refused })
	var read atomic.Int64 // each reading of this clock is a millisecond later than the last
	w := h.start(func(c *background.Config) {
		c.ClockSimulated = true
		c.Now = func() time.Time { return time.Now().Add(time.Duration(read.Add(1)) * time.Millisecond) }
	})
	r := h.submit(w)
	h.awaitState(r.ID, background.DeadLettered)
	scheduled := 0
	for _, m := range h.journal.Transitions(r.ID) {
		if m.Event != receipts.RetryScheduled {
			continue
		}
		scheduled++
		if got, want := m.NextRetryAt.Sub(m.At), r.Policy.DelayForAttempt(scheduled); got != want {
			t.Errorf("attempt %d: due %s after it ended, want %s", scheduled, got, want)
		}
	}
	if scheduled != 2 {
		t.Errorf("%d retries", scheduled)
	}
}

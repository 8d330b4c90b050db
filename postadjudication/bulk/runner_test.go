package bulk

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
)

func TestAThrottledPlanGoesEvenly(t *testing.T) {
	t.Parallel()
	for throttle, size := range map[int]int{0: chunkMax, 1: 1, 3: 1, 4: 1, 40: 10, 900: 225, 10_000: chunkMax} {
		if got := chunkSize(throttle); got != size {
			t.Errorf("%d a second: chunks of %d, want %d", throttle, got, size)
		}
	}
	for _, c := range []struct {
		items, throttle int
		want            time.Duration
	}{{5, 0, 0}, {1, 1, time.Second}, {10, 40, 250 * time.Millisecond}, {0, 7, 0}, {250, 10_000, 25 * time.Millisecond}} {
		if got := minBatchTime(c.items, c.throttle); got != c.want {
			t.Errorf("%d items at %d a second must take %s, not %s", c.items, c.throttle, c.want, got)
		}
	}
}

// Items that never had a try of their own are not failed because the journal was away.
func TestWhatFailsAfterTheLastTry(t *testing.T) {
	t.Parallel()
	away := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for what, c := range map[string]struct {
		own, try error
		want     string // contained in the error; empty: no outcome
	}{
		"the journal could not be read":         {nil, away, ""},
		"the journal took no write":             {nil, fmt.Errorf("%w: %w", casework.ErrJournalUnavailable, away), ""},
		"the journal took no write, and before": {errItem, casework.ErrJournalUnavailable, errItem.Error()},
		"the journal did not answer the item":   {away, away, ""},
		"the item fails":                        {errItem, errItem, errItem.Error()},
		"the item is locked":                    {background.ErrBusy, background.ErrBusy, background.ErrBusy.Error()},
		"the action can't be made":              {nil, errItem, errItem.Error()},
		"others change the letter all the time": {nil, nil, errContended.Error()},
	} {
		done, item := plans.Item{Outcome: string(OutcomeDone)}, plans.Item{}
		pending, failures := map[background.RunID]*plans.Item{{1}: &done, {2}: &item}, map[background.RunID]error{}
		if c.own != nil {
			failures[background.RunID{2}] = c.own
		}
		failPending(pending, failures, c.try)
		if done.Outcome != string(OutcomeDone) || done.Error != "" {
			t.Errorf("%s: what was done is %+v", what, done)
		}
		if (item.Outcome == string(OutcomeFailed)) != (c.want != "") || !strings.Contains(item.Error, c.want) {
			t.Errorf("%s: %q, %q", what, item.Outcome, item.Error)
		}
	}
}

var errItem = errors.New("not this letter")

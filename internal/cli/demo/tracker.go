package demo

import (
	"context"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
)

const (
	// settleTimeout limits the wait until all runs have ended.
	settleTimeout = 150 * time.Second
	pollInterval  = 20 * time.Millisecond
	// statusInterval is how often the status of live runs is read: a run may be ended by another
	// run of its case, without a transition of its own.
	statusInterval = time.Second
)

// runTracker records which runs have ended.
type runTracker struct {
	mu           sync.Mutex
	firstStarted time.Time // start of the first attempt
	submitted    map[background.RunID]string
	ended        map[background.RunID]bool
}

func newRunTracker() *runTracker {
	return &runTracker{submitted: map[background.RunID]string{}, ended: map[background.RunID]bool{}}
}

// onTransition records a committed transition. It may be called before add has the run.
func (r *runTracker) onTransition(m background.Transition, after background.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstStarted.IsZero() {
		r.firstStarted = m.At
	}
	if !after.State.Live() {
		r.ended[after.ID] = true
	}
}

func (r *runTracker) add(run background.RunID, tenant string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submitted[run] = tenant
}

// live returns the runs not known to have ended, with their tenants.
func (r *runTracker) live() map[background.RunID]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[background.RunID]string{}
	for run, tenant := range r.submitted {
		if !r.ended[run] {
			out[run] = tenant
		}
	}
	return out
}

func (r *runTracker) firstAttempt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.firstStarted
}

func (r *runTracker) hasEnded(run background.RunID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[run]
}

// awaitSettled waits until every run has ended and every call has returned, at most settleTimeout.
// The report shows runs that have not ended by then.
func (d *Demo) awaitSettled(ctx context.Context, accepted int, show func(ended int) error) error {
	asked := time.Now()
	return d.poll(ctx, func() (bool, error) {
		live := d.tracker.live()
		if err := show(accepted - len(live)); err != nil {
			return false, err
		}
		if stats := d.main.Service.Health().Stats(); len(live) == 0 && stats.Running == 0 && stats.Abandoned == 0 {
			return true, nil
		}
		if time.Since(asked) > statusInterval {
			asked = time.Now()
			return false, d.refreshStatus(ctx, live)
		}
		return false, nil
	})
}

// poll calls rested until it returns true, or settleTimeout is over.
func (d *Demo) poll(ctx context.Context, rested func() (bool, error)) error {
	limit := time.NewTimer(settleTimeout)
	defer limit.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if done, err := rested(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return nil
		case <-tick.C:
		}
	}
}

func (d *Demo) refreshStatus(ctx context.Context, live map[background.RunID]string) error {
	for run, tenant := range live {
		s, err := d.main.Service.Status(ctx, tenant, run)
		if err != nil {
			return err
		}
		if !s.State.Live() {
			d.tracker.onTransition(background.Transition{At: time.Now()}, background.Run{ID: run, State: s.State})
		}
	}
	return nil
}

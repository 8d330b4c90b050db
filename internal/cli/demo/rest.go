package demo

import (
	"context"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
)

const (
	// restLimit bounds the wait for all runs to end.
	restLimit = 150 * time.Second
	restLook  = 20 * time.Millisecond
	// restAsk is how often a run that no event has ended is asked for: another run
	// of its case may have ended it.
	restAsk = time.Second
)

// rest follows which runs have ended.
type rest struct {
	mu     sync.Mutex
	first  time.Time // of the first attempt
	handed map[background.RunID]string
	ended  map[background.RunID]bool
}

func newRest() *rest {
	return &rest{handed: map[background.RunID]string{}, ended: map[background.RunID]bool{}}
}

// moved is told of every committed move, often before the run is handed.
func (r *rest) moved(m background.Move, after background.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first.IsZero() {
		r.first = m.At
	}
	if !after.State.Live() {
		r.ended[after.ID] = true
	}
}

func (r *rest) handedOver(run background.RunID, tenant string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handed[run] = tenant
}

// live are the runs not known to have ended, with their tenants.
func (r *rest) live() map[background.RunID]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[background.RunID]string{}
	for run, tenant := range r.handed {
		if !r.ended[run] {
			out[run] = tenant
		}
	}
	return out
}

func (r *rest) firstAttempt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

func (r *rest) hasEnded(run background.RunID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended[run]
}

// await waits until every run has ended and every call has answered. What is not at
// rest when the limit is over shows in the report.
func (d *Demo) await(ctx context.Context, accepted int, show func(ended int) error) error {
	asked := time.Now()
	return d.poll(ctx, func() (bool, error) {
		live := d.rest.live()
		if err := show(accepted - len(live)); err != nil {
			return false, err
		}
		if stats := d.main.Service.Stats(); len(live) == 0 && stats.Running == 0 && stats.Abandoned == 0 {
			return true, nil
		}
		if time.Since(asked) > restAsk {
			asked = time.Now()
			return false, d.ask(ctx, live)
		}
		return false, nil
	})
}

// poll looks until there is rest, or the limit is over.
func (d *Demo) poll(ctx context.Context, rested func() (bool, error)) error {
	limit := time.NewTimer(restLimit)
	defer limit.Stop()
	look := time.NewTicker(restLook)
	defer look.Stop()
	for {
		if done, err := rested(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return nil
		case <-look.C:
		}
	}
}

func (d *Demo) ask(ctx context.Context, live map[background.RunID]string) error {
	for run, tenant := range live {
		s, err := d.main.Service.Status(ctx, tenant, run)
		if err != nil {
			return err
		}
		if !s.State.Live() {
			d.rest.moved(background.Move{At: time.Now()}, background.Run{ID: run, State: s.State})
		}
	}
	return nil
}

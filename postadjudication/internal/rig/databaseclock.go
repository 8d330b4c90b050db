package rig

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/postadjudication"
)

// DatabaseClock is the clock of a test's database, which the test sets: processes of Join read it in place of the
// server's.
type DatabaseClock struct {
	*Rig
	change []func(*postadjudication.Config)
}

// NewDatabaseClock returns the clock of a database of its own. Its processes have the configuration that change makes.
func NewDatabaseClock(t testing.TB, change ...func(*postadjudication.Config)) *DatabaseClock {
	c := &DatabaseClock{New(t), change}
	if err := localpg.MakeClock(t.Context(), c.DB); err != nil {
		t.Fatal(err)
	}
	return c
}

// Set sets how far the clock is ahead of the server's.
func (c *DatabaseClock) Set(ahead time.Duration) {
	c.T.Helper()
	if err := localpg.SetClock(c.T.Context(), c.DB, ahead); err != nil {
		c.T.Fatal(err)
	}
}

// Join starts the workers of another process.
func (c *DatabaseClock) Join() *Rig {
	c.T.Helper()
	u, err := localpg.WithClock(c.DatabaseURL)
	if err != nil {
		c.T.Fatal(err)
	}
	return Join(c.T, u, c.Redis, c.Escrow, c.change...).StartWorkers()
}

// WaitInUse waits until a process goes by the clock.
func (c *DatabaseClock) WaitInUse(r *Rig) {
	c.T.Helper()
	c.Wait("a process goes by the clock", func() bool {
		return c.Count(`SELECT count(*) FROM recourse.sessions WHERE NOT lost AND beat_at BETWEEN set_clock.clock_timestamp() - interval '3s' AND set_clock.clock_timestamp() + interval '3s'`) == 1 && r.Health().Check(context.Background()) == nil
	})
}

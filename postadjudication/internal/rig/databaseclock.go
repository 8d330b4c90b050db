package rig

import (
	"context"
	"testing"
	"time"

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
	c.exec(`CREATE SCHEMA set_clock`)
	c.exec(`CREATE TABLE set_clock.ahead (by interval NOT NULL)`)
	c.exec(`INSERT INTO set_clock.ahead VALUES ('0')`)
	c.exec(`CREATE FUNCTION set_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() + by FROM set_clock.ahead'`)
	c.exec(`GRANT USAGE ON SCHEMA set_clock TO PUBLIC`)
	c.exec(`GRANT SELECT ON set_clock.ahead TO PUBLIC`)
	return c
}

func (c *DatabaseClock) exec(statement string, args ...any) {
	c.T.Helper()
	if _, err := c.DB.Exec(statement, args...); err != nil {
		c.T.Fatal(err)
	}
}

// Set sets how far the clock is ahead of the server's.
func (c *DatabaseClock) Set(ahead time.Duration) {
	c.T.Helper()
	c.exec(`UPDATE set_clock.ahead SET by = make_interval(secs => $1)`, ahead.Seconds())
}

// Join starts the workers of another process.
func (c *DatabaseClock) Join() *Rig {
	c.T.Helper()
	return Join(c.T, c.DatabaseURL+"&search_path=set_clock,pg_catalog", c.Redis, c.Escrow, c.change...).StartWorkers()
}

// WaitInUse waits until a process goes by the clock.
func (c *DatabaseClock) WaitInUse(r *Rig) {
	c.T.Helper()
	c.Wait("a process goes by the clock", func() bool {
		return c.Count(`SELECT count(*) FROM recourse.sessions WHERE NOT lost AND beat_at BETWEEN set_clock.clock_timestamp() - interval '3s' AND set_clock.clock_timestamp() + interval '3s'`) == 1 && r.Health().Check(context.Background()) == nil
	})
}

package postadjudication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// ErrUnsuitable means that the database can't be worked on as it is: a standby, behind a
// connection pooler in transaction mode, or with triggers off that were in force. The error says in one line which, and what to do.
var ErrUnsuitable = postgres.ErrUnsuitable

// ErrRedis means that the Redis can't be worked with: a Cluster that was named as one
// server, one that carries another database's notifications, or another one than the
// other processes use. The error says in one line which, and what to do.
var ErrRedis = background.ErrUnsuitableRedis

const (
	monitorEvery       = time.Second
	poolerCheckEvery   = 30 * time.Second // how often it is looked for a pooler that came later
	failoverVisibleFor = 24 * time.Hour   // for how long readiness tells of a failover
	failoverLookback   = time.Minute      // how much before it is asked what was decided
	recountAfter       = 30 * time.Second // how long after a count that failed it is tried again
)

// Failover is that the database goes on on another timeline of its server's log, as after
// the promotion of a standby or a restore. What was committed last before it may be lost,
// unless replication is synchronous: a finding or a decision that was answered, and
// payments that were made on it.
type Failover struct {
	From   int64     `json:"from_timeline"`
	To     int64     `json:"to_timeline"`
	SeenAt time.Time `json:"seen_at"`
	// What was recorded from a minute before the old timeline was last seen on: to be
	// compared with what people and the escrow service know. Counted is false while that
	// is not known.
	Since   time.Time          `json:"since"`
	Counted bool               `json:"counted"`
	Tenants []FailoverExposure `json:"tenants"`
}

// FailoverExposure counts what a lost tail may contradict, of one tenant.
type FailoverExposure = postgres.FailoverExposure

// openJournal opens a database that may be worked on, or audited where that is all.
func (c *Config) openJournal(ctx context.Context) (*postgres.Journal, postgres.Installation, error) {
	journal, err := postgres.Open(ctx, c.DatabaseURL)
	if err != nil {
		return nil, postgres.Installation{}, err
	}
	journal.Warn = func(err error) { c.Logger.Warn("passed over", zap.Error(err)) }
	installed, err := journal.Installation(ctx)
	if err == nil && !c.AllowUnsuitable {
		if err = installed.CheckUsable(); err == nil {
			err = journal.CheckTriggers(ctx)
		}
	}
	if err == nil && c.Executor != nil && !c.AllowUnsuitable {
		err = journal.CheckPrivileges(ctx)
	}
	if err == nil && installed.ID == "" && c.Executor != nil && !c.AllowUnsuitable {
		installed, err = journal.Install(ctx, c.Demonstration)
	}
	if err != nil {
		journal.Close()
		return nil, installed, err
	}
	return journal, installed, nil
}

// ErrDemonstration means that an executor for demonstrations was given a database that is not
// marked for them, or a real executor one that is. The error says in one line which.
var ErrDemonstration = errors.New("demonstration")

// checkDemonstration returns why the executor must not run on the database. A database is for
// demonstrations or for real money, never for both.
func (c *Config) checkDemonstration(of postgres.Installation) error {
	switch {
	case c.Executor == nil || c.Demonstration == of.Demonstration:
		return nil
	case c.Demonstration:
		return fmt.Errorf("%w: this database was not empty, or was executed on, before anything was demonstrated on it: use an empty one, or name the escrow service", ErrDemonstration)
	}
	return fmt.Errorf("%w: this database is for demonstrations, and no other escrow service is ever called for it: use another database", ErrDemonstration)
}

// MayRun tells why Run would refuse the database; nil when it would not. The error wraps
// ErrDemonstration.
func (s *Service) MayRun() error { return s.runRefusal }

// TriggersOff names the triggers of the database that are not in force, each as
// table.trigger: with them off, evidence and what it binds can be changed. A data-only
// restore turns them off, and so does whoever owns the tables and wants to change something.
func (s *Service) TriggersOff(ctx context.Context) ([]string, error) {
	return s.journal.DisabledTriggers(ctx)
}

// databaseMonitor watches what the database says of itself while a process works on it. A
// schema that is newer than this program may mean anything: there is no statement by which
// one version of it can tell that it may work on the tables of another. So such a process
// claims nothing more, and does nothing else that decides, until it is replaced. So does one
// that finds another database in the place of its own. While triggers are off, or targets go by
// other circuit breakers than it has for them, it claims nothing.
type databaseMonitor struct {
	journal      *postgres.Journal
	id           string            // of the database that was opened; empty where nothing is executed
	breakers     map[string]string // by whose circuit breakers targets go in this process
	log          *zap.Logger
	now          func() time.Time
	problem      atomic.Pointer[error]
	lastFailover atomic.Pointer[Failover]

	// Of the watching goroutine alone:
	timelineSeenAt  time.Time // when the timeline before was seen last
	recountAt       time.Time // before which what was decided before a failover is not counted again
	poolerCheckedAt time.Time // when it was last looked for a pooler
}

// unready is err as readiness tells it.
func (c *databaseMonitor) unready() error {
	err := c.err()
	reason := "this database may not be worked on"
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrSchema):
		reason = "the schema of the database is not that of this program"
	case errors.Is(err, postgres.ErrTriggersOff):
		reason = "triggers of the database are not in force"
	case errors.Is(err, ErrTargets):
		reason = "targets go by other circuit breakers than this process has for them"
	}
	return &Unready{Reason: reason, Err: err}
}

// err says why nothing may be claimed.
func (c *databaseMonitor) err() error {
	if err := c.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// failover is the last one, for as long as it is shown; nil when there was none.
func (c *databaseMonitor) failover() *Failover {
	last := c.lastFailover.Load()
	if last == nil || c.now().Sub(last.SeenAt) > failoverVisibleFor {
		return nil
	}
	return last
}

// run watches until ctx ends. outdated is called once when the schema is newer, or the database
// another one.
func (c *databaseMonitor) run(ctx context.Context, outdated func()) {
	tick := time.NewTicker(monitorEvery)
	defer tick.Stop()
	for c.poolerCheckedAt = time.Now(); ; {
		c.check(ctx, outdated)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *databaseMonitor) check(ctx context.Context, outdated func()) {
	switch was := c.err(); {
	case isPermanent(was):
		return
	case was != nil && !errors.Is(was, postgres.ErrPooled):
		c.poolerCheckedAt = time.Time{} // it hides a pooler that was found before: look for one before anything is claimed again
	}
	found, err := c.journal.Installation(ctx)
	if err != nil {
		return // whoever asks whether this process is ready asks the database as well
	}
	if err = found.CheckUsable(); err == nil {
		err = c.checkIdentity(found)
	}
	if err == nil {
		err = c.checkTriggers(ctx)
	}
	if err == nil {
		err = c.checkTargets(ctx)
	}
	if err == nil && time.Since(c.poolerCheckedAt) >= poolerCheckEvery {
		c.poolerCheckedAt = time.Now()
		if poolerErr := c.journal.CheckNotPooled(ctx); errors.Is(poolerErr, ErrUnsuitable) {
			err = poolerErr
		}
	} else if err == nil && errors.Is(c.err(), postgres.ErrPooled) {
		err = c.err() // until it is looked for again
	}
	c.setProblem(err)
	if isPermanent(err) {
		outdated()
		return
	}
	if !found.Standby {
		c.followTimeline(ctx, found)
	}
}

// checkIdentity is nil when the database is the one that was opened. One that has lost its identity, as
// by a restore of an older copy, is another one: what this process knows may not be in it.
func (c *databaseMonitor) checkIdentity(found postgres.Installation) error {
	if c.id == "" || found.ID == c.id {
		return nil
	}
	return fmt.Errorf("%w: %w (%s) than the one that was opened (%s): when that is meant, start this process again",
		ErrUnsuitable, background.ErrOtherDatabase, cmp.Or(found.ID, "which has no identity yet"), c.id)
}

// checkTriggers is nil while the triggers are in force that keep evidence, and what it binds, as they
// are. Where they are off, a run may not be what was decided any more.
func (c *databaseMonitor) checkTriggers(ctx context.Context) error {
	if err := c.journal.RecheckTriggers(ctx); errors.Is(err, postgres.ErrTriggersOff) {
		return fmt.Errorf("%w: %w", ErrUnsuitable, err)
	}
	return nil // whoever asks whether this process is ready asks the database as well
}

// checkTargets is nil while the targets go by the circuit breakers that this process has for them:
// else it would walk around one that is open.
func (c *databaseMonitor) checkTargets(ctx context.Context) error {
	if err := c.journal.CheckTargets(ctx, Family, c.breakers); errors.Is(err, ErrTargets) {
		return err
	}
	return nil // whoever asks whether this process is ready asks the database as well
}

// isPermanent reports whether nothing is claimed any more, and nothing else decided, until the
// process is started again.
func isPermanent(err error) bool {
	return errors.Is(err, ErrSchema) || errors.Is(err, background.ErrOtherDatabase)
}

func (c *databaseMonitor) setProblem(err error) {
	was := c.err()
	switch {
	case err == nil:
		c.problem.Store(nil)
		if was != nil {
			c.log.Info("the database can be worked on again")
		}
	default:
		c.problem.Store(&err)
		if was == nil {
			c.log.Error("nothing is claimed", zap.Error(err))
		}
	}
}

// followTimeline notes the timeline, and tells of a change.
func (c *databaseMonitor) followTimeline(ctx context.Context, found postgres.Installation) {
	switch {
	case found.Timeline != found.RecordedTimeline:
		changed, err := c.journal.RecordTimeline(ctx, found, c.now())
		if err != nil {
			c.log.Warn("the timeline of the database was not recorded yet", zap.Error(err))
		}
		if changed {
			c.log.Error("the database has failed over or was restored: what was committed last before may be lost, unless replication is synchronous",
				zap.Int64("from_timeline", found.RecordedTimeline), zap.Int64("to_timeline", found.Timeline))
		}
		return // it is told when it is read
	case found.RecordedSince.IsZero() || c.now().Sub(found.RecordedSince) > failoverVisibleFor:
		c.timelineSeenAt = c.now()
		return
	}
	last := c.lastFailover.Load()
	if last == nil || !last.SeenAt.Equal(found.RecordedSince) {
		since := found.RecordedSince
		if !c.timelineSeenAt.IsZero() && c.timelineSeenAt.Before(since) {
			since = c.timelineSeenAt
		}
		last = &Failover{From: found.PreviousTimeline, To: found.RecordedTimeline, SeenAt: found.RecordedSince, Since: since.Add(-failoverLookback).UTC().Truncate(time.Second)}
	}
	if !last.Counted && !time.Now().Before(c.recountAt) {
		last = c.countUndecided(ctx, *last)
		c.recountAt = time.Now().Add(recountAfter)
	}
	c.lastFailover.Store(last)
	c.timelineSeenAt = c.now()
}

func (c *databaseMonitor) countUndecided(ctx context.Context, last Failover) *Failover {
	tenants, err := c.journal.FailoverExposures(ctx, last.Since, last.SeenAt.Add(time.Second))
	if err != nil {
		c.log.Warn("what was decided before the failover was not counted yet", zap.Error(err))
		return &last
	}
	last.Counted, last.Tenants = true, tenants
	for _, u := range tenants {
		c.log.Warn("decided or unknown shortly before the failover", zap.String("tenant", u.Tenant), zap.Int64("unknown", u.Unknown), zap.Int64("findings", u.Findings),
			zap.Time("since", last.Since), zap.String("see", last.Command(u.Tenant)))
	}
	return &last
}

// Command is what shows a tenant's part of it.
func (f *Failover) Command(tenant string) string {
	return fmt.Sprintf("recourse dlq list --tenant %s --status '' --since %s", tenant, f.Since.UTC().Format(time.RFC3339))
}

// Failover is the database's last change of timeline, nil when there was none within a day:
// then somebody has to compare what was decided shortly before with what is known elsewhere.
func (s *Service) Failover() *Failover { return s.database.failover() }

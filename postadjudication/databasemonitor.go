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
	"github.com/recourse-dev/recourse/internal/every"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

const (
	monitorEvery       = time.Second
	poolerCheckEvery   = 30 * time.Second // interval of the check for a connection pooler
	guardsCheckEvery   = 30 * time.Second // interval of the check of what protects evidence, beside triggers
	failoverVisibleFor = 24 * time.Hour   // for how long readiness reports a failover
	failoverLookback   = time.Minute      // exposures are counted from this long before it
	recountAfter       = 30 * time.Second // pause after a failed count
)

// Failover means that the database continues on another timeline of its server's log, as after
// the promotion of a standby or a restore. Unless replication is synchronous, the last commits
// before it may be lost: findings and decisions that were acknowledged, and payments made on
// them.
type Failover struct {
	From   int64     `json:"from_timeline"`
	To     int64     `json:"to_timeline"`
	SeenAt time.Time `json:"seen_at"`
	// What was recorded from a minute before the old timeline was last seen, to be compared
	// with what people and the escrow service know. Counted is false until that is known.
	Since   time.Time          `json:"since"`
	Counted bool               `json:"counted"`
	Tenants []FailoverExposure `json:"tenants"`
}

// FailoverExposure counts, for one tenant, what lost commits may contradict.
type FailoverExposure = journal.FailoverExposure

// GuardsOff names what protects evidence in the database and is missing, switched off, or defined otherwise than by this version:
// triggers as table.trigger, functions, constraints and unique indexes after their kind. While it is, receipts and the
// rows they describe can be changed. A data-only restore disables triggers; the owner of the tables can change all of it.
func (h *Health) GuardsOff(ctx context.Context) ([]string, error) {
	return schema.GuardsOff(ctx, h.s.journal.Reads())
}

// databaseMonitor checks the database while a process uses it.
//   - Newer schema: a version can't know whether it may use the tables of a newer one, so the
//     process claims nothing more and decides nothing until it is replaced.
//   - Another database in place of the one that was opened: the same.
//   - What protects evidence off or changed, or other circuit breakers for targets than this process has: it claims
//     nothing until that is over.
type databaseMonitor struct {
	journal      *journal.Journal
	id           string            // of the database that was opened; empty if this process executes nothing
	breakers     map[string]string // target -> name of its circuit breaker in this process
	log          *zap.Logger
	now          func() time.Time
	problem      atomic.Pointer[error]
	lastFailover atomic.Pointer[Failover]

	// Only used by the goroutine of run:
	timelineSeenAt  time.Time // when the previous timeline was last seen
	recountAt       time.Time // exposures are not counted again before
	poolerCheckedAt time.Time // last check for a pooler
	guardsCheckedAt time.Time // last check of what protects evidence, beside triggers
}

// unready returns err in the form of readiness.
func (c *databaseMonitor) unready() error {
	err := c.err()
	reason := "this database may not be used"
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrSchema):
		reason = "the schema of the database is of another version"
	case errors.Is(err, schema.ErrGuardsOff):
		reason = "what protects evidence in the database is off or changed"
	case errors.Is(err, ErrTargets):
		reason = "targets have other circuit breakers than in this process"
	}
	return &Unready{Reason: reason, Err: err}
}

// err returns why nothing may be claimed, or nil.
func (c *databaseMonitor) err() error {
	if err := c.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// failover returns the last failover within failoverVisibleFor, or nil.
func (c *databaseMonitor) failover() *Failover {
	last := c.lastFailover.Load()
	if last == nil || c.now().Sub(last.SeenAt) > failoverVisibleFor {
		return nil
	}
	return last
}

// run checks the database until ctx is done. It calls outdated once if the schema is newer or
// the database is another one.
func (c *databaseMonitor) run(ctx context.Context, outdated func()) {
	c.poolerCheckedAt = time.Now()
	every.Loop{Interval: monitorEvery}.Run(ctx, func(ctx context.Context) error {
		c.check(ctx, outdated) // it logs what it finds
		return nil
	})
}

func (c *databaseMonitor) check(ctx context.Context, outdated func()) {
	switch was := c.err(); {
	case isPermanent(was):
		return
	case was != nil && !errors.Is(was, journal.ErrPooled):
		c.poolerCheckedAt = time.Time{} // this error hid one of a pooler: check for a pooler before claiming again
	}
	found, err := c.journal.Database.Installation(ctx)
	if err != nil {
		return // readiness checks the connection itself
	}
	if err = found.CheckUsable(); err == nil {
		err = c.checkIdentity(found)
	}
	if err == nil {
		err = c.checkGuards(ctx)
	}
	if err == nil {
		err = c.checkTargets(ctx)
	}
	if err == nil && time.Since(c.poolerCheckedAt) >= poolerCheckEvery {
		switch poolerErr := c.journal.Database.CheckNotPooled(ctx); {
		case poolerErr == nil:
			c.poolerCheckedAt = time.Now()
		case errors.Is(poolerErr, ErrUnsuitable):
			c.poolerCheckedAt, err = time.Now(), poolerErr
		default:
			return // nothing is known of a pooler: the problem stays as it is until the next check
		}
	} else if err == nil && errors.Is(c.err(), journal.ErrPooled) {
		err = c.err() // until the next check for a pooler
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

// checkIdentity returns an error unless the database is the one that was opened. A database
// that lost its identity, as by a restore of an older copy, is another one: what this process
// knows may be missing from it.
func (c *databaseMonitor) checkIdentity(found journal.Installation) error {
	if c.id == "" || found.ID == c.id {
		return nil
	}
	return fmt.Errorf("%w: %w (%s) than the one that was opened (%s): if that is intended, restart this process",
		ErrUnsuitable, background.ErrOtherDatabase, cmp.Or(found.ID, "which has no identity yet"), c.id)
}

// checkGuards returns an error if what protects receipts, and the rows they describe, is off or changed. While it is, a
// run may differ from what was decided. It checks the triggers each time, and the rest less often, unless something was off.
func (c *databaseMonitor) checkGuards(ctx context.Context) error {
	check := schema.RecheckTriggers
	if errors.Is(c.err(), schema.ErrGuardsOff) || time.Since(c.guardsCheckedAt) >= guardsCheckEvery {
		check = schema.RecheckGuards
		c.guardsCheckedAt = time.Now()
	}
	if err := check(ctx, c.journal.Reads()); errors.Is(err, schema.ErrGuardsOff) {
		return fmt.Errorf("%w: %w", ErrUnsuitable, err)
	}
	return nil // readiness checks the connection itself
}

// checkTargets returns an error if targets have other circuit breakers than this process has
// for them: it would ignore an open one.
func (c *databaseMonitor) checkTargets(ctx context.Context) error {
	if err := c.journal.Targets.Check(ctx, casework.Family, c.breakers); errors.Is(err, ErrTargets) {
		return err
	}
	return nil // readiness checks the connection itself
}

// isPermanent reports whether the process claims and decides nothing until it is restarted.
func isPermanent(err error) bool {
	return errors.Is(err, ErrSchema) || errors.Is(err, background.ErrOtherDatabase)
}

func (c *databaseMonitor) setProblem(err error) {
	was := c.err()
	switch {
	case err == nil:
		c.problem.Store(nil)
		if was != nil {
			c.log.Info("the database can be used again")
		}
	default:
		c.problem.Store(&err)
		if was == nil {
			c.log.Error("claiming is paused: the database can't be used", zap.Error(err))
		}
	}
}

// followTimeline records the timeline and reports a change.
func (c *databaseMonitor) followTimeline(ctx context.Context, found journal.Installation) {
	switch {
	case found.Timeline != found.RecordedTimeline:
		changed, err := c.journal.Database.RecordTimeline(ctx, found, c.now())
		if err != nil {
			c.log.Warn("could not record the timeline of the database, retrying", zap.Error(err))
		}
		if changed {
			c.log.Error("the database has failed over or was restored: the last commits before may be lost, unless replication is synchronous",
				zap.Int64("from_timeline", found.RecordedTimeline), zap.Int64("to_timeline", found.Timeline))
		}
		return // reported once it is read back
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
	tenants, err := c.journal.Database.FailoverExposures(ctx, last.Since, last.SeenAt.Add(time.Second))
	if err != nil {
		c.log.Warn("could not count what was decided before the failover, retrying", zap.Error(err))
		return &last
	}
	last.Counted, last.Tenants = true, tenants
	for _, u := range tenants {
		c.log.Warn("tenant has decisions or unknown outcomes from shortly before the failover", zap.String("tenant", u.Tenant), zap.Int64("unknown", u.Unknown), zap.Int64("findings", u.Findings),
			zap.Time("since", last.Since), zap.String("see", last.Command(u.Tenant)))
	}
	return &last
}

// Command returns the command that lists a tenant's part.
func (f *Failover) Command(tenant string) string {
	return fmt.Sprintf("recourse dlq list --tenant %s --status '' --since %s", tenant, f.Since.UTC().Format(time.RFC3339))
}

// Failover returns the database's last change of timeline within a day, else nil. After one, a
// person must compare what was decided shortly before with other sources.
func (h *Health) Failover() *Failover { return h.s.database.failover() }

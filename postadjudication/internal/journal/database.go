package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/migrations"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Installation is the identity and the state of the database.
type Installation struct {
	ID       string // of this database, permanent; empty before Install
	Standby  bool   // the server takes no writes
	Schema   int64  // version
	Timeline int64  // of the server's log; 0 on a standby
	Encoding string // of the database

	Demonstration bool // the escrow service of this database pays nothing real; permanent

	// RecordedTimeline is the timeline recorded last, PreviousTimeline the one recorded
	// before it, and RecordedSince when RecordedTimeline was recorded first; zero if the
	// timeline never changed.
	RecordedTimeline, PreviousTimeline int64
	RecordedSince                      time.Time
}

// The timeline is that of the current WAL segment: the control file has the new one of a
// promoted server only after its next checkpoint.
const installationSQL = `SELECT coalesce(i.id::text, ''), pg_is_in_recovery(), (SELECT coalesce(max(version_id), 0) FROM ` + stored.VersionTable + ` WHERE is_applied),
	CASE WHEN pg_is_in_recovery() THEN 0 ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END,
	coalesce(i.timeline, 0), coalesce(i.timeline_before, 0), i.timeline_seen, coalesce(i.demonstration, false), current_setting('server_encoding') FROM (VALUES (1)) one LEFT JOIN recourse.installation i ON true`

// Database reads the state of the database itself: its schema, role, triggers and timeline.
type Database struct {
	*shared
	identity atomic.Pointer[string] // of this database, once it is installed; nil until CheckTx has read it
}

// Installation reads the identity and the state of the database, in one statement.
func (d *Database) Installation(ctx context.Context) (i Installation, err error) {
	var since sql.NullTime
	err = d.readDB.QueryRowContext(ctx, installationSQL).Scan(&i.ID, &i.Standby, &i.Schema, &i.Timeline, &i.RecordedTimeline, &i.PreviousTimeline, &since, &i.Demonstration, &i.Encoding)
	if err != nil {
		return i, pg.Wrap(err)
	}
	if since.Valid {
		i.RecordedSince = since.Time.UTC()
	}
	return i, nil
}

// Install gives the database its identity, unless it has one, and reads it. demonstration
// marks it for demonstrations, only if it has no cases yet, and only in the call that gives
// the identity.
func (d *Database) Install(ctx context.Context, demonstration bool) (Installation, error) {
	if _, err := pg.Exec(ctx, d.readDB, failpoint.Install, `INSERT INTO recourse.installation (demonstration) SELECT $1 AND NOT EXISTS (SELECT FROM recourse.cases) ON CONFLICT DO NOTHING`, demonstration); err != nil {
		return Installation{}, pg.Wrap(err)
	}
	return d.Installation(ctx)
}

// identitySQL returns the identity of the database. One that no process has installed yet has none: its place on its
// server tells it from others until then.
const (
	identitySQL  = `coalesce((SELECT id::text FROM recourse.installation), '` + notInstalled + `' || (SELECT system_identifier FROM pg_control_system()) || ' ' || (SELECT oid FROM pg_database WHERE datname = current_database()))`
	notInstalled = "not installed "
)

// CheckTx returns nil if a run can be submitted in a caller's transaction: it belongs to the database of this
// journal, else the error wraps background.ErrOtherDatabase, and is READ COMMITTED, else the error is ErrIsolation.
func (d *Database) CheckTx(ctx context.Context, tx *sql.Tx) error {
	var level, theirs string
	// The commit of the caller's transaction is as durable as one of the journal's own sessions.
	err := tx.QueryRowContext(ctx, `SELECT current_setting('transaction_isolation'), `+identitySQL+` FROM (SELECT CASE WHEN `+pg.WeakCommits+` THEN set_config('synchronous_commit', 'on', true) END) durable`).Scan(&level, &theirs)
	var refused *pq.Error
	switch {
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "3F000"): // no such table, no such schema
		return fmt.Errorf("journal: the transaction can't submit: %w (without a Recourse schema) than that of this process", background.ErrOtherDatabase)
	case err != nil:
		return pg.Wrap(err)
	}
	if ours := d.identity.Load(); ours == nil || *ours != theirs {
		if err := d.compareIdentity(ctx, theirs); err != nil {
			return err
		}
	}
	if level != "read committed" && level != "read uncommitted" {
		return ErrIsolation
	}
	return nil
}

// compareIdentity returns nil if the identity is that of this database, which it reads, since a process may have
// installed it meanwhile.
func (d *Database) compareIdentity(ctx context.Context, theirs string) error {
	var ours string
	if err := d.readDB.QueryRowContext(ctx, `SELECT `+identitySQL).Scan(&ours); err != nil {
		return pg.Wrap(err)
	}
	if theirs != ours {
		return fmt.Errorf("journal: the transaction can't submit: %w (%s) than that of this process (%s)", background.ErrOtherDatabase, theirs, ours)
	}
	if !strings.HasPrefix(ours, notInstalled) {
		d.identity.Store(&ours)
	}
	return nil
}

// CheckUsable returns nil if the database can be worked on. Otherwise the error wraps
// ErrUnsuitable or ErrSchema, and says in one line what is wrong and what to do.
func (i Installation) CheckUsable() error {
	want, err := migrations.Newest()
	switch {
	case err != nil:
		return err
	case i.Standby:
		return errStandby
	case i.Schema > want:
		return stored.NewerSchema(i.Schema, want)
	}
	if err := stored.CheckEncoding(i.Encoding); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsuitable, err)
	}
	return nil
}

// RecordTimeline records the current timeline of the database, and reports whether this
// call recorded a change of it.
func (d *Database) RecordTimeline(ctx context.Context, i Installation, at time.Time) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	res, err := pg.Exec(ctx, d.readDB, failpoint.Timeline, `UPDATE recourse.installation SET timeline = $1, timeline_before = timeline, timeline_seen = CASE WHEN timeline > 0 THEN $2::timestamptz END
		WHERE timeline = $3 AND timeline <> $1`, i.Timeline, at, i.RecordedTimeline)
	if err != nil {
		return false, pg.Wrap(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, pg.Wrap(err)
	}
	return n == 1 && i.RecordedTimeline > 0, nil
}

// FailoverExposure counts the receipts of a tenant, within some time, that receipts lost in
// a failover may contradict.
type FailoverExposure struct {
	Tenant   string `json:"tenant"`
	Unknown  int64  `json:"unknown"`  // attempts that ended with an unknown outcome
	Findings int64  `json:"findings"` // by people and by lookups
}

// The outbox is read as well, for receipts that are not numbered yet. Receipts have no
// index by time: the 20000 newest statements that wrote any are read, which is as many as a
// minute can hold.
const failoverExposureSQL = `
WITH newest AS (
  (SELECT case_ids, seqs FROM recourse.event_log ORDER BY last DESC LIMIT 20000) UNION ALL (SELECT case_ids, seqs FROM recourse.outbox)
), places AS (SELECT p.case_id, p.seq FROM newest n, unnest(n.case_ids, n.seqs) AS p (case_id, seq))
SELECT r.tenant, count(*) FILTER (WHERE r.subtype <> 'reconciled'), count(*) FILTER (WHERE r.subtype = 'reconciled')
FROM places p JOIN recourse.receipts r ON r.case_id = p.case_id AND r.seq = p.seq
WHERE r.at >= $1 AND r.at < $2 AND (r.subtype = 'reconciled'
  OR r.subtype IN ('retry-scheduled', 'dead-lettered', 'attempt-interrupted') AND r.body::json #>> '{payload,outcome_class}' = 'unknown')
GROUP BY r.tenant ORDER BY r.tenant`

// FailoverExposures counts by tenant the receipts from one time until before another.
func (d *Database) FailoverExposures(ctx context.Context, from, to time.Time) ([]FailoverExposure, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := d.readDB.QueryContext(ctx, failoverExposureSQL, from, to)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	var out []FailoverExposure
	for rows.Next() {
		var u FailoverExposure
		if err := rows.Scan(&u.Tenant, &u.Unknown, &u.Findings); err != nil {
			return nil, pg.Wrap(err)
		}
		out = append(out, u)
	}
	if err := rows.Err(); err != nil {
		return nil, pg.Wrap(err)
	}
	return out, nil
}

// ErrUnsuitable means that the journal can't keep its promises on the server of the URL.
// The error says in one line what is wrong and what to do.
var ErrUnsuitable = errors.New("unsuitable server")

var (
	// ErrPooled is the ErrUnsuitable of a pooler in transaction mode.
	ErrPooled  = fmt.Errorf("%w: a connection pooler in transaction mode is in between, which gives one session to many clients; connect to Postgres itself, or through a pooler in session mode", ErrUnsuitable)
	errStandby = fmt.Errorf("%w: the server is a standby, which takes no writes; name the primary, or all hosts with target_session_attrs=read-write", ErrUnsuitable)
)

// CheckNotPooled returns nil if each connection is a session of its own. Settings, prepared
// statements and advisory locks belong to sessions; behind a pooler in transaction mode
// several clients share one.
//
// It detects a pooler by the sessions of two connections. Between its transactions a pooled
// connection has no session: another connection may get that session, or this one may get
// another. Which of the two happens depends on the pooler's order and on other clients, so
// both are tried, several times.
func (d *Database) CheckNotPooled(ctx context.Context) error {
	first, err := d.readDB.Conn(ctx)
	if err != nil {
		return pg.Wrap(err)
	}
	defer first.Close()
	second, err := d.readDB.Conn(ctx)
	if err != nil {
		return pg.Wrap(err)
	}
	defer second.Close()
	for range poolingRounds {
		if pooled, err := pooledRound(ctx, first, second); err != nil {
			return pg.Wrap(err)
		} else if pooled {
			return ErrPooled
		}
	}
	return nil
}

const poolingRounds = 3

func pooledRound(ctx context.Context, ours, others *sql.Conn) (pooled bool, err error) {
	first, err := sessionOf(ctx, ours)
	if err != nil {
		return false, err
	}
	again, err := sessionOf(ctx, ours)
	if err != nil || again != first {
		return err == nil, err
	}
	tx, err := others.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // a standby accepts no other
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	theirs, err := sessionOf(ctx, tx)
	if err != nil || theirs == first {
		return err == nil, err
	}
	last, err := sessionOf(ctx, ours)
	return err == nil && last != first, err
}

// sessionOf identifies the session that answers, unique also among several servers.
func sessionOf(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (name string, err error) {
	err = q.QueryRowContext(ctx, `SELECT pg_backend_pid() || '.' || extract(epoch FROM backend_start) || '.' || extract(epoch FROM pg_postmaster_start_time()) FROM pg_stat_get_activity(pg_backend_pid())`).Scan(&name)
	return name, err
}

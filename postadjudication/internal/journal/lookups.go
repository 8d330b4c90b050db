package journal

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// LookupRecord is the latest answer of the escrow service about a run of unknown outcome, from
// automatic lookups.
type LookupRecord struct {
	Run           background.RunID
	Tenant        string
	Attempt       int // last attempt of the run when the service was asked: the answer covers no later one
	Count         int
	LookedUpAt    time.Time
	Answer        background.Class
	FailureType   string    // type of the failure, if the answer tells nothing
	Moved         int64     // amount, if the answer is executed
	NotExecutedAt time.Time // when the service first answered not executed; zero until then
	NextAt        time.Time // zero if a person has to find out
	ManualReason  string    // why a person has to find out; empty while NextAt is set
}

// openUnknownSQL selects the runs of settlements of unknown outcome, with case c and run r, that are open dead letters
// or wait for an attempt. It leaves out dead letters on hold, those in a bulk plan that runs or is paused, and runs that
// have surely not paid: money may have moved under an older operation key, of which a lookup tells nothing. A run whose
// call is accepted is asked about by its own deliveries.
const openUnknownSQL = ` FROM recourse.cases c JOIN recourse.runs r ON r.id = c.run_id LEFT JOIN recourse.lookups l ON l.run_id = r.id
WHERE c.unknown_open > 0 AND c.kind = 'settlement' AND (r.letter = 'open' OR r.live AND r.state <> 'running' AND r.reason <> 'accepted') AND r.class <> 'not_executed'
  AND NOT EXISTS (SELECT FROM recourse.annotations d WHERE d.run_id = r.id AND d.held)
  AND NOT EXISTS (SELECT FROM recourse.bulks b JOIN recourse.bulk_items i ON i.bulk_id = b.id WHERE b.state IN ('running', 'paused') AND i.outcome = '' AND i.run_id = r.id)`

// unknownRunSQL reads these runs.
const unknownRunSQL = `SELECT r.id, r.target, r.attempt_count AS attempt, ` + pausedByBreakerSQL + ` AS paused` + openUnknownSQL

// UnknownRun is an open dead letter or a waiting run of unknown outcome, and the target to ask about it.
type UnknownRun struct {
	Run     background.RunID
	Target  string
	Attempt int  // the last one
	Paused  bool // a circuit breaker is not closed: no lookup now
}

// Lookups keeps what is known of lookups of runs whose outcome is unknown.
type Lookups struct {
	*shared
	cases *Cases
}

// NeverLookedUp lists open unknown runs of some targets without a lookup since their last attempt: dead letters,
// oldest first, then waiting runs. Those that are paused come last.
func (l *Lookups) NeverLookedUp(ctx context.Context, targets []string, limit int) ([]UnknownRun, error) {
	return l.selectUnknown(ctx, unknownRunSQL+` AND l.attempt IS DISTINCT FROM r.attempt_count AND r.target = ANY ($2) ORDER BY paused, r.dead_at, r.id LIMIT $1`, limit, pq.Array(targets))
}

// Due lists open unknown runs of some targets whose next lookup is due and which are not paused, most overdue first.
func (l *Lookups) Due(ctx context.Context, targets []string, now time.Time, limit int) ([]UnknownRun, error) {
	return l.selectUnknown(ctx, unknownRunSQL+` AND l.attempt = r.attempt_count AND l.next_at <= $2 AND r.target = ANY ($3) AND NOT `+pausedByBreakerSQL+` ORDER BY l.next_at, r.id LIMIT $1`, limit, now, pq.Array(targets))
}

func (l *Lookups) selectUnknown(ctx context.Context, query string, args ...any) ([]UnknownRun, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var rows []struct {
		ID      uuid.UUID `db:"id"`
		Target  string    `db:"target"`
		Attempt int       `db:"attempt"`
		Paused  bool      `db:"paused"`
	}
	if err := l.readDB.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]UnknownRun, len(rows))
	for i, r := range rows {
		out[i] = UnknownRun{background.RunID(r.ID), r.Target, r.Attempt, r.Paused}
	}
	return out, nil
}

// Unknown reads an open dead letter of unknown outcome, without a hold and not in a running plan, or a waiting run of
// unknown outcome, with its last lookup. It returns ErrNotFound if the run is no longer such a one.
func (l *Lookups) Unknown(ctx context.Context, id background.RunID) (Snapshot, LookupRecord, error) {
	s, err := l.cases.Snapshot(ctx, id)
	if err != nil {
		return s, LookupRecord{}, err
	}
	// The case is read before the run is checked: a change of the case in between fails
	// the guard later.
	found, err := l.selectUnknown(ctx, unknownRunSQL+` AND r.id = $1`, id.String())
	if err == nil && len(found) == 0 {
		err = background.ErrNotFound
	}
	if err != nil {
		return s, LookupRecord{}, err
	}
	last, err := l.Find(ctx, s.Run.Tenant, id)
	return s, last, err
}

// Find reads the last lookup of a run of a tenant; Count is 0 if there was none.
func (l *Lookups) Find(ctx context.Context, tenant string, id background.RunID) (LookupRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	out := LookupRecord{Run: id, Tenant: tenant}
	var absent, next sql.NullTime
	err := l.readDB.QueryRowContext(ctx, `SELECT attempt, asked, asked_at, answer, why, moved, absent_at, next_at, waits_for FROM recourse.lookups WHERE tenant = $1 AND run_id = $2`, tenant, id.String()).
		Scan(&out.Attempt, &out.Count, &out.LookedUpAt, &out.Answer, &out.FailureType, &out.Moved, &absent, &next, &out.ManualReason)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return out, nil
	case err != nil:
		return out, pg.Wrap(err)
	}
	out.LookedUpAt = out.LookedUpAt.UTC()
	if absent.Valid {
		out.NotExecutedAt = absent.Time.UTC()
	}
	if next.Valid {
		out.NextAt = next.Time.UTC()
	}
	return out, nil
}

// Record stores the answer of a lookup, if its Count follows the stored one.
func (l *Lookups) Record(ctx context.Context, r LookupRecord) error {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, l.readDB, failpoint.Lookup, `INSERT INTO recourse.lookups AS l (run_id, tenant, attempt, asked, asked_at, answer, why, moved, absent_at, next_at, waits_for)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (run_id) DO UPDATE SET attempt = excluded.attempt, asked = excluded.asked, asked_at = excluded.asked_at, answer = excluded.answer, why = excluded.why, moved = excluded.moved,
  absent_at = excluded.absent_at, next_at = excluded.next_at, waits_for = excluded.waits_for WHERE l.asked = excluded.asked - 1`,
		r.Run.String(), r.Tenant, r.Attempt, r.Count, r.LookedUpAt, string(r.Answer), r.FailureType, r.Moved, nullTime(r.NotExecutedAt), nullTime(r.NextAt), r.ManualReason)
	return pg.Wrap(err)
}

func nullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }

// DeleteResolved deletes the lookups of runs that are neither live nor open dead letters, or whose outcome is known.
func (l *Lookups) DeleteResolved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, l.readDB, failpoint.Lookup, `DELETE FROM recourse.lookups l WHERE NOT EXISTS (
  SELECT FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE r.id = l.run_id AND (r.letter = 'open' AND c.unknown_open > 0 OR r.live AND (c.unknown_open > 0 OR r.state = 'running')))`)
	return pg.Wrap(err)
}

// Unresolved counts open dead letters of unknown outcome: those for automatic lookup, and
// those that wait for a person.
type Unresolved struct{ ForLookup, ForPerson int64 }

const unresolvedSQL = `SELECT count(*) FILTER (WHERE NOT f.person), count(*) FILTER (WHERE f.person)
FROM recourse.cases c JOIN recourse.runs r ON r.id = c.run_id LEFT JOIN recourse.lookups l ON l.run_id = r.id,
  LATERAL (SELECT coalesce(l.waits_for, '') <> '' OR r.class = 'not_executed' AS person) f
WHERE c.unknown_open > 0 AND c.kind = 'settlement' AND r.letter = 'open'`

// The advisory lock of lookups; its key follows those of retention and rules.
const tryLookupLockSQL = `SELECT pg_try_advisory_lock(1919119987, 4)`

// Exclusive runs work while no other process makes lookups. It reports false, without
// running work, if another process does. The lock limits the rate and avoids duplicate
// requests; the results of a lookup are guarded by themselves: see Letters.Exclusive.
func (l *Lookups) Exclusive(ctx context.Context, work func() error) (acquired bool, err error) {
	return pg.Exclusive(ctx, l.readDB.DB, tryLookupLockSQL, work)
}

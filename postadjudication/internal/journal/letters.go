package journal

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Letters reads dead letters with their annotations, for those who change them.
type Letters struct {
	*shared
	handlersStmt   *pg.Statement
	listedRunsStmt *pg.Statement
}

// Annotations are the hold, the marks and the announced end of retention of a dead letter.
// The zero value is that of a dead letter without any.
type Annotations struct {
	Held            bool
	HoldReason      string    // empty unless held
	Reprocess       *bool     // reprocess_eligible; nil if not marked
	Review          *bool     // manual_review_required; nil if not marked
	MarkReason      string    // of the last mark
	RetentionEndsAt time.Time // the announced end of its retention; zero if none was announced
}

// LetterRow is a run with the annotations of its letter, if it has one, at one moment. Every change of
// annotations writes a receipt, so that the case's head is the version of both.
type LetterRow struct {
	Snapshot
	Annotations Annotations
}

// letterRowsSQL returns the query for dead letters with their annotations, oldest death
// first; where selects them.
func letterRowsSQL(where string) string {
	return `SELECT q.*, coalesce(d.held, false) AS on_hold, coalesce(d.hold_reason, '') AS hold_reason, d.reprocess_eligible, d.manual_review_required,
  coalesce(d.mark_reason, '') AS mark_reason, d.ends_at
FROM (` + snapshotSQL + where + `) q LEFT JOIN recourse.annotations d ON d.run_id = q.id ORDER BY q.dead_at, q.id`
}

var letterRowsByIDSQL = letterRowsSQL(`WHERE r.id = ANY($1::uuid[])`)

// ByID reads runs of any tenant with their annotations, by id. Runs that do not
// exist are left out.
func (l *Letters) ByID(ctx context.Context, ids ...background.RunID) ([]LetterRow, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(1, 1)
	for _, id := range ids {
		c.ID(id)
	}
	found, _, err := l.selectLetterRows(ctx, LetterRowCursor{}, letterRowsByIDSQL, c.Args()...)
	return found, err
}

// listedRunsSQL reads runs in the order of $1, as snapshotSQL does, each with its place in $1. It reads no
// run after $2 bytes of payloads.
var listedRunsSQL = `SELECT * FROM (
SELECT ` + snapshotColumns + `, ` + termsColumns + `, i.place, l.replays, sum(length(coalesce(o.request, r.payload))) OVER (ORDER BY i.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before` +
	snapshotTables + `JOIN unnest($1::uuid[]) WITH ORDINALITY AS i(id,place) ON i.id = r.id` + termsJoin + ` LEFT JOIN recourse.letters l ON l.run_id = r.id) q WHERE coalesce(bytes_before, 0) < $2 ORDER BY place`

// ListedRun is a run of a list of dead letters.
type ListedRun struct {
	Snapshot
	Replays int // forks of it and of its ancestors; 0 if the index of dead letters has not got it
}

// ListedRuns reads the first of runs of any tenant, in their order: at least one, and none after maxBytes
// of payloads. A run that does not exist is zero. So is one that this program can't read: it is passed to Warn.
func (l *Letters) ListedRuns(ctx context.Context, ids []background.RunID, maxBytes int64) ([]ListedRun, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(1, len(ids))
	for _, id := range ids {
		c.ID(id)
	}
	rows, err := l.listedRunsStmt.QueryContext(ctx, "", append(c.Args(), maxBytes)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out, read := make([]ListedRun, len(ids)), len(ids)
	for rows.Next() {
		var scanned snapshotRow
		var replays, before sql.NullInt64
		s, err := scanned.read(rows, &read, &replays, &before)
		if scanned.ID == (uuid.UUID{}) {
			return nil, pg.Wrap(err)
		}
		if err != nil {
			l.warnUnreadable(unreadable{{id: background.RunID(scanned.ID), err: err}})
			continue
		}
		out[read-1] = ListedRun{s, int(replays.Int64)}
	}
	return out[:read], pg.Wrap(rows.Err())
}

// selectLetterRows reads dead letters after a position, and returns the position of the
// last. Rows that this program can't read are skipped, unchanged, and passed to Warn.
func (l *Letters) selectLetterRows(ctx context.Context, after LetterRowCursor, query string, args ...any) (out []LetterRow, last LetterRowCursor, err error) {
	rows, err := l.readDB.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, after, pg.Wrap(err)
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var scanned snapshotRow
		var d Annotations
		var ends sql.NullTime
		s, err := scanned.read(rows, &d.Held, &d.HoldReason, &d.Reprocess, &d.Review, &d.MarkReason, &ends)
		if scanned.ID == (uuid.UUID{}) {
			return nil, after, pg.Wrap(err)
		}
		if ends.Valid {
			d.RetentionEndsAt = ends.Time.UTC()
		}
		last = LetterRowCursor{scanned.DeadAt.Time.UTC(), background.RunID(scanned.ID)}
		if err != nil {
			l.warnUnreadable(unreadable{{id: background.RunID(scanned.ID), err: err}})
			continue
		}
		out = append(out, LetterRow{s, d})
	}
	if err := rows.Err(); err != nil {
		return nil, after, pg.Wrap(err)
	}
	return out, last, nil
}

// RetentionScope is the open dead letters of all tenants under one retention rule: those of
// one queue of a family, or of all its queues except those with rules of their own.
type RetentionScope struct {
	Family string
	Queue  string   // empty: all but Except
	Except []string // queues
}

// LetterRowCursor is where the next page begins in a list of dead letters: oldest death first. The zero
// cursor is before all. A list that returns the cursor it was given is at its end.
type LetterRowCursor struct {
	DeadAt time.Time
	Run    background.RunID
}

// The dead letters that retention may purge: none that may have moved money without a known
// outcome, and none on hold.
const (
	inScopeSQL       = `r.letter = 'open' AND r.family = $1 AND ($2 = '' OR r.queue = $2) AND r.queue <> ALL($3::text[])`
	purgeableSQL     = `(c.kind <> 'settlement' OR r.class <> 'unknown' AND c.unknown_open = 0) AND NOT EXISTS (SELECT FROM recourse.annotations k WHERE k.run_id = r.id AND k.held)`
	letterRowPageSQL = ` AND (r.dead_at, r.id) > ($4, $5) ORDER BY r.dead_at, r.id LIMIT $6`
)

var (
	expiredSQL = letterRowsSQL(`WHERE ` + inScopeSQL + ` AND ` + purgeableSQL + ` AND r.dead_at <= $7
  AND EXISTS (SELECT FROM recourse.annotations k WHERE k.run_id = r.id AND k.ends_at <= $8)` + letterRowPageSQL)
	unannouncedSQL = letterRowsSQL(`WHERE ` + inScopeSQL + ` AND ` + purgeableSQL + ` AND r.dead_at <= $7
  AND NOT EXISTS (SELECT FROM recourse.annotations k WHERE k.run_id = r.id AND k.ends_at IS NOT NULL)` + letterRowPageSQL)
	olderSQL          = letterRowsSQL(`WHERE ` + inScopeSQL + ` AND ` + purgeableSQL + ` AND r.dead_at < $7` + letterRowPageSQL)
	overCountSQL      = letterRowsOverCountSQL("")
	overQueueCountSQL = letterRowsOverCountSQL("o.queue = r.queue AND ")

	countBoundsSQL      = countBoundsOfSQL("''")
	queueCountBoundsSQL = countBoundsOfSQL("r.queue")
)

// letterRowsOverCountSQL returns the query for the dead letters that bounds select; match compares a
// bound with a run, beside the tenant. The bounds are compared row by row, in the order of the page: a
// join would have the server read all letters for each page.
func letterRowsOverCountSQL(match string) string {
	return letterRowsSQL(`WHERE ` + inScopeSQL + ` AND ` + purgeableSQL + ` AND (r.dead_at, r.id) <= ($7, $8)
  AND EXISTS (SELECT FROM unnest($9::text[], $10::text[], $11::timestamptz[], $12::uuid[]) AS o(tenant, queue, dead_at, id)
    WHERE o.tenant = r.tenant AND ` + match + `(r.dead_at, r.id) <= (o.dead_at, o.id) OFFSET 0)` + letterRowPageSQL)
}

// countBoundsOfSQL returns the query for the bounds of the tenants, or of their queues, that have more than
// $4 letters. Only the letters of these are ranked.
func countBoundsOfSQL(queue string) string {
	return `WITH crowded AS MATERIALIZED (
  SELECT r.tenant, ` + queue + ` AS queue, count(*) - $4 AS excess FROM recourse.runs r WHERE ` + inScopeSQL + ` GROUP BY 1, 2 HAVING count(*) > $4)
SELECT tenant, queue, excess, dead_at, id FROM (
  SELECT r.tenant, ` + queue + ` AS queue, w.excess, r.dead_at, r.id, row_number() OVER (PARTITION BY r.tenant, ` + queue + ` ORDER BY r.dead_at DESC, r.id DESC) AS place
  FROM crowded w JOIN recourse.runs r ON r.tenant = w.tenant AND ` + queue + ` = w.queue WHERE ` + inScopeSQL + `) p
WHERE place = $4 + 1`
}

// Expired lists the dead letters of a scope that died by a time, whose announced end has
// passed, and which retention may purge, oldest first, after a position.
func (l *Letters) Expired(ctx context.Context, s RetentionScope, diedBy, now time.Time, after LetterRowCursor, limit int) ([]LetterRow, LetterRowCursor, error) {
	return l.selectInScope(ctx, expiredSQL, s, after, limit, diedBy, now)
}

// Unannounced lists the dead letters of a scope that died by a time, that retention may
// purge, and whose end was not announced yet.
func (l *Letters) Unannounced(ctx context.Context, s RetentionScope, diedBy time.Time, after LetterRowCursor, limit int) ([]LetterRow, LetterRowCursor, error) {
	return l.selectInScope(ctx, unannouncedSQL, s, after, limit, diedBy)
}

// Older lists the dead letters of a scope that died before a time and that retention may purge, oldest
// first, after a position.
func (l *Letters) Older(ctx context.Context, s RetentionScope, diedBefore time.Time, after LetterRowCursor, limit int) ([]LetterRow, LetterRowCursor, error) {
	return l.selectInScope(ctx, olderSQL, s, after, limit, diedBefore)
}

// countBoundsTimeout bounds CountBounds.
const countBoundsTimeout = time.Minute

// CountBound is the newest dead letter of a tenant, or of one of its queues, that is not among the newest that
// are kept: it and all before it are over the count.
type CountBound struct {
	Tenant string
	Queue  string // empty: of all queues of the scope
	Over   int64  // letters over the count
	Last   LetterRowCursor
}

// CountBounds returns the bounds of the tenants, or of their queues, that have more open letters in a scope
// than are kept. It reads all letters of the scope, a million within some seconds.
func (l *Letters) CountBounds(ctx context.Context, s RetentionScope, perQueue bool, kept int) (out []CountBound, err error) {
	ctx, cancel := context.WithTimeout(ctx, countBoundsTimeout)
	defer cancel()
	query := countBoundsSQL
	if perQueue {
		query = queueCountBoundsSQL
	}
	rows, err := l.readDB.QueryContext(ctx, query, s.Family, s.Queue, pq.Array(pg.NonNil(s.Except)), kept)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var b CountBound
		var id uuid.UUID
		if err := rows.Scan(&b.Tenant, &b.Queue, &b.Over, &b.Last.DeadAt, &id); err != nil {
			return nil, pg.Wrap(err)
		}
		b.Last = LetterRowCursor{b.Last.DeadAt.UTC(), background.RunID(id)}
		out = append(out, b)
	}
	return out, pg.Wrap(rows.Err())
}

// OverCount lists the dead letters of a scope that retention may purge and that are over the count by
// bounds, which CountBounds returned for the same tenants or queues; oldest first, after a position.
func (l *Letters) OverCount(ctx context.Context, s RetentionScope, perQueue bool, bounds []CountBound, after LetterRowCursor, limit int) ([]LetterRow, LetterRowCursor, error) {
	if len(bounds) == 0 {
		return nil, after, nil
	}
	c, newest := pg.NewTextColumns(4, len(bounds)), bounds[0].Last
	for _, b := range bounds {
		c.Str(b.Tenant)
		c.Str(b.Queue)
		c.Time(b.Last.DeadAt)
		c.ID(b.Last.Run)
		if newest.before(b.Last) {
			newest = b.Last
		}
	}
	query := overCountSQL
	if perQueue {
		query = overQueueCountSQL
	}
	return l.selectInScope(ctx, query, s, after, limit, append([]any{newest.DeadAt, newest.Run.String()}, c.Args()...)...)
}

// before reports whether a position comes before another one.
func (p LetterRowCursor) before(q LetterRowCursor) bool {
	return cmp.Or(p.DeadAt.Compare(q.DeadAt), bytes.Compare(p.Run[:], q.Run[:])) < 0
}

func (l *Letters) selectInScope(ctx context.Context, query string, s RetentionScope, after LetterRowCursor, limit int, bounds ...any) ([]LetterRow, LetterRowCursor, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	args := []any{s.Family, s.Queue, pq.Array(pg.NonNil(s.Except)), after.DeadAt, after.Run.String(), limit}
	return l.selectLetterRows(ctx, after, query, append(args, bounds...)...)
}

const countExpiredSQL = `SELECT count(*) FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE ` + inScopeSQL + ` AND ` + purgeableSQL + ` AND r.dead_at <= $4`

// CountExpired counts the dead letters of a scope that died by a time and that retention
// may purge.
func (l *Letters) CountExpired(ctx context.Context, s RetentionScope, diedBy time.Time) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = l.readDB.QueryRowContext(ctx, countExpiredSQL, s.Family, s.Queue, pq.Array(pg.NonNil(s.Except)), diedBy).Scan(&n)
	if err != nil {
		return 0, pg.Wrap(err)
	}
	return n, nil
}

// The advisory lock of retention: the bytes of "rcrs" and 2; the sequencer's has 1.
const tryPruneLockSQL = `SELECT pg_try_advisory_lock(1919119987, 2)`

// Exclusive runs work while no other process prunes. It reports false, without running
// work, if another process does. The lock ends with its connection, so that a process that
// dies releases it. If the connection is lost while work runs, another process may begin,
// so that concurrent work must be safe.
func (l *Letters) Exclusive(ctx context.Context, work func() error) (acquired bool, err error) {
	return pg.Exclusive(ctx, l.readDB.DB, tryPruneLockSQL, work)
}

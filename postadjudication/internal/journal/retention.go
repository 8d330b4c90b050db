package journal

import (
	"context"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// RetentionScope is the open dead letters of all tenants under one retention rule: those of
// one queue of a family, or of all its queues except those with rules of their own.
type RetentionScope struct {
	Family string
	Queue  string   // empty: all but Except
	Except []string // queues
}

// LetterRowPosition is a position in a list of dead letters: oldest death first. The zero
// position is before all. A list that returns the position it was given is at its end.
type LetterRowPosition struct {
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
	overCountSQL      = letterRowsOverCountSQL("r.tenant")
	overQueueCountSQL = letterRowsOverCountSQL("r.tenant, r.queue")
)

// letterRowsOverCountSQL returns the query for the dead letters that are not among the newest of their
// partition.
func letterRowsOverCountSQL(partition string) string {
	return letterRowsSQL(`WHERE ` + inScopeSQL + ` AND ` + purgeableSQL + ` AND r.id IN (
    SELECT id FROM (SELECT r.id, row_number() OVER (PARTITION BY ` + partition + ` ORDER BY r.dead_at DESC, r.id DESC) AS place FROM recourse.runs r WHERE ` + inScopeSQL + `) p
    WHERE place > $7)` + letterRowPageSQL)
}

// Expired lists the dead letters of a scope that died by a time, whose announced end has
// passed, and which retention may purge, oldest first, after a position.
func (l *Letters) Expired(ctx context.Context, s RetentionScope, diedBy, now time.Time, after LetterRowPosition, limit int) ([]LetterRow, LetterRowPosition, error) {
	return l.selectInScope(ctx, expiredSQL, s, after, limit, diedBy, now)
}

// Unannounced lists the dead letters of a scope that died by a time, that retention may
// purge, and whose end was not announced yet.
func (l *Letters) Unannounced(ctx context.Context, s RetentionScope, diedBy time.Time, after LetterRowPosition, limit int) ([]LetterRow, LetterRowPosition, error) {
	return l.selectInScope(ctx, unannouncedSQL, s, after, limit, diedBy)
}

// Older lists the dead letters of a scope that died before a time and that retention may purge, oldest
// first, after a position.
func (l *Letters) Older(ctx context.Context, s RetentionScope, diedBefore time.Time, after LetterRowPosition, limit int) ([]LetterRow, LetterRowPosition, error) {
	return l.selectInScope(ctx, olderSQL, s, after, limit, diedBefore)
}

// OverCount lists the dead letters of a scope that retention may purge and that are not
// among the newest kept of their tenant, or of their tenant and queue; oldest first, after a position.
func (l *Letters) OverCount(ctx context.Context, s RetentionScope, perQueue bool, kept int, after LetterRowPosition, limit int) ([]LetterRow, LetterRowPosition, error) {
	if perQueue {
		return l.selectInScope(ctx, overQueueCountSQL, s, after, limit, kept)
	}
	return l.selectInScope(ctx, overCountSQL, s, after, limit, kept)
}

func (l *Letters) selectInScope(ctx context.Context, query string, s RetentionScope, after LetterRowPosition, limit int, bounds ...any) ([]LetterRow, LetterRowPosition, error) {
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

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// LookupRecord is what the escrow service said of an open letter of unknown outcome, when it
// was asked without a person.
type LookupRecord struct {
	Run           background.RunID
	Tenant        string
	Count         int
	LookedUpAt    time.Time
	Answer        background.Class
	FailureType   string    // an answer that tells nothing: type of its failure
	Moved         int64     // of an answer of executed
	NotExecutedAt time.Time // when it first said that nothing was executed; zero until then
	NextAt        time.Time // zero when a person has to find out
	ManualReason  string    // why a person has to; empty while NextAt is set
}

// openUnknownLettersSQL gives the open letters c and r of settlements whose money is unknown, but those
// that somebody holds and those of a bulk plan that runs.
const openUnknownLettersSQL = ` FROM recourse.cases c JOIN recourse.runs r ON r.id = c.run_id LEFT JOIN recourse.lookups l ON l.run_id = r.id
WHERE c.unknown_open > 0 AND c.kind = 'settlement' AND r.letter = 'open'
  AND NOT EXISTS (SELECT FROM recourse.desk d WHERE d.run_id = r.id AND d.held)
  AND NOT EXISTS (SELECT FROM recourse.bulks b JOIN recourse.bulk_items i ON i.bulk_id = b.id WHERE b.state IN ('running', 'paused') AND i.outcome = '' AND i.run_id = r.id)`

// unknownLetterSQL names the letters of openUnknownLettersSQL.
const unknownLetterSQL = `SELECT r.id, r.target, ` + pausedByBreakerSQL + ` AS paused` + openUnknownLettersSQL

// UnknownLetter names an open letter of unknown outcome, and whom to ask about it.
type UnknownLetter struct {
	Run    background.RunID
	Target string
	Paused bool // a circuit breaker is not closed: nobody is to be asked about it now
}

// NeverLookedUp lists unknown open letters of some targets that were never asked about, the
// oldest first, and behind them those that are paused.
func (j *Journal) NeverLookedUp(ctx context.Context, targets []string, limit int) ([]UnknownLetter, error) {
	return j.selectUnknownLetters(ctx, unknownLetterSQL+` AND l.run_id IS NULL AND r.target = ANY ($2) ORDER BY paused, r.dead_at, r.id LIMIT $1`, limit, pq.Array(targets))
}

// DueLookups lists unknown open letters of some targets that are to be asked about again by a
// time, and are not paused, the most overdue first.
func (j *Journal) DueLookups(ctx context.Context, targets []string, now time.Time, limit int) ([]UnknownLetter, error) {
	return j.selectUnknownLetters(ctx, unknownLetterSQL+` AND l.next_at <= $2 AND r.target = ANY ($3) AND NOT `+pausedByBreakerSQL+` ORDER BY l.next_at, r.id LIMIT $1`, limit, now, pq.Array(targets))
}

func (j *Journal) selectUnknownLetters(ctx context.Context, query string, args ...any) ([]UnknownLetter, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var rows []struct {
		ID     uuid.UUID `db:"id"`
		Target string    `db:"target"`
		Paused bool      `db:"paused"`
	}
	if err := j.readDB.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, unavailable(err)
	}
	out := make([]UnknownLetter, len(rows))
	for i, r := range rows {
		out[i] = UnknownLetter{background.RunID(r.ID), r.Target, r.Paused}
	}
	return out, nil
}

// LetterForLookup reads an open letter of unknown outcome that nobody holds and no running
// plan has, with what was recorded of it. ErrNotFound when it is none any more.
func (j *Journal) LetterForLookup(ctx context.Context, id background.RunID) (Snapshot, LookupRecord, error) {
	s, err := j.Snapshot(ctx, id)
	if err != nil {
		return s, LookupRecord{}, err
	}
	// What is read of the case is older than that the letter may be asked about: what moves it since is noticed.
	if found, err := j.selectUnknownLetters(ctx, unknownLetterSQL+` AND r.id = $1`, id.String()); err != nil || len(found) == 0 {
		return s, LookupRecord{}, errors.Join(err, background.ErrNotFound)
	}
	last, err := j.Lookup(ctx, s.Run.Tenant, id)
	return s, last, err
}

// Lookup reads what was recorded of a run of a tenant; nothing is Asked 0.
func (j *Journal) Lookup(ctx context.Context, tenant string, id background.RunID) (LookupRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	out := LookupRecord{Run: id, Tenant: tenant}
	var absent, next sql.NullTime
	err := j.readDB.QueryRowContext(ctx, `SELECT asked, asked_at, answer, why, moved, absent_at, next_at, waits_for FROM recourse.lookups WHERE tenant = $1 AND run_id = $2`, tenant, id.String()).
		Scan(&out.Count, &out.LookedUpAt, &out.Answer, &out.FailureType, &out.Moved, &absent, &next, &out.ManualReason)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return out, nil
	case err != nil:
		return out, unavailable(err)
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

// RecordLookup writes what was said after a question, if it follows the one before.
func (j *Journal) RecordLookup(ctx context.Context, r LookupRecord) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := execWithFailpoints(ctx, j.readDB, failpoint.Lookup, `INSERT INTO recourse.lookups AS l (run_id, tenant, asked, asked_at, answer, why, moved, absent_at, next_at, waits_for)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (run_id) DO UPDATE SET asked = excluded.asked, asked_at = excluded.asked_at, answer = excluded.answer, why = excluded.why, moved = excluded.moved,
  absent_at = excluded.absent_at, next_at = excluded.next_at, waits_for = excluded.waits_for WHERE l.asked = excluded.asked - 1`,
		r.Run.String(), r.Tenant, r.Count, r.LookedUpAt, string(r.Answer), r.FailureType, r.Moved, nullTime(r.NotExecutedAt), nullTime(r.NextAt), r.ManualReason)
	return unavailableOrNil(err)
}

func nullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }

// DeleteResolvedLookups drops what was recorded of letters that are open and unknown no more.
func (j *Journal) DeleteResolvedLookups(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	_, err := execWithFailpoints(ctx, j.readDB, failpoint.Lookup, `DELETE FROM recourse.lookups l WHERE NOT EXISTS (
  SELECT FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE r.id = l.run_id AND r.letter = 'open' AND c.unknown_open > 0)`)
	return unavailableOrNil(err)
}

// Unresolved counts open letters of unknown outcome: those that are to be looked up, and
// those that wait for a person.
type Unresolved struct{ ForLookup, ForPerson int64 }

const unresolvedSQL = `SELECT count(*) FILTER (WHERE l.waits_for IS NULL OR l.waits_for = ''), count(*) FILTER (WHERE l.waits_for <> '')
FROM recourse.cases c JOIN recourse.runs r ON r.id = c.run_id LEFT JOIN recourse.lookups l ON l.run_id = r.id
WHERE c.unknown_open > 0 AND c.kind = 'settlement' AND r.letter = 'open'`

// The lock of whoever asks, beside those who prune and apply rules.
const tryLookupLockSQL = `SELECT pg_try_advisory_lock(1919119987, 4)`

// ExclusiveLookup runs work while no other process asks about letters. It reports false, and
// runs nothing, when another does. The lock keeps the pace and saves questions; what comes of
// one guards itself: see ExclusivePrune.
func (j *Journal) ExclusiveLookup(ctx context.Context, work func() error) (acquired bool, err error) {
	conn, err := j.readDB.Conn(ctx)
	if err != nil {
		return false, unavailable(err)
	}
	defer func() { err = errors.Join(err, releaseLocks(ctx, conn)) }()
	if err := conn.QueryRowContext(ctx, tryLookupLockSQL).Scan(&acquired); err != nil {
		return false, unavailable(err)
	}
	if !acquired {
		return false, nil
	}
	return true, work()
}

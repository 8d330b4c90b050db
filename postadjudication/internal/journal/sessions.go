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

// Sessions of processes: see background.Store for the contract of each method. They have a
// connection of their own, so that a heartbeat never queues behind statements about runs.

// SessionStore implements background.SessionStore.
type SessionStore struct {
	*shared
	heartbeatDB *sql.DB // one connection: the heartbeat of this process
}

// Register inserts a session that starts now.
func (s *SessionStore) Register(ctx context.Context, session background.Session) error {
	_, err := pg.Exec(ctx, s.heartbeatDB, failpoint.RegisterSession, `INSERT INTO recourse.sessions (id, worker, started_at, role) VALUES ($1, $2, clock_timestamp(), current_user) ON CONFLICT DO NOTHING`, session.ID, session.Worker)
	return err
}

// clockSQL returns the database's clock, and an identity of the server: after a failover, a
// restore or a restart the clock may be another.
const clockSQL = `clock_timestamp(), (SELECT system_identifier FROM pg_control_system()) || '.' ||
	(SELECT timeline_id FROM pg_control_checkpoint()) || '.' || extract(epoch FROM pg_postmaster_start_time())`

// setBackSQL returns ClockReading.SetBack: the clock is behind what was read from it before, or is now.
const setBackSQL = `(SELECT CASE WHEN clock_timestamp() < clock_read - interval '1s' THEN greatest(clock_set_back, clock_read) ELSE clock_set_back END FROM recourse.installation)`

// beatSQL writes also how far the database's clock has come, twice a second by all processes together, and from where it
// was set back: behind a time that was written, or that this process knows by its monotonic clock ($8). It writes since
// when the clock is unchanged: since it was set back, since this process found it changed ($9), or from now where no
// heartbeat followed it for LostAfter ($10). $9 is from before a set-back if the clock has not come as far. A heartbeat
// that finds the row locked leaves it to the next one: it waits for nobody.
const beatSQL = `WITH due AS MATERIALIZED (
	SELECT one FROM recourse.installation WHERE clock_read IS NULL OR clock_timestamp() > clock_read + interval '500ms'
		OR clock_timestamp() < greatest(clock_read, $8) - interval '1s' OR $9 > coalesce(clock_unchanged_since, '-infinity')
	FOR NO KEY UPDATE SKIP LOCKED
), written AS (
	UPDATE recourse.installation i SET clock_read = clock_timestamp(), clock_set_back = CASE
		WHEN clock_timestamp() < greatest(i.clock_read, $8::timestamptz) - interval '1s' THEN greatest(i.clock_set_back, i.clock_read, $8) ELSE i.clock_set_back END, clock_unchanged_since = CASE
		WHEN clock_timestamp() < greatest(i.clock_read, $8) - interval '1s' OR clock_timestamp() > i.clock_read + $10 * interval '1s' THEN clock_timestamp()
		ELSE greatest(i.clock_unchanged_since, CASE WHEN $9::timestamptz <= clock_timestamp() THEN $9 END) END
	FROM due WHERE i.one = due.one RETURNING i.clock_set_back, i.clock_unchanged_since
)
UPDATE recourse.sessions SET beat = beat + 1, clock_offset_us = $2, queues = $3, barred = $4, beat_at = $5, redis = nullif($6, ''), targets = coalesce($7::text[], '{}'), role = current_user WHERE id = $1 AND NOT lost
RETURNING ` + clockSQL + `, greatest((SELECT clock_set_back FROM written), ` + setBackSQL + `),
	coalesce((SELECT clock_unchanged_since FROM written), (SELECT clock_unchanged_since FROM recourse.installation))`

// Beat increments the counter of a session that is not marked lost, and reads the clock. It
// reports false if the session is lost.
func (s *SessionStore) Beat(ctx context.Context, session background.Session) (bool, background.ClockReading, error) {
	var us sql.NullInt64
	if session.ClockOffset != nil {
		us = sql.NullInt64{Int64: session.ClockOffset.Microseconds(), Valid: true}
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Beat)
	now, err := readClock(s.heartbeatDB.QueryRowContext(ctx, beatSQL, session.ID, us, pq.Array(session.Queues), session.ClaimsBlockedBy, nullTime(session.BeatAt), session.Redis, pq.Array(session.Targets), nullTime(session.ClockAtLeast),
		nullTime(session.ClockChangedTo), session.LostAfter.Seconds()))
	failpoint.Hit(failpoint.JournalAfter, failpoint.Beat)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, now, nil
	case err != nil:
		return false, now, pg.Wrap(err)
	}
	return true, now, nil
}

// Clock reads the database's clock.
func (s *SessionStore) Clock(ctx context.Context) (background.ClockReading, error) {
	now, err := readClock(s.heartbeatDB.QueryRowContext(ctx, `SELECT `+clockSQL+`, `+setBackSQL+`, (SELECT clock_unchanged_since FROM recourse.installation)`))
	return now, pg.Wrap(err)
}

func readClock(row *sql.Row) (r background.ClockReading, err error) {
	var setBack, unchanged sql.NullTime
	err = row.Scan(&r.At, &r.Server, &setBack, &unchanged)
	r.At, r.SetBack, r.UnchangedSince = r.At.UTC(), pg.UTCOrZero(setBack), pg.UTCOrZero(unchanged)
	return r, err
}

// Sessions lists all sessions.
func (s *SessionStore) Sessions(ctx context.Context) ([]background.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var rows []struct {
		ID        uuid.UUID      `db:"id"`
		Worker    string         `db:"worker"`
		Beat      int64          `db:"beat"`
		Lost      bool           `db:"lost"`
		StartedAt time.Time      `db:"started_at"`
		Offset    sql.NullInt64  `db:"clock_offset_us"`
		Queues    pq.StringArray `db:"queues"`
		Barred    string         `db:"barred"`
		BeatAt    sql.NullTime   `db:"beat_at"`
		Redis     sql.NullString `db:"redis"`
		Targets   pq.StringArray `db:"targets"`
	}
	if err := s.readDB.SelectContext(ctx, &rows, `SELECT id, worker, beat, lost, started_at, clock_offset_us, queues, barred, beat_at, redis, targets FROM recourse.sessions`); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]background.Session, len(rows))
	for i, r := range rows {
		out[i] = background.Session{ID: r.ID, Worker: r.Worker, Beat: r.Beat, Lost: r.Lost, StartedAt: r.StartedAt.UTC(), Queues: r.Queues, ClaimsBlockedBy: r.Barred, BeatAt: r.BeatAt.Time.UTC(), Redis: r.Redis.String, Targets: r.Targets}
		if r.Offset.Valid {
			by := time.Duration(r.Offset.Int64) * time.Microsecond
			out[i].ClockOffset = &by
		}
	}
	return out, nil
}

// MarkLost marks a session as lost if its counter has not changed since the observer read
// it. Claims are guarded by the mark, not by the absence of the row: if the observer dies
// before it recovers the session's runs, another observer finds the mark.
func (s *SessionStore) MarkLost(ctx context.Context, session background.Session) (bool, error) {
	done, err := pg.Exec(ctx, s.heartbeatDB, failpoint.MarkLost, `UPDATE recourse.sessions SET lost = true WHERE id = $1 AND beat = $2`, session.ID, session.Beat)
	if err != nil {
		return false, pg.Wrap(err)
	}
	n, err := done.RowsAffected()
	return n == 1, err
}

const sessionRunsSQL = snapshotSQL + `WHERE r.live AND r.state = 'running' AND coalesce(r.session_id, '00000000-0000-0000-0000-000000000000') = $1 AND r.id > $2 ORDER BY r.id LIMIT $3`

// AttemptsOf lists running runs that were claimed under a session. It skips those that this
// program can't read.
func (s *SessionStore) AttemptsOf(ctx context.Context, id background.SessionID, limit int) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return s.collectReadable(background.Cursor{}, limit, compareByID, func(after background.Cursor) ([]Snapshot, error) {
		return snapshots(ctx, s.readDB, sessionRunsSQL, id, after.ID.String(), limit)
	})
}

// The page is limited before it is filtered, so that the cost does not depend on the
// result; its last row is the next cursor.
const missingSessionsSQL = `
WITH page AS MATERIALIZED (
  SELECT r.id, r.due_at, r.state, r.session_id FROM recourse.runs r WHERE r.live AND NOT r.remote AND (r.due_at, r.id) > ($1, $2) ORDER BY r.due_at, r.id LIMIT $3
)
SELECT DISTINCT coalesce(p.session_id, '00000000-0000-0000-0000-000000000000'::uuid), NULL::timestamptz, NULL::uuid FROM page p
WHERE p.state = 'running' AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE s.id = p.session_id)
UNION ALL
(SELECT NULL, p.due_at, p.id FROM page p WHERE (SELECT count(*) FROM page) = $3 ORDER BY p.due_at DESC, p.id DESC LIMIT 1)`

// MissingSessions reads a page of live runs and returns the sessions that running ones name
// and that do not exist. See background.Store.
func (s *SessionStore) MissingSessions(ctx context.Context, after background.Cursor, limit int) (ids []background.SessionID, next background.Cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := s.readDB.QueryContext(ctx, missingSessionsSQL, after.DueAt, after.ID.String(), limit)
	if err != nil {
		return nil, next, pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var session, run uuid.NullUUID
		var due sql.NullTime
		if err := rows.Scan(&session, &due, &run); err != nil {
			return nil, next, pg.Wrap(err)
		}
		if session.Valid {
			ids = append(ids, session.UUID)
			continue
		}
		next = background.Cursor{DueAt: due.Time.UTC(), ID: background.RunID(run.UUID)}
	}
	if err := rows.Err(); err != nil {
		return nil, next, pg.Wrap(err)
	}
	return ids, next, nil
}

const (
	lockSessionSQL   = `SELECT FROM recourse.sessions WHERE id = $1 FOR UPDATE`
	removeSessionSQL = `DELETE FROM recourse.sessions WHERE id = $1 AND NOT EXISTS (SELECT FROM recourse.runs WHERE live AND state = 'running' AND session_id = $1)`
)

// Remove deletes a session, unless a run still runs under it. A transaction that has just
// claimed under it holds its row: Remove waits for that, and only then checks for runs, in
// a statement of its own that sees the claim.
func (s *SessionStore) Remove(ctx context.Context, id background.SessionID) (err error) {
	tx, err := s.heartbeatDB.BeginTx(ctx, nil)
	if err != nil {
		return pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx)) }()
	if _, err := tx.ExecContext(ctx, lockSessionSQL, id); err != nil {
		return pg.Wrap(err)
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.RemoveSession)
	if _, err := tx.ExecContext(ctx, removeSessionSQL, id); err != nil {
		return pg.Wrap(err)
	}
	if err := tx.Commit(); err != nil {
		return pg.Wrap(err)
	}
	failpoint.Hit(failpoint.JournalAfter, failpoint.RemoveSession)
	return nil
}

// sessionAlive reports whether claims may be made under a session.
func (s *SessionStore) sessionAlive(ctx context.Context, id background.SessionID) (ok bool, err error) {
	err = s.readDB.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.sessions WHERE id = $1 AND NOT lost)`, id).Scan(&ok)
	return ok, err
}

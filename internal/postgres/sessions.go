package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// Sessions of processes: see background.Ledger for what each promises. They have a
// connection of their own, so that a beat never queues behind the work.

// Enlist makes a session known.
func (j *Journal) Enlist(ctx context.Context, s background.Session) error {
	_, err := write(ctx, j.beats, failpoint.Enlist, `INSERT INTO recourse.sessions (id, worker, started_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		s.ID, s.Worker, s.StartedAt)
	return err
}

// Beat raises the counter of a session that was not declared lost.
func (j *Journal) Beat(ctx context.Context, id background.SessionID) (bool, error) {
	res, err := write(ctx, j.beats, failpoint.Beat, `UPDATE recourse.sessions SET beat = beat + 1 WHERE id = $1 AND NOT lost`, id)
	if err != nil {
		return false, unavailable(err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Sessions lists all sessions.
func (j *Journal) Sessions(ctx context.Context) ([]background.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var rows []struct {
		ID        uuid.UUID `db:"id"`
		Worker    string    `db:"worker"`
		Beat      int64     `db:"beat"`
		Lost      bool      `db:"lost"`
		StartedAt time.Time `db:"started_at"`
	}
	if err := j.reads.SelectContext(ctx, &rows, `SELECT id, worker, beat, lost, started_at FROM recourse.sessions`); err != nil {
		return nil, unavailable(err)
	}
	out := make([]background.Session, len(rows))
	for i, r := range rows {
		out[i] = background.Session{ID: r.ID, Worker: r.Worker, Beat: r.Beat, Lost: r.Lost, StartedAt: r.StartedAt}
	}
	return out, nil
}

// Bury marks a session lost whose counter still stands where the observer saw it.
// The mark, not the absence of the row, is what claims are guarded by: an observer
// that dies between the mark and the recovery leaves it for the next one to find.
func (j *Journal) Bury(ctx context.Context, s background.Session) (bool, error) {
	res, err := write(ctx, j.beats, failpoint.Bury, `UPDATE recourse.sessions SET lost = true WHERE id = $1 AND beat = $2`, s.ID, s.Beat)
	if err != nil {
		return false, unavailable(err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

const orphansSQL = snapshotSQL + `WHERE r.live AND r.state = 'running' AND r.session_id = $1 ORDER BY r.id LIMIT $2`

// Orphans lists running runs that were claimed under a session.
func (j *Journal) Orphans(ctx context.Context, id background.SessionID, limit int) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	return runs(snapshots(ctx, j.reads, orphansSQL, id, limit))
}

// Dismiss forgets a session, unless a run still runs under it.
func (j *Journal) Dismiss(ctx context.Context, id background.SessionID) error {
	_, err := write(ctx, j.beats, failpoint.Dismiss, `DELETE FROM recourse.sessions WHERE id = $1
		AND NOT EXISTS (SELECT FROM recourse.runs WHERE live AND state = 'running' AND session_id = $1)`, id)
	return err
}

// sessionKnown reports whether claims may be made under a session.
func (j *Journal) sessionKnown(ctx context.Context, id background.SessionID) (ok bool, err error) {
	err = j.reads.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.sessions WHERE id = $1 AND NOT lost)`, id).Scan(&ok)
	return ok, err
}

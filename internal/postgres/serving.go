package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

const beforeInQueueSQL = `SELECT count(*) FROM (SELECT FROM recourse.runs r WHERE r.live AND r.state <> 'running' AND r.queue = $1 AND (r.due_at, r.id) < ($2, $3) LIMIT $4) AS ahead`

// RunsAhead counts the runs of its queue that were due before a run that waits, up to a number.
func (j *Journal) RunsAhead(ctx context.Context, r background.Run, most int) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := j.readDB.QueryRowContext(ctx, beforeInQueueSQL, r.Queue, r.DueAt, r.ID.String(), most).Scan(&n); err != nil {
		return 0, unavailable(err)
	}
	return n, nil
}

// CaseIsLocked reports whether another transaction holds a case at this moment.
func (j *Journal) CaseIsLocked(ctx context.Context, id receipts.CaseID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var free bool
	err := j.batchDB.QueryRowContext(ctx, `SELECT true FROM recourse.cases WHERE id = $1 FOR SHARE SKIP LOCKED`, id.String()).Scan(&free)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, unavailableOrNil(err)
}

// Unserved is how many live runs are in a queue that no process serves.
type Unserved struct {
	Family string `db:"family" json:"family"`
	Queue  string `db:"queue" json:"queue"`
	Runs   int64  `db:"runs" json:"runs"`
}

const unservedSQL = `SELECT r.family, r.queue, count(*) AS runs FROM recourse.runs r WHERE r.live
	AND NOT EXISTS (SELECT FROM recourse.sessions s WHERE NOT s.lost AND s.beat_at >= $1 AND r.queue = ANY (s.queues)) GROUP BY 1, 2 ORDER BY 1, 2`

// Unserved lists the queues of live runs that no process serves of which a beat came since a
// time. It reads every live run.
func (j *Journal) Unserved(ctx context.Context, since time.Time) ([]Unserved, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var out []Unserved
	return out, unavailableOrNil(j.readDB.SelectContext(ctx, &out, unservedSQL, since))
}

package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

const waitingSQL = snapshotSQL + `WHERE r.live AND r.state <> 'running' AND r.due_at <= $1 AND (r.due_at, r.id) > ($2, $3)
  AND NOT ` + parkedSQL + ` ORDER BY r.due_at, r.id LIMIT $4`

// Waiting lists runs that wait, are due and are not parked, oldest first, strictly after the
// cursor. See background.Ledger.
func (j *Journal) Waiting(ctx context.Context, after background.Cursor, due time.Time, limit int) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	found, err := snapshots(ctx, j.reads, waitingSQL, due, after.DueAt, after.ID.String(), limit)
	var bad unreadable
	if errors.As(err, &bad) {
		j.Warn(bad) // who can read them rings for them
		err = nil
	}
	return runs(found, err)
}

const ringSQL = `
UPDATE recourse.runs r SET bell = r.bell + 1 FROM unnest($1::uuid[],$2::int[]) AS t(id,bell)
WHERE r.id = t.id AND r.bell = t.bell AND r.live AND r.id IN (
  SELECT id FROM recourse.runs WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
RETURNING r.id, r.bell`

// Ring raises the bell of each run that still has the bell given and is live. See
// background.Ledger.
func (j *Journal) Ring(ctx context.Context, rs []background.Run) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	c := newColumns(2, 1)
	byID := make(map[string]background.Run, len(rs))
	for _, r := range rs {
		c.id(r.ID)
		c.int(int64(r.Bell))
		byID[r.ID.String()] = r
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.Ring)
	res, err := j.hot.QueryContext(ctx, ringSQL, c.args()...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer res.Close()
	var out []background.Run
	for res.Next() {
		var id string
		var bell int
		if err := res.Scan(&id, &bell); err != nil {
			return nil, unavailable(err)
		}
		r := byID[id]
		r.Bell = bell
		out = append(out, r)
	}
	failpoint.Hit(failpoint.JournalAfter, failpoint.Ring)
	return out, res.Err()
}

func runs(ss []Snapshot, err error) ([]background.Run, error) {
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]background.Run, len(ss))
	for i, s := range ss {
		out[i] = s.Run
	}
	return out, nil
}

package journal

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

const waitingColumns = `
SELECT r.id, r.case_id, r.tenant, r.family, r.queue, r.target, r.state, r.notification_number, r.due_at
`

const waitingSQL = waitingColumns + `FROM recourse.runs r WHERE r.live AND NOT r.remote AND r.state <> 'running' AND r.due_at <= $1 AND (r.due_at, r.id) > ($2, $3)
  AND NOT ` + pausedByBreakerSQL + ` ORDER BY r.due_at, r.id LIMIT $4`

type waitingRow struct {
	ID                 uuid.UUID `db:"id"`
	Case               uuid.UUID `db:"case_id"`
	Tenant             string    `db:"tenant"`
	Family             string    `db:"family"`
	Queue              string    `db:"queue"`
	Target             string    `db:"target"`
	State              string    `db:"state"`
	NotificationNumber int       `db:"notification_number"`
	DueAt              time.Time `db:"due_at"`
}

// Notifications lists due runs and numbers their notifications. It implements background.ArchiveStore as well.
type Notifications struct {
	*shared
}

// DueRuns lists runs that wait to be delivered, are due and are not paused, oldest first, strictly after
// the cursor, with the fields needed to notify. See background.Store.
func (n *Notifications) DueRuns(ctx context.Context, after background.Cursor, due time.Time, limit int) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return n.selectWaiting(ctx, waitingSQL, due, after.DueAt, after.ID.String(), limit)
}

// selectWaiting reads runs with the fields needed to notify.
func (s *shared) selectWaiting(ctx context.Context, query string, args ...any) ([]background.Run, error) {
	var rows []waitingRow
	if err := s.readDB.SelectContext(ctx, &rows, query, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	out := make([]background.Run, len(rows))
	for i, r := range rows {
		out[i] = background.Run{
			ID: background.RunID(r.ID), Case: background.CaseID(r.Case), Tenant: r.Tenant, Family: r.Family, Queue: r.Queue, Target: r.Target,
			State: background.State(r.State), NotificationNumber: r.NotificationNumber, DueAt: r.DueAt.UTC(),
		}
	}
	return out, nil
}

// The runs are locked by the arrays, and changed by their locks: joined the other way round, the server locks all of
// them for each.
const advanceNotificationSQL = `
UPDATE recourse.runs r SET notification_number = r.notification_number + 1 FROM (
  SELECT x.id FROM unnest($1::uuid[],$2::int[]) AS t(id,notification_number) JOIN recourse.runs x ON x.id = t.id
  WHERE x.notification_number = t.notification_number AND x.live ORDER BY x.id FOR NO KEY UPDATE OF x SKIP LOCKED) k
WHERE r.id = k.id RETURNING r.id, r.notification_number`

// AdvanceNotifications increments the notification number of each run that is live and
// still has the given number. It returns the runs it changed. See background.Store.
func (n *Notifications) AdvanceNotifications(ctx context.Context, rs []background.Run) ([]background.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(2, 1)
	byID := make(map[string]background.Run, len(rs))
	for _, r := range rs {
		c.ID(r.ID)
		c.Int(int64(r.NotificationNumber))
		byID[r.ID.String()] = r
	}
	failpoint.Hit(failpoint.JournalBefore, failpoint.AdvanceNotification)
	rows, err := n.batchDB.QueryContext(ctx, advanceNotificationSQL, c.Args()...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	var out []background.Run
	for rows.Next() {
		var id string
		var number int
		if err := rows.Scan(&id, &number); err != nil {
			return nil, pg.Wrap(err)
		}
		r := byID[id]
		r.NotificationNumber = number
		out = append(out, r)
	}
	failpoint.Hit(failpoint.JournalAfter, failpoint.AdvanceNotification)
	return out, rows.Err()
}

const runStatusesSQL = `SELECT id, family, queue, state, letter, attempt_count, notification_number FROM recourse.runs WHERE id = ANY($1::uuid[])`

// RunStatuses reads the fields by which an archived task is checked. See
// background.ArchiveStore.
func (n *Notifications) RunStatuses(ctx context.Context, ids []background.RunID) ([]background.Run, error) {
	c := pg.NewTextColumns(1, 1)
	for _, id := range ids {
		c.ID(id)
	}
	rows, err := n.readDB.QueryContext(ctx, runStatusesSQL, c.Args()...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := make([]background.Run, 0, len(ids))
	for rows.Next() {
		var id uuid.UUID
		var r background.Run
		if err := rows.Scan(&id, &r.Family, &r.Queue, &r.State, &r.Letter, &r.Attempt, &r.NotificationNumber); err != nil {
			return nil, pg.Wrap(err)
		}
		r.ID = background.RunID(id)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, pg.Wrap(err)
	}
	return out, nil
}

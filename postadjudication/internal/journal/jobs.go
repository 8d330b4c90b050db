package journal

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

const activeRunsSQL = `SELECT c.subject, c.run_id FROM recourse.cases c WHERE c.tenant = $1 AND c.kind = $2 AND c.subject = ANY($3)`

// ActiveRuns returns the active runs of cases, by subject. Subjects without a case are left out.
func (c *Cases) ActiveRuns(ctx context.Context, tenant string, kind Kind, subjects []string) (map[string]background.RunID, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	texts := pg.NewTextColumns(1, len(subjects))
	for _, s := range subjects {
		texts.Str(s)
	}
	rows, err := c.readDB.QueryContext(ctx, activeRunsSQL, tenant, string(kind), texts.Args()[0])
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := make(map[string]background.RunID, len(subjects))
	for rows.Next() {
		var subject, id string
		if err := rows.Scan(&subject, &id); err != nil {
			return nil, pg.Wrap(err)
		}
		if out[subject], err = receipts.ParseRunID(id); err != nil {
			return nil, err
		}
	}
	return out, pg.Wrap(rows.Err())
}

const outputSQL = `SELECT output FROM recourse.runs WHERE id = $1 AND tenant = $2`

// Output reads what the remote worker of a run returned with its success; nil if nothing.
func (c *Cases) Output(ctx context.Context, tenant string, id background.RunID) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = c.readDB.QueryRowContext(ctx, outputSQL, id.String(), tenant).Scan(&output)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, background.ErrNotFound
	}
	return output, pg.Wrap(err)
}

// outputsSQL reads no output that begins $3 bytes or more after the first.
const outputsSQL = `SELECT n, CASE WHEN before < $3 THEN output END FROM (
	SELECT a.n, r.output, sum(length(r.output)) OVER (ORDER BY a.n) - length(r.output) AS before
	FROM unnest($2::uuid[]) WITH ORDINALITY a (id, n) JOIN recourse.runs r ON r.id = a.id AND r.tenant = $1 AND r.output IS NOT NULL) found ORDER BY n`

// Outputs reads what the remote workers of runs returned with their success, in the order of the runs. It
// returns of how many runs it has read it: it ends once it has read most bytes.
func (c *Cases) Outputs(ctx context.Context, tenant string, ids []background.RunID, most int) (outputs map[background.RunID][]byte, read int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	columns := pg.NewTextColumns(1, len(ids))
	for _, id := range ids {
		columns.ID(id)
	}
	rows, err := c.readDB.QueryContext(ctx, outputsSQL, tenant, columns.Args()[0], most)
	if err != nil {
		return nil, 0, pg.Wrap(err)
	}
	defer rows.Close()
	outputs = map[background.RunID][]byte{}
	for rows.Next() {
		var n int
		var output []byte
		if err := rows.Scan(&n, &output); err != nil {
			return nil, 0, pg.Wrap(err)
		}
		if output == nil {
			return outputs, n - 1, nil
		}
		outputs[ids[n-1]] = output
	}
	return outputs, len(ids), pg.Wrap(rows.Err())
}

// JobLabel is what a receipt of a job's run does not say.
type JobLabel struct {
	Family, ID, Type, Queue, Policy string
	HandedBack                      int
}

const jobLabelsSQL = `SELECT id, family, retry_key, target, queue, policy, handed_back FROM recourse.runs WHERE tenant = $1 AND id = ANY($2::uuid[]) AND remote`

// JobLabels reads the labels of remote runs. Other runs are left out.
func (c *Cases) JobLabels(ctx context.Context, tenant string, ids []background.RunID) (map[background.RunID]JobLabel, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	columns := pg.NewTextColumns(1, len(ids))
	for _, id := range ids {
		columns.ID(id)
	}
	rows, err := c.readDB.QueryContext(ctx, jobLabelsSQL, append([]any{tenant}, columns.Args()...)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := make(map[background.RunID]JobLabel, len(ids))
	for rows.Next() {
		var id uuid.UUID
		var l JobLabel
		if err := rows.Scan(&id, &l.Family, &l.ID, &l.Type, &l.Queue, &l.Policy, &l.HandedBack); err != nil {
			return nil, pg.Wrap(err)
		}
		out[background.RunID(id)] = l
	}
	return out, pg.Wrap(rows.Err())
}

// JobQueue is a queue that jobs were enqueued to.
type JobQueue struct {
	Name      string    `db:"name"`
	CreatedAt time.Time `db:"created_at"`
}

const addJobQueueSQL = `INSERT INTO recourse.job_queues (tenant, name, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

// AddJobQueue remembers a queue.
func (c *Cases) AddJobQueue(ctx context.Context, tenant, name string, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	_, err := pg.Exec(ctx, c.batchDB, failpoint.JobQueue, addJobQueueSQL, tenant, name, at)
	return pg.Wrap(err)
}

// jobQueuesSQL has $2 as a queue whether or not a job was enqueued to it. Until then it is as old as the
// tenant's first queue.
const jobQueuesSQL = `WITH found AS (
	SELECT name, created_at FROM recourse.job_queues WHERE tenant = $1
	UNION ALL
	SELECT $2, coalesce((SELECT min(created_at) FROM recourse.job_queues WHERE tenant = $1), now())
	WHERE NOT EXISTS (SELECT FROM recourse.job_queues WHERE tenant = $1 AND name = $2))`

// JobQueues lists queues of a tenant by name, one of which always exists, and counts all of them.
func (c *Cases) JobQueues(ctx context.Context, tenant, always string, offset, limit int) (queues []JobQueue, total int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	if err := c.readDB.GetContext(ctx, &total, jobQueuesSQL+` SELECT count(*) FROM found`, tenant, always); err != nil {
		return nil, 0, pg.Wrap(err)
	}
	err = c.readDB.SelectContext(ctx, &queues, jobQueuesSQL+` SELECT name, created_at FROM found ORDER BY name OFFSET $3 LIMIT $4`, tenant, always, offset, limit)
	return queues, total, pg.Wrap(err)
}

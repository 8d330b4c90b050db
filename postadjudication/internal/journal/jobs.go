package journal

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

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

// countedEnds bounds what a count reads: jobs that have ended are kept for good.
const countedEnds = 100_000

// jobCountsSQL: the run of a dead letter that was retried is not its job any more.
const jobCountsSQL = `SELECT CASE WHEN due_at >= $4 THEN 'pending' WHEN due_at <= $3 THEN 'available' WHEN attempt_count > handed_back THEN 'retryable' ELSE 'scheduled' END, count(*)
	FROM recourse.runs WHERE tenant = $1 AND queue = $2 AND fetchable GROUP BY 1
UNION ALL SELECT 'active', count(*) FROM recourse.leases l JOIN recourse.runs r ON r.id = l.run_id WHERE l.tenant = $1 AND r.queue = $2 AND r.state = 'running'
UNION ALL SELECT CASE state WHEN 'succeeded' THEN 'completed' WHEN 'cancelled' THEN state ELSE 'discarded' END, count(*) FROM (
	SELECT state, letter FROM recourse.runs WHERE tenant = $1 AND queue = $2 AND remote AND NOT live ORDER BY id DESC LIMIT $5) ended
	WHERE letter IN ('', 'open') GROUP BY 1`

// JobCounts counts the jobs of a queue by their states, as of a time. Of those that have ended it counts the newest
// countedEnds.
func (c *Cases) JobCounts(ctx context.Context, tenant, queue string, at time.Time) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := c.readDB.QueryContext(ctx, jobCountsSQL, tenant, queue, at, background.NeverDue, countedEnds)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := map[string]int64{}
	for rows.Next() {
		var state string
		var n int64
		if err := rows.Scan(&state, &n); err != nil {
			return nil, pg.Wrap(err)
		}
		out[state] = n
	}
	return out, pg.Wrap(rows.Err())
}

// UniqueSubmission is a submission that is refused, left out, or replaces others, if live jobs have the same
// fingerprint.
type UniqueSubmission struct {
	Submission
	Fingerprint [32]byte
	At          time.Time // now
	Until       time.Time // until when its case holds the fingerprint; zero: without end
	// Resolve gets the cases of the tenant with that fingerprint, each with its active run, in pages, the
	// newest first. It returns the changes that end those that conflict, whether to leave out the submission
	// because of one, or an error that refuses it. Nil: the case has no fingerprint.
	Resolve func(holders []Snapshot) (changes []Change, leaveOut bool, err error)
}

// holdersPage is how many holders of a fingerprint are read at once.
const holdersPage = 100

const (
	fingerprintLockSQL = `SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || encode($2, 'hex'), 11))`

	holdersSQL = snapshotSQL + `JOIN recourse.unique_jobs u ON u.case_id = c.id
WHERE u.tenant = $1 AND u.fingerprint = $2 AND (u.until IS NULL OR u.until > $3) AND r.id = c.run_id AND u.case_id < $4 ORDER BY u.case_id DESC LIMIT $5`

	claimFingerprintSQL = `INSERT INTO recourse.unique_jobs (tenant, fingerprint, case_id, until) VALUES ($1, $2, $3, $4)`
)

// SubmitAll opens cases of one tenant in one transaction, all or none. None is opened while a holder of its fingerprint
// conflicts with it. Whoever reads or claims a fingerprint holds its advisory lock, so that of two submissions
// one sees the other. The snapshot of a submission that is left out is nil. Errors are those of Submit, and of
// Resolve; at is the submission that has the error, and its snapshot is that of the case that exists.
// refusal.ErrBatchTooLong: one transaction takes too long for them. ErrBusy: they had no turn.
func (j *Journal) SubmitAll(ctx context.Context, all []UniqueSubmission) (snaps []*Snapshot, at int, err error) {
	snaps = make([]*Snapshot, len(all))
	if waited := j.opener.turns.do(ctx, all, func() { at, err = j.opener.submitAll(ctx, all, snaps) }); waited != nil {
		return snaps, 0, ErrBusy
	}
	if errors.Is(err, errCaseExists) {
		s := &all[at]
		seen, err := snapshotBySubject(ctx, j.batchDB, s.Tenant, s.Kind, s.Subject)
		if snaps[at] = seen; err != nil {
			return snaps, at, pg.Wrap(err)
		}
		_, err = s.Decide(seen)
		return snaps, at, err
	}
	return snaps, at, err
}

// submitAll writes the snapshots of the submissions, and returns the one that has the error.
func (o *opener) submitAll(ctx context.Context, all []UniqueSubmission, snaps []*Snapshot) (at int, err error) {
	open, err := o.openInTxStmt.Prepare(ctx)
	if err != nil {
		return 0, err
	}
	replace, err := o.replaceStmt.Prepare(ctx)
	if err != nil {
		return 0, err
	}
	holders, err := o.holdersStmt.Prepare(ctx)
	if err != nil {
		return 0, err
	}
	err = o.InSlowPathTx(ctx, failpoint.UniqueJob, func(ctx context.Context, tx *sql.Tx) (err error) {
		defer func() {
			if err != nil && ctx.Err() != nil && len(all) > 1 {
				err = refusal.ErrBatchTooLong
			}
		}()
		var names []tenantFingerprint
		for i := range all {
			if all[i].Resolve != nil {
				names = append(names, tenantFingerprint{all[i].Tenant, all[i].Fingerprint[:]})
			}
		}
		if err := lockInOrder(ctx, tx, names); err != nil {
			return err
		}
		in := submissionTx{tx, open.In(ctx, tx), replace.In(ctx, tx), holders.In(ctx, tx)}
		for at = range all {
			if snaps[at], err = all[at].submit(ctx, in, o); err != nil {
				return err
			}
		}
		return nil
	})
	return at, err
}

// submissionTx is a transaction of SubmitAll with its statements, which are prepared: to plan one takes the server
// about as long as to execute it.
type submissionTx struct {
	*sql.Tx
	open, replace, holders pg.Querier
}

// submissionTurns lets transactions of SubmitAll take turns. They share the slow path with the changes of keys, rules,
// plans and people of all tenants, and that of a batch may take the whole StatementTimeout.
type submissionTurns struct {
	batches *tenantlimit.Limit // of more than one submission
	all     *tenantlimit.Limit
}

const (
	// maxSubmissionTxs leave a connection of the slow path to the others.
	maxSubmissionTxs = pg.SlowPathConns - 1
	// maxSubmissionBatches leave one of them to single submissions.
	maxSubmissionBatches = maxSubmissionTxs - 1
)

func newSubmissionTurns() submissionTurns {
	return submissionTurns{tenantlimit.New(maxSubmissionBatches, 1), tenantlimit.New(maxSubmissionTxs, maxSubmissionBatches)}
}

// do runs f, which submits all of them. It waits for a turn no longer than a transaction may take. Its error is that of the
// context, if that ends before f.
func (t submissionTurns) do(ctx context.Context, all []UniqueSubmission, f func()) (err error) {
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	tenant := all[0].Tenant
	if len(all) == 1 {
		return t.all.Do(ctx, tenant, f)
	}
	waited := t.batches.Do(ctx, tenant, func() { err = t.all.Do(ctx, tenant, f) })
	return cmp.Or(waited, err)
}

// submit opens a case in a transaction that has locked its fingerprint; nil: it is left out.
func (s *UniqueSubmission) submit(ctx context.Context, tx submissionTx, o *opener) (*Snapshot, error) {
	var changes []Change
	if s.Resolve != nil {
		var leaveOut bool
		var err error
		if changes, leaveOut, err = s.judge(ctx, tx.holders); err != nil || leaveOut {
			return nil, err
		}
	}
	for i := range changes {
		ch, err := chainForCaller(ctx, &changes[i])
		if err != nil {
			return nil, unrecordable(err)
		}
		switch res, err := applyWideTransition(ctx, tx.replace, "", ch); {
		case err != nil:
			return nil, err
		case res != applied:
			return nil, ErrBusy // the holder changed since it was read
		}
	}
	change, err := s.Open()
	if err != nil {
		return nil, err
	}
	snap, err := o.openTx(ctx, tx.Tx, tx.open, change)
	if err != nil || s.Resolve == nil {
		return snap, err
	}
	_, err = tx.ExecContext(ctx, claimFingerprintSQL, s.Tenant, s.Fingerprint[:], snap.Case.ID.String(), nullTime(s.Until))
	return snap, err
}

// judge reads the holders of the fingerprint, and returns the changes that take them out of the way.
func (s *UniqueSubmission) judge(ctx context.Context, q pg.Querier) (changes []Change, leaveOut bool, err error) {
	for before := uuid.Max; ; {
		holders, err := snapshots(ctx, q, holdersSQL, s.Tenant, s.Fingerprint[:], s.At, before.String(), holdersPage)
		var unreadables unreadable
		if errors.As(err, &unreadables) {
			for _, u := range unreadables { // it holds its fingerprint, whatever its policy is
				holders = append(holders, u.partial)
			}
		} else if err != nil {
			return nil, false, err
		}
		more, leaveOut, err := s.Resolve(holders)
		if err != nil || leaveOut {
			return nil, leaveOut, err
		}
		if changes = append(changes, more...); len(holders) < holdersPage {
			return changes, false, nil
		}
		for i := range holders {
			if id := uuid.UUID(holders[i].Case.ID); bytes.Compare(id[:], before[:]) < 0 {
				before = id
			}
		}
	}
}

// ErrFingerprintHeld means that another live run holds the fingerprint of the case.
var ErrFingerprintHeld = errors.New("journal: another run holds the fingerprint")

const (
	forkedFingerprintsSQL = `SELECT tenant, fingerprint FROM recourse.unique_jobs WHERE case_id = ANY($1::uuid[])`

	changeFingerprintSQL = `UPDATE recourse.unique_jobs SET fingerprint = $1 WHERE case_id = $2`

	liveHolderSQL = `FROM recourse.unique_jobs own JOIN recourse.unique_jobs u ON u.tenant = own.tenant AND u.fingerprint = own.fingerprint AND u.case_id <> own.case_id
JOIN recourse.cases c ON c.id = u.case_id JOIN recourse.runs r ON r.id = c.run_id
WHERE own.case_id = ANY($1::uuid[]) AND r.live AND (u.until IS NULL OR u.until > $2)`
)

// fingerprints are those of unique jobs whose forks are written by one transaction.
type fingerprints struct {
	cases []any // one array of ids; nil: none is unique
	at    time.Time
}

// lockFingerprints locks the fingerprints of the forks of remote runs among changes, before they are
// written. No other transaction adds or forks a job with one of them until the commit.
func lockFingerprints(ctx context.Context, tx *sql.Tx, changes ...*chainedChange) (out fingerprints, err error) {
	ids := pg.NewTextColumns(1, len(changes))
	var names, changed []tenantFingerprint
	n := 0
	for _, ch := range changes {
		if !ch.forksRemoteRun() {
			continue
		}
		ids.ID(ch.After.Case.ID)
		out.at = ch.NewRun.DueAt
		n++
		if ch.Fingerprint != nil {
			changed = append(changed, tenantFingerprint{ch.NewRun.Tenant, ch.Fingerprint[:]})
		}
	}
	if n == 0 {
		return fingerprints{}, nil
	}
	if names, err = forkedFingerprints(ctx, tx, ids); err != nil || len(names) == 0 {
		return fingerprints{}, err
	}
	out.cases = ids.Args()
	return out, lockInOrder(ctx, tx, append(names, changed...))
}

// lockInOrder locks fingerprints in an order that is the same for all who lock several.
func lockInOrder(ctx context.Context, tx *sql.Tx, names []tenantFingerprint) error {
	slices.SortFunc(names, func(a, b tenantFingerprint) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), bytes.Compare(a.fingerprint, b.fingerprint))
	})
	for _, next := range names {
		if _, err := tx.ExecContext(ctx, fingerprintLockSQL, next.tenant, next.fingerprint); err != nil {
			return err
		}
	}
	return nil
}

// claim gives the cases whose forks were written the fingerprints that the forks change. It returns
// ErrFingerprintHeld if another case with one of the fingerprints has a live run.
func (f fingerprints) claim(ctx context.Context, tx *sql.Tx, changes []*chainedChange, results []result) error {
	if f.cases == nil {
		return nil
	}
	for i, ch := range changes {
		if results[i] != applied || ch.Fingerprint == nil {
			continue
		}
		if _, err := tx.ExecContext(ctx, changeFingerprintSQL, ch.Fingerprint[:], ch.After.Case.ID.String()); err != nil {
			return err
		}
	}
	var held bool
	err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT `+liveHolderSQL+`)`, f.cases[0], f.at).Scan(&held)
	if err == nil && held {
		err = ErrFingerprintHeld
	}
	return err
}

type tenantFingerprint struct {
	tenant      string
	fingerprint []byte
}

func forkedFingerprints(ctx context.Context, tx *sql.Tx, cases *pg.TextColumns) (out []tenantFingerprint, err error) {
	rows, err := tx.QueryContext(ctx, forkedFingerprintsSQL, cases.Args()...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var next tenantFingerprint
		if err := rows.Scan(&next.tenant, &next.fingerprint); err != nil {
			return nil, err
		}
		out = append(out, next)
	}
	return out, rows.Err()
}

// FingerprintHolder returns the subject of another case with the fingerprint of a case and a live run;
// empty if there is none.
func (c *Cases) FingerprintHolder(ctx context.Context, id receipts.CaseID, at time.Time) (subject string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	ids := pg.NewTextColumns(1, 1)
	ids.ID(id)
	err = c.readDB.QueryRowContext(ctx, `SELECT c.subject `+liveHolderSQL+` ORDER BY c.id LIMIT 1`, ids.Args()[0], at).Scan(&subject)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return subject, pg.Wrap(err)
}

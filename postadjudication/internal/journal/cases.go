package journal

import (
	"context"
	"database/sql"
	"errors"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Cases reads cases and their runs.
type Cases struct {
	*shared
	byRunsStmt    *pg.Statement
	byCaseStmt    *pg.Statement
	snapshotReads pg.Batcher[background.RunID, *Snapshot] // of the journal
}

// Find reads a run as it is now. It returns ErrNotFound if there is none.
func (c *Cases) Find(ctx context.Context, id background.RunID) (background.Run, error) {
	s, err := c.Snapshot(ctx, id)
	return s.Run, err
}

// Snapshot reads a run and its case as they are now.
func (c *Cases) Snapshot(ctx context.Context, id background.RunID) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	ids := pg.NewTextColumns(1, 1)
	ids.ID(id)
	return exactlyOne(snapshots(ctx, c.byRunsStmt, "", ids.Args()...))
}

// SnapshotInBatch is Snapshot by one statement with others that are read at the same moment.
func (c *Cases) SnapshotInBatch(id background.RunID) (*Snapshot, error) {
	found, err := c.snapshotReads.Do(id)
	if found == nil {
		found = new(Snapshot)
	}
	return found, err
}

// SubjectSnapshot reads a case by its subject, with its active run.
func (c *Cases) SubjectSnapshot(ctx context.Context, tenant string, kind Kind, subject string) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	s, err := snapshotBySubject(ctx, c.readDB, tenant, kind, subject)
	return *s, err
}

// activeRunsSQL reads cases by the whole of their index. With the tenant and the kind as constants, a server without
// statistics of them reads all their cases.
const activeRunsSQL = `WITH s AS MATERIALIZED (SELECT $1::text AS tenant, $2::text AS kind, u.subject FROM unnest($3::text[]) AS u(subject))
SELECT c.subject, c.run_id FROM s JOIN recourse.cases c ON c.tenant = s.tenant AND c.kind = s.kind AND c.subject = s.subject`

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

// byCaseSQL reads the runs of a case in the order of the receipts that submit them: ids are made by clocks, which
// can be set.
const byCaseSQL = snapshotWithoutTermsSQL + `LEFT JOIN LATERAL (SELECT x.seq FROM recourse.receipts x WHERE x.case_id = r.case_id AND x.run_id = r.id AND x.subtype = 'submitted' ORDER BY x.seq LIMIT 1) made ON true
WHERE r.tenant = $1 AND r.case_id = $2 ORDER BY made.seq, r.id`

// Runs reads all runs of a tenant's case, in the order in which they were submitted.
func (c *Cases) Runs(ctx context.Context, tenant string, id receipts.CaseID) ([]Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return snapshots(ctx, c.byCaseStmt, "", tenant, id.String())
}

// ReadableRuns is Runs for decisions about another run of the case: it includes runs
// whose policy can't be read, without the policy, and has no order.
func (c *Cases) ReadableRuns(ctx context.Context, tenant string, id receipts.CaseID) ([]Snapshot, error) {
	out, err := c.Runs(ctx, tenant, id)
	var unreadables unreadable
	if !errors.As(err, &unreadables) {
		return out, err
	}
	for _, u := range unreadables {
		if u.partial.Run.ID.IsZero() {
			return nil, err
		}
		out = append(out, u.partial)
	}
	return out, nil
}

// CaseFilter selects cases of settlements.
type CaseFilter struct {
	States   []string // any of these progressions; all if empty
	Reserved bool     // only those with a reserved amount
	Subject  string   // only this transaction; all if empty
	NoLetter bool     // only those with a reserved amount, but no live run and no open dead letter
	End      string   // only those whose transaction, or the id of a run of theirs, ends so; all if empty
}

// CaseRow is a case with the state of its active run.
type CaseRow struct {
	Case
	UnknownOpen int
	RunState    background.State
	Letter      background.LetterStatus
	Class       background.Class
}

// CaseSum is the money of the cases of one currency.
type CaseSum struct {
	Currency                               string
	Cases                                  int64
	Reserved, Released, Refunded, Returned settlement.Sum

	Of CaseRow // what the cases have in common; set by Reserved only
}

const (
	caseFilterSQL = `c.tenant = $1 AND c.kind = 'settlement' AND ($2::text[] = '{}' OR c.progression = ANY($2)) AND ($3 = false OR c.reserved > 0) AND ($4 = '' OR c.subject = $4)
  AND ($5 = false OR c.reserved > 0 AND NOT EXISTS (SELECT FROM recourse.runs a WHERE a.case_id = c.id AND a.active))
  AND ($6 = '' OR right(c.subject, length($6)) = $6 OR c.id IN (SELECT f.case_id FROM recourse.runs f WHERE f.tenant = $1 AND right(f.id::text, length($6)) = lower($6)))`

	caseListSQL = `SELECT c.id, c.subject, e.reference, e.currency, c.progression, c.reason_code, c.reason, c.lifecycle, c.adjudication, c.generation, c.asked, c.moved,
  c.reserved, c.released, c.refunded, coalesce(c.returned, 0), c.unknown_open, c.run_id, r.state, r.letter, r.class
FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id JOIN recourse.runs r ON r.id = c.run_id
WHERE c.id > $7 AND ` + caseFilterSQL + ` ORDER BY c.id LIMIT $8`

	caseSumsSQL = `SELECT e.currency, count(*) AS cases, sum(c.reserved) AS reserved, sum(c.released) AS released, sum(c.refunded) AS refunded, sum(coalesce(c.returned, 0)) AS returned
FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id WHERE ` + caseFilterSQL + ` GROUP BY e.currency ORDER BY e.currency`
)

func (f CaseFilter) args(tenant string) []any {
	return []any{tenant, append(pq.StringArray{}, f.States...), f.Reserved, f.Subject, f.NoLetter, f.End}
}

// List lists cases of a tenant after one, oldest first.
func (c *Cases) List(ctx context.Context, tenant string, f CaseFilter, after receipts.CaseID, limit int) (out []CaseRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := c.readDB.QueryContext(ctx, caseListSQL, append(f.args(tenant), after.String(), limit)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		row, err := scanCase(rows)
		if err != nil {
			return nil, pg.Wrap(err)
		}
		row.Tenant, row.Kind = tenant, KindSettlement
		out = append(out, row)
	}
	return out, pg.Wrap(rows.Err())
}

func scanCase(rows *sql.Rows) (c CaseRow, err error) {
	var id, run uuid.UUID
	s := &c.State
	var adjudication, progression, code, lifecycle string
	err = rows.Scan(&id, &c.Subject, &c.Reference, &c.Currency, &progression, &code, &s.Reason, &lifecycle, &adjudication, &s.Generation, &s.Asked, &s.Moved,
		&s.Reserved, &s.Released, &s.Refunded, &s.Returned, &c.UnknownOpen, &run, &c.RunState, &c.Letter, &c.Class)
	c.ID, c.ActiveRun = receipts.CaseID(id), background.RunID(run)
	s.Progression, s.ReasonCode, s.Lifecycle, s.Outcome = settlement.Status(progression), settlement.ReasonCode(code), settlement.Lifecycle(lifecycle), settlement.Outcome(adjudication)
	return c, err
}

// Sums adds up the money of the cases that a filter selects, by currency.
func (c *Cases) Sums(ctx context.Context, tenant string, f CaseFilter) (out []CaseSum, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := c.readDB.QueryContext(ctx, caseSumsSQL, f.args(tenant)...)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s CaseSum
		if err := rows.Scan(&s.Currency, &s.Cases, &s.Reserved, &s.Released, &s.Refunded, &s.Returned); err != nil {
			return nil, pg.Wrap(err)
		}
		out = append(out, s)
	}
	return out, pg.Wrap(rows.Err())
}

const (
	// withoutLetterSQL selects runs by the index runs_without_letter, whose condition it repeats. A run that is a case's
	// newest and left money reserved has a letter that was closed, or is a fork that was cancelled.
	withoutLetterSQL = `NOT r.active AND r.family = 'settlement' AND (r.letter IN ('purged', 'reconciled') OR r.letter = '' AND r.parent_id IS NOT NULL AND r.class <> 'executed')`

	reservedColumnsSQL = `SELECT e.currency, c.progression, r.state, r.letter, r.class, c.unknown_open, count(*) AS cases, sum(c.reserved) AS reserved
FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id AND c.run_id = r.id JOIN recourse.escrows e ON e.id = c.escrow_id WHERE r.tenant = $1 AND c.reserved > 0 AND `
	reservedSQL = reservedColumnsSQL + `r.active GROUP BY 1, 2, 3, 4, 5, 6 UNION ALL ` + reservedColumnsSQL + withoutLetterSQL + ` GROUP BY 1, 2, 3, 4, 5, 6`

	moneyWithoutLetterSQL = `SELECT e.currency, sum(c.reserved) FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id AND c.run_id = r.id JOIN recourse.escrows e ON e.id = c.escrow_id
	WHERE c.reserved > 0 AND ` + withoutLetterSQL + ` GROUP BY 1`
)

// Reserved adds up the reserved money of a tenant's cases that have in common what they wait for, of one moment. It reads live runs, open dead letters,
// and what left money reserved without either.
func (c *Cases) Reserved(ctx context.Context, tenant string) (out []CaseSum, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := c.readDB.QueryContext(ctx, reservedSQL, tenant)
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s CaseSum
		var progression string
		if err := rows.Scan(&s.Currency, &progression, &s.Of.RunState, &s.Of.Letter, &s.Of.Class, &s.Of.UnknownOpen, &s.Cases, &s.Reserved); err != nil {
			return nil, pg.Wrap(err)
		}
		s.Of.State.Progression, s.Of.State.Reserved = settlement.Status(progression), 1 // each has some reserved
		out = append(out, s)
	}
	return out, pg.Wrap(rows.Err())
}

// WithTrail reads a case's runs and receipts at one moment.
func (c *Cases) WithTrail(ctx context.Context, tenant string, caseID receipts.CaseID) (runs []Snapshot, trail []receipts.Receipt, err error) {
	tx, err := c.readDB.BeginTxx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, nil, pg.Wrap(err)
	}
	defer func() { err = errors.Join(err, pg.Rollback(tx.Tx)) }()
	if runs, err = snapshots(ctx, tx, byCaseSQL, tenant, caseID.String()); err != nil {
		return nil, nil, pg.Wrap(err)
	}
	if trail, err = stored.CaseTrail(ctx, tx, tenant, caseID); err != nil {
		return nil, nil, pg.Wrap(err)
	}
	return runs, trail, nil
}

const plainFamilySQL = `SELECT EXISTS (SELECT FROM recourse.cases WHERE tenant = $1 AND kind = 'plain' AND starts_with(subject, $2))`

// HasTasks reports whether a tenant has ever had a task of a plain family.
func (c *Cases) HasTasks(ctx context.Context, tenant, family string) (has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	if err := c.readDB.QueryRowContext(ctx, plainFamilySQL, tenant, family+":").Scan(&has); err != nil {
		return false, pg.Wrap(err)
	}
	return has, nil
}

const knownIDsSQL = `SELECT EXISTS (SELECT FROM recourse.cases WHERE tenant = $1),
  EXISTS (SELECT FROM recourse.cases WHERE tenant = $1 AND kind = $2 AND subject = $3), EXISTS (SELECT FROM recourse.escrows WHERE tenant = $1 AND reference = $4)`

// SubmittedIDs are the ids of a submission that an earlier one may have had.
type SubmittedIDs struct {
	Tenant  string
	Kind    Kind
	Subject string
	Escrow  string
}

// KnownIDs says whether a tenant has any case, that of a subject, and an escrow.
func (c *Cases) KnownIDs(ctx context.Context, of SubmittedIDs) (tenant, subject, escrow bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	err = pg.Wrap(c.readDB.QueryRowContext(ctx, knownIDsSQL, of.Tenant, of.Kind, of.Subject, of.Escrow).Scan(&tenant, &subject, &escrow))
	return tenant, subject, escrow, err
}

const beforeInQueueSQL = `SELECT count(*) FROM (SELECT FROM recourse.runs r WHERE r.live AND NOT r.remote AND r.state <> 'running' AND r.reason <> 'accepted' AND r.queue = $1 AND (r.due_at, r.id) < ($2, $3) LIMIT $4) AS ahead`

// RunsAhead counts the runs of r's queue that are due before r and wait too, up to most.
func (c *Cases) RunsAhead(ctx context.Context, r background.Run, most int) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	if err := c.readDB.QueryRowContext(ctx, beforeInQueueSQL, r.Queue, r.DueAt, r.ID.String(), most).Scan(&n); err != nil {
		return 0, pg.Wrap(err)
	}
	return n, nil
}

// IsLocked reports whether another transaction holds a lock on a case right now, or the case does not
// exist. A batch that reads the case at that moment skips it.
func (c *Cases) IsLocked(ctx context.Context, id receipts.CaseID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	var free bool
	err := c.batchDB.QueryRowContext(ctx, `SELECT true FROM recourse.cases WHERE id = $1 FOR SHARE SKIP LOCKED`, id.String()).Scan(&free)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, pg.Wrap(err)
}

// submittersSQL reads who submitted the first run of each run's lineage. UNION ends a lineage of which somebody altered a
// run to be its own ancestor.
const submittersSQL = `WITH RECURSIVE line AS (
	SELECT r.id AS run, r.id, r.parent_id, r.case_id FROM recourse.runs r WHERE r.tenant = $1 AND r.id = ANY($2::uuid[])
	UNION
	SELECT l.run, p.id, p.parent_id, p.case_id FROM line l JOIN recourse.runs p ON p.id = l.parent_id AND p.tenant = $1)
SELECT l.run, s.actor FROM line l CROSS JOIN LATERAL (SELECT x.actor FROM recourse.receipts x
	WHERE x.case_id = l.case_id AND x.run_id = l.id AND x.tenant = $1 AND x.subtype = 'submitted' OFFSET 0) s
WHERE l.parent_id IS NULL`

// SubmittedBy returns which of a tenant's runs a principal submitted, as the receipts say. A fork is of the principal
// that submitted the first run of its lineage.
func (c *Cases) SubmittedBy(ctx context.Context, tenant, principal string, ids []background.RunID) (map[background.RunID]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	columns := pg.NewTextColumns(1, len(ids))
	for _, id := range ids {
		columns.ID(id)
	}
	rows, err := c.readDB.QueryContext(ctx, submittersSQL, tenant, columns.Args()[0])
	if err != nil {
		return nil, pg.Wrap(err)
	}
	defer rows.Close()
	out := map[background.RunID]bool{}
	for rows.Next() {
		var id uuid.UUID
		var actor string
		if err := rows.Scan(&id, &actor); err != nil {
			return nil, pg.Wrap(err)
		}
		if access.SamePrincipal(actor, principal) {
			out[background.RunID(id)] = true
		}
	}
	return out, pg.Wrap(rows.Err())
}

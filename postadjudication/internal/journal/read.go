package journal

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// snapshotSQL reads runs with their cases and their terms; a WHERE clause follows it.
const snapshotSQL = `SELECT ` + snapshotColumns + `, ` + termsColumns + snapshotTables + termsJoin

// snapshotWithoutTermsSQL is snapshotSQL without the terms, for callers that read the
// receipts themselves.
const snapshotWithoutTermsSQL = `SELECT ` + snapshotColumns + `, ` + noTermsColumns + snapshotTables

const snapshotColumns = `
  r.id, r.case_id, r.tenant, r.family, r.retry_key, r.operation_key, r.queue, r.target, r.policy, coalesce(o.request, r.payload) AS payload,
  r.parent_id, r.state, r.letter, r.attempt_count, r.budget_spent, r.recoveries, r.class, r.token, r.session_id, r.outstanding_calls, r.last_transition, r.cancel_requested, r.cancel_by, r.cancel_reason, r.due_at, r.dead_at, r.notification_number,
  r.reason AS death_reason, r.error_type, r.error_code, r.error_text,
  c.kind, c.subject, coalesce(c.escrow_id, 0) AS escrow_id, coalesce(e.reference, '') AS reference, coalesce(e.currency, '') AS currency, coalesce(e.held, 0) AS held,
  c.submission, c.content, c.progression, c.reason_code, c.reason, c.lifecycle, c.adjudication, c.generation, c.asked, c.moved, c.reserved, c.released, c.refunded,
  c.run_id, c.unknown_open, c.epoch, c.first_sent_at, c.last_seq, c.last_link`

const snapshotTables = `
FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
  LEFT JOIN recourse.operations o ON o.key = r.operation_key LEFT JOIN recourse.escrows e ON e.id = c.escrow_id `

// snapshotRow is one row of snapshotSQL.
type snapshotRow struct {
	ID                 uuid.UUID
	CaseID             uuid.UUID
	Tenant             string
	Family             string
	RetryKey           string
	OperationKey       []byte
	Queue              string
	Target             string
	Policy             string
	Payload            []byte
	ParentID           uuid.NullUUID
	State              string
	Letter             string
	AttemptCount       int
	BudgetSpent        int
	Recoveries         int
	Class              string
	Token              uuid.NullUUID
	SessionID          uuid.NullUUID
	OutstandingCalls   pq.Int32Array
	LastTransition     uuid.UUID
	CancelRequested    bool
	CancelBy           string
	CancelReason       string
	DueAt              time.Time
	DeadAt             sql.NullTime
	NotificationNumber int
	DeathReason        string
	ErrorType          string
	ErrorCode          string
	ErrorText          string
	Kind               string
	Subject            string
	EscrowID           int64
	Reference          string
	Currency           string
	Held               int64
	Submission         string
	Content            []byte
	Progression        string
	ReasonCode         string
	Reason             string
	Lifecycle          string
	Adjudication       string
	Generation         int
	Asked              int64
	Moved              int64
	Reserved           int64
	Released           int64
	Refunded           int64
	RunID              uuid.UUID
	UnknownOpen        int
	Epoch              int
	FirstSentAt        sql.NullTime
	LastSeq            int64
	LastLink           []byte
	OwnReceipt         sql.NullString
}

// scan reads a row of snapshotSQL, then the further columns of a query.
func (r *snapshotRow) scan(rows *sql.Rows, more ...any) error {
	return rows.Scan(append(r.destinations(), more...)...)
}

// destinations returns where the columns of snapshotSQL are read to, in their order.
func (r *snapshotRow) destinations() []any {
	return []any{
		&r.ID, &r.CaseID, &r.Tenant, &r.Family, &r.RetryKey, &r.OperationKey, &r.Queue, &r.Target, &r.Policy, &r.Payload, &r.ParentID,
		&r.State, &r.Letter, &r.AttemptCount, &r.BudgetSpent, &r.Recoveries, &r.Class, &r.Token,
		&r.SessionID, &r.OutstandingCalls, &r.LastTransition, &r.CancelRequested, &r.CancelBy, &r.CancelReason, &r.DueAt, &r.DeadAt, &r.NotificationNumber,
		&r.DeathReason, &r.ErrorType, &r.ErrorCode, &r.ErrorText,
		&r.Kind, &r.Subject, &r.EscrowID, &r.Reference, &r.Currency, &r.Held,
		&r.Submission, &r.Content, &r.Progression, &r.ReasonCode, &r.Reason, &r.Lifecycle, &r.Adjudication, &r.Generation, &r.Asked, &r.Moved, &r.Reserved, &r.Released, &r.Refunded,
		&r.RunID, &r.UnknownOpen, &r.Epoch, &r.FirstSentAt, &r.LastSeq, &r.LastLink, &r.OwnReceipt,
	}
}

// read scans a row. If it fails after ID was set, the error concerns that run only.
func (r *snapshotRow) read(rows *sql.Rows, more ...any) (Snapshot, error) {
	if err := r.scan(rows, more...); err != nil {
		return Snapshot{}, fmt.Errorf("postgres: run %s: %w", uuid.UUID(r.ID), err)
	}
	return r.snapshot()
}

// snapshot converts the row. An error is about the run's policy, which is then zero; all
// else is set.
func (r *snapshotRow) snapshot() (Snapshot, error) {
	policy, err := retrypolicy.Parse(r.Policy)
	if err != nil {
		err = fmt.Errorf("postgres: policy of run %s: %w", r.ID, err)
	}
	run := background.Run{
		ID: background.RunID(r.ID), Case: background.CaseID(r.CaseID), Tenant: r.Tenant, Family: r.Family, RetryKey: r.RetryKey,
		Queue: r.Queue, Target: r.Target, Parent: background.RunID(r.ParentID.UUID), Policy: policy, Payload: r.Payload,
		State: background.State(r.State), Letter: background.LetterStatus(r.Letter), Attempt: r.AttemptCount, BudgetSpent: r.BudgetSpent,
		Recoveries: r.Recoveries, Class: background.Class(r.Class), Token: r.Token.UUID, Session: r.SessionID.UUID, LastTransition: r.LastTransition, CancelRequested: r.CancelRequested,
		CancelBy: r.CancelBy, CancelReason: r.CancelReason,
		DueAt: r.DueAt.UTC(), NotificationNumber: r.NotificationNumber, Reason: r.DeathReason, UnresolvedUnknowns: r.UnknownOpen, Terms: r.terms(),
	}
	copy(run.Operation[:], r.OperationKey)
	for _, attempt := range r.OutstandingCalls {
		run.OutstandingCalls = append(run.OutstandingCalls, int(attempt))
	}
	if r.DeadAt.Valid {
		run.DeadAt = r.DeadAt.Time.UTC()
	}
	if r.FirstSentAt.Valid {
		run.FirstSentAt = r.FirstSentAt.Time.UTC()
	}
	if r.ErrorType != "" {
		run.Failure = &background.Failure{Type: r.ErrorType, Code: r.ErrorCode, Message: r.ErrorText}
	}
	theCase := Case{
		ID: run.Case, Tenant: r.Tenant, Kind: Kind(r.Kind), Subject: r.Subject, Escrow: r.EscrowID, Reference: r.Reference,
		Currency: r.Currency, Held: r.Held, Submission: r.Submission, ActiveRun: background.RunID(r.RunID), Epoch: r.Epoch,
		State: settlement.State{
			Adjudication: settlement.Outcome(r.Adjudication), Progression: settlement.Status(r.Progression),
			ReasonCode: settlement.ReasonCode(r.ReasonCode), Reason: r.Reason, Lifecycle: settlement.Lifecycle(r.Lifecycle),
			Generation: r.Generation, Asked: r.Asked, Moved: r.Moved, Reserved: r.Reserved, Released: r.Released, Refunded: r.Refunded,
		},
		Head: receipts.Head{Seq: r.LastSeq},
	}
	copy(theCase.Content[:], r.Content)
	copy(theCase.Head.Link[:], r.LastLink)
	return Snapshot{Case: theCase, Run: run}, err
}

func snapshots(ctx context.Context, q pg.Querier, query string, args ...any) ([]Snapshot, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Snapshot
	var unreadables unreadable
	for rows.Next() {
		var scanned snapshotRow
		s, err := scanned.read(rows)
		if scanned.ID == (uuid.UUID{}) {
			return nil, err
		}
		if err != nil {
			unreadables = append(unreadables, unreadableRun{background.RunID(scanned.ID), err, background.Cursor{DueAt: scanned.DueAt.UTC(), ID: background.RunID(scanned.ID)}, s})
			continue
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if unreadables != nil {
		return out, unreadables
	}
	return out, nil
}

// unreadable is the error of runs that this program can't read, such as one with a policy
// that only a newer program knows. Other runs can still be read.
type unreadable []unreadableRun

type unreadableRun struct {
	id      background.RunID
	err     error
	cursor  background.Cursor
	partial Snapshot // what could be read of it
}

func (u unreadable) Error() string {
	return fmt.Sprintf("postgres: run %s can't be read by this program (%d in all): %v", u[0].id, len(u), u[0].err)
}

// Is matches background.ErrUnreadable: all other runs are readable.
func (u unreadable) Is(target error) bool { return target == background.ErrUnreadable }

const bySubjectSQL = snapshotSQL + `WHERE c.tenant = $1 AND c.kind = $2 AND c.subject = $3 AND r.id = c.run_id`

// snapshotBySubject reads the case of a subject with its active run.
func snapshotBySubject(ctx context.Context, q pg.Querier, tenant string, kind Kind, subject string) (*Snapshot, error) {
	s, err := exactlyOne(snapshots(ctx, q, bySubjectSQL, tenant, string(kind), subject))
	return &s, err
}

const byRunsSQL = snapshotSQL + `WHERE r.id = ANY($1::uuid[])`

func exactlyOne(s []Snapshot, err error) (Snapshot, error) {
	var unreadables unreadable
	if errors.As(err, &unreadables) {
		return unreadables[0].partial, err
	}
	if err != nil {
		return Snapshot{}, err
	}
	if len(s) == 0 {
		return Snapshot{}, background.ErrNotFound
	}
	return s[0], nil
}

// Cases reads cases and their runs.
type Cases struct {
	*shared
}

// Find reads a run as it is now. It returns ErrNotFound if there is none.
func (c *Cases) Find(ctx context.Context, id background.RunID) (background.Run, error) {
	s, err := c.Snapshot(ctx, id)
	return s.Run, err
}

// Snapshot reads a run and its case as they are now.
func (j *Cases) Snapshot(ctx context.Context, id background.RunID) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	c := pg.NewColumns(1, 1)
	c.ID(id)
	return exactlyOne(snapshots(ctx, j.readDB, byRunsSQL, c.Args()...))
}

// SubjectSnapshot reads a case by its subject, with its active run.
func (c *Cases) SubjectSnapshot(ctx context.Context, tenant string, kind Kind, subject string) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	s, err := snapshotBySubject(ctx, c.readDB, tenant, kind, subject)
	return *s, err
}

const byCaseSQL = snapshotWithoutTermsSQL + `WHERE r.tenant = $1 AND r.case_id = $2 ORDER BY r.id`

// Runs reads all runs of a tenant's case, oldest first.
func (c *Cases) Runs(ctx context.Context, tenant string, id receipts.CaseID) ([]Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	return snapshots(ctx, c.readDB, byCaseSQL, tenant, id.String())
}

// ReadableRuns is Runs for decisions about another run of the case: it includes runs
// whose policy can't be read, without the policy.
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
	slices.SortFunc(out, func(a, b Snapshot) int { return bytes.Compare(a.Run.ID[:], b.Run.ID[:]) })
	return out, nil
}

// CaseFilter selects cases of settlements.
type CaseFilter struct {
	States   []string // any of these progressions; all if empty
	Reserved bool     // only those with a reserved amount
	Subject  string   // only this transaction; all if empty
}

// CaseRow is a case with the state of its active run.
type CaseRow struct {
	Case
	UnknownOpen int
	RunState    background.State
	Letter      background.LetterStatus
	Class       background.Class
	Held        bool // its dead letter has a hold
}

// CaseSum is the money of the cases of one currency.
type CaseSum struct {
	Currency string `db:"currency"`
	Cases    int64  `db:"cases"`
	Reserved int64  `db:"reserved"`
	Released int64  `db:"released"`
	Refunded int64  `db:"refunded"`
}

const (
	caseFilterSQL = `c.tenant = $1 AND c.kind = 'settlement' AND ($2::text[] = '{}' OR c.progression = ANY($2)) AND ($3 = false OR c.reserved > 0) AND ($4 = '' OR c.subject = $4)`

	caseListSQL = `SELECT c.id, c.subject, e.reference, e.currency, c.progression, c.reason_code, c.reason, c.lifecycle, c.adjudication, c.generation, c.asked, c.moved,
  c.reserved, c.released, c.refunded, c.unknown_open, c.run_id, r.state, r.letter, r.class, coalesce(k.held, false)
FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id JOIN recourse.runs r ON r.id = c.run_id LEFT JOIN recourse.annotations k ON k.run_id = c.run_id
WHERE c.id > $5 AND ` + caseFilterSQL + ` ORDER BY c.id LIMIT $6`

	caseSumsSQL = `SELECT e.currency, count(*) AS cases, sum(c.reserved)::bigint AS reserved, sum(c.released)::bigint AS released, sum(c.refunded)::bigint AS refunded
FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id WHERE ` + caseFilterSQL + ` GROUP BY e.currency ORDER BY e.currency`
)

func (f CaseFilter) args(tenant string) []any {
	return []any{tenant, append(pq.StringArray{}, f.States...), f.Reserved, f.Subject}
}

// List lists cases of a tenant after one, oldest first.
func (j *Cases) List(ctx context.Context, tenant string, f CaseFilter, after receipts.CaseID, limit int) (out []CaseRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := j.readDB.QueryContext(ctx, caseListSQL, append(f.args(tenant), after.String(), limit)...)
	if err != nil {
		return nil, pg.Unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		c, err := scanCase(rows)
		if err != nil {
			return nil, pg.Unavailable(err)
		}
		c.Tenant, c.Kind = tenant, KindSettlement
		out = append(out, c)
	}
	return out, pg.Unavailable(rows.Err())
}

func scanCase(rows *sql.Rows) (c CaseRow, err error) {
	var id, run uuid.UUID
	s := &c.State
	var adjudication, progression, code, lifecycle string
	err = rows.Scan(&id, &c.Subject, &c.Reference, &c.Currency, &progression, &code, &s.Reason, &lifecycle, &adjudication, &s.Generation, &s.Asked, &s.Moved,
		&s.Reserved, &s.Released, &s.Refunded, &c.UnknownOpen, &run, &c.RunState, &c.Letter, &c.Class, &c.Held)
	c.ID, c.ActiveRun = receipts.CaseID(id), background.RunID(run)
	s.Progression, s.ReasonCode, s.Lifecycle, s.Adjudication = settlement.Status(progression), settlement.ReasonCode(code), settlement.Lifecycle(lifecycle), settlement.Outcome(adjudication)
	return c, err
}

// Sums adds up the money of the cases that a filter selects, by currency.
func (c *Cases) Sums(ctx context.Context, tenant string, f CaseFilter) (out []CaseSum, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	rows, err := c.readDB.QueryContext(ctx, caseSumsSQL, f.args(tenant)...)
	if err != nil {
		return nil, pg.Unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s CaseSum
		if err := rows.Scan(&s.Currency, &s.Cases, &s.Reserved, &s.Released, &s.Refunded); err != nil {
			return nil, pg.Unavailable(err)
		}
		out = append(out, s)
	}
	return out, pg.Unavailable(rows.Err())
}

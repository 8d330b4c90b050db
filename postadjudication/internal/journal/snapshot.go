package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// Kind is the kind of a case.
type Kind string

// The kinds of case.
const (
	KindSettlement Kind = stored.KindSettlement
	KindPlain      Kind = stored.KindPlain
	KindOperations Kind = stored.KindOperations // has receipts but no run
)

// Case is a row of cases as it was read. Head is its version: every transition is written
// against the head that it was decided on.
type Case struct {
	ID         receipts.CaseID
	Tenant     string
	Kind       Kind
	Subject    string // transaction receipt id; "<family>:<retry key>" for plain families
	Escrow     int64  // row id; 0 for plain families
	Reference  string // the escrow's
	Currency   string
	Held       int64
	Submission string // submission receipt id of the current generation
	Content    [32]byte
	State      settlement.State
	ActiveRun  background.RunID // the run that is live or has the open dead letter; if there is none, the last such run
	Epoch      int
	Head       receipts.Head
}

// Snapshot is a run and its case at one moment.
type Snapshot struct {
	Case Case
	Run  background.Run
}

// snapshotSQL reads runs with their cases and their terms; a WHERE clause follows it.
const snapshotSQL = `SELECT ` + snapshotColumns + `, ` + termsColumns + snapshotTables + termsJoin

// snapshotWithoutTermsSQL is snapshotSQL without the terms, for callers that read the
// receipts themselves.
const snapshotWithoutTermsSQL = `SELECT ` + snapshotColumns + `, ` + noTermsColumns + snapshotTables

const snapshotColumns = `
  r.id, r.case_id, r.tenant, r.family, r.retry_key, r.operation_key, r.queue, r.target, r.policy, coalesce(o.request, r.payload) AS payload,
  r.parent_id, r.state, r.letter, r.attempt_count, r.budget_spent, r.recoveries, r.class, r.token, r.session_id, r.outstanding_calls, r.last_transition, r.cancel_requested, r.cancel_by, r.cancel_reason, r.due_at, r.dead_at, r.notification_number,
  r.reason AS death_reason, r.error_type, r.error_code, r.error_text, r.remote, r.priority, r.expires_at, r.handed_back,
  c.kind, c.subject, coalesce(c.escrow_id, 0) AS escrow_id, coalesce(e.reference, '') AS reference, coalesce(e.currency, '') AS currency, coalesce(e.held, 0) AS held,
  c.submission, c.content, c.progression, c.reason_code, c.reason, c.lifecycle, c.adjudication, c.generation, c.asked, c.moved, c.reserved, c.released, c.refunded, coalesce(c.returned, 0) AS returned,
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
	Remote             bool
	Priority           int
	ExpiresAt          sql.NullTime
	HandedBack         int
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
	Returned           int64
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
		&r.DeathReason, &r.ErrorType, &r.ErrorCode, &r.ErrorText, &r.Remote, &r.Priority, &r.ExpiresAt, &r.HandedBack,
		&r.Kind, &r.Subject, &r.EscrowID, &r.Reference, &r.Currency, &r.Held,
		&r.Submission, &r.Content, &r.Progression, &r.ReasonCode, &r.Reason, &r.Lifecycle, &r.Adjudication, &r.Generation, &r.Asked, &r.Moved, &r.Reserved, &r.Released, &r.Refunded, &r.Returned,
		&r.RunID, &r.UnknownOpen, &r.Epoch, &r.FirstSentAt, &r.LastSeq, &r.LastLink, &r.OwnReceipt,
	}
}

// read scans a row. If it fails after ID was set, the error concerns that run only.
func (r *snapshotRow) read(rows *sql.Rows, more ...any) (Snapshot, error) {
	if err := r.scan(rows, more...); err != nil {
		return Snapshot{}, fmt.Errorf("run %s: %w", uuid.UUID(r.ID), err)
	}
	return r.snapshot()
}

// parsedPolicies keeps the policies that were parsed last, by their text: runs have few different ones. What it
// returns is shared, and must not be changed.
var parsedPolicies = expirable.NewLRU[string, retrypolicy.Policy](256, nil, 0)

// snapshot converts the row. An error is about the run's policy, which is then zero; all
// else is set.
func (r *snapshotRow) snapshot() (Snapshot, error) {
	policy, known := parsedPolicies.Get(r.Policy)
	var err error
	if !known {
		if policy, err = retrypolicy.Parse(r.Policy); err != nil {
			err = fmt.Errorf("policy of run %s: %w", r.ID, err)
		} else {
			parsedPolicies.Add(r.Policy, policy)
		}
	}
	run := background.Run{
		ID: background.RunID(r.ID), Case: background.CaseID(r.CaseID), Tenant: r.Tenant, Family: r.Family, RetryKey: r.RetryKey,
		Queue: r.Queue, Target: r.Target, Parent: background.RunID(r.ParentID.UUID), Policy: policy, Payload: r.Payload,
		State: background.State(r.State), Letter: background.LetterStatus(r.Letter), Attempt: r.AttemptCount, BudgetSpent: r.BudgetSpent,
		Recoveries: r.Recoveries, Class: background.Class(r.Class), Token: r.Token.UUID, Session: r.SessionID.UUID, LastTransition: r.LastTransition, CancelRequested: r.CancelRequested,
		CancelBy: r.CancelBy, CancelReason: r.CancelReason,
		DueAt: r.DueAt.UTC(), NotificationNumber: r.NotificationNumber, Reason: r.DeathReason, UnknownOpen: r.UnknownOpen, Terms: r.terms(),
		Remote: r.Remote, Priority: r.Priority, HandedBack: r.HandedBack,
	}
	copy(run.Operation[:], r.OperationKey)
	for _, attempt := range r.OutstandingCalls {
		run.OutstandingCalls = append(run.OutstandingCalls, int(attempt))
	}
	if r.DeadAt.Valid {
		run.DeadAt = r.DeadAt.Time.UTC()
	}
	if r.ExpiresAt.Valid {
		run.ExpiresAt = r.ExpiresAt.Time.UTC()
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
			Outcome: settlement.Outcome(r.Adjudication), Progression: settlement.Status(r.Progression),
			ReasonCode: settlement.ReasonCode(r.ReasonCode), Reason: r.Reason, Lifecycle: settlement.Lifecycle(r.Lifecycle),
			Generation: r.Generation, Asked: r.Asked, Moved: r.Moved, Reserved: r.Reserved, Released: r.Released, Refunded: r.Refunded, Returned: r.Returned,
		},
		Head: receipts.Head{Seq: r.LastSeq},
	}
	copy(theCase.Content[:], r.Content)
	copy(theCase.Head.Link[:], r.LastLink)
	return Snapshot{Case: theCase, Run: run}, err
}

// termsJoin finds the submitted receipt of a run by the primary key of receipts: for the
// first run of a case its receipt 1, for a later run the first receipt of its case that
// names it. It uses no column of another table, so that a change of such a column can't
// select another receipt.
const (
	termsColumns = `coalesce(own.body, CASE WHEN first.run_id = r.id THEN first.body END, '') AS own_receipt`

	noTermsColumns = `NULL::text AS own_receipt`

	termsJoin = `
  LEFT JOIN recourse.receipts first ON first.case_id = r.case_id AND first.seq = 1
  LEFT JOIN LATERAL (SELECT x.body FROM recourse.receipts x WHERE x.case_id = r.case_id AND x.seq > 1 AND x.run_id = r.id AND x.subtype = 'submitted'
    AND first.run_id IS DISTINCT FROM r.id ORDER BY x.seq LIMIT 1) own ON true
`
)

// terms returns what the submitted receipt of the run says; zero if there is none that can
// be read, nil if the query did not select it.
func (r *snapshotRow) terms() *receipts.Terms {
	if !r.OwnReceipt.Valid {
		return nil
	}
	t, err := receipts.ReadTerms([]byte(r.OwnReceipt.String))
	if err != nil {
		return new(receipts.Terms)
	}
	return &t
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

func (j *Journal) findBatch(ids []background.RunID) []pg.Outcome[*Snapshot] {
	ctx, cancel := context.WithTimeout(context.Background(), pg.StatementTimeout)
	defer cancel()
	c := pg.NewTextColumns(1, 1)
	for _, id := range ids {
		c.ID(id)
	}
	out := make([]pg.Outcome[*Snapshot], len(ids))
	found, err := snapshots(ctx, j.findStmt, "", c.Args()...)
	byID := make(map[background.RunID]*Snapshot, len(found))
	for i := range found {
		byID[found[i].Run.ID] = &found[i]
	}
	var unreadables unreadable
	if errors.As(err, &unreadables) {
		err = nil
		j.warnUnreadable(unreadables)
	}
	for i, id := range ids {
		s, ok := byID[id]
		at := slices.IndexFunc(unreadables, func(u unreadableRun) bool { return u.id == id })
		switch {
		case at >= 0:
			out[i] = pg.Outcome[*Snapshot]{Value: &unreadables[at].partial, Err: unreadables[at : at+1]}
		case err != nil:
			out[i].Err = pg.Wrap(err)
		case !ok:
			out[i].Err = background.ErrNotFound
		default:
			out[i].Value = s
		}
	}
	return out
}

package trail

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Case is a case with its runs, as far as receipts determine it.
type Case struct {
	ID          receipts.CaseID
	Tenant      string
	Kind        string // stored.KindSettlement or stored.KindPlain
	Subject     string // transaction receipt id; "<family>:<retry key>" for plain families
	Escrow      int64  // row id; 0 for plain families
	Reference   string // the escrow's
	Currency    string
	Held        int64 // by the escrow, in minor units
	Submission  string
	Content     [32]byte
	State       settlement.State
	ActiveRun   receipts.RunID
	Epoch       int
	UnknownOpen int       // attempts whose outcome is unknown
	FirstSentAt time.Time // under the newest operation key; zero: never
	Head        receipts.Head
	Runs        []Run // oldest first

	UniqueBy    string    // of a unique job, hex; empty: it is none
	UniqueUntil time.Time // zero: without end
}

// Run is a row of runs with its request.
type Run struct {
	ID               receipts.RunID
	Family           string
	RetryKey         string
	OperationKey     [32]byte // zero for a plain task
	Queue            string
	Target           string
	Policy           string // as stored: see retrypolicy.Parse
	Request          []byte // the bytes that are sent; the payload of a plain task
	Parent           receipts.RunID
	State            string // receipts.StatePending and so on
	Live, Active     bool   // as stored: what is searched for runs that may be called, and that occupy their case
	Letter           string // receipts.LetterOpen and so on; empty unless dead-lettered
	Attempts         int
	BudgetSpent      int
	Recoveries       int
	Class            string
	OutstandingCalls []int // attempts whose call was given up and may still be executed
	CancelRequested  bool
	CancelBy         string
	CancelReason     string
	DueAt            time.Time
	DeadAt           time.Time        // zero unless dead-lettered
	Reason           string           // of its death
	Failure          receipts.Failure // the last one; zero if there was none
	Remote           bool
	Priority         int
	ExpiresAt        time.Time // zero: never
	HandedBack       int
	OutputDigest     string // hex; SHA-256 of what its worker returned; empty: nothing
}

// IsLive reports whether the run is live.
func (r *Run) IsLive() bool {
	return r.State == receipts.StatePending || r.State == receipts.StateRunning || r.State == receipts.StateScheduled
}

// IsActive reports whether the run is live or an open dead letter: a case has one such run at
// most.
func (r *Run) IsActive() bool { return r.IsLive() || r.Letter == receipts.LetterOpen }

const runsSQL = `SELECT
  r.id, r.family, r.retry_key, r.operation_key, r.queue, r.target, r.policy, coalesce(o.request, r.payload), r.parent_id, r.state, r.live, r.active, r.letter, r.attempt_count, r.budget_spent, r.recoveries, r.class,
  r.outstanding_calls, r.cancel_requested, r.cancel_by, r.cancel_reason, r.due_at, r.dead_at, r.reason, r.error_type, r.error_code, r.error_text,
  r.remote, r.priority, r.expires_at, r.handed_back, coalesce(encode(sha256(r.output), 'hex'), ''),
  c.id, c.kind, c.subject, coalesce(c.escrow_id, 0), coalesce(e.reference, ''), coalesce(e.currency, ''), coalesce(e.held, 0), c.submission, c.content,
  c.progression, c.reason_code, c.reason, c.lifecycle, c.adjudication, c.generation, c.asked, c.moved, c.reserved, c.released, c.refunded, coalesce(c.returned, 0),
  c.run_id, c.epoch, c.unknown_open, c.first_sent_at, c.last_seq, c.last_link,
  coalesce(encode(u.fingerprint, 'hex'), ''), u.until
FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id
  LEFT JOIN recourse.operations o ON o.key = r.operation_key LEFT JOIN recourse.escrows e ON e.id = c.escrow_id LEFT JOIN recourse.unique_jobs u ON u.case_id = c.id AND u.tenant = c.tenant `

// scanRun reads a row of runsSQL.
func scanRun(rows *sql.Rows) (c Case, r Run, err error) {
	var id, caseID, active uuid.UUID
	var parent uuid.NullUUID
	var key, content, link []byte
	var outstanding pq.Int32Array
	var dead, firstSent, expires, until sql.NullTime
	s := &c.State
	err = rows.Scan(
		&id, &r.Family, &r.RetryKey, &key, &r.Queue, &r.Target, &r.Policy, &r.Request, &parent, &r.State, &r.Live, &r.Active, &r.Letter, &r.Attempts, &r.BudgetSpent, &r.Recoveries, &r.Class,
		&outstanding, &r.CancelRequested, &r.CancelBy, &r.CancelReason, &r.DueAt, &dead, &r.Reason, &r.Failure.Type, &r.Failure.Code, &r.Failure.Message,
		&r.Remote, &r.Priority, &expires, &r.HandedBack, &r.OutputDigest,
		&caseID, &c.Kind, &c.Subject, &c.Escrow, &c.Reference, &c.Currency, &c.Held, &c.Submission, &content,
		(*string)(&s.Progression), (*string)(&s.ReasonCode), &s.Reason, (*string)(&s.Lifecycle), (*string)(&s.Outcome), &s.Generation, &s.Asked, &s.Moved, &s.Reserved, &s.Released, &s.Refunded, &s.Returned,
		&active, &c.Epoch, &c.UnknownOpen, &firstSent, &c.Head.Seq, &link,
		&c.UniqueBy, &until,
	)
	if err != nil {
		return c, r, err
	}
	r.ID, r.Parent, r.DueAt = receipts.RunID(id), receipts.RunID(parent.UUID), r.DueAt.UTC()
	if dead.Valid {
		r.DeadAt = dead.Time.UTC()
	}
	if expires.Valid {
		r.ExpiresAt = expires.Time.UTC()
	}
	copy(r.OperationKey[:], key)
	for _, attempt := range outstanding {
		r.OutstandingCalls = append(r.OutstandingCalls, int(attempt))
	}
	c.ID, c.ActiveRun = receipts.CaseID(caseID), receipts.RunID(active)
	if firstSent.Valid {
		c.FirstSentAt = firstSent.Time.UTC()
	}
	if until.Valid {
		c.UniqueUntil = until.Time.UTC()
	}
	copy(c.Content[:], content)
	copy(c.Head.Link[:], link)
	return c, r, nil
}

// selectCases reads runs that are ordered by case, as cases.
func selectCases(ctx context.Context, q stored.Querier, tenant, where string, args ...any) (out []Case, err error) {
	err = eachRow(ctx, q, func(rows *sql.Rows) error {
		c, r, err := scanRun(rows)
		if err != nil {
			return err
		}
		if n := len(out); n == 0 || out[n-1].ID != c.ID {
			c.Tenant = tenant
			out = append(out, c)
		}
		last := &out[len(out)-1]
		last.Runs = append(last.Runs, r)
		return nil
	}, runsSQL+where, args...)
	return out, err
}

// casePage is how many cases are read at once.
const casePage = 500

// Cases streams the cases of a tenant that have runs, by id. It reads pages, each at a moment of
// its own.
func (r *Reader) Cases(ctx context.Context, tenant string) iter.Seq2[Case, error] {
	return func(yield func(Case, error) bool) {
		var after receipts.CaseID
		for {
			page, err := selectCases(ctx, r.db, tenant, `WHERE r.tenant = $1 AND r.case_id > $2 AND r.case_id IN (
  SELECT c.id FROM recourse.cases c WHERE c.tenant = $1 AND c.id > $2 AND EXISTS (SELECT FROM recourse.runs own WHERE own.case_id = c.id AND own.tenant = $1)
  ORDER BY c.id LIMIT $3) ORDER BY r.case_id, r.id`, tenant, after.String(), casePage)
			if err != nil {
				yield(Case{}, failed(err))
				return
			}
			if len(page) == 0 {
				return
			}
			for _, c := range page {
				if !yield(c, nil) {
					return
				}
				after = c.ID
			}
		}
	}
}

// Case reads a tenant's case with its runs and its receipts, at one moment. Runs are empty if
// the case is not stored, or has none.
func (r *Reader) Case(ctx context.Context, tenant string, id receipts.CaseID) (c Case, rs []receipts.Receipt, err error) {
	err = r.atOneMoment(ctx, func(tx *sql.Tx) error {
		found, err := selectCases(ctx, tx, tenant, `WHERE r.tenant = $1 AND r.case_id = $2 ORDER BY r.id`, tenant, id.String())
		if err != nil {
			return err
		}
		if len(found) > 0 {
			c = found[0]
		}
		rs, err = stored.CaseTrail(ctx, tx, tenant, id)
		return err
	})
	return c, rs, err
}

// Escrow is what an escrow holds and what its cases have committed of it, in minor units.
type Escrow struct {
	Reference  string
	Held       int64
	Committed  int64
	OpenDeltas int64 // part of Committed that is not folded into the escrow's row yet
	Breached   int64
}

// Escrows lists a tenant's escrows by reference.
func (r *Reader) Escrows(ctx context.Context, tenant string) (out []Escrow, err error) {
	out, err = collect(ctx, r.db, func(rows *sql.Rows) (e Escrow, err error) {
		err = rows.Scan(&e.Reference, &e.Held, &e.Committed, &e.OpenDeltas, &e.Breached)
		return e, err
	}, `SELECT reference, held, committed, open, breached FROM recourse.escrow_sums WHERE tenant = $1 ORDER BY reference`, tenant)
	return out, failed(err)
}

// Escrow reads, at one moment, an escrow of a tenant and what its cases add up to. found is false if the
// tenant has no such escrow.
func (r *Reader) Escrow(ctx context.Context, tenant, reference string) (e Escrow, sum int64, found bool, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT e.reference, e.held, e.committed, e.open, e.breached,
		coalesce((SELECT sum(c.reserved + c.released + c.refunded - coalesce(c.returned, 0)) FROM recourse.cases c WHERE c.escrow_id = e.id), 0)
		FROM recourse.escrow_sums e WHERE e.tenant = $1 AND e.reference = $2`, tenant, reference).
		Scan(&e.Reference, &e.Held, &e.Committed, &e.OpenDeltas, &e.Breached, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return Escrow{}, 0, false, nil
	}
	return e, sum, err == nil, failed(err)
}

// EscrowCases lists the cases of a tenant's escrow, by id.
func (r *Reader) EscrowCases(ctx context.Context, tenant, reference string) (out []receipts.CaseID, err error) {
	out, err = collect(ctx, r.db, scanCaseID, `SELECT c.id FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id WHERE e.tenant = $1 AND e.reference = $2 ORDER BY c.id`, tenant, reference)
	return out, failed(err)
}

// scanCaseID reads a row of one id of a case.
func scanCaseID(rows *sql.Rows) (receipts.CaseID, error) {
	var id uuid.UUID
	err := rows.Scan(&id)
	return receipts.CaseID(id), err
}

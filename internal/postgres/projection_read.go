package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/settlement"
)

// deadRunsSQL reads the dead runs of the cases that a stretch of the order of events
// tells of, ($1, $2], and with $3 of those that have no place in it yet.
const deadRunsSQL = `
WITH told AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log l, unnest(l.case_ids) AS u(id) WHERE l.last > $1 AND l.last <= $2
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id) WHERE $3
)` + deadRunsOfSQL

// deadRunsOfSQL reads the dead runs of the cases told.
const deadRunsOfSQL = `
SELECT r.id, r.case_id, r.parent_id, r.tenant, r.family, r.queue, r.retry_key, r.letter, r.reason, r.class, r.error_type, r.error_text, r.attempt_count, r.bell, r.dead_at,
  c.kind, c.subject, c.submission, c.adjudication, c.asked, CASE r.letter WHEN 'open' THEN c.reserved ELSE 0 END AS at_risk, c.unknown_open, coalesce(e.reference, '') AS reference, coalesce(e.currency, '') AS currency,
  o.request, coalesce(n.at, r.dead_at) AS seen_at, coalesce(d.held, false) AS held, d.reprocess_eligible, d.manual_review_required
FROM told t JOIN recourse.runs r ON r.case_id = t.id AND r.dead_at IS NOT NULL JOIN recourse.cases c ON c.id = r.case_id
  LEFT JOIN recourse.escrows e ON e.id = c.escrow_id LEFT JOIN recourse.operations o ON o.key = r.operation_key
  LEFT JOIN recourse.receipts n ON n.case_id = c.id AND n.seq = c.last_seq LEFT JOIN recourse.desk d ON d.run_id = r.id`

// deadRun is one line of deadRunsSQL.
type deadRun struct {
	ID                 uuid.UUID     `db:"id"`
	CaseID             uuid.UUID     `db:"case_id"`
	ParentID           uuid.NullUUID `db:"parent_id"`
	Tenant             string        `db:"tenant"`
	Family             string        `db:"family"`
	Queue              string        `db:"queue"`
	RetryKey           string        `db:"retry_key"`
	Letter             string        `db:"letter"`
	Reason             string        `db:"reason"`
	Class              string        `db:"class"`
	ErrorType          string        `db:"error_type"`
	ErrorText          string        `db:"error_text"`
	Attempts           int           `db:"attempt_count"`
	NotificationNumber int           `db:"bell"`
	DeadAt             time.Time     `db:"dead_at"`
	Kind               string        `db:"kind"`
	Subject            string        `db:"subject"`
	Submission         string        `db:"submission"`
	Outcome            string        `db:"adjudication"`
	Amount             int64         `db:"asked"`
	AtRisk             int64         `db:"at_risk"`
	UnknownOpen        int           `db:"unknown_open"`
	Escrow             string        `db:"reference"`
	Currency           string        `db:"currency"`
	Request            []byte        `db:"request"`
	SeenAt             time.Time     `db:"seen_at"`
	Held               bool          `db:"held"`
	Eligible           sql.NullBool  `db:"reprocess_eligible"`
	Review             sql.NullBool  `db:"manual_review_required"`

	replays    int
	replayedBy string
}

func deadRuns(ctx context.Context, tx *sql.Tx, after, upTo int64, includePending bool) ([]deadRun, error) {
	if includePending { // also what is given its place just now
		upTo = math.MaxInt64
	}
	return readDeadRuns(ctx, tx, deadRunsSQL, after, upTo, includePending)
}

func readDeadRuns(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]deadRun, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var found []deadRun
	if err := sqlx.StructScan(rows, &found); err != nil {
		return nil, err
	}
	for i := range found {
		found[i].setFromRequest()
	}
	return found, setReplays(ctx, tx, found)
}

// setFromRequest sets what the run was about itself, which for an older generation is not what
// its case is about now: from the request that was sent for it. Where that tells
// nothing, what the case says stands; it must not keep other letters from being found.
func (d *deadRun) setFromRequest() {
	var sent struct {
		Outcome    string           `json:"outcome"`
		Amount     settlement.Money `json:"amount"`
		Submission string           `json:"submission_receipt_id"`
	}
	if json.Unmarshal(d.Request, &sent) == nil && sent.Outcome != "" {
		d.Outcome, d.Amount, d.Submission = sent.Outcome, sent.Amount.Minor, sent.Submission
	}
}

// transaction is the transaction receipt id; what the caller called it, of a plain
// family.
func (d *deadRun) transaction() string {
	if Kind(d.Kind) == KindSettlement {
		return d.Subject
	}
	return strings.TrimPrefix(d.Subject, d.Family+":")
}

// eligible and review are what somebody marked, else what the class says.
func (d *deadRun) eligible() bool {
	if d.Eligible.Valid {
		return d.Eligible.Bool
	}
	c := background.Class(d.Class)
	failed := c == background.NotExecuted || c == background.Unknown && Kind(d.Kind) != KindSettlement
	return failed && d.Reason == background.ReasonRetryExhausted
}

func (d *deadRun) review() bool {
	if d.Review.Valid {
		return d.Review.Bool
	}
	return d.unresolved()
}

// unresolved reports whether it is not known what became of money.
func (d *deadRun) unresolved() bool { return Kind(d.Kind) == KindSettlement && d.UnknownOpen > 0 }

const replaysSQL = `SELECT case_id, run_id, actor FROM recourse.receipts
WHERE case_id = ANY($1::uuid[]) AND subtype IN ('manual-retry-requested', 'replayed') AND run_id IS NOT NULL ORDER BY case_id, seq`

// setReplays sets how often each letter's lineage was tried again, itself included, and
// who did it last.
func setReplays(ctx context.Context, tx *sql.Tx, found []deadRun) error {
	byID := make(map[uuid.UUID]*deadRun, len(found))
	cases, requested := newColumns(1, 0), map[uuid.UUID]bool{}
	for i := range found {
		d := &found[i]
		byID[d.ID] = d
		if hasFork := d.ParentID.Valid || background.LetterStatus(d.Letter) == background.LetterForked; hasFork && !requested[d.CaseID] {
			requested[d.CaseID] = true
			cases.id(d.CaseID)
		}
	}
	if len(requested) == 0 {
		return nil
	}
	rows, err := tx.QueryContext(ctx, replaysSQL, cases.args()...)
	if err != nil {
		return err
	}
	defer rows.Close()
	actors := map[uuid.UUID]string{}
	for rows.Next() {
		var caseID, run uuid.UUID
		var actor string
		if err := rows.Scan(&caseID, &run, &actor); err != nil {
			return err
		}
		actors[run] = actor
	}
	for _, d := range byID {
		for ancestor := d; ancestor != nil; ancestor = byID[ancestor.ParentID.UUID] {
			if ancestor == d && background.LetterStatus(d.Letter) != background.LetterForked {
				continue
			}
			if d.replays++; d.replays == 1 {
				d.replayedBy = actors[ancestor.ID]
			}
		}
	}
	return rows.Err()
}

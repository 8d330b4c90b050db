package postgres

import (
	"context"
	"database/sql"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// CaseFilter selects cases of settlements.
type CaseFilter struct {
	States   []string // any of these progressions; all when empty
	Reserved bool     // only those that have something reserved
	Subject  string   // of this transaction alone; all when empty
}

// CaseRow is a case with what its holder stands at.
type CaseRow struct {
	Case
	UnknownOpen int
	RunState    background.State
	Letter      background.LetterStatus
	Class       background.Class
	Held        bool // somebody holds its letter
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
FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id JOIN recourse.runs r ON r.id = c.run_id LEFT JOIN recourse.desk k ON k.run_id = c.run_id
WHERE c.id > $5 AND ` + caseFilterSQL + ` ORDER BY c.id LIMIT $6`

	caseSumsSQL = `SELECT e.currency, count(*) AS cases, sum(c.reserved)::bigint AS reserved, sum(c.released)::bigint AS released, sum(c.refunded)::bigint AS refunded
FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id WHERE ` + caseFilterSQL + ` GROUP BY e.currency ORDER BY e.currency`
)

func (f CaseFilter) args(tenant string) []any {
	return []any{tenant, append(pq.StringArray{}, f.States...), f.Reserved, f.Subject}
}

// CaseList lists cases of a tenant after one, the oldest first.
func (j *Journal) CaseList(ctx context.Context, tenant string, f CaseFilter, after receipts.CaseID, limit int) (out []CaseRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := j.readDB.QueryContext(ctx, caseListSQL, append(f.args(tenant), after.String(), limit)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		c, err := scanCase(rows)
		if err != nil {
			return nil, unavailable(err)
		}
		c.Tenant, c.Kind = tenant, KindSettlement
		out = append(out, c)
	}
	return out, unavailableOrNil(rows.Err())
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

// CaseSums adds up the money of the cases that a filter selects, by currency.
func (j *Journal) CaseSums(ctx context.Context, tenant string, f CaseFilter) (out []CaseSum, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := j.readDB.QueryContext(ctx, caseSumsSQL, f.args(tenant)...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s CaseSum
		if err := rows.Scan(&s.Currency, &s.Cases, &s.Reserved, &s.Released, &s.Refunded); err != nil {
			return nil, unavailable(err)
		}
		out = append(out, s)
	}
	return out, unavailableOrNil(rows.Err())
}

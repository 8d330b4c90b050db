package postgres

import (
	"context"
	"database/sql"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/receipts"
)

// Discrepancy is one thing that an audit found wrong in the database: what it is about, as far
// as that is known, and what is wrong.
type Discrepancy struct {
	Case    receipts.CaseID
	Run     receipts.RunID
	Message string
	// What is stored and what should be instead, where two values were compared.
	Stored, Expected string
}

// eachDiscrepancy gives what a query finds: case, run and words, of which the first two may be
// NULL, and two values that were compared, if the query has them. All is seen at one moment,
// and nothing is kept.
func (j *Journal) eachDiscrepancy(ctx context.Context, visit func(Discrepancy), query string, args ...any) error {
	return j.eachRow(ctx, func(rows *sql.Rows) error {
		var caseID, run uuid.NullUUID
		var stored, expected sql.NullString
		var d Discrepancy
		dest := []any{&caseID, &run, &d.Message, &stored, &expected}
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		if err := rows.Scan(dest[:len(columns)]...); err != nil {
			return err
		}
		d.Case, d.Run, d.Stored, d.Expected = receipts.CaseID(caseID.UUID), receipts.RunID(run.UUID), stored.String, expected.String
		visit(d)
		return nil
	}, query, args...)
}

// eachRow reads the rows of a query one by one.
func (j *Journal) eachRow(ctx context.Context, read func(*sql.Rows) error, query string, args ...any) error {
	rows, err := j.readDB.QueryContext(ctx, query, args...)
	if err != nil {
		return unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return unavailable(err)
		}
	}
	return unavailableOrNil(rows.Err())
}

// CountCases counts the cases of tenants.
func (j *Journal) CountCases(ctx context.Context, tenants []string) (n int, err error) {
	err = j.readDB.QueryRowContext(ctx, `SELECT count(*) FROM recourse.cases WHERE tenant = ANY($1) AND kind <> 'operations'`, pq.StringArray(tenants)).Scan(&n)
	return n, unavailableOrNil(err)
}

// TenantsOf gives the tenants that have some of these cases, or their first receipts, by case.
func (j *Journal) TenantsOf(ctx context.Context, ids []receipts.CaseID) (map[receipts.CaseID][]string, error) {
	texts := make(pq.StringArray, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	out := map[receipts.CaseID][]string{}
	err := j.eachRow(ctx, func(rows *sql.Rows) error {
		var caseID uuid.UUID
		var tenant string
		if err := rows.Scan(&caseID, &tenant); err != nil {
			return err
		}
		out[receipts.CaseID(caseID)] = append(out[receipts.CaseID(caseID)], tenant)
		return nil
	}, `SELECT id, tenant FROM recourse.cases WHERE id = ANY($1::uuid[]) UNION SELECT case_id, tenant FROM recourse.receipts WHERE case_id = ANY($1::uuid[]) AND seq = 1 ORDER BY 2`, texts)
	return out, err
}

// optionalCase is a parameter that selects one case, or none of them in particular.
func optionalCase(id receipts.CaseID) *string {
	if id.IsZero() {
		return nil
	}
	s := id.String()
	return &s
}

package postgres

import (
	"context"
	"database/sql"

	"github.com/lib/pq"
)

// unprojectedCasesSQL gives the cases of a tenant's dead runs of which something is told that
// the projection of letters has not taken in.
const unprojectedCasesSQL = `
WITH told AS MATERIALIZED (
  SELECT u.id FROM recourse.event_log l, unnest(l.case_ids) AS u(id) WHERE l.last > (SELECT last FROM recourse.projected WHERE name = 'letters')
  UNION
  SELECT u.id FROM recourse.outbox o, unnest(o.case_ids) AS u(id)
)
SELECT DISTINCT r.case_id FROM told t JOIN recourse.runs r ON r.case_id = t.id WHERE r.tenant = $1 AND r.dead_at IS NOT NULL`

// unprojectedCases gives the cases whose letters may be other than they are listed, in a
// transaction that sees all at one moment: of the letters of all other cases, the list
// tells what they are at it. Among them are a few that were projected before they got
// their place in the order of events.
func unprojectedCases(ctx context.Context, tx *sql.Tx, tenant string) (cases pq.StringArray, err error) {
	rows, err := tx.QueryContext(ctx, unprojectedCasesSQL, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	cases = pq.StringArray{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		cases = append(cases, id)
	}
	return cases, rows.Err()
}

// CatchUpForPlan is CatchUpLetters, but that what was committed before the call has its
// place in the order of events as well: else a plan would take it for something newer.
func (j *Journal) CatchUpForPlan(ctx context.Context) error {
	if err := j.DrainOutbox(ctx); err != nil {
		return err
	}
	return j.CatchUpLetters(ctx)
}

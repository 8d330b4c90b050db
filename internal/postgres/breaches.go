package postgres

import (
	"context"
	"database/sql"

	"github.com/recourse-dev/recourse/receipts"
)

// Breaches is how often conservation was breached, of all tenants. Neither number falls.
type Breaches struct {
	Excesses  int64 // payments beyond what was adjudicated: receipts conservation-breach
	Escrows   int64 // escrows that committed more than they hold, as their rows show it
	Overdrawn int64 // by how much these did, added up over all currencies: it only tells that something rose
}

// breachesSQL names the predicates of the partial indexes on breaches.
const breachesSQL = `SELECT (SELECT count(*) FROM recourse.receipts WHERE subtype = 'conservation-breach'), count(*), least(coalesce(sum(breached), 0), 9223372036854775807)::bigint
FROM recourse.escrows WHERE breached > 0`

// Breaches counts breaches at one moment.
func (j *Journal) Breaches(ctx context.Context) (b Breaches, err error) {
	return b, b.read(ctx, j.readDB)
}

func (b *Breaches) read(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) error {
	if err := q.QueryRowContext(ctx, breachesSQL).Scan(&b.Excesses, &b.Escrows, &b.Overdrawn); err != nil {
		return unavailable(err)
	}
	return nil
}

// BreachedEscrows lists escrows of all tenants that committed more than they hold, the
// youngest first.
func (j *Journal) BreachedEscrows(ctx context.Context, limit int) ([]Escrow, error) {
	var out []Escrow
	if err := j.readDB.SelectContext(ctx, &out, `SELECT tenant, reference, currency, held, committed, open, breached
		FROM recourse.escrow_sums WHERE breached > 0 ORDER BY id DESC LIMIT $1`, limit); err != nil {
		return nil, unavailable(err)
	}
	return out, nil
}

const breachReceiptsSQL = `SELECT ` + receiptColumns + ` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 AND subtype = 'conservation-breach' ORDER BY seq`

// CaseExcess is by how much payments of a case went beyond what was adjudicated.
func (j *Journal) CaseExcess(ctx context.Context, tenant string, caseID receipts.CaseID) (excess int64, err error) {
	var rows []receiptRow
	if err := j.readDB.SelectContext(ctx, &rows, breachReceiptsSQL, tenant, caseID.String()); err != nil {
		return 0, unavailable(err)
	}
	for i := range rows {
		r := rows[i].receipt()
		p, err := r.Payload()
		if err != nil {
			return 0, err
		}
		excess += p.Excess
	}
	return excess, nil
}

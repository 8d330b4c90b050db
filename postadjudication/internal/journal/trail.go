package journal

import (
	"context"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// TrailPosition is a position in a trail: by case, then sequence.
type TrailPosition = stored.TrailPosition

// Receipts reads the receipt trail.
type Receipts struct {
	*shared
}

// Trail reads receipts of a tenant, by case and sequence, strictly after a position. A zero
// case selects all of the tenant's cases.
func (r *Receipts) Trail(ctx context.Context, tenant string, caseID receipts.CaseID, after TrailPosition, limit int) ([]receipts.Receipt, error) {
	out, err := stored.Trail(ctx, r.readDB, tenant, caseID, after, limit)
	return out, pg.Unavailable(err)
}

// OfCase reads the receipts of a tenant's case with one of some subtypes, in order.
func (r *Receipts) OfCase(ctx context.Context, tenant string, id receipts.CaseID, subtypes ...receipts.Subtype) ([]receipts.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	texts := make(pq.StringArray, len(subtypes))
	for i, s := range subtypes {
		texts[i] = string(s)
	}
	var rows []stored.ReceiptRow
	err := r.readDB.SelectContext(ctx, &rows, `SELECT `+receiptColumns+` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 AND subtype = ANY($3) ORDER BY seq`, tenant, id.String(), texts)
	if err != nil {
		return nil, pg.Unavailable(err)
	}
	out := make([]receipts.Receipt, len(rows))
	for i := range rows {
		out[i] = rows[i].Receipt()
	}
	return out, nil
}

const breachReceiptsSQL = `SELECT ` + receiptColumns + ` FROM recourse.receipts WHERE tenant = $1 AND case_id = $2 AND subtype = 'conservation-breach' ORDER BY seq`

// Excess returns the amount by which payments of a case exceeded what was adjudicated.
func (r *Receipts) Excess(ctx context.Context, tenant string, caseID receipts.CaseID) (excess int64, err error) {
	var rows []stored.ReceiptRow
	if err := r.readDB.SelectContext(ctx, &rows, breachReceiptsSQL, tenant, caseID.String()); err != nil {
		return 0, pg.Unavailable(err)
	}
	for i := range rows {
		receipt := rows[i].Receipt()
		p, err := receipt.Payload()
		if err != nil {
			return 0, err
		}
		excess += p.Excess
	}
	return excess, nil
}

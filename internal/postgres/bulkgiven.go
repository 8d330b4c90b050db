package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

const insertGivenItemsSQL = `INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency, gate)
SELECT $1, * FROM unnest($2::bigint[], $3::uuid[], $4::uuid[], $5::bigint[], $6::bytea[], $7::bigint[], $8::text[], $9::text[])`

// CreateBulkPlanOf stores a plan with the items that it is given; these are nothing until the plan
// itself is stored, with its receipt. Their heads are what the caller saw: an item whose case has moved since is not acted on. All of them
// are of settlements.
func (j *Journal) CreateBulkPlanOf(ctx context.Context, b BulkPlan, items []BulkItem, staleBefore time.Time) (BulkPlan, error) {
	if err := j.deleteStalePlan(ctx, b.Tenant, staleBefore, b.PlannedAt); err != nil {
		return b, unavailable(err)
	}
	builder := planBuilder{bulk: b.ID, items: int64(len(items)), hasSettlements: true, counts: map[[2]string]BulkCount{}}
	c := newColumns(8, len(items))
	for i := range items {
		item := &items[i]
		c.int(item.Position)
		c.id(item.Run)
		c.id(item.Case)
		c.int(item.Head.Seq)
		c.bytes(item.Head.Link[:])
		c.int(item.Amount)
		c.str(item.Currency)
		c.str(item.Gate)
		builder.addCount(item.Gate, &PlannedLetter{Amount: item.Amount, Case: Case{Kind: KindSettlement, Currency: item.Currency}})
	}
	b.Items, b.State, b.OutcomesKnown, b.HasSettlements = builder.items, BulkPlanned, true, true
	err := j.inTx(ctx, j.searchDB, failpoint.BulkItems, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, insertGivenItemsSQL, append([]any{b.ID}, c.args()...)...); err != nil {
			return err
		}
		return builder.insertCounts(ctx, tx, &b)
	})
	if err != nil {
		return b, err
	}
	return b, j.insertBulkPlan(ctx, &b)
}

package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

const givenSQL = `INSERT INTO recourse.bulk_items (bulk_id, position, run_id, case_id, seq, link, amount, currency, gate)
SELECT $1, * FROM unnest($2::bigint[], $3::uuid[], $4::uuid[], $5::bigint[], $6::bytea[], $7::bigint[], $8::text[], $9::text[])`

// PlanGiven stores a plan with the items that it is given; these are nothing until the plan
// itself is stored, with its receipt. Their heads are what the caller saw: an item whose case has moved since is not acted on. All of them
// are of settlements.
func (j *Journal) PlanGiven(ctx context.Context, b Bulk, items []BulkItem, outdated time.Time) (Bulk, error) {
	if err := j.forgetPlans(ctx, b.Tenant, outdated, b.PlannedAt); err != nil {
		return b, unavailable(err)
	}
	p := planning{bulk: b.ID, items: int64(len(items)), settles: true, counts: map[[2]string]BulkCount{}}
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
		p.count(item.Gate, &PlannedLetter{Amount: item.Amount, Case: Case{Kind: KindSettlement, Currency: item.Currency}})
	}
	b.Items, b.State, b.Settled, b.Settles = p.items, BulkPlanned, true, true
	err := j.inTx(ctx, j.finding, failpoint.BulkItems, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, givenSQL, append([]any{b.ID}, c.args()...)...); err != nil {
			return err
		}
		return p.end(ctx, tx, &b)
	})
	if err != nil {
		return b, err
	}
	return b, j.keepPlan(ctx, &b)
}

package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lib/pq"
)

// Where most messages of shapes are to be looked at, they are read in the order in
// which they lie: in any other, each is read from another page.

// randomReadCost is how many messages are read in that order in the time of one elsewhere.
const randomReadCost = 6

// scansMessages reports whether all messages of shapes are looked at.
func (p *searchPlan) scansMessages() bool { return p.path == byFacet && p.checksText() }

// heapOrderSQL lets a transaction read letters in the order in which they lie, or no more.
const heapOrderSQL = `SELECT set_config('enable_bitmapscan', $1, true), set_config('enable_indexscan', $2, true), set_config('enable_indexonlyscan', $2, true)`

// inHeapOrder runs a query of the plan. One that looks at all messages reads them in the
// order in which they lie: in any other, each would be read from another page.
func (p *searchPlan) inHeapOrder(ctx context.Context, tx *sql.Tx, run func() error) error {
	if !p.scansMessages() {
		return run()
	}
	if _, err := tx.ExecContext(ctx, heapOrderSQL, "on", "off"); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, heapOrderSQL, "off", "on")
	return err
}

// heapScanConditions restricts l as restrictToPlan does, in a way that shapes alone lead to: they are of
// the tenant.
func (p *searchPlan) heapScanConditions(c *conditions) {
	ids := make([]int64, len(p.groups))
	for i, s := range p.groups {
		ids[i] = s.id
	}
	c.add("l.shape = ANY(?::bigint[])", pq.Array(ids))
	p.restrictToText(c, "l.error_text")
	p.restrictToDeathBounds(c)
	p.filter.addRanges(c)
}

// matchesAreRare reports whether so few were found in a glance that to go on until all that are
// wanted are found costs more than to look at all.
func (p *searchPlan) matchesAreRare(found, wanted int) bool {
	return randomReadCost*int64(wanted)*maxScanMessages/int64(found+1) >= p.estimate()
}

// findByHeapScan finds places among all messages.
func (j *Journal) findByHeapScan(ctx context.Context, p searchPlan, after LetterPosition, limit int) (found []LetterPosition, err error) {
	tx, err := j.searchDB.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	p.path = byFacet
	var c conditions
	p.heapScanConditions(&c)
	p.restrictToRange(&c)
	p.restrictAfter(&c, after)
	column := string(p.order.Column)
	query := `SELECT l.run_id, l.` + column + ` AS value FROM recourse.letters l WHERE ` + c.String() + p.order.orderByLimit("value", "run_id", limit)
	err = p.inHeapOrder(ctx, tx, func() error {
		found, err = queryPositions(ctx, tx, query, c.args)
		return err
	})
	return found, err
}

package postgres

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lib/pq"
)

// Where most messages of shapes are to be looked at, they are read in the order in
// which they lie: in any other, each is read from another page.

// scatter is how many messages are read in that order in the time of one elsewhere.
const scatter = 6

// looksAtAll reports whether all messages of shapes are looked at.
func (p *letterPlan) looksAtAll() bool { return p.way == byShapes && p.checks() }

// lieSQL lets a transaction read letters in the order in which they lie, or no more.
const lieSQL = `SELECT set_config('enable_bitmapscan', $1, true), set_config('enable_indexscan', $2, true), set_config('enable_indexonlyscan', $2, true)`

// looking runs a query of the plan. One that looks at all messages reads them in the
// order in which they lie: in any other, each would be read from another page.
func (p *letterPlan) looking(ctx context.Context, tx *sql.Tx, run func() error) error {
	if !p.looksAtAll() {
		return run()
	}
	if _, err := tx.ExecContext(ctx, lieSQL, "on", "off"); err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, lieSQL, "off", "on")
	return err
}

// lying restricts l as ofTenant does, in a way that shapes alone lead to: they are of
// the tenant.
func (p *letterPlan) lying(c *conditions) {
	ids := make([]int64, len(p.shapes))
	for i, s := range p.shapes {
		ids[i] = s.id
	}
	c.add("l.shape = ANY(?::bigint[])", pq.Array(ids))
	p.ofText(c, "l.error_text")
	p.beforeEnds(c)
	p.filter.rest(c)
}

// rare reports whether so few were found in a glance that to go on until all that are
// wanted are found costs more than to look at all.
func (p *letterPlan) rare(found, wanted int) bool {
	return scatter*int64(wanted)*glanceMost/int64(found+1) >= p.left()
}

// placesLying finds places among all messages.
func (j *Journal) placesLying(ctx context.Context, p letterPlan, after LetterPlace, limit int) (found []LetterPlace, err error) {
	tx, err := j.finding.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	p.way = byShapes
	var c conditions
	p.lying(&c)
	p.bound(&c)
	p.after(&c, after)
	column := string(p.order.Column)
	query := `SELECT l.run_id, l.` + column + ` AS value FROM recourse.letters l WHERE ` + c.String() + p.order.ends("value", "run_id", limit)
	err = p.looking(ctx, tx, func() error {
		found, err = placesOf(ctx, tx, query, c.args)
		return err
	})
	return found, err
}

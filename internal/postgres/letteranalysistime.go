package postgres

import (
	"context"
	"database/sql"
	"time"
)

// Deaths asks how many letters died between each of the edges, which rise, and the
// next: at or after the one and before the other.
type Deaths struct {
	Filter LetterFilter
	Edges  []time.Time
	Counts []int64 // the answer, one fewer than edges
}

func (d *Deaths) count(ctx context.Context, tx *sql.Tx, tenant string) error {
	d.Counts = make([]int64, len(d.Edges)-1)
	f := d.Filter
	if first := d.Edges[0]; f.DeadFrom.Before(first) {
		f.DeadFrom = first
	}
	if last := d.Edges[len(d.Edges)-1]; f.DeadTo.IsZero() || f.DeadTo.After(last) {
		f.DeadTo = last
	}
	p, err := reading(ctx, tx, tenant, f)
	if err != nil || p.nothing() {
		return err
	}
	query, args := p.between(d.Edges)
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var bucket int
		var n int64
		if err := rows.Scan(&bucket, &n); err != nil {
			return err
		}
		d.Counts[bucket-1] += n
	}
	return rows.Err()
}

// between is the count as SQL. All letters of a tenant are read in the order of their
// death, those of some shapes shape by shape.
func (p *letterPlan) between(edges []time.Time) (string, []any) {
	var c conditions
	times := newColumns(1, len(edges))
	for _, e := range edges {
		times.time(e)
	}
	bucket := `width_bucket(l.dead_at, ` + c.arg(times.args()[0]) + `::timestamptz[])`
	switch {
	case p.way == byKey || p.way == byRange:
		return p.gathered(&c) + ` SELECT ` + bucket + `, count(*) FROM g l GROUP BY 1`, c.args
	case p.all && !p.checks() && !p.bounded():
		p.ofTenant(&c)
		return `SELECT ` + bucket + `, count(*) FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY 1`, c.args
	}
	of := p.ofShapes(&c)
	return `SELECT m.bucket, sum(m.n) FROM ` + of + ` CROSS JOIN LATERAL (SELECT ` + bucket + `, count(*) FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY 1) AS m(bucket, n) GROUP BY 1`, c.args
}

package postgres

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

// DeathHistogram asks how many of the letters that are analysed died between each of the
// edges, which rise, and the next: at or after the one and before the other.
type DeathHistogram struct {
	OpenOnly bool // only those that are open
	Edges    []time.Time
	Counts   []int64 // the answer, one fewer than edges
}

// count counts letters that a plan to read all of them selects.
func (d *DeathHistogram) count(ctx context.Context, tx *sql.Tx, p searchPlan) (err error) {
	d.Counts = make([]int64, len(d.Edges)-1)
	if p.empty() {
		return nil
	}
	if first := d.Edges[0]; p.filter.DeadFrom.Before(first) {
		p.filter.DeadFrom = first
	}
	if last := d.Edges[len(d.Edges)-1]; p.filter.DeadTo.IsZero() || p.filter.DeadTo.After(last) {
		p.filter.DeadTo = last
	}
	if d.OpenOnly {
		p.groups = slices.DeleteFunc(slices.Clone(p.groups), func(s facetGroup) bool { return s.status != "open" })
		p.allGroups = false
		if p.empty() {
			return nil
		}
	}
	if p.path != byKey {
		sizes, err := p.probeRanges(ctx, tx)
		if err != nil {
			return err
		}
		p.chooseSmallest(sizes)
	}
	query, args := p.histogramStatement(d.Edges)
	return p.inHeapOrder(ctx, tx, func() error {
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
	})
}

// histogramStatement is the count as SQL. All letters of a tenant are read in the order of their
// death, those of some shapes shape by shape.
func (p *searchPlan) histogramStatement(edges []time.Time) (string, []any) {
	var c conditions
	times := newColumns(1, len(edges))
	for _, e := range edges {
		times.time(e)
	}
	bucket := `width_bucket(l.dead_at, ` + c.arg(times.args()[0]) + `::timestamptz[])`
	switch {
	case p.path == byKey || p.path == byRange:
		return p.matchesCTE(&c) + ` SELECT ` + bucket + `, count(*) FROM g l GROUP BY 1`, c.args
	case p.allGroups && !p.checksText() && !p.hasDeathBounds():
		p.restrictToPlan(&c)
		return `SELECT ` + bucket + `, count(*) FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY 1`, c.args
	case p.scansMessages():
		p.heapScanConditions(&c)
		return `SELECT ` + bucket + `, count(*) FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY 1`, c.args
	}
	table := p.joinGroups(&c)
	return `SELECT m.bucket, sum(m.n) FROM ` + table + ` CROSS JOIN LATERAL (SELECT ` + bucket + `, count(*) FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY 1) AS m(bucket, n) GROUP BY 1`, c.args
}

package search

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// Group is the letters of one signature that a filter selects.
type Group struct {
	Signature string
	ErrorType string
	Letters   int64
	Tallies   []Tally   // by facet group
	First     time.Time // oldest death
	Last      time.Time // newest death
	Sample    background.RunID

	orderValue int64
}

// GroupOrder is an order of groups; equal ones are ordered by signature.
type GroupOrder string

// The orders.
const (
	BySize      GroupOrder = "size"      // largest first
	ByNewest    GroupOrder = "newest"    // newest death first
	BySignature GroupOrder = "signature" // by signature alone
)

// GroupCursor is where the next page begins in an order of groups; the zero cursor is before all.
type GroupCursor struct {
	Value     int64
	Signature string
	Set       bool // false: before all
}

func (g *Group) position() GroupCursor { return GroupCursor{g.orderValue, g.Signature, true} }

func (p GroupCursor) compare(q GroupCursor) int {
	return cmp.Or(cmp.Compare(q.Value, p.Value), cmp.Compare(p.Signature, q.Signature))
}

// Groups groups the letters of a tenant that a filter selects by signature. It
// returns the groups after a position, all as of one moment; the number of all groups; the
// position of the last one; and whether more follow.
func (i *Index) Groups(ctx context.Context, tenant string, f Filter, o GroupOrder, after GroupCursor, limit int) (found []Group, all int, last GroupCursor, more bool, err error) {
	last = after
	err = i.inReadSnapshot(ctx, tenant, func(ctx context.Context, tx *sql.Tx) error {
		p, tallies, err := tallyGroups(ctx, tx, tenant, f)
		if err != nil {
			return err
		}
		groups := groupBySignature(tallies)
		all = len(groups)
		if o == ByNewest {
			if err := p.setDeathTimes(ctx, tx, groups); err != nil {
				return err
			}
		}
		for n := range groups {
			switch o {
			case BySize:
				groups[n].orderValue = groups[n].Letters
			case ByNewest:
				groups[n].orderValue = groups[n].Last.UnixMicro()
			}
		}
		slices.SortFunc(groups, func(a, b Group) int { return a.position().compare(b.position()) })
		if after.Set {
			groups = slices.DeleteFunc(groups, func(g Group) bool { return g.position().compare(after) <= 0 })
		}
		if more = len(groups) > limit; more {
			groups = groups[:limit]
		}
		if len(groups) > 0 {
			last = groups[len(groups)-1].position()
		}
		found = groups
		if o == ByNewest {
			return nil
		}
		return p.setDeathTimes(ctx, tx, found)
	})
	return found, all, last, more, err
}

func groupBySignature(tallies []Tally) []Group {
	slices.SortFunc(tallies, func(a, b Tally) int { return cmp.Compare(a.Signature, b.Signature) })
	var out []Group
	for _, t := range tallies {
		if n := len(out); n == 0 || out[n-1].Signature != t.Signature {
			out = append(out, Group{Signature: t.Signature, ErrorType: t.ErrorType})
		}
		g := &out[len(out)-1]
		g.Letters += t.Letters
		g.Tallies = append(g.Tallies, t)
	}
	return out
}

// setDeathTimes sets the first and last death of groups, and the run that died last as
// sample.
func (p *AccessPlan) setDeathTimes(ctx context.Context, tx *sql.Tx, groups []Group) error {
	byGroup := map[int64]*Group{}
	for i := range groups {
		for _, t := range groups[i].Tallies {
			byGroup[t.group] = &groups[i]
		}
	}
	sub := *p
	sub.groups = slices.DeleteFunc(slices.Clone(p.groups), func(s facetGroup) bool { return byGroup[s.id] == nil })
	if sub.Empty() || len(sub.groups) == 0 {
		return nil
	}
	sub.allGroups = sub.allGroups && len(sub.groups) == len(p.groups)
	query, args := sub.deathTimesStatement()
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var group int64
		var first, last time.Time
		var run uuid.UUID
		if err := rows.Scan(&group, &first, &last, &run); err != nil {
			return err
		}
		g := byGroup[group]
		if g.First.IsZero() || first.Before(g.First) {
			g.First = first.UTC()
		}
		if last.After(g.Last) || last.Equal(g.Last) && background.RunID(run).String() > g.Sample.String() {
			g.Last, g.Sample = last.UTC(), background.RunID(run)
		}
	}
	return rows.Err()
}

func (p *AccessPlan) deathTimesStatement() (string, []any) {
	var c conditions
	if p.path != byFacet {
		return p.matchesCTE(&c) + ` SELECT facet_group, min(dead_at), max(dead_at), (array_agg(run_id ORDER BY dead_at DESC, run_id DESC))[1] FROM g GROUP BY facet_group`, c.args
	}
	table := p.joinGroups(&c)
	where := c.String()
	return `SELECT s.id, a.dead_at, z.dead_at, z.run_id FROM ` + table + `
  CROSS JOIN LATERAL (SELECT l.dead_at FROM recourse.letters l WHERE ` + where + ` ORDER BY l.dead_at, l.run_id LIMIT 1) a
  CROSS JOIN LATERAL (SELECT l.dead_at, l.run_id FROM recourse.letters l WHERE ` + where + ` ORDER BY l.dead_at DESC, l.run_id DESC LIMIT 1) z`, c.args
}

// DeathHistogram counts the deaths among the analysed letters between consecutive edges,
// which rise: at or after one and before the next.
type DeathHistogram struct {
	OpenOnly bool // only those that are open
	Edges    []time.Time
	Counts   []int64 // result, one fewer than edges
}

// count fills Counts from the letters that a plan to read all of them selects.
func (d *DeathHistogram) count(ctx context.Context, tx *sql.Tx, p AccessPlan) (err error) {
	d.Counts = make([]int64, len(d.Edges)-1)
	if p.Empty() {
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
		if p.Empty() {
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

// histogramStatement returns the SQL of the histogram. All letters of a tenant are read in
// order of death, those of some groups group by group.
func (p *AccessPlan) histogramStatement(edges []time.Time) (string, []any) {
	var c conditions
	times := pg.NewTextColumns(1, len(edges))
	for _, e := range edges {
		times.Time(e)
	}
	bucket := `width_bucket(l.dead_at, ` + c.arg(times.Args()[0]) + `::timestamptz[])`
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

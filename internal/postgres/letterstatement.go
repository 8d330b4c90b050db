package postgres

import (
	"slices"
	"strconv"

	"github.com/lib/pq"
)

// statement is the search as SQL: runs with the value of the order's column.
func (p *letterPlan) statement(after LetterPlace, limit int) (string, []any) {
	var c conditions
	column, ends := string(p.order.Column), p.order.ends("value", "run_id", limit)
	list := `SELECT l.run_id, l.` + column + ` AS value FROM recourse.letters l`
	if p.way == byShapes || p.way == merging {
		of := p.ofShapes(&c)
		p.bound(&c)
		p.after(&c, after)
		if p.way == merging {
			return p.merged(of, list+` WHERE `+c.String(), limit), c.args
		}
		return `SELECT m.* FROM ` + of + ` CROSS JOIN LATERAL (` + list + ` WHERE ` + c.String() + ` OFFSET 0) m` + ends, c.args
	}
	p.ofTenant(&c)
	p.bound(&c)
	p.after(&c, after)
	switch p.way {
	case walking:
		return list + ` WHERE ` + c.String() + p.order.ends("l."+column, "l.run_id", limit), c.args
	case byRange:
		return `SELECT * FROM (` + list + ` WHERE ` + c.String() + ` ORDER BY l.` + string(p.column) + ` OFFSET 0) g` + ends, c.args
	}
	return `WITH g AS MATERIALIZED (` + list + ` WHERE ` + c.String() + `) SELECT * FROM g` + ends, c.args
}

// ends sorts and cuts what is found.
func (o LetterOrder) ends(column, run string, limit int) string {
	direction := ""
	if o.Descending {
		direction = " DESC"
	}
	return ` ORDER BY ` + column + direction + `, ` + run + direction + ` LIMIT ` + strconv.Itoa(limit)
}

// merged looks for the first of each shape, and for what follows only in the shapes
// whose first are among the first: no further than the last of these, for as many
// come before that.
func (p *letterPlan) merged(of, list string, limit int) string {
	column := string(p.order.Column)
	ends, own := p.order.ends("value", "run_id", limit), func(n int) string { return p.order.ends("l."+column, "l.run_id", n) }
	last, sign, furthest, run := ` ORDER BY value, run_id LIMIT 1`, ` >= `, `'-infinity'::timestamptz`, `'00000000-0000-0000-0000-000000000000'::uuid`
	if !p.order.Descending {
		last, sign, furthest, run = ` ORDER BY value DESC, run_id DESC LIMIT 1`, ` <= `, `'infinity'::timestamptz`, `'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid`
	}
	if !p.order.Column.isTime() {
		furthest = map[bool]string{true: `'-9223372036854775808'::bigint`, false: `9223372036854775807`}[p.order.Descending]
	}
	return `WITH f AS MATERIALIZED (SELECT s.*, m.run_id, m.value FROM ` + of + ` CROSS JOIN LATERAL (` + list + own(1) + `) m),
b AS MATERIALIZED (SELECT * FROM f` + ends + `),
z AS MATERIALIZED (SELECT value, run_id FROM b WHERE (SELECT count(*) FROM b) >= ` + strconv.Itoa(limit) + last + `)
SELECT m.* FROM b s CROSS JOIN LATERAL (` + list + ` AND (l.` + column + `, l.run_id)` + sign +
		`(coalesce((SELECT value FROM z), ` + furthest + `), coalesce((SELECT run_id FROM z), ` + run + `))` + own(limit) + `) m` + ends
}

// glance is a walk that is given up after so many entries, as SQL. Messages are read
// only of letters that have all else, and not many.
func (p *letterPlan) glance(after LetterPlace, limit int) (string, []any) {
	var c conditions
	c.add("l.tenant = ?", p.tenant)
	if slices.Contains(p.filter.ranged(), p.order.Column) {
		p.filter.within(&c, p.order.Column)
	}
	p.bound(&c)
	p.after(&c, after)
	column := "l." + string(p.order.Column)
	entries := `SELECT l.tenant, l.run_id, l.shape, l.dead_at, l.last_seen_at, l.amount, l.attempts, l.replays FROM recourse.letters l WHERE ` + c.String() + p.order.ends(column, "l.run_id", p.most)
	c.parts = nil
	if !p.checks() {
		p.ofTenant(&c)
		return `SELECT l.run_id, ` + column + ` AS value FROM (` + entries + `) l WHERE ` + c.String() + p.order.ends(column, "l.run_id", limit), c.args
	}
	alike := *p
	alike.shapes = slices.Clone(p.shapes)
	for i := range alike.shapes {
		alike.shapes[i].check = false
	}
	alike.ofTenant(&c)
	few := `SELECT l.run_id, l.shape, ` + column + ` FROM (` + entries + `) l WHERE ` + c.String() + p.order.ends(column, "l.run_id", glanceMost)
	c.parts = nil
	p.ofText(&c, "t.error_text")
	return `SELECT l.run_id, ` + column + ` AS value FROM (` + few + `) l JOIN recourse.letters t ON t.run_id = l.run_id WHERE ` + c.String() + p.order.ends(column, "l.run_id", limit), c.args
}

// count is the search as SQL that counts letters by shape.
func (p *letterPlan) count() (string, []any) {
	var c conditions
	if p.looksAtAll() {
		p.lying(&c)
		return `SELECT l.shape, count(*) FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY l.shape`, c.args
	}
	if p.way == byShapes {
		of := p.ofShapes(&c)
		return `SELECT s.id, m.n FROM ` + of + ` CROSS JOIN LATERAL (SELECT count(*) AS n FROM recourse.letters l WHERE ` + c.String() + `) m`, c.args
	}
	p.ofTenant(&c)
	ordered := ""
	if p.way == byRange {
		ordered = ` ORDER BY l.` + string(p.column)
	}
	return `WITH g AS MATERIALIZED (SELECT l.shape FROM recourse.letters l WHERE ` + c.String() + ordered + `) SELECT shape, count(*) FROM g GROUP BY shape`, c.args
}

// ofShapes restricts l to the shape s, and gives the shapes as a table s.
func (p *letterPlan) ofShapes(c *conditions) string {
	n := len(p.shapes)
	ids, checks, until := make([]int64, n), make([]bool, n), newColumns(1, n)
	for i := range p.shapes {
		s := &p.shapes[i]
		ids[i], checks[i] = s.id, s.check
		until.time(s.until)
	}
	table := `unnest(` + c.arg(pq.Array(ids)) + `::bigint[], ` + c.arg(pq.Array(checks)) + `::bool[]`
	names := `s(id, differs`
	c.parts = append(c.parts, "l.shape = s.id")
	if p.bounded() {
		table += `, ` + c.arg(until.args()[0]) + `::timestamptz[]`
		names += `, until`
		c.parts = append(c.parts, "l.dead_at <= s.until")
	}
	if p.checks() {
		c.add("(NOT s.differs OR strpos(l.error_text, ?) > 0)", p.filter.Shape.Text)
	}
	p.filter.rest(c)
	return table + `) AS ` + names + `)`
}

// ofTenant restricts l to what the plan's shapes and keys are.
func (p *letterPlan) ofTenant(c *conditions) {
	c.add("l.tenant = ?", p.tenant)
	all := make([]int64, len(p.shapes))
	for i, s := range p.shapes {
		all[i] = s.id
	}
	if !p.all {
		c.add("l.shape = ANY(?::bigint[])", pq.Array(all))
	}
	if p.checks() {
		p.ofText(c, "l.error_text")
	}
	p.beforeEnds(c)
	f := p.filter
	for _, is := range []struct{ column, value string }{{"l.transaction", f.Transaction}, {"l.submission", f.Submission}, {"l.escrow", f.Escrow}} {
		if is.value != "" {
			c.add(is.column+" = ?", is.value)
		}
	}
	if !f.Run.IsZero() {
		c.add("l.run_id = ?", f.Run.String())
	}
	if f.Bell > 0 {
		c.add("l.bell = ?", f.Bell)
	}
	f.rest(c)
}

// ofText restricts l to letters whose message contains the text.
func (p *letterPlan) ofText(c *conditions, message string) {
	var sure []int64
	for _, s := range p.shapes {
		if !s.check {
			sure = append(sure, s.id)
		}
	}
	c.add("(l.shape = ANY(?::bigint[]) OR strpos("+message+", "+c.arg(p.filter.Shape.Text)+") > 0)", pq.Array(sure))
}

// beforeEnds restricts l to what died by the ends that its shape has of its own.
func (p *letterPlan) beforeEnds(c *conditions) {
	if !p.bounded() {
		return
	}
	ids, until := make([]int64, len(p.shapes)), newColumns(1, len(p.shapes))
	for i := range p.shapes {
		ids[i] = p.shapes[i].id
		until.time(p.shapes[i].until)
	}
	c.parts = append(c.parts, "EXISTS (SELECT FROM unnest("+c.arg(pq.Array(ids))+"::bigint[], "+c.arg(until.args()[0])+"::timestamptz[]) AS s(id, until) WHERE s.id = l.shape AND l.dead_at <= s.until)")
}

// rest adds what is neither of the shape nor a key.
func (f *LetterFilter) rest(c *conditions) {
	for _, column := range f.ranged() {
		f.within(c, column)
	}
	if f.MinReplays != nil {
		c.add("l.replays >= ?", *f.MinReplays)
	}
	if f.MaxReplays != nil {
		c.add("l.replays <= ?", *f.MaxReplays)
	}
}

// within adds the range of a column.
func (f *LetterFilter) within(c *conditions, column LetterColumn) {
	least, most := f.MinAmount, f.MaxAmount
	switch column {
	case ByDeath:
		if !f.DeadFrom.IsZero() {
			c.add("l.dead_at >= ?", f.DeadFrom)
		}
		if !f.DeadTo.IsZero() {
			c.add("l.dead_at < ?", f.DeadTo)
		}
		return
	case ByAttempts:
		least, most = f.MinAttempts, f.MaxAttempts
	}
	if least != nil {
		c.add("l."+string(column)+" >= ?", *least)
	}
	if most != nil {
		c.add("l."+string(column)+" <= ?", *most)
	}
}

// after adds the place that the letters come behind.
func (p *letterPlan) after(c *conditions, place LetterPlace) {
	if place.Run.IsZero() {
		return
	}
	sign := " > ("
	if p.order.Descending {
		sign = " < ("
	}
	c.parts = append(c.parts, "(l."+string(p.order.Column)+", l.run_id)"+sign+c.arg(p.order.value(place.Value))+", "+c.arg(place.Run.String())+")")
}

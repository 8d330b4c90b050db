package postgres

import (
	"strconv"
	"time"

	"github.com/lib/pq"
)

// statement is the search as SQL: runs with the value of the order's column.
func (p *letterPlan) statement(after LetterPlace, limit int) (string, []any) {
	var c conditions
	direction := ""
	if p.order.Descending {
		direction = " DESC"
	}
	column := string(p.order.Column)
	ends := ` ORDER BY value` + direction + `, run_id` + direction + ` LIMIT ` + strconv.Itoa(limit)
	ordered := ` ORDER BY l.` + column + direction + `, l.run_id` + direction + ` LIMIT ` + strconv.Itoa(limit)
	list := `SELECT l.run_id, l.` + column + ` AS value FROM recourse.letters l`
	if p.way == byShapes || p.way == merging {
		of := p.ofShapes(&c)
		p.after(&c, after)
		if p.way == merging {
			return `SELECT m.* FROM ` + of + ` CROSS JOIN LATERAL (` + list + ` WHERE ` + c.String() + ordered + `) m` + ends, c.args
		}
		return `WITH g AS MATERIALIZED (SELECT m.* FROM ` + of + ` CROSS JOIN LATERAL (` + list + ` WHERE ` + c.String() + ` OFFSET 0) m) SELECT * FROM g` + ends, c.args
	}
	p.ofTenant(&c)
	p.after(&c, after)
	switch p.way {
	case walking:
		return list + ` WHERE ` + c.String() + ordered, c.args
	case byRange:
		return `WITH g AS MATERIALIZED (` + list + ` WHERE ` + c.String() + ` ORDER BY l.` + string(p.column) + `) SELECT * FROM g` + ends, c.args
	}
	return `WITH g AS MATERIALIZED (` + list + ` WHERE ` + c.String() + `) SELECT * FROM g` + ends, c.args
}

// count is the search as SQL that counts letters by shape.
func (p *letterPlan) count() (string, []any) {
	var c conditions
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
	var all, sure []int64
	for _, s := range p.shapes {
		all = append(all, s.id)
		if !s.check {
			sure = append(sure, s.id)
		}
	}
	if !p.all {
		c.add("l.shape = ANY(?::bigint[])", pq.Array(all))
	}
	if p.checks() {
		c.add("(l.shape = ANY(?::bigint[])", pq.Array(sure))
		last := len(c.parts) - 1
		c.parts[last] += " OR strpos(l.error_text, " + c.arg(p.filter.Shape.Text) + ") > 0)"
	}
	if p.bounded() {
		var own conditions
		own.args = c.args
		table := (&letterPlan{shapes: p.shapes}).ofShapes(&own)
		c.args = own.args
		c.parts = append(c.parts, "EXISTS (SELECT FROM "+table+" WHERE "+own.String()+")")
	}
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
	var value any = place.Value
	if p.order.Column.isTime() {
		value = time.UnixMicro(place.Value).UTC()
	}
	c.parts = append(c.parts, "(l."+string(p.order.Column)+", l.run_id)"+sign+c.arg(value)+", "+c.arg(place.Run.String())+")")
}

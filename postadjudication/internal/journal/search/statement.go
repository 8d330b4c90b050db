package search

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// If most messages of the groups have to be checked, they are read in heap order: in any
// other order each read is of another page.

// randomReadCost is the number of messages read in heap order in the time of one random
// read.
const randomReadCost = 6

// scansMessages reports whether all messages of the groups are checked.
func (p *AccessPlan) scansMessages() bool { return p.path == byFacet && p.checksText() }

// heapOrderSQL turns heap order on or off for a transaction: bitmap scans instead of index
// scans.
const heapOrderSQL = `SELECT set_config('enable_bitmapscan', $1, true), set_config('enable_indexscan', $2, true), set_config('enable_indexonlyscan', $2, true)`

// inHeapOrder runs a query of the plan; one that checks all messages reads them in heap
// order.
func (p *AccessPlan) inHeapOrder(ctx context.Context, tx *sql.Tx, run func() error) error {
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

// heapScanConditions restricts l like restrictToPlan, with conditions that use the index on
// groups only; groups imply the tenant.
func (sel *selection) heapScanConditions(c *conditions) {
	c.add("l.facet_group = ANY(?::bigint[])", pq.Array(sel.groupIDs()))
	sel.restrictToText(c, "l.error_text")
	sel.restrictToDeathBounds(c)
	sel.filter.addRanges(c)
}

// matchesAreRare reports whether a scan found so few that continuing it until enough are
// found costs more than checking all messages.
func (p *AccessPlan) matchesAreRare(found, wanted int) bool {
	return randomReadCost*int64(wanted)*maxScanMessages/int64(found+1) >= p.estimate()
}

// findByHeapScan finds positions by checking all messages in heap order.
func findByHeapScan(ctx context.Context, tx *sql.Tx, p AccessPlan, after Position, limit int) (found []Position, err error) {
	p.path = byFacet
	query, args := p.heapScanStatement(after, limit)
	err = p.inHeapOrder(ctx, tx, func() error {
		found, err = queryPositions(ctx, tx, query, args)
		return err
	})
	return found, err
}

// heapScanStatement returns the SQL of a search that checks all messages.
func (p *AccessPlan) heapScanStatement(after Position, limit int) (string, []any) {
	var c conditions
	p.heapScanConditions(&c)
	p.restrictToRange(&c)
	p.restrictAfter(&c, after)
	return `SELECT l.run_id, l.` + string(p.order.Column) + ` AS value FROM recourse.letters l WHERE ` + c.String() + p.order.orderByLimit("value", "run_id", limit), c.args
}

// Statement returns the SQL of the search: runs with the value of the order's column.
func (p *AccessPlan) Statement(after Position, limit int) (string, []any) {
	var c conditions
	column, ends := string(p.order.Column), p.order.orderByLimit("value", "run_id", limit)
	list := `SELECT l.run_id, l.` + column + ` AS value FROM recourse.letters l`
	if p.path == byFacet || p.path == kWayMerge {
		table := p.joinGroups(&c)
		p.restrictToRange(&c)
		p.restrictAfter(&c, after)
		if p.path == kWayMerge {
			return p.mergeStatement(table, list+` WHERE `+c.String(), limit), c.args
		}
		return `SELECT m.* FROM ` + table + ` CROSS JOIN LATERAL (` + list + ` WHERE ` + c.String() + ` OFFSET 0) m` + ends, c.args
	}
	p.restrictToPlan(&c)
	p.restrictToRange(&c)
	p.restrictAfter(&c, after)
	switch p.path {
	case orderedScan:
		return list + ` WHERE ` + c.String() + p.order.orderByLimit("l."+column, "l.run_id", limit), c.args
	case byRange:
		return `SELECT * FROM (` + list + ` WHERE ` + c.String() + ` ORDER BY l.` + string(p.column) + ` OFFSET 0) g` + ends, c.args
	}
	return `WITH g AS MATERIALIZED (` + list + ` WHERE ` + c.String() + `) SELECT * FROM g` + ends, c.args
}

// orderByLimit returns the ORDER BY and LIMIT clauses.
func (o Order) orderByLimit(column, run string, limit int) string {
	direction := ""
	if o.Descending {
		direction = " DESC"
	}
	return ` ORDER BY ` + column + direction + `, ` + run + direction + ` LIMIT ` + strconv.Itoa(limit)
}

// mergeStatement reads the first match of each group. Then it reads further only in the
// groups whose first matches are among the first limit, and no further than the last of
// these: at least limit matches come before that.
func (p *AccessPlan) mergeStatement(table, list string, limit int) string {
	column := string(p.order.Column)
	ends, groupEnds := p.order.orderByLimit("value", "run_id", limit), func(n int) string { return p.order.orderByLimit("l."+column, "l.run_id", n) }
	last, sign, furthest, run := ` ORDER BY value, run_id LIMIT 1`, ` >= `, `'-infinity'::timestamptz`, `'00000000-0000-0000-0000-000000000000'::uuid`
	if !p.order.Descending {
		last, sign, furthest, run = ` ORDER BY value DESC, run_id DESC LIMIT 1`, ` <= `, `'infinity'::timestamptz`, `'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid`
	}
	if !p.order.Column.isTime() {
		furthest = map[bool]string{true: `'-9223372036854775808'::bigint`, false: `9223372036854775807`}[p.order.Descending]
	}
	return `WITH f AS MATERIALIZED (SELECT s.*, m.run_id, m.value FROM ` + table + ` CROSS JOIN LATERAL (` + list + groupEnds(1) + `) m),
b AS MATERIALIZED (SELECT * FROM f` + ends + `),
z AS MATERIALIZED (SELECT value, run_id FROM b WHERE (SELECT count(*) FROM b) >= ` + strconv.Itoa(limit) + last + `)
SELECT m.* FROM b s CROSS JOIN LATERAL (` + list + ` AND (l.` + column + `, l.run_id)` + sign +
		`(coalesce((SELECT value FROM z), ` + furthest + `), coalesce((SELECT run_id FROM z), ` + run + `))` + groupEnds(limit) + `) m` + ends
}

// boundedScanStatement returns the SQL of an ordered scan that gives up after scanLimit
// entries. It reads the messages only of letters that meet all other conditions, at most
// maxScanMessages.
func (p *AccessPlan) boundedScanStatement(after Position, limit int) (string, []any) {
	var c conditions
	c.add("l.tenant = ?", p.tenant)
	if slices.Contains(p.filter.rangedColumns(), p.order.Column) {
		p.filter.addRange(&c, p.order.Column)
	}
	p.restrictToRange(&c)
	p.restrictAfter(&c, after)
	column := "l." + string(p.order.Column)
	entries := `SELECT l.tenant, l.run_id, l.facet_group, l.dead_at, l.last_seen_at, l.amount, l.attempts, l.replays FROM recourse.letters l WHERE ` + c.String() + p.order.orderByLimit(column, "l.run_id", p.scanLimit)
	c.parts = nil
	if !p.checksText() {
		p.restrictToPlan(&c)
		return `SELECT l.run_id, ` + column + ` AS value FROM (` + entries + `) l WHERE ` + c.String() + p.order.orderByLimit(column, "l.run_id", limit), c.args
	}
	withoutText := *p
	withoutText.groups = slices.Clone(p.groups)
	for i := range withoutText.groups {
		withoutText.groups[i].checkText = false
	}
	withoutText.restrictToPlan(&c)
	candidates := `SELECT l.run_id, l.facet_group, ` + column + ` FROM (` + entries + `) l WHERE ` + c.String() + p.order.orderByLimit(column, "l.run_id", maxScanMessages)
	c.parts = nil
	p.restrictToText(&c, "t.error_text")
	return `SELECT l.run_id, ` + column + ` AS value FROM (` + candidates + `) l JOIN recourse.letters t ON t.run_id = l.run_id WHERE ` + c.String() + p.order.orderByLimit(column, "l.run_id", limit), c.args
}

// joinGroups restricts l to the group s, and returns the groups as a table s.
func (sel *selection) joinGroups(c *conditions) string {
	n := len(sel.groups)
	ids, checks, until := make([]int64, n), make([]bool, n), pg.NewTextColumns(1, n)
	for i := range sel.groups {
		s := &sel.groups[i]
		ids[i], checks[i] = s.id, s.checkText
		until.Time(s.diedBy)
	}
	table := `unnest(` + c.arg(pq.Array(ids)) + `::bigint[], ` + c.arg(pq.Array(checks)) + `::bool[]`
	names := `s(id, differs`
	c.parts = append(c.parts, "l.facet_group = s.id")
	if sel.hasDeathBounds() {
		table += `, ` + c.arg(until.Args()[0]) + `::timestamptz[]`
		names += `, until`
		c.parts = append(c.parts, "l.dead_at <= s.until")
	}
	if sel.checksText() {
		c.add("(NOT s.differs OR strpos(l.error_text, ?) > 0)", sel.filter.Facets.Text)
	}
	sel.filter.addRanges(c)
	return table + `) AS ` + names + `)`
}

// restrictToPlan restricts l to the plan's groups and keys.
func (sel *selection) restrictToPlan(c *conditions) {
	c.add("l.tenant = ?", sel.tenant)
	if !sel.allGroups {
		c.add("l.facet_group = ANY(?::bigint[])", pq.Array(sel.groupIDs()))
	}
	if sel.checksText() {
		sel.restrictToText(c, "l.error_text")
	}
	sel.restrictToDeathBounds(c)
	f := sel.filter
	for _, is := range []struct{ column, value string }{{"l.transaction", f.Transaction}, {"l.submission", f.Submission}, {"l.escrow", f.Escrow}} {
		if is.value != "" {
			c.add(is.column+" = ?", is.value)
		}
	}
	if !f.Run.IsZero() {
		c.add("l.run_id = ?", f.Run.String())
	}
	if f.NotificationNumber > 0 {
		c.add("l.notification_number = ?", f.NotificationNumber)
	}
	f.addRanges(c)
}

// restrictToText restricts l to letters whose message contains the text.
func (sel *selection) restrictToText(c *conditions, message string) {
	var unchecked []int64
	for _, s := range sel.groups {
		if !s.checkText {
			unchecked = append(unchecked, s.id)
		}
	}
	c.add("(l.facet_group = ANY(?::bigint[]) OR strpos("+message+", "+c.arg(sel.filter.Facets.Text)+") > 0)", pq.Array(unchecked))
}

// restrictToDeathBounds restricts l to letters that died within the bound of their group. There are
// as many bounds as lifetimes of letters, which are few: a letter is looked up in the groups of each.
func (sel *selection) restrictToDeathBounds(c *conditions) {
	if !sel.hasDeathBounds() {
		return
	}
	groups := map[int64][]int64{} // by bound
	for i := range sel.groups {
		until := sel.groups[i].diedBy.UnixMicro()
		groups[until] = append(groups[until], sel.groups[i].id)
	}
	var within []string
	for _, until := range slices.Sorted(maps.Keys(groups)) {
		within = append(within, "l.dead_at <= "+c.arg(time.UnixMicro(until).UTC())+" AND l.facet_group = ANY("+c.arg(pq.Array(groups[until]))+"::bigint[])")
	}
	c.parts = append(c.parts, "("+strings.Join(within, " OR ")+")")
}

// addRanges adds the conditions that are neither facets nor keys.
func (f *Filter) addRanges(c *conditions) {
	for _, column := range f.rangedColumns() {
		f.addRange(c, column)
	}
	if f.MinReplays != nil {
		c.add("l.replays >= ?", *f.MinReplays)
	}
	if f.MaxReplays != nil {
		c.add("l.replays <= ?", *f.MaxReplays)
	}
}

// addRange adds the range of a column.
func (f *Filter) addRange(c *conditions, column Column) {
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

// restrictAfter restricts l to letters after a position.
func (p *AccessPlan) restrictAfter(c *conditions, position Position) {
	if position.Run.IsZero() {
		return
	}
	sign := " > ("
	if p.order.Descending {
		sign = " < ("
	}
	c.parts = append(c.parts, "(l."+string(p.order.Column)+", l.run_id)"+sign+c.arg(p.order.columnValue(position.Value))+", "+c.arg(position.Run.String())+")")
}

package postgres

import (
	"context"
	"database/sql"
	"math"
	"time"
)

// findingSettings make the server do what was chosen here: it knows nothing of how a
// filter goes with an order, and where it guesses wrong it reads everything.
var findingSettings = map[string]string{
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "enable_sort": "off",
	"enable_incremental_sort": "off", "max_parallel_workers_per_gather": "0", "jit": "off", "plan_cache_mode": "force_custom_plan",
}

// way is how letters are looked for. All give the same letters.
type way int

const (
	byKey    way = iota // all with a key that few have, then sorted
	byShapes            // all of the shapes, then sorted
	byRange             // all within the range of a column, then sorted
	merging             // in order within each shape, merged from those whose first come first
	walking             // all of the tenant in order, each looked at
)

// letterPlan is a search that was decided on.
type letterPlan struct {
	tenant string
	filter LetterFilter
	order  LetterOrder
	shapes []shape
	all    bool // all shapes are left; when nothing was asked of them they were not read
	way    way
	column LetterColumn // of byRange

	span  span                   // of the order's column, in which all that is looked for lies
	spans bool                   // that is known
	sizes map[LetterColumn]int64 // of the filter's ranges, up to probeMost
	whole int64                  // letters of the tenant; 0 while shapes were not read
	most  int                    // entries after which a walk is given up; 0 for none
	looks int                    // at messages, before that is given up
}

func (p *letterPlan) nothing() bool { return len(p.shapes) == 0 && !p.all }

// Entries of an index that a search may read are what it costs. A range that fewer
// letters are in than probeMost is worth starting from.
const (
	probeMost = 10_000
	sureMost  = 8_000 // a cost that is certain is preferred up to here
	quickWalk = 1_000
	seek      = 20 // entries that one more shape costs
	doubt     = 4  // a walk assumes that what is looked for is everywhere in the order

	walkMost   = 100_000 // where it turns out not to be, no more than this is lost,
	rangeWalk  = 30_000  // and this where shapes were not read, which may tell a better way,
	glanceMost = 1_000   // and no more than so many messages

	// What a range of another column leaves of a shape may lie behind all else of it. So
	// all is read instead, up to riskMost, unless a merge promises to be far cheaper.
	riskMost  = 200_000
	worthRisk = 10
)

// finder is what letters are looked for over: many connections, or one transaction, in
// which all is as it is at one moment.
type finder interface {
	querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// planAfter reads the shapes that a filter leaves behind a place and chooses the way.
func (j *Journal) planAfter(ctx context.Context, tenant string, f LetterFilter, o LetterOrder, after LetterPlace, limit int) (letterPlan, error) {
	return planAfter(ctx, j.finding, tenant, f, o, after, limit)
}

func planAfter(ctx context.Context, q finder, tenant string, f LetterFilter, o LetterOrder, after LetterPlace, limit int) (p letterPlan, err error) {
	p = letterPlan{tenant: tenant, filter: f, order: o, all: f.shapeless(), looks: textMost}
	if p.all {
		return p, p.planAll(ctx, q)
	}
	if err := p.readShapes(ctx, q, after); err != nil || p.nothing() {
		return p, err
	}
	if f.keyed() {
		p.way = byKey
		return p, nil
	}
	if p.sizes, err = p.probe(ctx, q); err != nil {
		return p, err
	}
	p.choose(int64(limit))
	p.orWalk(int64(limit))
	return p, nil
}

// readShapes sets the shapes that have letters behind a place.
func (j *Journal) readShapes(ctx context.Context, p *letterPlan, after LetterPlace) error {
	return p.readShapes(ctx, j.finding, after)
}

func (p *letterPlan) readShapes(ctx context.Context, q finder, after LetterPlace) (err error) {
	if p.shapes, p.whole, err = shapesOf(ctx, q, p.tenant, p.filter, p.order); err != nil {
		return err
	}
	p.all = p.letters() == p.whole
	p.fold()
	p.narrow(after)
	return nil
}

// planAll chooses the way where all shapes are left.
func (p *letterPlan) planAll(ctx context.Context, q finder) (err error) {
	if p.way = byKey; p.filter.keyed() {
		return nil
	}
	if p.sizes, err = p.probe(ctx, q); err != nil {
		return err
	}
	p.way = walking
	least := int64(probeMost)
	for column, n := range p.sizes {
		if n < least && column != p.order.Column {
			p.way, p.column, least = byRange, column, n
		}
	}
	if len(p.sizes) > 0 {
		p.most = rangeWalk
	}
	if p.order.Column != BySeen || p.filter.DeadTo.IsZero() {
		return nil
	}
	var lag int64
	err = q.QueryRowContext(ctx, `SELECT coalesce(max(coalesce(most_lag, $2)), $2) FROM recourse.letter_shapes WHERE tenant = $1 AND letters > 0`, p.tenant, int64(math.MaxInt64)).Scan(&lag)
	p.spans, p.span = true, span{math.MinInt64, p.seenUntil(&shape{lag: lag})}
	return err
}

// shapeless reports whether the filter asks nothing that is told by shapes.
func (f *LetterFilter) shapeless() bool {
	return f.Shape == (ShapeFilter{}) && !f.expires() && f.MinAmount == nil && f.MaxAmount == nil && f.MinReplays == nil && f.MaxReplays == nil
}

// fold makes an end of the time of death that all shapes share the filter's own.
func (p *letterPlan) fold() {
	if len(p.shapes) == 0 {
		return
	}
	until := p.shapes[0].until
	for _, s := range p.shapes {
		if !s.until.Equal(until) {
			return
		}
	}
	if end := until.Add(time.Microsecond); !until.IsZero() && (p.filter.DeadTo.IsZero() || end.Before(p.filter.DeadTo)) {
		p.filter.DeadTo = end
	}
	for i := range p.shapes {
		p.shapes[i].until = time.Time{}
	}
}

func (p *letterPlan) letters() (n int64) {
	for _, s := range p.shapes {
		n += s.letters
	}
	return n
}

// left guesses how many letters are to be looked at.
func (p *letterPlan) left() (n int64) {
	for i := range p.shapes {
		n += p.shapes[i].left()
	}
	return n
}

// bounded reports whether shapes have ends of the time of death of their own.
func (p *letterPlan) bounded() bool {
	for _, s := range p.shapes {
		if !s.until.IsZero() {
			return true
		}
	}
	return false
}

func (p *letterPlan) checks() bool {
	for _, s := range p.shapes {
		if s.check {
			return true
		}
	}
	return false
}

func (f *LetterFilter) keyed() bool {
	return f.Transaction != "" || f.Submission != "" || f.Escrow != "" || !f.Run.IsZero()
}

// ranged are the columns that the filter bounds and that have an order.
func (f *LetterFilter) ranged() (columns []LetterColumn) {
	if !f.DeadFrom.IsZero() || !f.DeadTo.IsZero() {
		columns = append(columns, ByDeath)
	}
	if f.MinAmount != nil || f.MaxAmount != nil {
		columns = append(columns, ByAmount)
	}
	if f.MinAttempts != nil || f.MaxAttempts != nil {
		columns = append(columns, ByAttempts)
	}
	return columns
}

func (f *LetterFilter) replayed() bool {
	return f.MinReplays != nil && *f.MinReplays > 1 || f.MaxReplays != nil && *f.MaxReplays > 0
}

// probe counts the letters within each range, up to probeMost.
func (p *letterPlan) probe(ctx context.Context, q finder) (map[LetterColumn]int64, error) {
	sizes := map[LetterColumn]int64{}
	for _, column := range p.filter.ranged() {
		var c conditions
		c.add("l.tenant = ?", p.tenant)
		p.filter.within(&c, column)
		var n int64
		query := `SELECT count(*) FROM (SELECT FROM recourse.letters l WHERE ` + c.String() + ` ORDER BY l.` + string(column) + ` LIMIT ` + c.arg(probeMost) + `) x`
		if err := q.QueryRowContext(ctx, query, c.args...).Scan(&n); err != nil {
			return nil, err
		}
		sizes[column] = n
	}
	return sizes, nil
}

// choose sets the way that is sure to read least, but for a walk.
func (p *letterPlan) choose(limit int64) {
	part := p.remainder()
	p.way = byShapes
	sure, merge, within := int64(0), limit, int64(0)
	for i := range p.shapes {
		s := &p.shapes[i]
		left := s.left()
		within += left
		n := int64(2 / part)
		if s.check {
			n *= 20
		}
		sure += seek + left
		merge += seek + min(left, n)
	}
	if !p.bounded() {
		for column, n := range p.sizes {
			if n < probeMost && n < sure {
				p.way, p.column, sure = byRange, column, n
			}
		}
		if _, ranged := p.sizes[ByDeath]; ranged && p.all && within < sure { // shapes tell how many died then, as far as they know
			p.way, p.column, sure = byRange, ByDeath, within
		}
	}
	if merge < sure && sure > quickWalk && (part == 1 || sure > riskMost || worthRisk*merge < sure) {
		p.way = merging
	}
}

// orWalk walks instead where what is looked for may be close together.
func (p *letterPlan) orWalk(limit int64) {
	sure := int64(0)
	for i := range p.shapes {
		sure += p.shapes[i].left()
	}
	if p.way == byRange {
		sure = min(sure, p.sizes[p.column])
	}
	walk := int64(doubt * float64(limit) * float64(p.whole) / (float64(p.letters()) * p.remainder()))
	if p.bounded() || walk >= sure || sure <= sureMost && walk > quickWalk {
		return
	}
	all := sure + seek*int64(len(p.shapes))
	p.way, p.most = walking, int(min(walkMost, max(quickWalk, all/2)))
}

// remainder guesses which part of the letters is left by the ranges that are not of
// the order itself.
func (p *letterPlan) remainder() float64 {
	part := 1.0
	for column, n := range p.sizes {
		switch {
		case column == p.order.Column:
		case n < probeMost:
			part *= float64(n+1) / float64(p.whole+1)
		default:
			part *= max(0.1, min(1, float64(n)/float64(p.whole)))
		}
	}
	if p.filter.replayed() {
		part *= 0.3
	}
	return part
}

package postgres

import (
	"context"
	"time"
)

// countLimit bounds a count.
const countLimit = 5 * time.Second

// CountLetters counts the letters of a tenant that a filter selects, by standing. It
// counts what letters have in common without looking at them, else those that the
// narrowest part of the filter leaves.
func (j *Journal) CountLetters(ctx context.Context, tenant string, f LetterFilter) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	p := letterPlan{tenant: tenant, filter: f}
	out := map[string]int64{}
	var all int64
	var err error
	if p.shapes, all, err = j.shapes(ctx, tenant, f); err != nil || p.nothing() {
		return out, maybeUnavailable(err)
	}
	p.fold()
	p.all = p.letters() == all
	standing := make(map[int64]string, len(p.shapes))
	for _, s := range p.shapes {
		standing[s.id] = s.standing
	}
	if len(p.filter.ranged()) == 0 && !f.keyed() && !f.replayed() && !p.checks() && !p.bounded() {
		for _, s := range p.shapes {
			out[s.standing] += s.letters
		}
		return out, nil
	}
	if p.way = byKey; !f.keyed() {
		sizes, err := j.probe(ctx, &p)
		if err != nil {
			return nil, unavailable(err)
		}
		p.narrowest(sizes)
	}
	query, args := p.count()
	rows, err := j.finding.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, n int64
		if err := rows.Scan(&id, &n); err != nil {
			return nil, unavailable(err)
		}
		if n > 0 {
			out[standing[id]] += n
		}
	}
	return out, maybeUnavailable(rows.Err())
}

// narrowest chooses what to read all of: a range, or the shapes.
func (p *letterPlan) narrowest(sizes map[LetterColumn]int64) {
	p.way = byShapes
	least := p.letters()
	for column, n := range sizes {
		if n < probeMost && n < least && !p.bounded() {
			p.way, p.column, least = byRange, column, n
		}
	}
}

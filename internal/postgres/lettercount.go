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
	p := letterPlan{tenant: tenant, filter: f, looks: textMost}
	out := map[string]int64{}
	var all int64
	var err error
	if p.shapes, all, err = shapesOf(ctx, j.finding, tenant, f, LetterOrder{}); err != nil || p.nothing() {
		return out, maybeUnavailable(err)
	}
	p.fold()
	p.all = p.letters() == all
	standing := make(map[int64]string, len(p.shapes))
	for _, s := range p.shapes {
		standing[s.id] = s.standing
	}
	found := map[int64][3]int64{}
	if p, err = p.countByText(ctx, j.finding, found); err != nil {
		return nil, unavailable(err)
	}
	for id, n := range found {
		out[standing[id]] += n[0]
	}
	if p.nothing() {
		return out, nil
	}
	if p.wholeShapes() {
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

// countByText counts what can be counted by the grams of a text, and gives the plan
// for what is left.
func (p *letterPlan) countByText(ctx context.Context, q querier, into map[int64][3]int64) (letterPlan, error) {
	mine, others, able := p.byText()
	if able {
		var err error
		if able, err = mine.counts(ctx, q, into); err != nil {
			return *p, err
		}
	}
	if !able {
		return *p, nil
	}
	return others, nil
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

package postgres

import (
	"context"
	"database/sql"
	"time"
)

// countLimit bounds a count.
const countLimit = 5 * time.Second

// CountLetters counts the letters of a tenant that a filter selects, by standing: all
// at one moment. It counts what letters have in common without looking at them, else
// those that the narrowest part of the filter leaves.
func (j *Journal) CountLetters(ctx context.Context, tenant string, f LetterFilter) (map[string]int64, error) {
	out := map[string]int64{}
	err := j.atOneMoment(ctx, func(ctx context.Context, tx *sql.Tx) error {
		p := letterPlan{tenant: tenant, filter: f, looks: textMost}
		var all int64
		var err error
		if p.shapes, all, err = shapesOf(ctx, tx, tenant, f, LetterOrder{}); err != nil || p.nothing() {
			return err
		}
		p.fold()
		p.all = p.letters() == all
		return p.countStandings(ctx, tx, out)
	})
	return out, err
}

// countStandings adds the letters of a plan's shapes that are selected, by standing.
func (p *letterPlan) countStandings(ctx context.Context, tx *sql.Tx, into map[string]int64) error {
	standing := make(map[int64]string, len(p.shapes))
	for _, s := range p.shapes {
		standing[s.id] = s.standing
	}
	found := map[int64][3]int64{}
	left, err := p.countByText(ctx, tx, found)
	if err != nil {
		return err
	}
	for id, n := range found {
		into[standing[id]] += n[0]
	}
	for _, s := range left.takeWhole() {
		into[s.standing] += s.letters
	}
	if left.nothing() {
		return nil
	}
	if left.way = byKey; !p.filter.keyed() {
		sizes, err := left.probe(ctx, tx)
		if err != nil {
			return err
		}
		left.narrowest(sizes)
	}
	query, args := left.count()
	return left.looking(ctx, tx, func() error {
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, n int64
			if err := rows.Scan(&id, &n); err != nil {
				return err
			}
			if n > 0 {
				into[standing[id]] += n
			}
		}
		return rows.Err()
	})
}

// takeWhole takes those shapes out of a plan of which all letters are selected.
func (p *letterPlan) takeWhole() (whole []shape) {
	if p.restricted() {
		return nil
	}
	var others []shape
	for _, s := range p.shapes {
		if s.check {
			others = append(others, s)
			continue
		}
		whole = append(whole, s)
	}
	p.shapes, p.all = others, p.all && len(whole) == 0
	return whole
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

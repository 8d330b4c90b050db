package postgres

import (
	"context"
	"database/sql"
	"time"
)

// countTimeout bounds a count.
const countTimeout = 5 * time.Second

// CountLetters counts the letters of a tenant that a filter selects, by standing: all
// at one moment. It counts what letters have in common without looking at them, else
// those that the narrowest part of the filter leaves.
func (j *Journal) CountLetters(ctx context.Context, tenant string, f LetterFilter) (map[string]int64, error) {
	out := map[string]int64{}
	err := j.inReadSnapshot(ctx, func(ctx context.Context, tx *sql.Tx) error {
		p := searchPlan{tenant: tenant, filter: f, textLimit: maxTextCandidates}
		var all int64
		var err error
		if p.groups, all, err = readFacetGroups(ctx, tx, tenant, f, LetterOrder{}); err != nil || p.empty() {
			return err
		}
		p.foldDeathBounds()
		p.allGroups = p.letterCount() == all
		return p.countByStatus(ctx, tx, out)
	})
	return out, err
}

// countByStatus adds the letters of a plan's shapes that are selected, by standing.
func (p *searchPlan) countByStatus(ctx context.Context, tx *sql.Tx, into map[string]int64) error {
	status := make(map[int64]string, len(p.groups))
	for _, s := range p.groups {
		status[s.id] = s.status
	}
	found := map[int64][3]int64{}
	rest, err := p.countByTrigrams(ctx, tx, found)
	if err != nil {
		return err
	}
	for id, n := range found {
		into[status[id]] += n[0]
	}
	for _, s := range rest.takeWholeGroups() {
		into[s.status] += s.letters
	}
	if rest.empty() {
		return nil
	}
	if rest.path = byKey; !p.filter.hasKey() {
		sizes, err := rest.probeRanges(ctx, tx)
		if err != nil {
			return err
		}
		rest.chooseSmallest(sizes)
	}
	query, args := rest.countStatement()
	return rest.inHeapOrder(ctx, tx, func() error {
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
				into[status[id]] += n
			}
		}
		return rows.Err()
	})
}

// takeWholeGroups takes those shapes out of a plan of which all letters are selected.
func (p *searchPlan) takeWholeGroups() (whole []facetGroup) {
	if p.filtersWithinGroups() {
		return nil
	}
	var others []facetGroup
	for _, s := range p.groups {
		if s.checkText {
			others = append(others, s)
			continue
		}
		whole = append(whole, s)
	}
	p.groups, p.allGroups = others, p.allGroups && len(whole) == 0
	return whole
}

// countByTrigrams counts what can be counted by the grams of a text, and gives the plan
// for what is left.
func (p *searchPlan) countByTrigrams(ctx context.Context, q querier, into map[int64][3]int64) (searchPlan, error) {
	indexed, others, ok := p.splitByTrigrams()
	if ok {
		var err error
		if ok, err = indexed.countByGroup(ctx, q, into); err != nil {
			return *p, err
		}
	}
	if !ok {
		return *p, nil
	}
	return others, nil
}

// chooseSmallest chooses what to read all of: a range, or the shapes.
func (p *searchPlan) chooseSmallest(sizes map[LetterColumn]int64) {
	p.path = byFacet
	least := p.letterCount()
	for column, n := range sizes {
		if n < probeLimit && n < least && !p.hasDeathBounds() {
			p.path, p.column, least = byRange, column, n
		}
	}
}

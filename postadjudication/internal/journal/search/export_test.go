package search

import (
	"context"
	"database/sql"
)

// Pools returns all connection pools by purpose.
func (i *Index) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{"projection": i.projectionDB, "search": i.searchDB}
}

// All access paths: those of plans, then an ordered scan with a low limit, and a heap scan.
const (
	AccessPaths = int(orderedScan) + 3
	ShortScan   = AccessPaths - 2
	HeapScan    = AccessPaths - 1
)

// ChosenPath selects the path that the plan chooses.
const ChosenPath = -1

// PositionsByPath finds positions by a given access path. It reports false if the filter
// can't use that path.
func (i *Index) PositionsByPath(ctx context.Context, w int, tenant string, f Filter, o Order, after Position, limit int) ([]Position, bool, error) {
	p, err := i.plan(ctx, tenant, f, o, after, limit)
	if err != nil || p.Empty() {
		return nil, true, err
	}
	if w == ChosenPath {
		positions, err := i.findPositions(ctx, p, after, limit)
		return positions, true, err
	}
	ranged := p.filter.rangedColumns()
	if p.allGroups && len(p.groups) == 0 { // no facet conditions, so they were not read
		if err = i.readGroups(ctx, &p, after); err != nil || p.Empty() {
			return nil, true, err
		}
	}
	if w == HeapScan {
		if f.hasKey() || !p.checksText() {
			return nil, false, nil
		}
		positions, err := i.findByHeapScan(ctx, p, after, limit)
		return positions, true, err
	}
	if p.path = accessPath(w); w == ShortScan {
		p.path, p.scanLimit, p.textLimit = orderedScan, 1+limit, 3
	}
	switch {
	case p.path == byKey && !f.hasKey(), p.path != byKey && f.hasKey(), p.path == byRange && len(ranged) == 0, p.hasDeathBounds() && (p.path == byRange || p.path == orderedScan):
		return nil, false, nil
	case p.path == byRange:
		p.column = ranged[len(ranged)-1]
	case w == ShortScan:
		positions, err := i.findPositions(ctx, p, after, limit)
		return positions, true, err
	}
	positions, err := i.findByPath(ctx, p, after, limit)
	return positions, true, err
}

// StoredTrigrams returns the trigrams stored for a message.
func StoredTrigrams(tenant, message, constant string) string {
	return arrayLiteral(storedTrigrams(tenant, message, constant))
}

// CountFacetGroups returns the number of facet groups that a filter may match.
func (i *Index) CountFacetGroups(ctx context.Context, tenant string, f Filter) (int, error) {
	groups, _, err := readFacetGroups(ctx, i.searchDB, tenant, f, Order{})
	return len(groups), err
}

// Compare compares two positions in the order.
func (o Order) Compare(a, b Position) int { return o.compare(a, b) }

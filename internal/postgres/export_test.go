package postgres

import (
	"context"
	"database/sql"
)

// Pools are all pools of connections, by their purpose.
func (j *Journal) Pools() map[string]*sql.DB {
	return map[string]*sql.DB{
		"batches": j.hot, "waiting submissions": j.openLane.db, "waiting moves": j.waitLane.db, "transactions": j.moveLane.db, "questions": j.reads.DB,
		"heartbeat": j.beats, "sequencer": j.sequence, "projection": j.projecting, "search": j.finding,
	}
}

// Ways are all ways in which letters can be looked for: beside those of plans, a walk
// that is given up soon, and to look at all messages as they lie.
const (
	Ways      = int(walking) + 3
	ShortWalk = Ways - 2
	AsTheyLie = Ways - 1
)

// Chosen is the way that is chosen.
const Chosen = -1

// LettersBy finds places of letters in a way that need not be the one chosen. It is
// false when the filter can't be met in that way.
func (j *Journal) LettersBy(ctx context.Context, w int, tenant string, f LetterFilter, o LetterOrder, after LetterPlace, limit int) ([]LetterPlace, bool, error) {
	p, err := j.planAfter(ctx, tenant, f, o, after, limit)
	if err != nil || p.nothing() {
		return nil, true, err
	}
	if w == Chosen {
		places, err := j.places(ctx, p, after, limit)
		return places, true, err
	}
	ranged := p.filter.ranged()
	if p.all && len(p.shapes) == 0 { // nothing was asked of them, so they were not read
		if err = j.readShapes(ctx, &p, after); err != nil || p.nothing() {
			return nil, true, err
		}
	}
	if w == AsTheyLie {
		if f.keyed() || !p.checks() {
			return nil, false, nil
		}
		places, err := j.placesLying(ctx, p, after, limit)
		return places, true, err
	}
	if p.way = way(w); w == ShortWalk {
		p.way, p.most, p.looks = walking, 1+limit, 3
	}
	switch {
	case p.way == byKey && !f.keyed(), p.way != byKey && f.keyed(), p.way == byRange && len(ranged) == 0, p.bounded() && (p.way == byRange || p.way == walking):
		return nil, false, nil
	case p.way == byRange:
		p.column = ranged[len(ranged)-1]
	case w == ShortWalk:
		places, err := j.places(ctx, p, after, limit)
		return places, true, err
	}
	places, err := j.placesBy(ctx, p, after, limit)
	return places, true, err
}

// GramsOf is what is kept of a message beside its constant part.
func GramsOf(tenant, message, constant string) string {
	return arrayOf(gramsOf(tenant, message, constant))
}

// ShapesLeft is how many shapes a filter leaves.
func (j *Journal) ShapesLeft(ctx context.Context, tenant string, f LetterFilter) (int, error) {
	left, _, err := shapesOf(ctx, j.finding, tenant, f, LetterOrder{})
	return len(left), err
}

// Compare tells which of two places comes first.
func (o LetterOrder) Compare(a, b LetterPlace) int { return o.compare(a, b) }

// EscrowSums is what an escrow has committed and what its cases add up to.
func (j *Journal) EscrowSums(ctx context.Context, tenant, reference string) (committed, sum int64, err error) {
	e, sum, err := j.EscrowAtOnce(ctx, tenant, reference)
	return e.Committed, sum, err
}

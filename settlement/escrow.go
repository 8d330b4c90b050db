package settlement

import "errors"

// ErrExceedsHeld says that a reservation is more than an escrow has left. The
// escrow was not changed.
var ErrExceedsHeld = errors.New("settlement: the amount exceeds what the escrow holds and has free")

// Escrow is what an escrow holds and what its cases have committed of it: reserved,
// released and refunded together. Breached is by how much that was ever exceeded.
// All are minor units, never negative, and Committed <= Held + Breached.
type Escrow struct{ Held, Committed, Breached int64 }

// Add takes a decision that has not happened yet: it may be refused. A delta below
// zero frees and always fits. The delta MUST come from an Effect of one of the
// escrow's cases.
func (e Escrow) Add(delta int64) (Escrow, error) {
	if delta > 0 && delta > e.Held-e.Committed {
		return e, ErrExceedsHeld
	}
	e.Committed += delta
	return e, nil
}

// Record takes a fact: what was paid is paid, whether it fits or not, so that it
// raises Breached where it does not. The delta MUST come from an Effect of one of
// the escrow's cases.
func (e Escrow) Record(delta int64) Escrow {
	e.Committed += delta
	e.Breached = max(e.Breached, e.Committed-e.Held)
	return e
}

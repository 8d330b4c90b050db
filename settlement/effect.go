package settlement

import "errors"

// Effect is the effect of a fact beyond the case's own state.
type Effect struct {
	Committed int64 // change of what the escrow has committed; negative when more was freed
	Excess    int64 // paid over what was decided, see State.payable
}

func unchangedMoney(s State, _ Event) (State, Effect) { return s, Effect{} }

// reserve begins a generation. The reservation of an earlier one becomes part of it.
func reserve(s State, e Event) (State, Effect) {
	effect := Effect{Committed: e.Amount - s.Reserved}
	s.Outcome, s.Generation = e.Outcome, e.Generation
	s.Asked, s.Moved, s.Reserved = e.Amount, 0, e.Amount
	return s, effect
}

// freeUnlessKept frees what is reserved, unless the event keeps it: a kept reservation is freed
// only by hand, or taken over by a higher generation. KeepReserved is in the event because older
// versions freed the reservation at a closing.
func freeUnlessKept(s State, e Event) (State, Effect) {
	if e.KeepReserved {
		return unchangedMoney(s, e)
	}
	return free(s, e)
}

func free(s State, _ Event) (State, Effect) {
	effect := Effect{Committed: -s.Reserved}
	s.Reserved = 0
	return s, effect
}

// pay takes a payment out of the reservation and frees the rest of it: one
// adjudication is one payment. At an end nothing is reserved, and what is paid
// there counts for the case but no longer for its generation.
func pay(s State, e Event) (State, Effect) {
	effect := Effect{Committed: e.Paid - s.Reserved, Excess: s.excess(e)}
	s.Reserved = 0
	if !s.Progression.Ended() {
		s.Moved += e.Paid
	}
	return s.paid(e), effect
}

// payOlder takes a payment under the key of an older generation out of the
// reservation of the present one, as far as that goes. The rest stays reserved.
//
// The part beyond the free sum of the escrow has to be cut from that reservation. Only
// the escrow's locked row has the free sum, and a fact about money waits for no lock.
// So the free sum counts as zero. That is exact where the case fills its escrow.
// Elsewhere it cuts more than necessary, which does no harm: no further attempt is
// made for this generation, and the next one reserves what it needs against the
// locked row. If it cut less, a case could hold more than its escrow has, and breach
// it although nothing was paid too much.
func payOlder(s State, e Event) (State, Effect) {
	cut := min(e.Paid, s.Reserved)
	effect := Effect{Committed: e.Paid - cut, Excess: s.excess(e)}
	s.Reserved -= cut
	return s.paid(e), effect
}

// excess returns by how much a payment exceeds what was decided.
func (s State) excess(e Event) int64 { return max(0, e.Paid-s.payable(e.OlderPaid)) }

// payable returns what may still be paid for the present generation, given what was paid
// under older keys since it began. While anything is reserved, that is the reservation. A
// reservation that was freed, by hand, by a cancel or by a partial payment, does not reduce it:
// a payment of what was decided can be found after that. Whether the escrow still has the sum
// is checked where its deltas are folded.
func (s State) payable(older int64) int64 {
	switch {
	case s.Reserved > 0:
		return s.Reserved
	case s.Progression.Ended():
		return 0
	}
	return max(0, s.Asked-s.Moved-older)
}

// paid returns the state with a payment added to what the whole case has paid.
func (s State) paid(e Event) State {
	if e.Outcome == Refund {
		s.Refunded += e.Paid
	} else {
		s.Released += e.Paid
	}
	return s
}

// giveBack gives what came back to the escrow. It corrects what was paid beyond what was decided first. The rest
// counts no more for the present generation, if that paid it: a payment that is found later may carry it out.
func giveBack(s State, e Event) (State, Effect) {
	s.Returned += e.Amount
	if e.Generation == s.Generation {
		s.Moved = max(0, min(s.Moved, s.Asked)-max(0, e.Amount-e.Overpaid))
	}
	return s, Effect{Committed: -e.Amount}
}

// ErrExceedsHeld says that a reservation is more than an escrow has left. The
// escrow was not changed.
var ErrExceedsHeld = errors.New("settlement: the amount exceeds what the escrow holds and has free")

// Escrow is the model that the statements of a store must equal: what an escrow holds and what its
// cases have committed of it: reserved, released and refunded together, less what came back. Breached is by how much that
// was ever exceeded. All are minor units, never negative, and Committed <= Held + Breached.
type Escrow struct{ Held, Committed, Breached int64 }

// Add adds a decision that has not happened yet. It returns ErrExceedsHeld if the delta does not fit.
// A delta below zero frees and always fits. The delta MUST come from an Effect of one of the escrow's
// cases.
func (e Escrow) Add(delta int64) (Escrow, error) {
	if delta > 0 && delta > e.Held-e.Committed {
		return e, ErrExceedsHeld
	}
	e.Committed += delta
	return e, nil
}

// Record adds a fact. A payment that does not fit is counted as well, and raises Breached. The delta
// MUST come from an Effect of one of the escrow's cases.
func (e Escrow) Record(delta int64) Escrow {
	e.Committed += delta
	e.Breached = max(e.Breached, e.Committed-e.Held)
	return e
}

package fakeescrow

import (
	"slices"

	"github.com/recourse-dev/recourse/settlement"
)

// Effects returns everything that was moved, in order.
func (s *Service) Effects() []Effect {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moveRests(s.config.Now())
	out := slices.Clone(l.effects)
	for i := range out {
		if e := l.keys[out[i].OperationKey]; e != nil {
			out[i].Calls = len(e.calls)
		}
	}
	return out
}

// Calls returns the POSTs of one operation key, in order.
func (s *Service) Calls(key string) []Call {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.keys[key]; e != nil {
		return slices.Clone(e.calls)
	}
	return nil
}

// AllCalls returns the POSTs of all operation keys, those of a key in order.
func (s *Service) AllCalls() map[string][]Call {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string][]Call, len(l.keys))
	for key, e := range l.keys {
		out[key] = slices.Clone(e.calls)
	}
	return out
}

// AcceptedOpen reports whether a call under an operation key was accepted and has not ended: it may still pay.
func (s *Service) AcceptedOpen(key string) bool {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moveRests(s.config.Now())
	e := l.keys[key]
	return e != nil && e.accepted != nil
}

// RestsOpen reports whether the rest of a payment is still to be moved.
func (s *Service) RestsOpen() bool {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moveRests(s.config.Now())
	for _, e := range l.keys {
		if !e.rest.IsZero() {
			return true
		}
	}
	return false
}

// Totals are the sums of the ledger.
type Totals struct {
	Keys     int              // operation keys seen
	Calls    int              // POSTs
	Effects  int              // effects
	Released map[string]int64 // minor units by currency
	Refunded map[string]int64
}

// Totals counts keys and calls as received, and money by the effects.
func (s *Service) Totals() Totals {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moveRests(s.config.Now())
	t := Totals{
		Keys: len(l.keys), Effects: len(l.effects),
		Released: map[string]int64{}, Refunded: map[string]int64{},
	}
	for _, e := range l.keys {
		t.Calls += len(e.calls)
	}
	for _, e := range l.effects {
		sum := t.Released
		if e.Outcome == settlement.Refund {
			sum = t.Refunded
		}
		sum[e.Moved.Currency] += e.Moved.Minor
	}
	return t
}

// Violation is an effect that must not exist, and the reason.
type Violation struct {
	Why string
	Effect
}

// The reasons. The first one that applies is reported, and BothWays only where no other does:
// it may have been decided, for the rest of a payment.
const (
	SameKey      = "its operation key was paid before"
	OverAsked    = "it moves more than was asked for, or in another currency"
	BothWays     = "its transaction was paid the other way before"
	SameDecision = "its decision was paid before, under another operation key"
	PaidInFull   = "its transaction was paid in full before"
	OlderAfter   = "a later generation of its transaction was paid before"
	OverHeld     = "its escrow has paid out more than it holds"
)

// Violations returns each effect that is one too many, in order: by operation key, by
// decision (tenant, transaction, outcome and generation), by transaction, and by
// escrow. A higher generation may pay again where a lower one moved only a part.
func (s *Service) Violations() []Violation {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moveRests(s.config.Now())
	return violations(l.effects)
}

// DoubleEffects counts the effects that are one too many; see Violations.
func (s *Service) DoubleEffects() int { return len(s.Violations()) }

func violations(effects []Effect) (out []Violation) {
	type transaction struct{ tenant, id string }
	keys := map[string]bool{}
	before := map[transaction][]Effect{}
	escrows := map[escrowID]*holding{}
	for _, e := range effects {
		t, from := transaction{e.Tenant, e.TransactionReceiptID}, escrowID{e.Tenant, e.EscrowReference}
		if escrows[from] == nil {
			escrows[from] = &holding{held: e.Held}
		}
		h := escrows[from]
		h.moved += e.Moved.Minor
		why := ""
		if e.Rest {
			e = completed(before[t], e)
		}
		switch {
		case e.Rest && e.Moved.Minor <= e.Asked.Minor:
		case keys[e.OperationKey]:
			why = SameKey
		case e.Moved.Minor > e.Asked.Minor || e.Moved.Currency != e.Asked.Currency:
			why = OverAsked
		default:
			for _, b := range before[t] {
				if found := pairViolation(b, e); found != "" && (why == "" || why == BothWays) {
					why = found
				}
			}
		}
		if (why == "" || why == BothWays) && h.moved > h.held.Minor && h.held.Minor > 0 {
			why = OverHeld
		}
		if why != "" {
			out = append(out, Violation{why, e})
		}
		keys[e.OperationKey] = true
		if !e.Rest {
			before[t] = append(before[t], e)
		}
	}
	return out
}

// completed adds the rest of a payment to its first leg, and returns the whole.
func completed(before []Effect, rest Effect) Effect {
	for i := range slices.Backward(before) {
		if before[i].OperationKey == rest.OperationKey {
			before[i].Moved.Minor += rest.Moved.Minor
			rest.Moved.Minor = before[i].Moved.Minor
			break
		}
	}
	return rest
}

// pairViolation returns why a later effect must not exist, given an earlier one of the same
// transaction.
func pairViolation(earlier, later Effect) string {
	switch {
	case earlier.Outcome != later.Outcome:
		return BothWays
	case earlier.Generation == later.Generation:
		return SameDecision
	case paidInFull(earlier):
		return PaidInFull
	case earlier.Generation > later.Generation:
		return OlderAfter
	}
	return ""
}

func paidInFull(e Effect) bool { return e.Moved == e.Asked }

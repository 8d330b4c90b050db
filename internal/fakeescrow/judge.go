package fakeescrow

import (
	"slices"

	"github.com/recourse-dev/recourse/settlement"
)

// Effects lists everything that was moved, in order.
func (s *Service) Effects() []Effect {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Clone(l.effects)
	for i := range out {
		if e := l.keys[out[i].OperationKey]; e != nil {
			out[i].Calls = len(e.calls)
		}
	}
	return out
}

// Calls lists the POSTs of one operation key, in order.
func (s *Service) Calls(key string) []Call {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.keys[key]; e != nil {
		return slices.Clone(e.calls)
	}
	return nil
}

// Totals sums the ledger up.
type Totals struct {
	Keys     int              // operation keys that came
	Calls    int              // POSTs
	Effects  int              // effects
	Released map[string]int64 // minor units by currency
	Refunded map[string]int64
}

// Totals counts keys and calls as they came, and money from the effects.
func (s *Service) Totals() Totals {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
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

// DoubleEffects counts what must never happen: each effect that is one too many.
// That is an effect
//   - of an operation key that has one already,
//   - that moves more than was asked for, or in another currency,
//   - of a transaction that was paid the other way,
//   - of a generation that was paid under another key,
//   - of a transaction that an earlier generation paid in full.
//
// A higher generation may pay again where a lower one moved a part only.
func (s *Service) DoubleEffects() int {
	l := &s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	return doubles(l.effects)
}

func doubles(effects []Effect) int {
	type transaction struct{ tenant, id string }
	keys := map[string]bool{}
	before := map[transaction][]Effect{}
	n := 0
	for _, e := range effects {
		t := transaction{e.Tenant, e.TransactionReceiptID}
		excess := e.Moved.Minor > e.Asked.Minor || e.Moved.Currency != e.Asked.Currency
		again := slices.ContainsFunc(before[t], func(b Effect) bool { return conflicts(b, e) })
		if keys[e.OperationKey] || excess || again {
			n++
		}
		keys[e.OperationKey] = true
		before[t] = append(before[t], e)
	}
	return n
}

// conflicts reports whether the later effect must not be, given an earlier one of
// the same transaction.
func conflicts(earlier, later Effect) bool {
	return earlier.Outcome != later.Outcome ||
		earlier.Generation == later.Generation ||
		full(earlier)
}

func full(e Effect) bool { return e.Moved == e.Asked }

package fakeescrow

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/settlement"
)

// Effect is money that was moved.
type Effect struct {
	OperationKey         string
	Tenant               string
	TransactionReceiptID string
	EscrowReference      string
	Outcome              settlement.Outcome
	Generation           int64
	Asked                settlement.Money
	Moved                settlement.Money
	Reference            string
	At                   time.Time
	Calls                int // POSTs of the key so far
}

// Call is one POST of an operation key.
type Call struct {
	At     time.Time
	Word   string // what it was asked to simulate; empty when the key came with another request
	Status int    // of the answer; 0 when none is given
}

// ledger is the service's memory.
type ledger struct {
	mu      sync.Mutex
	mended  bool
	effects []Effect // append-only
	keys    map[string]*entry
	escrows map[escrow]*holding
}

// entry is what is known of one operation key.
type entry struct {
	first []byte // the request it came with
	calls []Call
	taken int  // words used up
	paid  int  // index of its effect plus 1
	dark  bool // nobody is told of it, until the repair
}

type escrow struct{ tenant, reference string }

// holding bounds what is moved out of an escrow.
type holding struct {
	held  settlement.Money
	moved int64
}

func newLedger() ledger {
	return ledger{keys: map[string]*entry{}, escrows: map[escrow]*holding{}}
}

// hold says how a call that has been decided is kept from its client.
type hold int

const (
	holdNot hold = iota
	holdForever
	holdDrop
	holdLate
)

// decision is how a call goes on.
type decision struct {
	hold            hold
	status          int
	refusal, detail string
	effect          Effect
	told            string
}

// call decides one POST and moves the money, if any, at once.
func (l *ledger) call(key string, raw []byte, r request, now time.Time) decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.keys[key]
	if e == nil {
		e = &entry{first: bytes.Clone(raw)}
		l.keys[key] = e
	}
	id := escrow{r.Tenant, r.EscrowReference}
	if l.escrows[id] == nil {
		l.escrows[id] = &holding{held: r.Held}
	}
	c := Call{At: now}
	d := decision{
		status: http.StatusUnprocessableEntity, refusal: "idempotency_key_reused",
		detail: "idempotency key reused with another request",
	}
	if bytes.Equal(e.first, raw) {
		c.Word = wordAt(r.words, e.taken)
		e.taken++
		d = l.decide(key, e, r, c.Word, now)
	}
	c.Status = d.status
	e.calls = append(e.calls, c)
	return d
}

func (l *ledger) decide(key string, e *entry, r request, word string, now time.Time) decision {
	if l.mended {
		word = wordOK
	}
	if e.dark = word == wordDark || word == wordLost; e.dark {
		return l.keepDark(key, e, r, word, now)
	}
	if e.paid > 0 {
		return decision{status: http.StatusOK, effect: l.effects[e.paid-1], told: "already_executed"}
	}
	switch word {
	case wordRetryable:
		return decision{status: http.StatusTooManyRequests, refusal: "busy", detail: "the escrow service is busy"}
	case wordRefused:
		return decision{
			status: http.StatusUnprocessableEntity, refusal: "payee_blocked",
			detail: "the payee of " + r.EscrowReference + " can't receive payments",
		}
	case wordHang:
		return decision{hold: holdForever}
	}
	if refused := l.pay(key, e, r, word, now); refused != nil {
		return *refused
	}
	d := decision{status: http.StatusOK, effect: l.effects[e.paid-1], told: "executed"}
	switch word {
	case wordDrop:
		d.hold, d.status = holdDrop, 0
	case wordLate:
		d.hold = holdLate
	}
	return d
}

// keepDark answers nothing, whether or not it pays.
func (l *ledger) keepDark(key string, e *entry, r request, word string, now time.Time) decision {
	if word == wordDark && e.paid == 0 {
		if refused := l.pay(key, e, r, word, now); refused != nil {
			return *refused
		}
	}
	return decision{hold: holdDrop}
}

// pay appends the effect, or says why not.
func (l *ledger) pay(key string, e *entry, r request, word string, now time.Time) *decision {
	h := l.escrows[escrow{r.Tenant, r.EscrowReference}]
	moved := r.Amount
	if word == wordPartial {
		moved.Minor -= moved.Minor / 2
	}
	if moved.Currency != h.held.Currency {
		return &decision{
			status: http.StatusUnprocessableEntity, refusal: "currency_mismatch",
			detail: fmt.Sprintf("%s holds %s, not %s", r.EscrowReference, h.held.Currency, moved.Currency),
		}
	}
	if moved.Minor > h.held.Minor-h.moved {
		return &decision{
			status: http.StatusUnprocessableEntity, refusal: "insufficient_funds",
			detail: fmt.Sprintf("%s has %d left of %d", r.EscrowReference, h.held.Minor-h.moved, h.held.Minor),
		}
	}
	h.moved += moved.Minor
	l.effects = append(l.effects, Effect{
		OperationKey: key, Tenant: r.Tenant, TransactionReceiptID: r.TransactionReceiptID,
		EscrowReference: r.EscrowReference, Outcome: r.Outcome, Generation: r.Generation,
		Asked: r.Amount, Moved: moved, At: now,
		Reference: fmt.Sprintf("eff_%08d_%s", len(l.effects)+1, key[:8]),
	})
	e.paid = len(l.effects)
	return nil
}

// paid finds the effect of a key. Of a dark key nobody can say.
func (l *ledger) paid(key string) (effect Effect, paid, dark bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.keys[key]
	switch {
	case e == nil:
		return Effect{}, false, false
	case e.dark && !l.mended:
		return Effect{}, false, true
	case e.paid > 0:
		return l.effects[e.paid-1], true, false
	}
	return Effect{}, false, false
}

func (l *ledger) repair() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mended = true
}

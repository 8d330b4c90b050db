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
	Held                 settlement.Money // by the escrow, as the request says
	Moved                settlement.Money
	Reference            string
	At                   time.Time
	Rest                 bool // it completes the payment before it under the same key
	Calls                int  // POSTs of the key so far
}

// Call is one POST of an operation key.
type Call struct {
	At       time.Time
	Answered time.Time // just before its answer was written; zero when none was
	Word     string    // the word that it simulated; empty when the key came with another request
	Status   int       // of the answer; 0 for none
	By       Caller

	RetryAfter time.Duration // that the answer asked for
}

// Caller is the sender of a call, from headers of these names. The service only records
// it.
type Caller struct {
	Worker  string // Chaos-Worker
	Attempt string // Chaos-Attempt
}

// ledger is the service's memory.
type ledger struct {
	lifetime       time.Duration // of keys; 0 means for ever
	lookupLifetime time.Duration // of keys, for lookups
	lookup         string        // the default word of lookups
	lag            time.Duration
	leg            time.Duration // how long after the first leg the second one is moved
	accepting      time.Duration // how long after it was accepted a call ends
	wait           time.Duration

	mu       sync.Mutex
	repaired bool
	effects  []Effect // append-only
	keys     map[string]*entry
	escrows  map[escrowID]*holding
}

// entry is the record of one operation key.
type entry struct {
	calls           []Call
	callWordsUsed   int      // words used up
	words           []string // of lookups, by its first request
	lookupWordsUsed int      // words of lookups used up

	first      []byte    // the first request under the key
	known      time.Time // since when
	paid       []int     // indexes of its effects
	rest       time.Time // when the rest of its payment is moved; zero when none is
	unanswered bool      // lookups answer 503 until the repair
	accepted   *accepted // a call that has not ended; nil when none is
}

// accepted is a call that was accepted and ends later.
type accepted struct {
	request   request
	key, word string
	since     time.Time
	ends      time.Time
}

type escrowID struct{ tenant, reference string }

// holding is what an escrow held at first, and what was moved out of it.
type holding struct {
	held  settlement.Money
	moved int64
}

func newLedger(c Config) ledger {
	return ledger{lifetime: c.KeyLifetime, lookupLifetime: max(c.KeyLifetime, c.LookupLifetime), lookup: c.Lookup, lag: c.Lag, leg: c.Late / 2, accepting: c.Late, wait: c.Wait, keys: map[string]*entry{}, escrows: map[escrowID]*holding{}}
}

// answerMode is how the answer of a decided call reaches its client, or does not.
type answerMode int

const (
	answerNow answerMode = iota
	answerNever
	answerDrop
	answerLate
	answerWhole
)

// decision is the outcome of a call.
type decision struct {
	mode            answerMode
	status          int
	refusal, detail string
	retryAfter      time.Duration
	effect          Effect
	result          string
	call            int // its number under its key, from 0
}

// call decides one POST and moves the money, if any, at once.
func (l *ledger) call(key string, raw []byte, r request, by Caller, now time.Time) decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.keys[key]
	if e == nil {
		e = &entry{words: r.lookups}
		l.keys[key] = e
	}
	l.moveRest(e, now)
	if l.expired(e, now, l.lifetime) {
		e.first, e.paid, e.unanswered = nil, nil, false
	}
	if e.first == nil {
		e.first, e.known = bytes.Clone(raw), now
	}
	id := escrowID{r.Tenant, r.EscrowReference}
	if l.escrows[id] == nil {
		l.escrows[id] = &holding{held: r.Held}
	}
	c := Call{At: now, By: by}
	d := decision{
		status: http.StatusUnprocessableEntity, refusal: "idempotency_key_reused",
		detail: "idempotency key reused with another request",
	}
	if bytes.Equal(e.first, raw) {
		c.Word = wordAt(r.words, e.callWordsUsed)
		e.callWordsUsed++
		d = l.decide(key, e, r, c.Word, now)
	}
	c.Status, c.RetryAfter, d.call = d.status, d.retryAfter, len(e.calls)
	e.calls = append(e.calls, c)
	return d
}

// expired reports whether a key is forgotten at a time, by a lifetime.
func (l *ledger) expired(e *entry, at time.Time, lifetime time.Duration) bool {
	return l.lifetime > 0 && e.first != nil && !at.Before(e.known.Add(lifetime))
}

// total returns the effects of a key up to a time as one.
func (l *ledger) total(e *entry, at time.Time) (sum Effect) {
	for _, i := range e.paid {
		switch {
		case l.effects[i].At.After(at):
		case sum.OperationKey == "":
			sum = l.effects[i]
		default:
			sum.Moved.Minor += l.effects[i].Moved.Minor
		}
	}
	return sum
}

// moveRest moves the second leg of a payment when its time has come, and what was accepted.
func (l *ledger) moveRest(e *entry, now time.Time) {
	if a := e.accepted; a != nil && !now.Before(a.ends) {
		if e.accepted = nil; a.word == wordAccept {
			l.pay(a.key, e, a.request, a.word, a.ends)
		}
	}
	if e.rest.IsZero() || now.Before(e.rest) {
		return
	}
	second := l.effects[e.paid[0]]
	second.Moved.Minor, second.At, second.Rest = second.Asked.Minor-second.Moved.Minor, e.rest, true
	e.rest = time.Time{}
	l.escrows[escrowID{second.Tenant, second.EscrowReference}].moved += second.Moved.Minor
	l.effects, e.paid = append(l.effects, second), append(e.paid, len(l.effects))
}

// moveRests moves what is to be moved by now, before the ledger is read.
func (l *ledger) moveRests(now time.Time) {
	for _, e := range l.keys {
		l.moveRest(e, now)
	}
}

// whole returns the total of a key for a call that waits for it, and whether that is the whole amount.
func (l *ledger) whole(key string, now time.Time) (Effect, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.keys[key]
	l.moveRest(e, now)
	sum := l.total(e, now)
	return sum, len(e.paid) > 0 && sum.Moved.Minor >= sum.Asked.Minor
}

func (l *ledger) decide(key string, e *entry, r request, word string, now time.Time) decision {
	if e.accepted != nil {
		return decision{status: http.StatusAccepted, result: statusAccepted}
	}
	if l.repaired {
		word = wordOK
	}
	if e.unanswered = word == wordDark || word == wordLost; e.unanswered {
		if word == wordDark && len(e.paid) == 0 {
			l.pay(key, e, r, word, now)
		}
		return decision{mode: answerDrop}
	}
	if word == wordWhole {
		return decision{mode: answerWhole, status: http.StatusOK, result: "executed"}
	}
	if len(e.paid) > 0 {
		return decision{status: http.StatusOK, effect: l.total(e, now), result: "already_executed"}
	}
	if word == wordAccept || word == wordDecline {
		e.accepted = &accepted{request: r, key: key, word: word, since: now, ends: now.Add(l.accepting)}
		return decision{status: http.StatusAccepted, result: statusAccepted}
	}
	if refused := l.refuse(r, word); refused != nil {
		return *refused
	}
	if word == wordHang {
		return decision{mode: answerNever}
	}
	l.pay(key, e, r, word, now)
	d := decision{status: http.StatusOK, effect: l.total(e, now), result: "executed"}
	switch word {
	case wordWait:
		return decision{status: http.StatusServiceUnavailable, refusal: "unavailable", detail: "the escrow service is busy", retryAfter: l.wait}
	case wordDrop:
		d.mode, d.status = answerDrop, 0
	case wordLate:
		d.mode = answerLate
	}
	return d
}

// refuse returns the answer of a word that refuses; nil for other words.
func (l *ledger) refuse(r request, word string) *decision {
	switch word {
	case wordRetryable:
		return &decision{status: http.StatusTooManyRequests, refusal: "busy", detail: "the escrow service is busy"}
	case wordLater:
		return &decision{status: http.StatusTooManyRequests, refusal: "busy", detail: "the escrow service is busy", retryAfter: time.Second}
	case wordRefused:
		return &decision{
			status: http.StatusUnprocessableEntity, refusal: "payee_blocked",
			detail: "the payee of " + r.EscrowReference + " can't receive payments",
		}
	case wordFunds:
		return l.checkFunds(r)
	}
	return nil
}

// checkFunds returns a refusal when the escrow has too little left, by what it held in its
// first request; nil when there is enough.
func (l *ledger) checkFunds(r request) *decision {
	h := l.escrows[escrowID{r.Tenant, r.EscrowReference}]
	switch {
	case r.Amount.Currency != h.held.Currency:
		return &decision{
			status: http.StatusUnprocessableEntity, refusal: "currency_mismatch",
			detail: fmt.Sprintf("%s holds %s, not %s", r.EscrowReference, h.held.Currency, r.Amount.Currency),
		}
	case r.Amount.Minor > h.held.Minor-h.moved:
		return &decision{
			status: http.StatusUnprocessableEntity, refusal: "insufficient_funds",
			detail: fmt.Sprintf("%s has %d left of %d", r.EscrowReference, h.held.Minor-h.moved, h.held.Minor),
		}
	}
	return nil
}

// pay appends the effect.
func (l *ledger) pay(key string, e *entry, r request, word string, now time.Time) {
	moved := r.Amount
	switch word {
	case wordPartial:
		moved.Minor -= moved.Minor / 2
	case wordLegs:
		moved.Minor = (2*moved.Minor + 4) / 5
		e.rest = now.Add(l.leg)
	}
	l.escrows[escrowID{r.Tenant, r.EscrowReference}].moved += moved.Minor
	l.effects = append(l.effects, Effect{
		OperationKey: key, Tenant: r.Tenant, TransactionReceiptID: r.TransactionReceiptID,
		EscrowReference: r.EscrowReference, Outcome: r.Outcome, Generation: r.Generation,
		Asked: r.Amount, Held: r.Held, Moved: moved, At: now,
		Reference: fmt.Sprintf("eff_%08d_%s", len(l.effects)+1, key[:8]),
	})
	e.paid = append(e.paid, len(l.effects)-1)
}

// noteAnswered records the time just before a call is answered.
func (l *ledger) noteAnswered(key string, call int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[key].calls[call].Answered = now
}

// lookUp returns the answer of a lookup of a key: with its effect, that there is none, that a call is accepted and has not
// ended, or that it is not known.
func (l *ledger) lookUp(key string, now time.Time) (status int, effect Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.keys[key]
	if e == nil {
		if !l.repaired && l.lookup == wordFail {
			return http.StatusServiceUnavailable, Effect{}
		}
		return http.StatusNotFound, Effect{}
	}
	word, as := l.lookup, now
	if len(e.words) > 0 {
		word = wordAt(e.words, e.lookupWordsUsed)
		e.lookupWordsUsed++
	}
	if l.repaired {
		word = wordOK
	}
	if word == wordLag {
		as = now.Add(-l.lag)
	}
	l.moveRest(e, now)
	effect, paid := l.effectAsOf(e, as)
	switch {
	case word == wordFail, e.unanswered && !l.repaired && !l.expired(e, as, l.lookupLifetime):
		return http.StatusServiceUnavailable, Effect{}
	case word == wordLie && paid, word == wordAbsent:
		return http.StatusNotFound, Effect{}
	case word == wordLie:
		return http.StatusOK, l.invented(key, e)
	case paid:
		return http.StatusOK, effect
	case e.accepted != nil && !as.Before(e.accepted.since):
		return http.StatusAccepted, Effect{}
	}
	return http.StatusNotFound, Effect{}
}

// effectAsOf returns the effect of a key as of a time.
func (l *ledger) effectAsOf(e *entry, at time.Time) (Effect, bool) {
	sum := l.total(e, at)
	if sum.OperationKey == "" || l.expired(e, at, l.lookupLifetime) {
		return Effect{}, false
	}
	return sum, true
}

// invented returns the effect in a false lookup answer: the whole amount of the request.
func (l *ledger) invented(key string, e *entry) Effect {
	r, err := parseRequest(e.first)
	if err != nil {
		return Effect{}
	}
	return Effect{OperationKey: key, Moved: r.Amount, Reference: "eff_invented_" + key[:8]}
}

func (l *ledger) repair() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.repaired = true
}

package rig

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// Escrow is an escrow service that answers calls and lookups as the test says, and keeps
// its own ledger. The fields are set before the workers start; SetKeyLife and SetLookupLife change
// two of them later.
type Escrow struct {
	KeyLife    time.Duration // how long it knows an operation key
	LookupLife time.Duration // how long a lookup knows a key; KeyLife when that is longer
	Flight     time.Duration // how long an abandoned call may be executed
	Accepting  time.Duration // how long an accepted call is asked about

	mu           sync.Mutex
	script       func(ctx context.Context, c escrow.Call) escrow.Answer // nil: pay
	lookupScript func(c escrow.Call) escrow.Answer                      // nil: by the ledger
	payments     []payment                                              // in order; append-only
	known        map[escrow.OperationKey]payment                        // what the service answers from
	calls        map[escrow.OperationKey]int
	lookups      sync.Mutex // held while a script answers a lookup
}

type payment struct {
	call  escrow.Call
	minor int64
	at    time.Time
}

// NewEscrow returns an escrow service that knows its keys for ever, and pays each call.
func NewEscrow() *Escrow {
	return &Escrow{KeyLife: escrow.Forever, Accepting: escrow.DefaultAcceptedFor, known: map[escrow.OperationKey]payment{}, calls: map[escrow.OperationKey]int{}}
}

// KeyLifetime implements escrow.Executor.
func (e *Escrow) KeyLifetime() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.KeyLife
}

// LookupLifetime says how long a lookup knows an operation key.
func (e *Escrow) LookupLifetime() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.LookupLife
}

// SetKeyLife sets how long it knows an operation key from now on, also while workers ask.
func (e *Escrow) SetKeyLife(life time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.KeyLife = life
}

// SetLookupLife sets how long a lookup knows a key from now on, also while workers ask.
func (e *Escrow) SetLookupLife(life time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.LookupLife = life
}

// InFlight says how long an abandoned call may be executed.
func (e *Escrow) InFlight() time.Duration { return e.Flight }

// AcceptedFor says how long an accepted call is asked about.
func (e *Escrow) AcceptedFor() time.Duration { return e.Accepting }

// Script sets what answers the calls from now on, and returns what answered them before. Calls
// are answered at the same time. nil pays each call.
func (e *Escrow) Script(answer func(context.Context, escrow.Call) escrow.Answer) (before func(context.Context, escrow.Call) escrow.Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, e.script = e.script, answer
	return before
}

// Answer is a Script of answers that need no context.
func (e *Escrow) Answer(answer func(escrow.Call) escrow.Answer) (before func(context.Context, escrow.Call) escrow.Answer) {
	return e.Script(func(_ context.Context, c escrow.Call) escrow.Answer { return answer(c) })
}

// ScriptLookups sets what answers the lookups from now on, one at a time. nil answers by the
// ledger.
func (e *Escrow) ScriptLookups(answer func(escrow.Call) escrow.Answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lookupScript = answer
}

// Record is a Script that also keeps the calls; nil pays them. The returned function returns the
// calls so far.
func (e *Escrow) Record(answer func(escrow.Call) escrow.Answer) func() []escrow.Call {
	var all []escrow.Call
	e.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		e.mu.Lock()
		c.Request = bytes.Clone(c.Request)
		all = append(all, c)
		e.mu.Unlock()
		if answer == nil {
			return e.Pay(c, c.Amount.Minor)
		}
		return answer(c)
	})
	return func() []escrow.Call {
		e.mu.Lock()
		defer e.mu.Unlock()
		return all
	}
}

// Execute implements escrow.Executor.
func (e *Escrow) Execute(ctx context.Context, c escrow.Call) escrow.Answer {
	e.mu.Lock()
	e.calls[c.OperationKey]++
	script := e.script
	e.mu.Unlock()
	if script == nil {
		return e.Pay(c, c.Amount.Minor)
	}
	return script(ctx, c)
}

// Pay moves money once for a key while it knows the key, and gives the same answer every time.
// Like a real service it forgets a key whose lifetime has expired, and would Pay
// again.
func (e *Escrow) Pay(c escrow.Call, minor int64) escrow.Answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.known[c.OperationKey]
	if known.minor == 0 || e.KeyLife != escrow.Forever && time.Since(known.at) > e.KeyLife {
		known = payment{c, minor, time.Now()}
		e.known[c.OperationKey] = known
		e.payments = append(e.payments, known)
	}
	return escrow.Answer{Class: escrow.Executed, Moved: known.minor, Reference: "pay_" + c.OperationKey.String()[:8]}
}

// Lookup implements escrow.Lookuper.
func (e *Escrow) Lookup(_ context.Context, c escrow.Call) escrow.Answer {
	e.mu.Lock()
	script, paid := e.lookupScript, e.known[c.OperationKey].minor
	e.mu.Unlock()
	switch {
	case script != nil:
		e.lookups.Lock()
		defer e.lookups.Unlock()
		return script(c)
	case paid > 0:
		return escrow.Answer{Class: escrow.Executed, Moved: paid, Reference: "looked up"}
	}
	return escrow.Answer{Class: escrow.NotExecuted}
}

// Paid returns what was paid for an operation key.
func (e *Escrow) Paid(k escrow.OperationKey) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[k].minor
}

// Payments returns the number of payments.
func (e *Escrow) Payments() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.payments)
}

// Calls returns the number of calls with an operation key.
func (e *Escrow) Calls(k escrow.OperationKey) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[k]
}

// TotalCalls returns the number of calls.
func (e *Escrow) TotalCalls() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.calls {
		n += c
	}
	return n
}

// RateLimited is the answer of an escrow service that is busy: nothing was paid, and the run retries.
func RateLimited() escrow.Answer {
	return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.rate_limited", Code: "429", Message: "slow down"}
}

// Refused is a final answer: nothing was paid, and the run is a dead letter.
func Refused() escrow.Answer {
	return escrow.Answer{Class: escrow.NotExecuted, Type: "http.refused", Code: "422", Message: "account closed"}
}

// NoAnswer leaves the outcome of a call unknown.
func NoAnswer() escrow.Answer {
	return escrow.Answer{Class: escrow.Unknown, Retry: true, Type: "http.no_answer", Message: "connection reset"}
}

// Accepted is the answer of a service that has a call and has not ended it.
func Accepted() escrow.Answer {
	return escrow.Answer{Class: escrow.Unknown, Retry: true, Accepted: true, Type: "http.accepted", Code: "202"}
}

// Accepts answers a call with Accepted.
func Accepts(escrow.Call) escrow.Answer { return Accepted() }

// Refuses answers a call with Refused.
func Refuses(escrow.Call) escrow.Answer { return Refused() }

// RateLimits answers a call with RateLimited.
func RateLimits(escrow.Call) escrow.Answer { return RateLimited() }

// GivesNoAnswer answers a call with NoAnswer.
func GivesNoAnswer(escrow.Call) escrow.Answer { return NoAnswer() }

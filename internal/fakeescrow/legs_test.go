package fakeescrow

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/settlement"
)

// steppedClock is a clock that a test sets forward.
type steppedClock struct{ at atomic.Int64 }

func (c *steppedClock) now() time.Time           { return noon().Add(time.Duration(c.at.Load())) }
func (c *steppedClock) forward(by time.Duration) { c.at.Add(int64(by)) }

// A payment in two legs states each time what was moved under its key so far, and is one payment.
func TestAPaymentInTwoLegs(t *testing.T) {
	t.Parallel()
	var clock steppedClock
	s := start(t, Config{Now: clock.now, Late: time.Minute})
	e, c := executor(t, s), testCase{name: "a", simulate: `"legs"`, amount: 1001}.call()
	moved := func() int64 { return e.Execute(t.Context(), c).Moved }
	if first, again := moved(), moved(); first != 401 || again != 401 || !s.RestsOpen() {
		t.Errorf("the first leg is %d, then %d; a rest is open: %t", first, again, s.RestsOpen())
	}
	clock.forward(time.Minute)
	if n := s.DoubleEffects(); n != 0 || s.RestsOpen() {
		t.Errorf("%d effects too many; a rest is open: %t", n, s.RestsOpen())
	}
	if all := moved(); all != 1001 {
		t.Errorf("%d were moved", all)
	}
	if a := e.Lookup(t.Context(), c); a.Moved != 1001 {
		t.Errorf("%+v", a)
	}
	if effects := s.Effects(); len(effects) != 2 || effects[1].Moved.Minor != 600 || !effects[1].Rest || effects[0].Reference != effects[1].Reference {
		t.Errorf("%+v", effects)
	}
}

// The rest of a payment is no payment of its own, unless it is more than was asked for.
func TestTheRestOfAPaymentIsNoViolation(t *testing.T) {
	t.Parallel()
	leg := func(moved int64, rest bool) Effect {
		usd := func(n int64) settlement.Money { return settlement.Money{Minor: n, Currency: "USD"} }
		return Effect{OperationKey: "k", Tenant: "t", TransactionReceiptID: "1", EscrowReference: "e", Outcome: "release", Generation: 1, Asked: usd(10), Held: usd(30), Moved: usd(moved), Rest: rest}
	}
	if wrong := violations([]Effect{leg(4, false), leg(6, true)}); len(wrong) != 0 {
		t.Errorf("%+v", wrong)
	}
	higher := leg(10, false)
	higher.OperationKey, higher.Generation = "l", 2
	if wrong := violations([]Effect{leg(4, false), leg(6, true), higher}); len(wrong) != 1 || wrong[0].Why != PaidInFull {
		t.Errorf("%+v", wrong)
	}
	if wrong := violations([]Effect{leg(4, false), leg(7, true)}); len(wrong) != 1 {
		t.Errorf("%+v", wrong)
	}
	if wrong := violations([]Effect{leg(4, false), leg(6, true), leg(4, false)}); len(wrong) != 1 || wrong[0].Why != SameKey {
		t.Errorf("%+v", wrong)
	}
}

// A call that waits for the whole answers with what other calls of its key have moved meanwhile, or not at all.
func TestACallThatWaitsForTheWhole(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Late: time.Millisecond})
	e := executor(t, s)
	limited, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if a := e.Execute(limited, testCase{name: "a", simulate: `"whole"`}.call()); a.Class != escrow.Unknown {
		t.Errorf("%+v", a)
	}
	c := testCase{name: "b", simulate: `"whole,legs"`, amount: 1000}.call()
	whole := make(chan escrow.Answer, 1)
	go func() { whole <- e.Execute(t.Context(), c) }()
	for len(s.Calls(c.OperationKey.String())) == 0 { // until it waits
		runtime.Gosched()
	}
	if a := e.Execute(t.Context(), c); a.Moved != 400 {
		t.Errorf("%+v", a)
	}
	if a := <-whole; a.Class != escrow.Executed || a.Moved != 1000 {
		t.Errorf("%+v", a)
	}
}

// A service that paid and asks to wait is known to have paid by its lookups only, for as long as they know the key.
func TestAServiceThatAsksToWaitForLongerThanItKnowsTheKey(t *testing.T) {
	t.Parallel()
	var clock steppedClock
	s := start(t, Config{Now: clock.now, KeyLifetime: time.Minute, LookupLifetime: time.Hour, Wait: 2 * time.Minute})
	e, c := executor(t, s), testCase{name: "a", simulate: `"wait,ok"`, lookup: `"absent,ok"`}.call()
	if a := e.Execute(t.Context(), c); a.Class != escrow.Unknown || a.RetryAfter != 2*time.Minute {
		t.Errorf("%+v", a)
	}
	clock.forward(2 * time.Minute)
	for i, want := range []escrow.Class{escrow.NotExecuted, escrow.Executed} {
		if a := e.Lookup(t.Context(), c); a.Class != want {
			t.Errorf("lookup %d: %+v", i, a)
		}
	}
	e.Execute(t.Context(), c)
	if wrong := s.Violations(); len(wrong) != 1 || wrong[0].Why != SameKey {
		t.Errorf("a call under the forgotten key: %+v", wrong)
	}
	clock.forward(2 * time.Hour)
	if a := e.Lookup(t.Context(), c); a.Class != escrow.NotExecuted {
		t.Errorf("%+v", a)
	}
}

package fakeescrow

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/settlement"
)

// callResult is what a caller knows of one call.
type callResult struct {
	class escrow.Class
	retry bool
	kind  string
	moved int64
}

func TestEachWordBehavesAsTheTableSays(t *testing.T) {
	t.Parallel()
	const half, all = 1251, 2501
	paid := callResult{class: "executed", moved: all}
	busy := callResult{"not_executed", true, "http.rate_limited", 0}
	no := callResult{"not_executed", false, "http.refused", 0}
	lost := callResult{"unknown", true, "http.no_answer", 0}
	for simulate, tc := range map[string]struct {
		want  []callResult
		moved int64
		calls []int
	}{
		`"ok"`:                                 {[]callResult{paid, paid}, all, []int{200, 200}},
		`null`:                                 {[]callResult{paid}, all, []int{200}},
		`["later","ok"]`:                       {[]callResult{busy, paid}, all, []int{429, 200}},
		`["retryable","ok"]`:                   {[]callResult{busy, paid, paid}, all, []int{429, 200, 200}},
		`"retryable, retryable, ok"`:           {[]callResult{busy, busy, paid}, all, []int{429, 429, 200}},
		`"retryable"`:                          {[]callResult{busy, busy, busy}, 0, []int{429, 429, 429}},
		`["refused"]`:                          {[]callResult{no, no}, 0, []int{422, 422}},
		`"drop"`:                               {[]callResult{lost, paid}, all, []int{0, 200}},
		`["partial"]`:                          {[]callResult{{class: "executed", moved: half}, {class: "executed", moved: half}}, half, []int{200, 200}},
		`["panic"]`:                            {[]callResult{paid, paid}, all, []int{200, 200}},
		`["ok","refused"]`:                     {[]callResult{paid, paid}, all, []int{200, 200}},
		`["mystery"]`:                          {[]callResult{no}, 0, nil},
		`7`:                                    {[]callResult{no}, 0, nil},
		`["retryable","drop","retryable"]`:     {[]callResult{busy, lost, paid}, all, []int{429, 0, 200}},
		`["retryable","partial","ok","hang" ]`: {[]callResult{busy, {class: "executed", moved: half}}, half, []int{429, 200}},
	} {
		t.Run(simulate, func(t *testing.T) {
			t.Parallel()
			s := start(t, Config{Now: noon})
			e := executor(t, s)
			c := testCase{name: "a", simulate: simulate}.call()
			for i, want := range tc.want {
				a := e.Execute(t.Context(), c)
				if got := (callResult{a.Class, a.Retry, a.Type, a.Moved}); got != want {
					t.Errorf("call %d: %+v, want %+v", i+1, got, want)
				}
			}
			var statuses []int
			for _, c := range s.Calls(c.OperationKey.String()) {
				statuses = append(statuses, c.Status)
			}
			if d := cmp.Diff(tc.calls, statuses); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
			if got := s.Totals().Released["USD"]; got != tc.moved || s.DoubleEffects() != 0 {
				t.Errorf("moved %d, want %d; double %d", got, tc.moved, s.DoubleEffects())
			}
			l := e.Lookup(t.Context(), c)
			if l.Moved != tc.moved || (l.Class == "executed") != (tc.moved > 0) || (l.Class == "not_executed") != (tc.moved == 0) {
				t.Errorf("lookup: %+v", l)
			}
		})
	}
}

func TestAHangingCallPaysNothingAndEndsWithItsClient(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	e := executor(t, s)
	c := testCase{name: "a", simulate: `["hang","ok"]`}.call()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the call has to arrive, also on a busy machine
	defer cancel()
	if a := e.Execute(ctx, c); a.Class != "unknown" || a.Type != "http.timeout" {
		t.Errorf("hang: %+v", a)
	}
	if a := e.Lookup(t.Context(), c); a.Class != "not_executed" {
		t.Errorf("lookup: %+v", a)
	}
	if a := e.Execute(t.Context(), c); a.Class != "executed" {
		t.Errorf("the next word: %+v", a)
	}
}

func TestAHangIsBoundedWhereAsked(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Hang: 10 * time.Millisecond})
	if a := executor(t, s).Execute(t.Context(), testCase{name: "a", simulate: `"hang"`}.call()); a.Type != "http.no_answer" {
		t.Errorf("%+v", a)
	}
}

func TestALateCallHasPaidBeforeItAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Late: 150 * time.Millisecond})
	e := executor(t, s)
	c := testCase{name: "a", simulate: `"late"`}.call()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
	defer cancel()
	if a := e.Execute(ctx, c); a.Class != "unknown" {
		t.Errorf("at the limit: %+v", a)
	}
	if a := e.Lookup(t.Context(), c); a.Class != "executed" || a.Moved != 2501 {
		t.Errorf("lookup: %+v", a)
	}
	patient := testCase{name: "b", simulate: `"late"`}.call()
	began := time.Now()
	if a := e.Execute(t.Context(), patient); a.Class != "executed" || time.Since(began) < 150*time.Millisecond {
		t.Errorf("patient: %+v after %v", a, time.Since(began))
	}
}

func TestRepairMakesEveryWordOK(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	e := executor(t, s)
	c := testCase{name: "a", simulate: `"refused"`}.call()
	if a := e.Execute(t.Context(), c); a.Class != "not_executed" || !strings.Contains(a.Message, "payee_blocked") {
		t.Errorf("before: %+v", a)
	}
	s.Repair()
	if a := e.Execute(t.Context(), c); a.Class != "executed" {
		t.Errorf("after: %+v", a)
	}
}

func TestADarkKeyIsNotAnsweredBeforeTheRepair(t *testing.T) {
	t.Parallel()
	for simulate, moved := range map[string]int64{`"dark"`: 2501, `"lost"`: 0} {
		s := start(t, Config{})
		e := executor(t, s)
		c := testCase{name: "a", simulate: simulate}.call()
		for range 2 {
			if a := e.Execute(t.Context(), c); a.Class != "unknown" || a.Type != "http.no_answer" {
				t.Errorf("%s: %+v", simulate, a)
			}
			if a := e.Lookup(t.Context(), c); a.Class != "unknown" {
				t.Errorf("%s looked up: %+v", simulate, a)
			}
		}
		if got := s.Totals().Released["USD"]; got != moved || s.DoubleEffects() != 0 {
			t.Errorf("%s moved %d, want %d; double %d", simulate, got, moved, s.DoubleEffects())
		}
		s.Repair()
		if a := e.Lookup(t.Context(), c); a.Moved != moved || (a.Class == "executed") != (moved > 0) {
			t.Errorf("%s looked up after the repair: %+v", simulate, a)
		}
		if a := e.Execute(t.Context(), c); a.Class != "executed" || a.Moved != 2501 || s.DoubleEffects() != 0 {
			t.Errorf("%s after the repair: %+v", simulate, a)
		}
	}
}

func TestAKeyIsNotTakenForAnotherRequest(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	e := executor(t, s)
	first, other := testCase{name: "a"}.call(), testCase{name: "a", amount: 9}.call()
	e.Execute(t.Context(), first)
	a := e.Execute(t.Context(), other)
	if a.Class != "unknown" || a.Retry || a.Type != "http.key_reused" || !strings.Contains(a.Message, "reused with another request") {
		t.Errorf("%+v", a)
	}
	if n := s.Totals(); n.Effects != 1 || n.Calls != 2 || n.Keys != 1 {
		t.Errorf("%+v", n)
	}
}

func TestACaseMayAskForItsFundsToBeChecked(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	e := executor(t, s)
	for _, tc := range []struct {
		ask  testCase
		want escrow.Class
	}{
		{testCase{name: "a", escrow: "esc", amount: 6000}, "executed"},
		{testCase{name: "b", escrow: "esc", amount: 4001}, "not_executed"},
		{testCase{name: "c", escrow: "esc", amount: 4001, held: 99999}, "not_executed"},
		{testCase{name: "d", escrow: "esc", amount: 4000}, "executed"},
		{testCase{name: "e", escrow: "esc", amount: 1}, "not_executed"},
		{testCase{name: "f", escrow: "other", amount: 1}, "executed"},
	} {
		tc.ask.simulate = `"funds"`
		if a := e.Execute(t.Context(), tc.ask.call()); a.Class != tc.want {
			t.Errorf("%s: %+v, want %s", tc.ask.name, a, tc.want)
		}
	}
	if got := s.Totals().Released["USD"]; got != 10001 || s.DoubleEffects() != 0 {
		t.Errorf("moved %d, %d double", got, s.DoubleEffects())
	}
}

// A service that refused for lack of funds would hide every second payment of a case
// whose amount is all that is held.
func TestWhateverIsAskedUnderANewKeyIsPaidAndCounted(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	e := executor(t, s)
	var want []string
	for i, outcome := range []string{"release", "refund", "release"} {
		c := testCase{name: "a", escrow: "esc", amount: 10000, outcome: outcome}.call()
		c.OperationKey[0] ^= byte(i)
		if a := e.Execute(t.Context(), c); a.Class != "executed" || a.Moved != 10000 {
			t.Errorf("key %d: %+v", i, a)
		}
	}
	want = []string{OverHeld, SameDecision}
	var got []string
	for _, w := range s.Violations() {
		got = append(got, w.Why)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("wrongs (-want +got):\n%s", d)
	}
}

// A clock that the test sets.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time       { return noon().Add(time.Duration(c.at.Load())) }
func (c *clock) set(at time.Duration) { c.at.Store(int64(at)) }

func TestAForgottenKeyLooksUpAsNotExecutedAndPaysAgain(t *testing.T) {
	t.Parallel()
	var now clock
	s := start(t, Config{Now: now.now, KeyLifetime: time.Minute})
	e := executor(t, s)
	c := testCase{name: "a"}.call()
	for at, want := range []struct {
		class   escrow.Class
		effects int
	}{{"executed", 1}, {"executed", 1}, {"not_executed", 2}} {
		now.set(time.Duration(at) * 30 * time.Second)
		if at == 0 {
			e.Execute(t.Context(), c)
		}
		if a := e.Lookup(t.Context(), c); a.Class != want.class {
			t.Errorf("after %d halves: %+v", at, a)
		}
		if a := e.Execute(t.Context(), c); a.Class != "executed" || len(s.Effects()) != want.effects {
			t.Errorf("after %d halves: %+v, %d effects", at, a, len(s.Effects()))
		}
	}
	if w := s.Violations(); len(w) != 1 || w[0].Why != SameKey || !w[0].At.Equal(noon().Add(time.Minute)) {
		t.Errorf("%+v", w)
	}
	calls := s.Calls(c.OperationKey.String())
	if len(calls) != 4 || calls[3].At.Sub(calls[0].At) != time.Minute || !calls[3].Answered.Equal(calls[3].At) {
		t.Errorf("%+v", calls)
	}
}

func TestLookupsLagLieAndFailAsConfigured(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config Config
		ask    testCase
		want   []escrow.Class // at once, after 2s, after 4s
	}{
		"honest":                {Config{}, testCase{}, []escrow.Class{"executed", "executed", "executed"}},
		"a replica":             {Config{Lookup: "lag", Lag: 3 * time.Second}, testCase{}, []escrow.Class{"not_executed", "not_executed", "executed"}},
		"a replica for one key": {Config{Lag: time.Second}, testCase{lookup: `"lag"`}, []escrow.Class{"not_executed", "executed", "executed"}},
		"in turn":               {Config{}, testCase{lookup: `"fail, lie, ok"`}, []escrow.Class{"unknown", "not_executed", "executed"}},
		"a lie of what was not": {Config{Lookup: "lie"}, testCase{simulate: `"refused"`}, []escrow.Class{"executed", "executed", "executed"}},
		"failing":               {Config{Lookup: "fail"}, testCase{}, []escrow.Class{"unknown", "unknown", "unknown"}},
	} {
		var now clock
		tc.config.Now = now.now
		s := start(t, tc.config)
		e := executor(t, s)
		tc.ask.name = "a"
		c := tc.ask.call()
		e.Execute(t.Context(), c)
		for i, want := range tc.want {
			now.set(time.Duration(i) * 2 * time.Second)
			if a := e.Lookup(t.Context(), c); a.Class != want {
				t.Errorf("%s, lookup %d: %+v, want %s", name, i+1, a, want)
			}
		}
		s.Repair()
		paid := len(s.Effects()) > 0
		if a := e.Lookup(t.Context(), c); (a.Class == "executed") != paid {
			t.Errorf("%s, after the repair: %+v", name, a)
		}
	}
	if _, err := Start(Config{Lookup: "guess"}); err == nil {
		t.Error("a word that is none was taken")
	}
}

func TestManyCallsOfOneKeyAtOnceMoveItsMoneyOnce(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	e := executor(t, s)
	c := testCase{name: "a"}.call()
	var calls sync.WaitGroup
	for range 32 {
		calls.Go(func() {
			if a := e.Execute(t.Context(), c); a.Class != "executed" || a.Moved != 2501 {
				t.Errorf("%+v", a)
			}
		})
	}
	calls.Wait()
	effects := s.Effects()
	if len(effects) != 1 || effects[0].Calls != 32 || s.DoubleEffects() != 0 {
		t.Fatalf("%+v", effects)
	}
	want := Effect{
		OperationKey: c.OperationKey.String(), Tenant: "northwind", TransactionReceiptID: "txr_a",
		EscrowReference: "esc_a", Outcome: "release", Generation: 1,
		Asked: settlement.Money{Minor: 2501, Currency: "USD"}, Held: settlement.Money{Minor: 10000, Currency: "USD"}, Moved: settlement.Money{Minor: 2501, Currency: "USD"},
		Reference: "eff_00000001_" + c.OperationKey.String()[:8], At: effects[0].At, Calls: 32,
	}
	if d := cmp.Diff(want, effects[0]); d != "" {
		t.Errorf("effect (-want +got):\n%s", d)
	}
}

func TestCloseLeavesHeldCallsUnanswered(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	s := start(t, Config{Now: func() time.Time { // asked as a call is taken in
		arrived <- struct{}{}
		return time.Now()
	}})
	e := executor(t, s)
	c := testCase{name: "a", simulate: `"hang"`}.call()
	answered := make(chan escrow.Answer)
	go func() { answered <- e.Execute(t.Context(), c) }()
	<-arrived
	s.Close()
	if a := <-answered; a.Class != "unknown" || a.Type != "http.no_answer" {
		t.Errorf("%+v", a)
	}
	if a := e.Execute(t.Context(), c); a.Type != "http.connection_refused" {
		t.Errorf("after: %+v", a)
	}
	if len(s.Calls(c.OperationKey.String())) != 1 {
		t.Error("the ledger can't be read any more")
	}
}

package fakeescrow

import (
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/settlement"
)

func TestViolationsAreEachEffectThatIsOneTooMany(t *testing.T) {
	t.Parallel()
	usd := func(n int64) settlement.Money { return settlement.Money{Minor: n, Currency: "USD"} }
	paid := func(key, tx string, outcome settlement.Outcome, generation, asked, moved int64) Effect {
		return Effect{
			OperationKey: key, Tenant: "t", TransactionReceiptID: tx, EscrowReference: "esc_" + tx, Outcome: outcome,
			Generation: generation, Asked: usd(asked), Held: usd(30), Moved: usd(moved),
		}
	}
	a := paid("a", "1", "release", 1, 10, 10)
	part := paid("a", "1", "release", 1, 10, 5)
	foreign := a
	foreign.OperationKey, foreign.Tenant = "b", "u"
	euro := a
	euro.Moved.Currency = "EUR"
	elsewhere := func(e Effect, escrow string) Effect { e.EscrowReference = escrow; return e }
	for name, tc := range map[string]struct {
		effects []Effect
		want    []string
	}{
		"nothing":                          {nil, nil},
		"once":                             {[]Effect{a}, nil},
		"two transactions":                 {[]Effect{a, paid("b", "2", "refund", 1, 10, 10)}, nil},
		"two tenants":                      {[]Effect{a, foreign}, nil},
		"a part, then a higher generation": {[]Effect{part, paid("b", "1", "release", 2, 5, 5)}, nil},
		"one key twice":                    {[]Effect{a, a}, []string{SameKey}},
		"one key three times":              {[]Effect{part, part, part}, []string{SameKey, SameKey}},
		"one key for two transactions":     {[]Effect{a, paid("a", "2", "release", 1, 10, 10)}, []string{SameKey}},
		"both ways":                        {[]Effect{part, paid("b", "1", "refund", 2, 5, 5)}, []string{BothWays}},
		"the rest the other way, twice":    {[]Effect{part, paid("b", "1", "refund", 2, 5, 5), paid("c", "1", "refund", 2, 5, 5)}, []string{BothWays, SameDecision}},
		"more than is held, the other way": {[]Effect{
			elsewhere(paid("a", "1", "release", 1, 30, 15), "s"), elsewhere(paid("b", "1", "refund", 2, 30, 30), "s")}, []string{OverHeld}},
		"one generation under two keys":        {[]Effect{part, paid("b", "1", "release", 1, 10, 5)}, []string{SameDecision}},
		"again after it was paid in full":      {[]Effect{a, paid("b", "1", "release", 2, 10, 10)}, []string{PaidInFull}},
		"a part, in full, and again":           {[]Effect{part, paid("b", "1", "release", 2, 5, 5), paid("c", "1", "release", 3, 5, 5)}, []string{PaidInFull}},
		"an older generation after the newer":  {[]Effect{paid("b", "1", "release", 2, 10, 5), part}, []string{OlderAfter}},
		"more than was asked":                  {[]Effect{paid("a", "1", "release", 1, 10, 11)}, []string{OverAsked}},
		"in another currency than was asked":   {[]Effect{euro}, []string{OverAsked}},
		"interleaved with others, still found": {[]Effect{a, paid("b", "2", "release", 1, 1, 1), a}, []string{SameKey}},
		"an escrow that holds enough": {[]Effect{
			elsewhere(paid("a", "1", "release", 1, 15, 15), "s"), elsewhere(paid("b", "2", "refund", 1, 15, 15), "s")}, nil},
		"an escrow that holds less": {[]Effect{
			elsewhere(paid("a", "1", "release", 1, 15, 15), "s"), elsewhere(paid("b", "2", "refund", 1, 16, 16), "s")}, []string{OverHeld}},
	} {
		var got []string
		for _, w := range violations(tc.effects) {
			got = append(got, w.Why)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestThePanickingExecutorHasPaidWhenItPanics(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	e := NewPanicking(executor(t, s))
	try := func(c escrow.Call) (a escrow.Answer, panicked bool) {
		defer func() { panicked = recover() != nil }()
		return e.Execute(t.Context(), c), false
	}
	for simulate, want := range map[string][]bool{
		`"ok"`:                  {false, false},
		`["panic","ok"]`:        {true, false, false},
		`"panic"`:               {true, true, true},
		`["retryable","panic"]`: {false, true, true},
	} {
		c := testCase{name: simulate, simulate: simulate}.call()
		for i, panics := range want {
			if _, got := try(c); got != panics {
				t.Errorf("%s call %d: panicked %v", simulate, i+1, got)
			}
		}
		if a := e.Lookup(t.Context(), c); a.Class != "executed" {
			t.Errorf("%s: %+v", simulate, a)
		}
	}
	if s.DoubleEffects() != 0 || len(s.Effects()) != 4 {
		t.Errorf("%d effects, %d double", len(s.Effects()), s.DoubleEffects())
	}
}

func FuzzAnyRequestIsParsedOrRefused(f *testing.F) {
	f.Add(testCase{name: "a"}.call().Request)
	f.Add(testCase{name: "a", simulate: `"ok,late"`}.call().Request)
	f.Add([]byte(`{"payload":{"simulate":[]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := parseRequest(raw)
		if err == nil && (len(r.words) == 0 || r.Amount.Minor < 1 || r.Tenant == "") {
			t.Errorf("accepted %q as %+v", raw, r)
		}
	})
}

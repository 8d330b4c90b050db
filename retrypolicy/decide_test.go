package retrypolicy_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/retrypolicy"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 123456789, time.FixedZone("", 7200))

func TestDecide(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) time.Time { return time.Date(2026, 5, 4, 10, 0, 0, 123457000, time.UTC).Add(d) }
	types := retrypolicy.Policy{NonRetryable: []string{"auth.*", "card_stolen"}}
	for _, c := range []struct {
		name string
		p    retrypolicy.Policy
		q    retrypolicy.Question
		want retrypolicy.Verdict
	}{
		{"first of three", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 1, Retryable: true}, retrypolicy.Verdict{true, at(25 * time.Millisecond), 25 * time.Millisecond, retrypolicy.Retry}},
		{"second of three", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 2, Retryable: true}, retrypolicy.Verdict{true, at(50 * time.Millisecond), 50 * time.Millisecond, retrypolicy.Retry}},
		{"third of three", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 3, Retryable: true}, retrypolicy.Verdict{Reason: retrypolicy.RetryExhausted}},
		{"over the budget", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: math.MaxInt, Retryable: true}, retrypolicy.Verdict{Reason: retrypolicy.RetryExhausted}},
		{"nothing spent", retrypolicy.Policy{}, retrypolicy.Question{Retryable: true}, retrypolicy.Verdict{Reason: retrypolicy.RetryExhausted}},
		{"final", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 1}, retrypolicy.Verdict{Reason: retrypolicy.Final}},
		{"final with the last attempt", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 3}, retrypolicy.Verdict{Reason: retrypolicy.Final}},
		{"named type", types, retrypolicy.Question{BudgetSpent: 1, Retryable: true, ErrorType: "card_stolen"}, retrypolicy.Verdict{Reason: retrypolicy.NonRetryableType}},
		{"type by prefix", types, retrypolicy.Question{BudgetSpent: 1, Retryable: true, ErrorType: "auth.expired"}, retrypolicy.Verdict{Reason: retrypolicy.NonRetryableType}},
		{"prefix alone is another type", types, retrypolicy.Question{BudgetSpent: 3, Retryable: true, ErrorType: "auth"}, retrypolicy.Verdict{Reason: retrypolicy.RetryExhausted}},
		{"longer than a named type", types, retrypolicy.Question{BudgetSpent: 3, Retryable: true, ErrorType: "card_stolen.x"}, retrypolicy.Verdict{Reason: retrypolicy.RetryExhausted}},
		{"other case is another type", types, retrypolicy.Question{BudgetSpent: 3, Retryable: true, ErrorType: "Auth.expired"}, retrypolicy.Verdict{Reason: retrypolicy.RetryExhausted}},
		{"asked to wait longer", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 1, Retryable: true, RetryAfter: time.Second}, retrypolicy.Verdict{true, at(time.Second), time.Second, retrypolicy.Retry}},
		{"asked to wait shorter", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 1, Retryable: true, RetryAfter: time.Millisecond}, retrypolicy.Verdict{true, at(25 * time.Millisecond), 25 * time.Millisecond, retrypolicy.Retry}},
		{"asked to wait too long", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 1, Retryable: true, RetryAfter: math.MaxInt64}, retrypolicy.Verdict{true, at(5 * time.Minute), 5 * time.Minute, retrypolicy.Retry}},
		{"asked to wait a negative time", retrypolicy.Policy{}, retrypolicy.Question{BudgetSpent: 1, Retryable: true, RetryAfter: math.MinInt64}, retrypolicy.Verdict{true, at(25 * time.Millisecond), 25 * time.Millisecond, retrypolicy.Retry}},
	} {
		c.q.Now = noon
		if got := c.p.Decide(c.q); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestAnAttemptIsNeverDueEarlyAndAtMostAMicrosecondLate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := retrypolicy.Question{
			BudgetSpent: rapid.IntRange(-1, 15).Draw(t, "spent"),
			Retryable:   true,
			RetryAfter:  time.Duration(rapid.Int64().Draw(t, "after")),
			Now:         time.Unix(rapid.Int64Range(-1e9, 1e11).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanoseconds")),
		}
		p := anyPolicy(t)
		v := p.Decide(q)
		if v.Retry != p.ShouldScheduleRetry(q.BudgetSpent) || v.Retry != (v.Reason == retrypolicy.Retry) {
			t.Fatalf("%+v for %d spent", v, q.BudgetSpent)
		}
		if !v.Retry {
			if v != (retrypolicy.Verdict{Reason: retrypolicy.RetryExhausted}) {
				t.Fatalf("%+v says more than the end", v)
			}
			return
		}
		late := v.At.Sub(q.Now.Add(v.Delay))
		if late < 0 || late >= time.Microsecond {
			t.Fatalf("due %s after the delay", late)
		}
		if v.At.Nanosecond()%1000 != 0 || v.At.Location() != time.UTC {
			t.Fatalf("due at %s, not UTC microseconds", v.At)
		}
		if v.Delay < 0 || v.Delay > p.Normalize().MaxDelay {
			t.Fatalf("delay %s", v.Delay)
		}
	})
}

func TestDecidingWithTheDefaultPolicyAllocatesNothing(t *testing.T) {
	q := retrypolicy.Question{BudgetSpent: 1, Retryable: true, ErrorType: "http.refused", Now: noon}
	p := retrypolicy.Policy{NonRetryable: []string{"a", "b.*"}}.Normalize()
	if n := testing.AllocsPerRun(100, func() { p.Decide(q) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

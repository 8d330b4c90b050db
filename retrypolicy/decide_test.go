package retrypolicy

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 123456789, time.FixedZone("", 7200))

func TestDecide(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) time.Time { return time.Date(2026, 5, 4, 10, 0, 0, 123457000, time.UTC).Add(d) }
	types := Policy{NonRetryable: []string{"auth.*", "card_stolen"}}
	for _, c := range []struct {
		name string
		p    Policy
		q    Question
		want Verdict
	}{
		{"first of three", Policy{}, Question{BudgetSpent: 1, Retryable: true}, Verdict{true, at(25 * time.Millisecond), 25 * time.Millisecond, Retry}},
		{"second of three", Policy{}, Question{BudgetSpent: 2, Retryable: true}, Verdict{true, at(50 * time.Millisecond), 50 * time.Millisecond, Retry}},
		{"third of three", Policy{}, Question{BudgetSpent: 3, Retryable: true}, Verdict{Reason: RetryExhausted}},
		{"over the budget", Policy{}, Question{BudgetSpent: math.MaxInt, Retryable: true}, Verdict{Reason: RetryExhausted}},
		{"nothing spent", Policy{}, Question{Retryable: true}, Verdict{Reason: RetryExhausted}},
		{"final", Policy{}, Question{BudgetSpent: 1}, Verdict{Reason: Final}},
		{"final with the last attempt", Policy{}, Question{BudgetSpent: 3}, Verdict{Reason: Final}},
		{"named type", types, Question{BudgetSpent: 1, Retryable: true, ErrorType: "card_stolen"}, Verdict{Reason: NonRetryableType}},
		{"type by prefix", types, Question{BudgetSpent: 1, Retryable: true, ErrorType: "auth.expired"}, Verdict{Reason: NonRetryableType}},
		{"prefix alone is another type", types, Question{BudgetSpent: 3, Retryable: true, ErrorType: "auth"}, Verdict{Reason: RetryExhausted}},
		{"longer than a named type", types, Question{BudgetSpent: 3, Retryable: true, ErrorType: "card_stolen.x"}, Verdict{Reason: RetryExhausted}},
		{"other case is another type", types, Question{BudgetSpent: 3, Retryable: true, ErrorType: "Auth.expired"}, Verdict{Reason: RetryExhausted}},
		{"asked to wait longer", Policy{}, Question{BudgetSpent: 1, Retryable: true, RetryAfter: time.Second}, Verdict{true, at(time.Second), time.Second, Retry}},
		{"asked to wait shorter", Policy{}, Question{BudgetSpent: 1, Retryable: true, RetryAfter: time.Millisecond}, Verdict{true, at(25 * time.Millisecond), 25 * time.Millisecond, Retry}},
		{"asked to wait too long", Policy{}, Question{BudgetSpent: 1, Retryable: true, RetryAfter: math.MaxInt64}, Verdict{true, at(5 * time.Minute), 5 * time.Minute, Retry}},
		{"asked to wait a negative time", Policy{}, Question{BudgetSpent: 1, Retryable: true, RetryAfter: math.MinInt64}, Verdict{true, at(25 * time.Millisecond), 25 * time.Millisecond, Retry}},
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
		q := Question{
			BudgetSpent: rapid.IntRange(-1, 15).Draw(t, "spent"),
			Retryable:   true,
			RetryAfter:  time.Duration(rapid.Int64().Draw(t, "after")),
			Now:         time.Unix(rapid.Int64Range(-1e9, 1e11).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanoseconds")),
		}
		p := anyPolicy(t)
		v := p.Decide(q)
		if v.Retry != p.ShouldScheduleRetry(q.BudgetSpent) || v.Retry != (v.Reason == Retry) {
			t.Fatalf("%+v for %d spent", v, q.BudgetSpent)
		}
		if !v.Retry {
			if v != (Verdict{Reason: RetryExhausted}) {
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
	q := Question{BudgetSpent: 1, Retryable: true, ErrorType: "http.refused", Now: noon}
	p := Policy{NonRetryable: []string{"a", "b.*"}}.Normalize()
	if n := testing.AllocsPerRun(100, func() { p.Decide(q) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

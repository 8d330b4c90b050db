package retrypolicy_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/retrypolicy"
)

func TestThreeAttemptsMeanTwoRetries(t *testing.T) {
	t.Parallel()
	for n := -1; n <= 100; n++ {
		want := n == 1 || n == 2
		for name, p := range map[string]retrypolicy.Policy{"zero": {}, "normalized": retrypolicy.Policy{}.Normalize(), "negative": {MaxRetryAttempts: -7}} {
			if got := p.ShouldScheduleRetry(n); got != want {
				t.Errorf("%s policy: ShouldScheduleRetry(%d) = %v, want %v", name, n, got, want)
			}
		}
	}
	for n, p := range map[int]retrypolicy.Policy{math.MinInt: {}, math.MaxInt: {}, 1: {MaxRetryAttempts: 1}, retrypolicy.MaxAttempts: {MaxRetryAttempts: math.MaxInt}} {
		if p.ShouldScheduleRetry(n) {
			t.Errorf("ShouldScheduleRetry(%d) with %d attempts in all is true", n, p.MaxRetryAttempts)
		}
	}
}

func TestDelaysDoubleFrom25msUpTo5m(t *testing.T) {
	t.Parallel()
	first := []time.Duration{
		25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond,
		800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, 6400 * time.Millisecond, 12800 * time.Millisecond,
		25600 * time.Millisecond, 51200 * time.Millisecond, 102400 * time.Millisecond, 204800 * time.Millisecond,
	}
	for n := -1; n <= 100; n++ {
		want := 5 * time.Minute
		switch {
		case n < 1:
			want = first[0]
		case n <= len(first):
			want = first[n-1]
		}
		if got := (retrypolicy.Policy{}).DelayForAttempt(n); got != want {
			t.Errorf("DelayForAttempt(%d) = %s, want %s", n, got, want)
		}
		if got := (retrypolicy.Policy{}).JitteredDelay([16]byte{byte(n)}, n); got != want {
			t.Errorf("JitteredDelay(%d) without jitter = %s, want %s", n, got, want)
		}
	}
}

func TestDelaysDoNotOverflow(t *testing.T) {
	t.Parallel()
	const longest = time.Duration(math.MaxInt64)
	for _, c := range []struct {
		name string
		p    retrypolicy.Policy
		n    int
		want time.Duration
	}{
		{"huge attempt", retrypolicy.Policy{}, math.MaxInt, 5 * time.Minute},
		{"least attempt", retrypolicy.Policy{}, math.MinInt, 25 * time.Millisecond},
		{"huge base, default cap", retrypolicy.Policy{BaseDelay: longest}, 1, 5 * time.Minute},
		{"huge base and cap", retrypolicy.Policy{BaseDelay: longest, MaxDelay: longest}, 1, longest},
		{"huge base and cap, later", retrypolicy.Policy{BaseDelay: longest, MaxDelay: longest}, 9, longest},
		{"base just under the cap", retrypolicy.Policy{BaseDelay: longest - 1, MaxDelay: longest}, 2, longest},
		{"huge cap, huge attempt", retrypolicy.Policy{MaxDelay: longest}, math.MaxInt, longest},
		{"huge coefficient", retrypolicy.Policy{Coefficient: math.MaxFloat64}, 2, 5 * time.Minute},
		{"huge coefficient, first attempt", retrypolicy.Policy{Coefficient: math.MaxFloat64}, 1, 25 * time.Millisecond},
		{"infinite coefficient is the default", retrypolicy.Policy{Coefficient: math.Inf(1)}, 2, 50 * time.Millisecond},
		{"no coefficient at all is the default", retrypolicy.Policy{Coefficient: math.NaN()}, 2, 50 * time.Millisecond},
		{"shrinking coefficient is the default", retrypolicy.Policy{Coefficient: 0.5}, 2, 50 * time.Millisecond},
		{"constant", retrypolicy.Policy{Coefficient: 1}, math.MaxInt, 25 * time.Millisecond},
		{"linear", retrypolicy.Policy{BaseDelay: 100, Backoff: retrypolicy.Linear}, 1, 100},
		{"linear, later", retrypolicy.Policy{BaseDelay: 100, Backoff: retrypolicy.Linear}, 7, 700},
		{"linear, just at the cap", retrypolicy.Policy{BaseDelay: 100, MaxDelay: 700, Backoff: retrypolicy.Linear}, 7, 700},
		{"linear, over the cap", retrypolicy.Policy{BaseDelay: 100, MaxDelay: 750, Backoff: retrypolicy.Linear}, 8, 750},
		{"linear, huge base and cap", retrypolicy.Policy{BaseDelay: longest, MaxDelay: longest, Backoff: retrypolicy.Linear}, 2, longest},
		{"linear, huge attempt", retrypolicy.Policy{BaseDelay: 1, MaxDelay: longest, Backoff: retrypolicy.Linear}, math.MaxInt, retrypolicy.MaxAttempts},
		{"three halves", retrypolicy.Policy{BaseDelay: 100, Coefficient: 1.5}, 3, 225},
	} {
		if got := c.p.DelayForAttempt(c.n); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// anyPolicy has no field in range except by luck.
func anyPolicy(t *rapid.T) retrypolicy.Policy {
	return retrypolicy.Policy{
		MaxRetryAttempts: rapid.OneOf(rapid.Int(), rapid.IntRange(-2, 12)).Draw(t, "attempts"),
		BaseDelay:        time.Duration(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1, 1e9)).Draw(t, "base")),
		MaxDelay:         time.Duration(rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1, 1e11)).Draw(t, "max")),
		Backoff:          rapid.SampledFrom([]retrypolicy.Backoff{"", retrypolicy.Exponential, retrypolicy.Linear, "sideways"}).Draw(t, "backoff"),
		Coefficient:      rapid.OneOf(rapid.Float64(), rapid.Float64Range(0.9, 4), rapid.Just(math.Nextafter(1, 2))).Draw(t, "coefficient"),
		Jitter:           rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1)).Draw(t, "jitter"),
		NonRetryable:     rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b.*", "b", "c.d"}), 0, 5).Draw(t, "types"),
		OnExhaustion:     rapid.SampledFrom([]retrypolicy.Exhaustion{"", retrypolicy.DeadLetter, retrypolicy.Discard, "explode"}).Draw(t, "exhaustion"),
	}
}

func TestDelaysStayInBoundsAndNeverFall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		limit := p.Normalize().MaxDelay
		n := rapid.OneOf(rapid.Int(), rapid.IntRange(-3, 60)).Draw(t, "attempt")
		d := p.DelayForAttempt(n)
		if d <= 0 || d > limit {
			t.Fatalf("DelayForAttempt(%d) = %d, not in 1..%d", n, d, limit)
		}
		if n < math.MaxInt {
			if next := p.DelayForAttempt(n + 1); next < d {
				t.Fatalf("the delay falls from %d to %d after attempt %d", d, next, n)
			}
		}
		var seed [16]byte
		copy(seed[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
		j := p.JitteredDelay(seed, n)
		if j < 0 || j > limit {
			t.Fatalf("JitteredDelay(%d) = %d, not in 0..%d", n, j, limit)
		}
		if again := p.JitteredDelay(seed, n); again != j {
			t.Fatalf("JitteredDelay is %d, then %d", j, again)
		}
		share := p.Normalize().Jitter * float64(d)
		if off := math.Abs(float64(j) - float64(d)); off > share+1+float64(d)/(1<<50) {
			t.Fatalf("jitter moves the delay by %g, more than %g", off, share)
		}
	})
}

func TestJitterSpreadsRunsOverItsWholeShare(t *testing.T) {
	t.Parallel()
	p := retrypolicy.Policy{BaseDelay: time.Second, Jitter: 0.5}
	var tenths [10]int
	for i := range 2000 {
		d := p.JitteredDelay([16]byte{byte(i), byte(i >> 8)}, 1)
		tenths[(d-500*time.Millisecond)/(100*time.Millisecond)]++
	}
	for i, n := range tenths {
		if n < 140 || n > 260 {
			t.Errorf("tenth %d of the share has %d of 2000 runs, want about 200", i, n)
		}
	}
}

// A stored next_retry_at is recomputed by other versions of this code, so the
// formula must not change unnoticed.
func TestJitterIsTheSameInEveryVersion(t *testing.T) {
	t.Parallel()
	p := retrypolicy.Policy{BaseDelay: time.Second, Jitter: 0.5}
	for n, want := range map[int]time.Duration{0: 1240120069, 1: 1240120069, 2: 2313631173} {
		if got := p.JitteredDelay([16]byte{1, 2, 3}, n); got != want {
			t.Errorf("JitteredDelay(%d) = %d, want %d", n, got, want)
		}
	}
}

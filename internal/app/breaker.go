package app

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
)

// The defaults of background.BreakerRule, as the flags show them.
const (
	defaultBreakerRow      = 5
	defaultBreakerLastRow  = 2
	defaultBreakerAttempts = 20
)

// What circuit breakers can be told. A window remembers 4096 outcomes: more can't be
// waited for.
const (
	maxBreakerShare  = 100
	maxBreakerCount  = 4096
	minBreakerWindow = 100 * time.Millisecond
	maxBreakerWindow = time.Minute
)

// bindBreaker defines the flags that say when circuit breakers open by themselves.
func bindBreaker(f *pflag.FlagSet, r *postadjudication.BreakerRule) {
	f.BoolVar(&r.Disabled, "breaker-manual", false, "leave it to people to stop calling an escrow service that fails")
	r.Consecutive, r.ConsecutiveAtLast, r.FailurePercent, r.MinAttempts, r.Window = defaultBreakerRow, defaultBreakerLastRow, 50, defaultBreakerAttempts, time.Second
	f.Var(&positiveInt{&r.Consecutive, maxBreakerCount}, "breaker-consecutive", "how many new cases in a row that failed, retryable or unknown, with no answer between, open the circuit breaker of an escrow service")
	f.Var(&positiveInt{&r.ConsecutiveAtLast, maxBreakerCount}, "breaker-consecutive-last", "as --breaker-consecutive, when one of them is at its last attempt")
	f.Var(&positiveInt{&r.FailurePercent, maxBreakerShare}, "breaker-failure-percent", "which percentage of the new cases and answers within --breaker-window, if they failed, opens it as well")
	f.Var(&positiveInt{&r.MinAttempts, maxBreakerCount}, "breaker-min-calls", "how many new cases and answers within --breaker-window there must be for --breaker-failure-percent to count")
	f.Var(&windowValue{&r.Window}, "breaker-window", "how far back --breaker-failure-percent and --breaker-min-calls count")
}

// checkBreaker refuses thresholds that can't be reached. Those that are 0 have their
// default.
func checkBreaker(r postadjudication.BreakerRule) error {
	for _, n := range []struct {
		flag     string
		is, most int
	}{
		{"breaker-consecutive", r.Consecutive, maxBreakerCount}, {"breaker-consecutive-last", r.ConsecutiveAtLast, maxBreakerCount},
		{"breaker-failure-percent", r.FailurePercent, maxBreakerShare}, {"breaker-min-calls", r.MinAttempts, maxBreakerCount},
	} {
		if n.is < 0 || n.is > n.most {
			return optionError("--%s must be 1 to %d", n.flag, n.most)
		}
	}
	if r.Window != 0 && (r.Window < minBreakerWindow || r.Window > maxBreakerWindow) {
		return optionError("--breaker-window must be %s to %s", minBreakerWindow, maxBreakerWindow)
	}
	if row, last := cmp.Or(r.Consecutive, defaultBreakerRow), cmp.Or(r.ConsecutiveAtLast, defaultBreakerLastRow); last > row {
		return optionError("--breaker-consecutive-last must not be over --breaker-consecutive: %d in a row open the circuit breaker anyway", row)
	}
	return nil
}

// positiveInt is the value of a flag: a number from 1 on. That 0 is refused keeps it from
// meaning the default.
type positiveInt struct {
	target *int
	limit  int
}

func (w *positiveInt) String() string {
	if w.target == nil {
		return ""
	}
	return strconv.Itoa(*w.target)
}

func (w *positiveInt) Type() string { return "number" }

func (w *positiveInt) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > w.limit {
		return fmt.Errorf("must be 1 to %d", w.limit)
	}
	*w.target = n
	return nil
}

// windowValue is the value of a flag: the time in which a circuit breaker counts.
type windowValue struct{ target *time.Duration }

func (w *windowValue) String() string {
	if w.target == nil {
		return ""
	}
	return w.target.String()
}

func (w *windowValue) Type() string { return "duration" }

func (w *windowValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < minBreakerWindow || d > maxBreakerWindow {
		return fmt.Errorf("must be %s to %s, such as 2s", minBreakerWindow, maxBreakerWindow)
	}
	*w.target = d
	return nil
}

package app

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
)

// The defaults of circuit.Rule, shown by the flags.
const (
	defaultBreakerRow      = 5
	defaultBreakerLastRow  = 2
	defaultBreakerAttempts = 20
	defaultBreakerShare    = 90
)

// The limits of a circuit breaker's thresholds. A window keeps 4096 outcomes, so a larger
// count would never be reached.
const (
	maxBreakerShare  = 100
	maxBreakerCount  = 4096
	minBreakerWindow = 100 * time.Millisecond
	maxBreakerWindow = time.Minute
)

// bindBreaker defines the flags of circuit breakers that open by themselves.
func bindBreaker(f *pflag.FlagSet, r *postadjudication.BreakerRule) {
	f.BoolVar(&r.Disabled, "breaker-manual", false, "never open circuit breakers automatically: only people open them")
	r.Consecutive, r.ConsecutiveAtLast, r.FailurePercent, r.MinAttempts, r.Window = defaultBreakerRow, defaultBreakerLastRow, defaultBreakerShare, defaultBreakerAttempts, time.Second
	f.Var(&positiveInt{&r.Consecutive, maxBreakerCount}, "breaker-consecutive", "open the circuit breaker of an escrow service after this many failures of new cases in a row (retryable or unknown) without an answer between them; more where calls before them failed too")
	f.Var(&positiveInt{&r.ConsecutiveAtLast, maxBreakerCount}, "breaker-consecutive-last", "as --breaker-consecutive, if one of the failures was a last attempt")
	f.Var(&positiveInt{&r.FailurePercent, maxBreakerShare}, "breaker-failure-percent", "also open it if this percentage of the new cases and answers within --breaker-window failed; probes close it while a smaller one fails")
	f.Var(&positiveInt{&r.MinAttempts, maxBreakerCount}, "breaker-min-calls", "minimum number of new cases and answers within --breaker-window for --breaker-failure-percent to apply")
	f.Var(&windowValue{&r.Window}, "breaker-window", "period that --breaker-failure-percent and --breaker-min-calls count")
}

// checkBreaker returns ErrOptions for thresholds that cannot be reached. 0 means the default.
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
		return optionError("--breaker-consecutive-last must not exceed --breaker-consecutive: %d failures in a row open the circuit breaker anyway", row)
	}
	return nil
}

// positiveInt is the value of a flag: a number from 1 to limit. 0 is an error because it would
// mean the default.
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

// windowValue is the value of --breaker-window.
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

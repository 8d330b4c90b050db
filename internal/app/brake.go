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
	brakeRow      = 5
	brakeLastRow  = 2
	brakeAttempts = 20
)

// What circuit breakers can be told. A window remembers 4096 outcomes: more can't be
// waited for.
const (
	brakeShareMost   = 100
	brakeNumberMost  = 4096
	brakeWindowLeast = 100 * time.Millisecond
	brakeWindowMost  = time.Minute
)

// bindBrake defines the flags that say when circuit breakers open by themselves.
func bindBrake(f *pflag.FlagSet, r *postadjudication.BrakeRule) {
	f.BoolVar(&r.Off, "brake-by-hand", false, "leave it to people to stop calling an escrow service that fails")
	r.Row, r.LastRow, r.Share, r.Attempts, r.Window = brakeRow, brakeLastRow, 50, brakeAttempts, time.Second
	f.Var(&whole{&r.Row, brakeNumberMost}, "brake-row", "how many new cases in a row that failed, retryable or unknown, with no answer between, open the circuit breaker of an escrow service")
	f.Var(&whole{&r.LastRow, brakeNumberMost}, "brake-last-row", "as --brake-row, when one of them is at its last attempt")
	f.Var(&whole{&r.Share, brakeShareMost}, "brake-share", "which percentage of the new cases and answers within --brake-window, if they failed, opens it as well")
	f.Var(&whole{&r.Attempts, brakeNumberMost}, "brake-attempts", "how many new cases and answers within --brake-window there must be for --brake-share to count")
	f.Var(&window{&r.Window}, "brake-window", "how far back --brake-share and --brake-attempts count")
}

// checkBrake refuses thresholds that can't be reached. Those that are 0 have their
// default.
func checkBrake(r postadjudication.BrakeRule) error {
	for _, n := range []struct {
		flag     string
		is, most int
	}{
		{"brake-row", r.Row, brakeNumberMost}, {"brake-last-row", r.LastRow, brakeNumberMost},
		{"brake-share", r.Share, brakeShareMost}, {"brake-attempts", r.Attempts, brakeNumberMost},
	} {
		if n.is < 0 || n.is > n.most {
			return wrong("--%s must be 1 to %d", n.flag, n.most)
		}
	}
	if r.Window != 0 && (r.Window < brakeWindowLeast || r.Window > brakeWindowMost) {
		return wrong("--brake-window must be %s to %s", brakeWindowLeast, brakeWindowMost)
	}
	if row, last := cmp.Or(r.Row, brakeRow), cmp.Or(r.LastRow, brakeLastRow); last > row {
		return wrong("--brake-last-row must not be over --brake-row: %d in a row open the circuit breaker anyway", row)
	}
	return nil
}

// whole is the value of a flag: a number from 1 on. That 0 is refused keeps it from
// meaning the default.
type whole struct {
	to   *int
	most int
}

func (w *whole) String() string {
	if w.to == nil {
		return ""
	}
	return strconv.Itoa(*w.to)
}

func (w *whole) Type() string { return "number" }

func (w *whole) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > w.most {
		return fmt.Errorf("must be 1 to %d", w.most)
	}
	*w.to = n
	return nil
}

// window is the value of a flag: the time in which a circuit breaker counts.
type window struct{ to *time.Duration }

func (w *window) String() string {
	if w.to == nil {
		return ""
	}
	return w.to.String()
}

func (w *window) Type() string { return "duration" }

func (w *window) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < brakeWindowLeast || d > brakeWindowMost {
		return fmt.Errorf("must be %s to %s, such as 2s", brakeWindowLeast, brakeWindowMost)
	}
	*w.to = d
	return nil
}

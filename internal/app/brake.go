package app

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
)

// The defaults of background.BrakeRule, as the flags show them.
const (
	brakeAttempts = 20
	brakeCases    = 10
)

// What brakes can be told. A gauge remembers 4096 attempts: more can't be waited for.
const (
	brakeShareMost   = 100
	brakeNumberMost  = 4096
	brakeWindowLeast = 100 * time.Millisecond
	brakeWindowMost  = time.Minute
)

// bindBrake defines the flags that say when brakes pull themselves.
func bindBrake(f *pflag.FlagSet, r *postadjudication.BrakeRule) {
	f.BoolVar(&r.Off, "brake-by-hand", false, "leave it to people to stop calling an escrow service that fails")
	r.Share, r.Attempts, r.Cases, r.Window = 50, brakeAttempts, brakeCases, time.Second
	f.Var(&whole{&r.Share, brakeShareMost}, "brake-share", "percent of the attempts within the window that must fail, retryable or unknown, for the brake to pull itself")
	f.Var(&whole{&r.Attempts, brakeNumberMost}, "brake-attempts", "of at least so many attempts within the window")
	f.Var(&whole{&r.Cases, brakeNumberMost}, "brake-cases", "from at least so many different cases among the failed")
	f.Var(&window{&r.Window}, "brake-window", "how far back attempts count")
}

// checkBrake refuses thresholds that can't be reached. Those that are 0 have their
// default.
func checkBrake(r postadjudication.BrakeRule) error {
	for _, n := range []struct {
		flag     string
		is, most int
	}{{"brake-share", r.Share, brakeShareMost}, {"brake-attempts", r.Attempts, brakeNumberMost}, {"brake-cases", r.Cases, brakeNumberMost}} {
		if n.is < 0 || n.is > n.most {
			return wrong("--%s must be 1 to %d", n.flag, n.most)
		}
	}
	if r.Window != 0 && (r.Window < brakeWindowLeast || r.Window > brakeWindowMost) {
		return wrong("--brake-window must be %s to %s", brakeWindowLeast, brakeWindowMost)
	}
	if attempts, cases := cmp.Or(r.Attempts, brakeAttempts), cmp.Or(r.Cases, brakeCases); cases > attempts {
		return wrong("--brake-cases must not be over --brake-attempts: of %d attempts no %d cases fail", attempts, cases)
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

// window is the value of a flag: the time in which a brake counts.
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

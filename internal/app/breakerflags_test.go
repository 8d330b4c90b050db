package app

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
)

func TestBreakerThresholdsAreFlags(t *testing.T) {
	t.Parallel()
	rule := func(row, last, share, attempts int, window time.Duration) postadjudication.BreakerRule {
		return postadjudication.BreakerRule{Consecutive: row, ConsecutiveAtLast: last, FailurePercent: share, MinAttempts: attempts, Window: window}
	}
	for flags, want := range map[string]struct {
		rule postadjudication.BreakerRule
		word string // of the refusal; empty: accepted
	}{
		"": {rule(5, 2, 90, 20, time.Second), ""},
		"--breaker-consecutive=9 --breaker-consecutive-last=3 --breaker-failure-percent=80 --breaker-min-calls=40 --breaker-window=2s": {rule(9, 3, 80, 40, 2*time.Second), ""},
		"--breaker-failure-percent=100 --breaker-consecutive-last=1":                                                                   {rule(5, 1, 100, 20, time.Second), ""},
		"--breaker-failure-percent=0":    {word: "1 to 100"},
		"--breaker-failure-percent=101":  {word: "1 to 100"},
		"--breaker-failure-percent=half": {word: "1 to 100"},
		"--breaker-consecutive=0":        {word: "1 to 4096"},
		"--breaker-consecutive=-3":       {word: "1 to 4096"},
		"--breaker-consecutive-last=0":   {word: "1 to 4096"},
		"--breaker-min-calls=0":          {word: "1 to 4096"},
		"--breaker-min-calls=5000":       {word: "1 to 4096"},
		"--breaker-window=0s":            {word: "100ms to 1m0s"},
		"--breaker-window=99ms":          {word: "100ms to 1m0s"},
		"--breaker-window=61s":           {word: "100ms to 1m0s"},
		"--breaker-window=2":             {word: "100ms to 1m0s"},
		"--breaker-consecutive-last=6":   {word: "--breaker-consecutive"},
		"--breaker-consecutive=1":        {word: "--breaker-consecutive-last"},
		"--breaker-cases=10":             {word: "unknown flag"},
	} {
		var o Options
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		o.Bind(f)
		err := f.Parse(strings.Fields(flags))
		if err == nil {
			o.DatabaseURL, o.RedisURL, o.EscrowURL, o.KeyLifetime = "postgres://u@h/d?sslmode=verify-full", "rediss://h", "https://h", Lifetime{Given: true}
			err = o.check()
		}
		switch {
		case want.word == "" && (err != nil || o.Breaker != want.rule):
			t.Errorf("%q: %+v, %v", flags, o.Breaker, err)
		case want.word != "" && (err == nil || !strings.Contains(err.Error(), want.word)):
			t.Errorf("%q: %v", flags, err)
		}
	}
}

func TestBreakerThresholdsWithoutFlagsAreCheckedToo(t *testing.T) {
	t.Parallel()
	for _, bad := range []postadjudication.BreakerRule{{FailurePercent: -1}, {FailurePercent: 101}, {Consecutive: -1}, {ConsecutiveAtLast: -1}, {MinAttempts: 5000}, {Window: time.Millisecond}, {Window: time.Hour}, {Consecutive: 3, ConsecutiveAtLast: 4}, {Consecutive: 1}, {ConsecutiveAtLast: 6}} {
		o := validOptions()
		o.Breaker = bad
		if err := o.check(); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	o := validOptions()
	o.Breaker = postadjudication.BreakerRule{FailurePercent: 70} // the other thresholds have their defaults
	if err := o.check(); err != nil {
		t.Error(err)
	}
}

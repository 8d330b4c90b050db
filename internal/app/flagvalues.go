package app

import (
	"errors"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

// Recoveries is from how many lost workers a run is recovered; 5 when 0, without end when
// negative. It is the value of a flag.
type Recoveries int

const (
	defaultRecoveries = 5
	maxRecoveries     = 1_000_000
)

// String is a number, or Unlimited.
func (r *Recoveries) String() string {
	switch {
	case r == nil || *r == 0:
		return strconv.Itoa(defaultRecoveries)
	case *r < 0:
		return Unlimited
	}
	return strconv.Itoa(int(*r))
}

// Type is what the help calls it.
func (r *Recoveries) Type() string { return "number" }

// Set reads a number from 1 on, or Unlimited.
func (r *Recoveries) Set(text string) error {
	if text == Unlimited {
		*r = -1
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxRecoveries {
		return errors.New(`must be 1 to 1000000, or "unlimited"`)
	}
	*r = Recoveries(n)
	return nil
}

// Lifetime is how long the escrow service knows an operation key, as an operator says it: a
// span, "unlimited" or "none". Nobody can guess it, and a wrong one costs money or disputes:
// what is not said is not known.
type Lifetime struct {
	Span  time.Duration // 0 when it knows none, postadjudication.Forever without end
	Given bool
}

// The words for what is no span.
const (
	Unlimited = "unlimited"
	None      = "none"
)

// Set reads a lifetime. It implements pflag.Value.
func (l *Lifetime) Set(text string) error {
	switch text {
	case Unlimited:
		*l = Lifetime{postadjudication.Forever, true}
		return nil
	case None:
		*l = Lifetime{0, true}
		return nil
	}
	span, err := time.ParseDuration(text)
	if err != nil || span <= 0 {
		return errors.New(`must be a span as 24h, "unlimited" or "none"`)
	}
	*l = Lifetime{span, true}
	return nil
}

// Type names what the flag takes.
func (l *Lifetime) Type() string { return "span" }

// String is the lifetime as it is said; empty when it is not.
func (l *Lifetime) String() string {
	switch {
	case !l.Given:
		return ""
	case l.Span == postadjudication.Forever:
		return Unlimited
	case l.Span == 0:
		return None
	}
	return l.Span.String()
}

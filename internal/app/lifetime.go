package app

import (
	"errors"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

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

package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// Recoveries is the number of lost workers after which a run is still recovered: 5 if 0, unlimited
// if negative. It is the value of a flag.
type Recoveries int

const (
	defaultRecoveries = 5
	maxRecoveries     = 1_000_000
)

// String returns a number, or Unlimited.
func (r *Recoveries) String() string {
	switch {
	case r == nil || *r == 0:
		return strconv.Itoa(defaultRecoveries)
	case *r < 0:
		return Unlimited
	}
	return strconv.Itoa(int(*r))
}

// Type returns the name of the value in the help.
func (r *Recoveries) Type() string { return "number" }

// Set parses a number from 1 to 1000000, or Unlimited.
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

// Lifetime is how long the escrow service recognises an operation key: a duration, "unlimited" or
// "none". The operator must give it, because a wrong value costs money or disputes.
type Lifetime struct {
	Span  time.Duration // 0 for none, escrow.Forever for unlimited
	Given bool
}

// The values of a Lifetime that are not durations.
const (
	Unlimited = "unlimited"
	None      = "none"
)

// maxLifetimeDays bounds a lifetime in days, so that it can be represented.
const maxLifetimeDays = 100_000

// Set parses a lifetime. It implements pflag.Value.
func (l *Lifetime) Set(text string) error {
	switch text {
	case Unlimited:
		*l = Lifetime{escrow.Forever, true}
		return nil
	case None:
		*l = Lifetime{0, true}
		return nil
	}
	span, err := time.ParseDuration(text)
	if days, inDays := strings.CutSuffix(text, "d"); inDays {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 32); n > maxLifetimeDays {
			return fmt.Errorf("must be at most %dd, or %q", maxLifetimeDays, Unlimited)
		}
		span = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || span <= 0 {
		return errors.New(`must be a duration such as 24h or 7d, "unlimited" or "none"`)
	}
	*l = Lifetime{span, true}
	return nil
}

// Type returns the name of the value in the help.
func (l *Lifetime) Type() string { return "span" }

// String returns the value as Set takes it; empty if it was not given.
func (l *Lifetime) String() string {
	switch {
	case !l.Given:
		return ""
	case l.Span == escrow.Forever:
		return Unlimited
	case l.Span == 0:
		return None
	}
	return l.Span.String()
}

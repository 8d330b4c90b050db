package app

import (
	"errors"
	"strconv"
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

package settlement

import (
	"errors"
	"math"
	"testing"
)

func TestAReservationIsWithinHeldOrRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		e     Escrow
		delta int64
		want  int64
		err   error
	}{
		{"all of it", Escrow{Held: 100}, 100, 100, nil},
		{"one too many", Escrow{Held: 100}, 101, 0, ErrExceedsHeld},
		{"what is left", Escrow{Held: 100, Committed: 60}, 40, 100, nil},
		{"more than is left", Escrow{Held: 100, Committed: 60}, 41, 60, ErrExceedsHeld},
		{"no overflow", Escrow{Held: MaxMinor, Committed: MaxMinor}, math.MaxInt64, MaxMinor, ErrExceedsHeld},
		{"nothing into a breached escrow", Escrow{Held: 100, Committed: 130, Breached: 30}, 1, 130, ErrExceedsHeld},
		{"freeing in a breached escrow", Escrow{Held: 100, Committed: 130, Breached: 30}, -10, 120, nil},
		{"freeing all", Escrow{Held: 100, Committed: 60}, -60, 0, nil},
		{"nothing", Escrow{Held: 100, Committed: 100}, 0, 100, nil},
	} {
		got, err := c.e.Add(c.delta)
		if !errors.Is(err, c.err) || got != (Escrow{c.e.Held, c.want, c.e.Breached}) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}

func TestAPaymentOverWhatIsHeldRaisesBreachedAndNothingLowersIt(t *testing.T) {
	t.Parallel()
	e := Escrow{Held: 100, Committed: 90}
	for _, c := range []struct{ delta, committed, breached int64 }{
		{10, 100, 0}, {1, 101, 1}, {-50, 51, 1}, {60, 111, 11}, {-111, 0, 11},
	} {
		if e = e.Record(c.delta); e != (Escrow{100, c.committed, c.breached}) {
			t.Errorf("after %+d: %+v", c.delta, e)
		}
	}
}

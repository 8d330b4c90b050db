package remote

import "time"

// ClockSetting is a time in which the database's clock, or what a process takes for it, may have been ahead.
type ClockSetting struct {
	From, Until time.Time // without Until it still is
	Ahead       time.Duration
}

func (s ClockSetting) holds(at time.Time) bool {
	return !at.Before(s.From) && (s.Until.IsZero() || !at.After(s.Until))
}

// Clock is what is known of the database's clock. It is never behind.
type Clock []ClockSetting

// Ahead returns how far the clock may have been ahead at some moment between two times.
func (c Clock) Ahead(from, until time.Time) (most time.Duration) {
	for _, s := range c {
		if s.holds(from) || s.holds(until) || !s.From.Before(from) && !s.From.After(until) {
			most = max(most, s.Ahead)
		}
	}
	return most
}

// Earliest returns the earliest time at which the clock may have shown a time.
func (c Clock) Earliest(shown time.Time) time.Time {
	at := shown
	for _, s := range c {
		if before := shown.Add(-s.Ahead); s.holds(before) && before.Before(at) {
			at = before
		}
	}
	return at
}

package background

import "time"

// instant is one moment as the clocks of this machine show it. A clock on the wall may
// be set back, and a monotonic one may stand still with a suspended machine: none of
// them is trusted alone.
type instant struct {
	wall time.Time
	mono time.Duration // since the process began
	boot time.Duration // since the machine was started
}

var processBegan = time.Now()

func readClocks() instant {
	now := time.Now()
	return instant{wall: now.Round(0), mono: now.Sub(processBegan), boot: bootTime()}
}

// until is how much later another instant is, by the clock that says most.
func (i instant) until(later instant) time.Duration {
	return max(later.wall.Sub(i.wall), later.mono-i.mono, later.boot-i.boot)
}

package background

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is for how long the machine has been up, the time included for which it
// was suspended: the one clock of a process that goes on then.
func bootTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

package background

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns how long the machine has been up, including the time that it was suspended.
// It is the only clock of a process that advances during a suspend.
func bootTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

//go:build !linux

package background

import "time"

// bootTime is not known here: the other clocks of an instant have to do.
func bootTime() time.Duration { return 0 }

//go:build !linux

package background

import "time"

// bootTime returns 0: the other clocks of an instant must do.
func bootTime() time.Duration { return 0 }

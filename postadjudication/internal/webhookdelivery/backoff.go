package webhookdelivery

import (
	"math/rand/v2"
	"time"
)

const (
	firstDelay    = time.Second
	longestDelay  = time.Hour
	maxRetryAfter = 24 * time.Hour // that a receiver can ask for
)

// delay returns how long to wait after a number of failures, from 1: about twice as long as after
// the one before, an hour at most, with jitter so that webhooks of one receiver don't return together.
func delay(failures int) time.Duration {
	d := longestDelay
	if shift := failures - 1; shift < 12 {
		d = min(firstDelay<<max(shift, 0), longestDelay)
	}
	return d/2 + rand.N(d/2)
}

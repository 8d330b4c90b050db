package webhooks

import (
	"net"
	"time"
)

// WithTimes returns the configuration with other times between tries, and until a webhook pauses
// itself.
func (c Config) WithTimes(delay func(failures int) time.Duration, giveUp time.Duration) Config {
	c.delay, c.giveUp = delay, giveUp
	return c
}

// WithResolver returns the configuration with another resolver of names.
func (c Config) WithResolver(r *net.Resolver) Config {
	c.resolver = r
	return c
}

// MaxWaiting is the maximum number of events of a webhook that are read and not delivered.
const MaxWaiting = maxWaiting

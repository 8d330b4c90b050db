package webhooks

import (
	"context"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
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

// PauseItself pauses a webhook as its delivery does that has read it and can't go on for a reason.
func (s *Sender) PauseItself(ctx context.Context, read webhookstore.Webhook, reason string) error {
	d := &delivery{Sender: s, queue: newQueue(0), webhook: read, pausing: reason}
	s.sending = map[uuid.UUID]*delivery{read.ID: d}
	r := round{Sender: s}
	return r.pauseThemselves(ctx)
}

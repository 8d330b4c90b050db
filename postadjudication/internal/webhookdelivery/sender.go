package webhookdelivery

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
)

// Config configures webhooks.
type Config struct {
	Keys  Keys           // encrypt secrets; without any no webhook can be created, and none is sent
	Allow []netip.Prefix // networks that requests may go to besides public ones

	// Delay returns the pause after a number of failures in a row, from 1. nil: it doubles from a
	// second to an hour, with jitter.
	Delay func(failures int) time.Duration
	// GiveUp is how long the oldest event fails for until its webhook pauses itself. 0: three days.
	GiveUp time.Duration
	// Resolver finds the addresses of names. nil: as the machine does.
	Resolver *net.Resolver
}

// Intervals of the sender.
const (
	saveEvery = 200 * time.Millisecond // positions that have changed are written
	readEvery = time.Second            // webhooks are read; also tells the server that the lock is still held

	// shutdownGrace is how long a process that ends waits for its requests in flight. It is shorter than
	// journal.SequencerIdle: the lock must still be held when their results are written.
	shutdownGrace = 3 * time.Second
)

// Sender sends the events of all tenants to their webhooks, in one process of all.
type Sender struct {
	config Config
	store  *webhookstore.Store
	events *eventlog.Log
	client *client
	pace   *pacer
	now    func() time.Time
	log    *zap.Logger
	delay  func(failures int) time.Duration
	giveUp time.Duration

	delivered, failed, paused atomic.Uint64

	mu      sync.Mutex
	sending map[uuid.UUID]*delivery // nil: this process does not hold the lock
}

// NewSender returns a sender of a store and a log. transitions counts what this process has written
// of runs: while it writes much, webhooks wait.
func NewSender(c Config, store *webhookstore.Store, log *eventlog.Log, transitions func() uint64, now func() time.Time, l *zap.Logger) *Sender {
	s := &Sender{config: c, store: store, events: log, client: newClient(c.Allow, c.Resolver), pace: newPacer(transitions), now: now, log: l, delay: delay, giveUp: giveUpAfter}
	if c.Delay != nil {
		s.delay = c.Delay
	}
	if c.GiveUp > 0 {
		s.giveUp = c.GiveUp
	}
	return s
}

// Stats counts what one process sent.
type Stats struct {
	Delivered uint64 // requests that were answered with 2xx
	Failed    uint64 // requests that were not
	Paused    uint64 // webhooks that paused themselves

	Sending int           // webhooks to which this process sends; 0 in the processes that stand by
	Lag     time.Duration // age of the oldest event that was read and is not delivered
}

// Stats returns what this process did.
func (s *Sender) Stats() Stats {
	out := Stats{Delivered: s.delivered.Load(), Failed: s.failed.Load(), Paused: s.paused.Load()}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Sending = len(s.sending)
	now := s.now()
	for _, d := range s.sending {
		if at := d.oldestWaiting(); !at.IsZero() {
			out.Lag = max(out.Lag, now.Sub(at))
		}
	}
	return out
}

// Run sends while no other process does, until ctx is done. Without keys it returns at once.
func (s *Sender) Run(ctx context.Context) {
	if s.config.Keys.Empty() {
		return
	}
	defer s.client.close()
	r := round{Sender: s, lock: s.store.Sender(), feeds: map[string]*feed{}, ending: map[uuid.UUID]*delivery{}, logged: map[uuid.UUID]int64{}}
	failing := false
	for casework.Sleep(ctx, saveEvery, nil) {
		r.pace.measure(time.Now())
		// A step that has begun ends: to cut its statement would lose the lock, cut the requests in flight, and
		// send again what was delivered.
		err := r.step(context.WithoutCancel(ctx))
		if err != nil && !failing {
			s.log.Error("can't send webhooks, retrying", zap.Error(err))
		}
		failing = err != nil
	}
	r.end(context.WithoutCancel(ctx))
}

// Trial is the result of SendTest.
type Trial struct {
	Event     string        `json:"event_id"`
	Delivered bool          `json:"delivered"`
	Failure   string        `json:"failure,omitempty"` // why it was not delivered
	Took      time.Duration `json:"-"`
}

// SendTest sends one event of type dev.recourse.webhook.test to a webhook and waits for the answer.
// Errors: ErrNoKey, and that of a definition that can't be read. That it was not delivered is no error.
func (s *Sender) SendTest(ctx context.Context, w webhookstore.Webhook) (Trial, error) {
	if s.config.Keys.Empty() {
		return Trial{}, ErrNoKey
	}
	d, err := ParseDefinition(w)
	if err != nil {
		return Trial{}, err
	}
	at, event := s.now(), casework.NewID().String()
	begin := time.Now()
	got := s.send(ctx, w, d.URL, &message{id: event, render: func() ([]byte, error) { return renderTest(event, w.ID.String(), w.Tenant, at) }})
	return Trial{Event: event, Delivered: got.delivered, Failure: got.failure, Took: time.Since(begin)}, nil
}

// send makes one try to deliver a message.
func (s *Sender) send(ctx context.Context, w webhookstore.Webhook, url string, m *message) result {
	body, err := m.render()
	if err != nil {
		return result{failure: "the event can't be written: " + err.Error()}
	}
	at := s.now()
	secrets, err := s.secrets(w, at)
	if err != nil {
		return result{failure: err.Error()}
	}
	return s.client.send(ctx, url, m.id, body, secrets, at)
}

// secrets returns the secrets that sign a request at a time, the newest first.
func (s *Sender) secrets(w webhookstore.Webhook, at time.Time) ([][]byte, error) {
	secret, err := s.config.Keys.Decrypt(w.Tenant, w.ID, w.Secret)
	if err != nil || !w.FormerUntil.After(at) {
		return [][]byte{secret}, err
	}
	former, err := s.config.Keys.Decrypt(w.Tenant, w.ID, w.FormerSecret)
	return [][]byte{secret, former}, err
}

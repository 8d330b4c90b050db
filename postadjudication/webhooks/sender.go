package webhooks

import (
	"context"
	"errors"
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
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// Config configures webhooks.
type Config struct {
	Keys  Keys           // encrypt secrets; without any no webhook can be created, and none is sent
	Allow []netip.Prefix // networks that requests may go to besides public ones

	// Of tests. The zero values are those of the constants, and of the machine.
	delay    func(failures int) time.Duration
	giveUp   time.Duration
	resolver *net.Resolver
}

// Intervals of the sender.
const (
	saveEvery = 200 * time.Millisecond // positions that have changed are written
	readEvery = time.Second            // webhooks are read; also tells the server that the lock is still held

	endPatience = 5 * time.Second // for requests in flight, at shutdown
)

// actor is the actor of what no person does.
const actor = "system:webhooks"

// Sender sends the events of all tenants to their webhooks, in one process of all, and keeps the
// webhooks.
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
	s := &Sender{config: c, store: store, events: log, client: newClient(c.Allow, c.resolver), pace: newPacer(transitions), now: now, log: l, delay: delay, giveUp: giveUpAfter}
	if c.delay != nil {
		s.delay = c.delay
	}
	if c.giveUp > 0 {
		s.giveUp = c.giveUp
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
	r := round{Sender: s, lock: s.store.Sender(), feeds: map[string]*feed{}, ending: map[uuid.UUID]*delivery{}}
	failing := false
	for casework.Sleep(ctx, saveEvery, nil) {
		r.pace.measure(time.Now())
		err := r.step(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.Error("can't send webhooks, retrying", zap.Error(err))
		}
		failing = err != nil
	}
	r.end(context.WithoutCancel(ctx))
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
	secret, err := s.config.Keys.decrypt(w.Tenant, w.ID, w.Secret)
	if err != nil || !w.FormerUntil.After(at) {
		return [][]byte{secret}, err
	}
	former, err := s.config.Keys.decrypt(w.Tenant, w.ID, w.FormerSecret)
	return [][]byte{secret, former}, err
}

// round is what Run remembers from step to step.
type round struct {
	*Sender
	lock   *webhookstore.Sender
	feeds  map[string]*feed
	ending map[uuid.UUID]*delivery // no new request of theirs begins
	readAt time.Time               // when the webhooks were read
}

// step writes what was reached and, at its interval, reads the webhooks and starts and stops their
// delivery. After an error nothing is sent.
func (r *round) step(ctx context.Context) error {
	err := r.save(ctx)
	if err == nil && time.Since(r.readAt) >= readEvery {
		r.readAt = time.Now()
		var active []webhookstore.Webhook
		var holds bool
		if active, holds, err = r.lock.Active(ctx); err == nil && holds {
			r.follow(ctx, active)
			return r.pauseThemselves(ctx)
		}
	}
	if err != nil {
		r.cutAll()
	}
	return err
}

// save writes the positions that have changed, and forgets the deliveries that have ended.
func (r *round) save(ctx context.Context) error {
	var reached []webhookstore.Progress
	collect := func(d *delivery) {
		if p, changed := d.progress(); changed {
			reached = append(reached, p)
		}
	}
	for id, d := range r.ending {
		select {
		case <-d.done:
			delete(r.ending, id)
		default:
		}
		collect(d)
	}
	for _, d := range r.sending { // only this goroutine changes the map
		collect(d)
	}
	if len(reached) == 0 {
		return nil
	}
	return r.lock.Save(ctx, reached)
}

// follow starts and stops deliveries, so that they are those of the active webhooks.
func (r *round) follow(ctx context.Context, active []webhookstore.Webhook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sending == nil {
		r.sending = map[uuid.UUID]*delivery{}
	}
	exists, tenants := map[uuid.UUID]bool{}, map[string]bool{}
	for _, w := range active {
		exists[w.ID], tenants[w.Tenant] = true, true
		d := r.sending[w.ID]
		switch {
		case d == nil:
			r.start(ctx, w)
		case d.webhook.Position.Version != w.Position.Version:
			r.stopOne(d)
		case d.webhook.Version != w.Version:
			d.update(w)
		}
	}
	for id, d := range r.sending {
		if !exists[id] {
			r.stopOne(d)
		}
	}
	for tenant := range r.feeds {
		if !tenants[tenant] {
			delete(r.feeds, tenant)
		}
	}
}

// start begins to send to a webhook, unless its former delivery has not ended yet.
func (r *round) start(ctx context.Context, w webhookstore.Webhook) {
	if r.ending[w.ID] != nil {
		return
	}
	def, err := parseDefinition(w)
	if err != nil {
		r.log.Error("can't send to a webhook", zap.Error(err))
		return
	}
	f := r.feeds[w.Tenant]
	if f == nil {
		f = newFeed(r.events, r.pace, w.Tenant)
		r.feeds[w.Tenant] = f
	}
	r.sending[w.ID] = newDelivery(context.WithoutCancel(ctx), r.Sender, f, w, def)
}

// stopOne lets the requests in flight end, and begins no other.
func (r *round) stopOne(d *delivery) {
	d.stop()
	delete(r.sending, d.webhook.ID)
	r.ending[d.webhook.ID] = d
}

// cutAll ends all deliveries with their requests: another process may send.
func (r *round) cutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.sending {
		r.stopOne(d)
	}
	for id, d := range r.ending {
		d.cut()
		<-d.done
		delete(r.ending, id)
	}
	r.sending, r.readAt = nil, time.Time{}
}

// end lets requests in flight end, writes what was reached, and releases the lock.
func (r *round) end(ctx context.Context) {
	patience, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	for _, d := range r.sending {
		d.stop()
	}
	for _, all := range []map[uuid.UUID]*delivery{r.sending, r.ending} {
		for _, d := range all {
			select {
			case <-d.done:
			case <-patience.Done():
				d.cut()
				<-d.done
			}
		}
	}
	err := r.save(ctx)
	r.cutAll()
	if err = errors.Join(err, r.lock.Release(ctx)); err != nil {
		r.log.Warn("could not record what was delivered to webhooks; some events are sent again", zap.Error(err))
	}
}

// pauseThemselves pauses the webhooks that can't go on.
func (r *round) pauseThemselves(ctx context.Context) error {
	for _, d := range r.sending {
		w, reason := d.wantsPause()
		if reason == "" {
			continue
		}
		_, err := r.store.Update(ctx, w.Tenant, w.ID, func(now webhookstore.Webhook) (webhookstore.Change, error) {
			if now.Version != w.Version { // a person was first
				return webhookstore.Change{}, errUnchanged
			}
			return r.changeState(now, Paused, actor, events.WebhookPause, reason)
		})
		switch {
		case errors.Is(err, errUnchanged):
		case err != nil:
			return err
		default:
			r.paused.Add(1)
			r.log.Error("a webhook has paused itself; recourse webhook resume continues it, and skips nothing", zap.String("tenant", w.Tenant), zap.Stringer("webhook", w.ID), zap.String("reason", reason))
		}
	}
	return nil
}

// changeState returns the change to another state, with its receipt.
func (s *Sender) changeState(now webhookstore.Webhook, to State, actor, action, reason string) (webhookstore.Change, error) {
	d, err := parseDefinition(now)
	if err != nil {
		return webhookstore.Change{}, err
	}
	d.State = to
	next := now
	next.State = to
	return s.changed(next, d, actor, action, reason, string(now.State)+" to "+string(to))
}

// changed returns a change with its receipt.
func (s *Sender) changed(next webhookstore.Webhook, d definition, actor, action, reason, changes string) (webhookstore.Change, error) {
	text, err := d.text()
	if err != nil {
		return webhookstore.Change{}, err
	}
	next.Definition, next.ChangedAt, next.ChangedBy, next.Reason = text, s.now(), actor, reason
	return webhookstore.Change{Next: next, Draft: receiptOf(next, action, changes)}, nil
}

// receiptOf returns the receipt of a change.
func receiptOf(w webhookstore.Webhook, action, changes string) receipts.Draft {
	return receipts.Draft{Actor: w.ChangedBy, At: w.ChangedAt, Payload: receipts.Payload{
		Reference: w.ID.String(), Webhook: w.Definition, AskedFor: action, Changes: changes, Reason: w.Reason,
	}}
}

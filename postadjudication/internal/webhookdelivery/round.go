package webhookdelivery

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts/events"
)

// actor is the actor of what no person does.
const actor = "system:webhooks"

// errChanged means that a webhook is not paused, because somebody has changed it.
var errChanged = errors.New("webhooks: the webhook was changed")

// round is the state of Run between its steps.
type round struct {
	*Sender
	lock   *webhookstore.Sender
	feeds  map[string]*feed
	ending map[uuid.UUID]*delivery // deliveries that begin no new request
	logged map[uuid.UUID]int64     // the version of a webhook that can't be read, once it was logged
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
			r.pauseFailing(ctx)
		}
	}
	if err != nil {
		r.cancelAll()
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
			r.stopDelivery(d)
		case d.webhook.Version != w.Version:
			d.update(w)
		}
	}
	for id, d := range r.sending {
		if !exists[id] {
			r.stopDelivery(d)
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
	def, err := ParseDefinition(w)
	if err != nil {
		if r.logged[w.ID] != w.Version {
			r.logged[w.ID] = w.Version
			r.log.Error("an active webhook is not sent to", zap.Error(err))
		}
		return
	}
	f := r.feeds[w.Tenant]
	if f == nil {
		f = newFeed(r.events, r.pace, w.Tenant)
		r.feeds[w.Tenant] = f
	}
	r.sending[w.ID] = newDelivery(context.WithoutCancel(ctx), r.Sender, f, w, def)
}

// stopDelivery begins no other request of a delivery. Those in flight go on.
func (r *round) stopDelivery(d *delivery) {
	d.stop()
	delete(r.sending, d.webhook.ID)
	r.ending[d.webhook.ID] = d
}

// cancelAll cancels all deliveries with their requests: another process may send. It forgets what the feeds have
// read: the database may have failed over to a standby that lags, where other events are in those places.
func (r *round) cancelAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.sending {
		r.stopDelivery(d)
	}
	for id, d := range r.ending {
		d.cancel()
		<-d.done
		delete(r.ending, id)
	}
	clear(r.feeds)
	r.sending, r.readAt = nil, time.Time{}
}

// end waits for the requests in flight, for shutdownGrace at most, writes what was reached, and releases the
// lock.
func (r *round) end(ctx context.Context) {
	grace, cancel := context.WithTimeout(ctx, shutdownGrace)
	defer cancel()
	for _, d := range r.sending {
		d.stop()
	}
	for _, all := range []map[uuid.UUID]*delivery{r.sending, r.ending} {
		for _, d := range all {
			select {
			case <-d.done:
			case <-grace.Done():
				d.cancel()
				<-d.done
			}
		}
	}
	err := r.save(ctx)
	r.cancelAll()
	if err = errors.Join(err, r.lock.Release(ctx)); err != nil {
		r.log.Warn("could not record what was delivered to webhooks; some events are sent again", zap.Error(err))
	}
}

// pauseFailing pauses the webhooks that can't go on. A webhook that could not be paused sends nothing, and
// is paused by a later step.
func (r *round) pauseFailing(ctx context.Context) {
	for _, d := range r.sending {
		w, reason := d.wantsPause()
		if reason == "" {
			continue
		}
		_, err := r.store.Update(ctx, w.Tenant, w.ID, func(now webhookstore.Webhook) (webhookstore.Change, error) {
			if now.Version != w.Version { // a person was first
				return webhookstore.Change{}, errChanged
			}
			return ChangeState(now, webhookstore.Paused, Cause{Actor: actor, Action: events.WebhookPause, Reason: reason, At: r.now()})
		})
		switch {
		case errors.Is(err, errChanged), errors.Is(err, refusal.ErrNotFound): // a person was first
		case err != nil:
			r.log.Warn("could not pause a webhook that can't go on, retrying", zap.String("tenant", w.Tenant), zap.Stringer("webhook", w.ID), zap.Error(err))
		default:
			r.paused.Add(1)
			r.log.Error("a webhook has paused itself; recourse webhook resume continues it, and skips nothing", zap.String("tenant", w.Tenant), zap.Stringer("webhook", w.ID), zap.String("reason", reason))
		}
	}
}

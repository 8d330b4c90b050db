package webhookdelivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
)

const (
	maxInFlight = 8 // requests of one webhook at once

	// freeFailures is how many events that fail in a row slow down only their cases. From then on the
	// whole webhook waits before it tries one event again: its receiver is down. One event that fails
	// again and again says nothing about the others.
	freeFailures = 2

	giveUpAfter = 72 * time.Hour // how long the oldest event fails before its webhook is paused
)

// delivery sends the events of one webhook. run is one goroutine; each request has its own.
type delivery struct {
	*Sender
	feed *feed
	log  *zap.Logger

	mu                  sync.Mutex
	webhook             webhookstore.Webhook
	def                 Definition
	queue               *queue
	counters            webhookstore.Position // of tries and failures; how far the webhook is, the queue has
	consecutiveFailures int                   // since the last success: events whose first try failed; beyond freeFailures, every try that failed
	inFlight            int
	limit               int       // requests at once: grows with each success, 1 after a failure
	waitTo              time.Time // nothing is sent before it
	loaded              bool      // the events that were pending are in the queue
	unsaved             bool      // the position has changed since progress returned it
	unread              time.Time // since when the next event can't be read; zero: it can
	pausing             string    // why the webhook is to be paused; empty: it is not

	changed chan struct{} // receives after update: what keeps events from being sent may be over

	stop   context.CancelFunc // no new request begins
	cancel context.CancelFunc // requests in flight end, too
	done   chan struct{}
}

// newDelivery starts the delivery of a webhook. It ends with ctx.
func newDelivery(ctx context.Context, s *Sender, f *feed, w webhookstore.Webhook, d Definition) *delivery {
	out := &delivery{
		Sender: s, feed: f, webhook: w, def: d, counters: w.Position, limit: 1, changed: make(chan struct{}, 1), done: make(chan struct{}),
		log: s.log.With(zap.String("tenant", w.Tenant), zap.Stringer("webhook", w.ID)),
	}
	out.queue = newQueue(w.Position.ReadTo)
	sendCtx, cancel := context.WithCancel(ctx)
	runCtx, stop := context.WithCancel(sendCtx)
	out.stop, out.cancel = stop, cancel
	go out.run(runCtx, sendCtx)
	return out
}

// run sends events until ctx is done, and waits for requests in flight.
func (d *delivery) run(ctx, sendCtx context.Context) {
	defer close(d.done)
	defer d.cancel()
	if !d.loadPending(ctx) {
		return
	}
	pages, results := make(chan page, 1), make(chan answer, maxInFlight)
	reading := false
	for {
		if reading = reading || d.startRead(ctx, pages); ctx.Err() != nil {
			break
		}
		wake := d.sendDue(sendCtx, results)
		select {
		case <-ctx.Done():
		case p := <-pages:
			reading = false
			d.take(p)
		case a := <-results:
			d.record(a)
		case <-d.changed:
		case <-wake:
		}
	}
	for d.requestsInFlight() > 0 {
		if a := <-results; a.result.delivered || sendCtx.Err() == nil {
			d.record(a)
		} else {
			d.recordCancelled(a.item)
		}
	}
	if reading {
		<-pages
	}
}

// loadPending reads the events that were read before and are not delivered. It reports false if ctx
// is done first.
func (d *delivery) loadPending(ctx context.Context) bool {
	for failures := 1; ; failures++ {
		found, err := d.feed.at(ctx, slices.Sorted(slices.Values(d.counters.Pending)))
		if err == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.queue.add(0, found...)
			d.loaded, d.unread = true, time.Time{}
			if i := d.queue.oldest(); i != nil && !d.counters.FailingSince.IsZero() {
				i.firstFailed = d.counters.FailingSince
			}
			return true
		}
		if errors.Is(err, errNoEvent) {
			d.recordMissing(err)
		}
		if !d.afterReadError(ctx, err, failures) {
			return false
		}
	}
}

// recordMissing records that an event which waits to be sent can't be found.
func (d *delivery) recordMissing(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed.Add(1)
	d.counters.Failures++
	d.counters.LastFailure = err.Error()
	if d.counters.FailingSince.IsZero() {
		d.counters.FailingSince = d.now()
	}
	d.unsaved = true
	if d.now().Sub(d.counters.FailingSince) >= d.giveUp {
		d.pausing = err.Error()
	}
}

// recordUnreadable records that the next event can't be read. It is no reason to pause: a resume could
// not help, and a program that can read it may start.
func (d *delivery) recordUnreadable(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counters.Failures++
	d.counters.LastFailure = err.Error()
	if d.unread.IsZero() {
		d.unread = d.now()
	}
	if !d.loaded {
		d.counters.FailingSince = d.unread
	}
	d.unsaved = true
}

// afterReadError logs that events can't be read, and waits. It reports false if ctx is done.
func (d *delivery) afterReadError(ctx context.Context, err error, failures int) bool {
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, eventlog.ErrUnreadable) {
		d.recordUnreadable(err)
	}
	if failures == 1 {
		d.log.Error("can't read the events of a webhook, retrying", zap.Error(err))
	}
	return casework.Sleep(ctx, min(d.delay(failures), time.Minute), nil)
}

// page is what was read of the feed.
type page struct {
	messages []*message
	to       int64
}

// startRead begins to read if there is room, and reports whether it did.
func (d *delivery) startRead(ctx context.Context, pages chan<- page) bool {
	d.mu.Lock()
	room, after := MaxWaiting-d.queue.waiting, d.queue.readTo
	d.mu.Unlock()
	if room < 1 {
		return false
	}
	go func() {
		for failures := 1; ; failures++ {
			found, to, err := d.feed.next(ctx, after, room)
			if err == nil || !d.afterReadError(ctx, err, failures) {
				pages <- page{found, to}
				return
			}
		}
	}()
	return true
}

// take adds the events of a page that the webhook wants.
func (d *delivery) take(p page) {
	wanted := p.messages
	if len(d.def.Types) > 0 {
		wanted = nil
		for _, m := range p.messages {
			if slices.Contains(d.def.Types, m.typ) {
				wanted = append(wanted, m)
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue.add(p.to, wanted...)
	if oldest := d.queue.oldest(); !d.unread.IsZero() && (oldest == nil || oldest.firstFailed.IsZero()) {
		d.counters.Failures = 0
	}
	d.unread, d.unsaved = time.Time{}, true
}

// answer is the result of one request.
type answer struct {
	*item
	result
}

// sendDue begins a request for each event that is due, as many as the limit permits. It returns a
// channel that receives when the next one is due; nil if none waits for a time.
func (d *delivery) sendDue(ctx context.Context, results chan<- answer) <-chan time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.inFlight < d.limit && d.pausing == "" {
		now := time.Now()
		if d.waitTo.After(now) {
			return time.After(d.waitTo.Sub(now))
		}
		i, due := d.queue.next(now)
		if i == nil {
			if due.IsZero() {
				return nil
			}
			return time.After(due.Sub(now))
		}
		if wait := d.pace.send(now); wait > 0 {
			return time.After(wait)
		}
		i.sending = true
		d.inFlight++
		w := d.webhook
		go func() { results <- answer{i, d.send(ctx, w, d.def.URL, i.message)} }()
	}
	return nil
}

// record takes the result of a request.
func (d *delivery) record(a answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
	d.unsaved = true
	if a.result.delivered {
		d.recordDelivered(a.item)
		return
	}
	d.failed.Add(1)
	now, at := time.Now(), d.now()
	d.limit = 1
	if a.failures == 0 || d.consecutiveFailures > freeFailures {
		d.consecutiveFailures++
	}
	d.counters.Failures++
	d.counters.LastFailure = a.failure
	d.queue.failed(a.item, at, now.Add(d.delay(a.item.failures+1)))
	if d.consecutiveFailures > freeFailures {
		d.waitTo = now.Add(d.delay(d.consecutiveFailures - freeFailures))
	}
	if until := now.Add(a.retryAfter); a.retryAfter > 0 && until.After(d.waitTo) {
		d.waitTo = until
	}
	switch oldest := d.queue.oldest(); {
	case a.gone:
		d.pausing = "the receiver answered 410: it wants no more events"
	case !oldest.firstFailed.IsZero() && at.Sub(oldest.firstFailed) >= d.giveUp:
		d.pausing = "an event was not accepted for " + d.giveUp.String() + "; the last failure: " + a.failure
	}
	if d.counters.Failures == 1 || d.pausing != "" {
		d.log.Warn("an event was not delivered", zap.String("event", a.id), zap.String("failure", a.failure))
	}
}

// recordCancelled takes an event whose request failed after this process has cancelled the requests. It counts
// as no failure of the receiver, and the event is sent again.
func (d *delivery) recordCancelled(i *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
	i.sending = false
}

// recordDelivered takes an event that was accepted.
func (d *delivery) recordDelivered(i *item) {
	d.delivered.Add(1)
	d.queue.delivered(i)
	d.counters.Delivered++
	d.counters.DeliveredAt = d.now()
	d.counters.Failures = 0
	if d.limit = min(d.limit+1, maxInFlight); d.consecutiveFailures > freeFailures {
		d.queue.retryNow() // the receiver is back
	}
	d.consecutiveFailures, d.waitTo = 0, time.Time{}
}

func (d *delivery) requestsInFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inFlight
}

// progress returns the position that was reached, and whether it has changed since the last call.
func (d *delivery) progress() (webhookstore.Progress, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := d.unsaved
	d.unsaved = false
	p := d.counters
	if !d.loaded { // the queue does not have what is pending yet
		return webhookstore.Progress{ID: d.webhook.ID, Position: p}, changed
	}
	p.ReadTo, p.Pending, p.FailingSince = d.queue.readTo, d.queue.pending(), d.unread
	if oldest := d.queue.oldest(); oldest != nil && !oldest.firstFailed.IsZero() {
		p.FailingSince = oldest.firstFailed
	}
	return webhookstore.Progress{ID: d.webhook.ID, Position: p}, changed
}

// update takes a change of the webhook that leaves its position alone.
func (d *delivery) update(w webhookstore.Webhook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.webhook, d.pausing = w, ""
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// oldestWaiting returns the time of the oldest event that is not delivered; zero if there is none.
func (d *delivery) oldestWaiting() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.queue.oldest(); i != nil {
		return i.at
	}
	return time.Time{}
}

// wantsPause returns the webhook, and why it is to be paused; empty if it is not.
func (d *delivery) wantsPause() (webhookstore.Webhook, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.webhook, d.pausing
}

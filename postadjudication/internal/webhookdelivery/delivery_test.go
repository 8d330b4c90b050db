package webhookdelivery

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
)

func newTestDelivery() *delivery {
	s := &Sender{now: time.Now, delay: func(failures int) time.Duration { return time.Duration(failures) * time.Second }, giveUp: giveUpAfter, pace: newPacer(idle)}
	d := &delivery{Sender: s, queue: newQueue(0), limit: 1, loaded: true, log: zap.NewNop()}
	d.queue.add(100, testMessage(1, 1), testMessage(2, 2), testMessage(3, 3), testMessage(4, 4), testMessage(5, 5))
	return d
}

// take begins a request for the event that is due first.
func (d *delivery) begin(t *testing.T, now time.Time) *item {
	t.Helper()
	i, _ := d.queue.next(now)
	if i == nil {
		t.Fatal("nothing is due")
	}
	i.sending = true
	d.inFlight++
	return i
}

// The first failures in a row slow down only their cases. Then the receiver counts as down: the
// webhook waits as a whole, and tries one event at a time. The first success ends all that.
func TestFailuresInARowSlowDownTheWhole(t *testing.T) {
	t.Parallel()
	d := newTestDelivery()
	d.limit = maxInFlight
	begin := time.Now()
	for n := range 3 {
		d.record(answer{d.begin(t, begin), result{failure: "no"}})
		if waits := d.waitTo.After(begin); waits != (n >= freeFailures) {
			t.Errorf("after %d failures it waits: %t", n+1, waits)
		}
	}
	if d.limit != 1 || d.inFlight != 0 || d.counters.Failures != 3 || d.counters.LastFailure != "no" || d.failed.Load() != 3 {
		t.Errorf("%+v", d.counters)
	}
	d.record(answer{d.begin(t, begin), result{delivered: true}})
	if !d.waitTo.IsZero() || d.consecutiveFailures != 0 || d.limit != 2 || d.counters.Failures != 0 || d.counters.Delivered != 1 {
		t.Errorf("%+v", d.counters)
	}
	for range 4 { // those that failed are due at once
		d.record(answer{d.begin(t, begin), result{delivered: true}})
	}
	if p, changed := d.progress(); !changed || len(p.Pending) != 0 || p.ReadTo != 100 || p.Delivered != 5 || !p.FailingSince.IsZero() {
		t.Errorf("%+v", p)
	}
	if _, changed := d.progress(); changed {
		t.Error("nothing has changed since")
	}
}

// A receiver that says when to come again is left alone until then.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	d := newTestDelivery()
	begin := time.Now()
	d.record(answer{d.begin(t, begin), result{failure: "busy", retryAfter: 2 * time.Hour}})
	if wait := d.waitTo.Sub(begin); wait < 2*time.Hour || wait > 3*time.Hour {
		t.Errorf("it waits for %s", wait)
	}
	if due := d.sendDue(t.Context(), nil); due == nil || d.inFlight != 0 {
		t.Error("it does not wait")
	}
}

// The three days are those of the oldest event: while younger ones are accepted, they pass.
func TestTheOldestEventDecidesWhenAWebhookPausesItself(t *testing.T) {
	t.Parallel()
	d := newTestDelivery()
	at := time.Now()
	d.now = func() time.Time { return at }
	oldest := d.begin(t, at)
	d.record(answer{oldest, result{failure: "no"}})
	at = at.Add(giveUpAfter - time.Second)
	d.record(answer{d.begin(t, at.Add(-giveUpAfter)), result{delivered: true}}) // another case
	oldest.sending = true
	d.inFlight++
	d.record(answer{oldest, result{failure: "no"}})
	if _, reason := d.wantsPause(); reason != "" {
		t.Fatalf("it pauses early: %s", reason)
	}
	at = at.Add(time.Second)
	oldest.sending = true
	d.inFlight++
	d.record(answer{oldest, result{failure: "no"}})
	if _, reason := d.wantsPause(); reason != "an event was not accepted for 72h0m0s; the last failure: no" {
		t.Fatalf("it does not pause: %q", reason)
	}
	if d.sendDue(t.Context(), nil) != nil || d.inFlight != 0 {
		t.Error("it sends though it pauses itself")
	}
}

// What a person changed while a webhook wants to pause itself keeps it from that, and what waits is sent: no
// other event need come first.
func TestAChangedWebhookThatWantedToPauseGoesOn(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tries.Add(1) == 1 {
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer receiver.Close()
	keys, id := mustKeys(t, testKey(1)), uuid.Must(uuid.NewV7())
	secret, err := keys.Encrypt("acme", id, testSecrets[0])
	if err != nil {
		t.Fatal(err)
	}
	s := &Sender{
		config: Config{Keys: keys}, client: newClient(thisMachine, nil), pace: newPacer(idle), now: time.Now, log: zap.NewNop(),
		delay: func(int) time.Duration { return 0 }, giveUp: giveUpAfter,
	}
	defer s.client.close()
	w := webhookstore.Webhook{ID: id, Tenant: "acme", Version: 1, Secret: secret, Position: webhookstore.Position{Version: 1}}
	log := &growingLog{changed: make(chan struct{}), newest: 2}
	d := newDelivery(t.Context(), s, newFeed(log, s.pace, "acme"), w, Definition{URL: receiver.URL})
	defer func() { d.cancel(); <-d.done }()
	poll.Until(t, "it wants to pause", func() bool { _, why := d.wantsPause(); return why != "" })
	w.Version++
	d.update(w)
	poll.Within(t, 10*time.Second, "the event is sent again", func() bool { p, _ := d.progress(); return p.Delivered == 1 && len(p.Pending) == 0 })
}

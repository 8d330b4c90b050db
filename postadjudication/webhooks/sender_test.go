package webhooks_test

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts/events"
)

func TestEveryEventReachesItsReceiver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	all, deaths := newReceiver(t, nil), newReceiver(t, nil)
	w := f.create(all)
	f.create(deaths, func(n *webhooks.New) { n.Types = []events.Type{events.RunDeadLettered} })
	later := newReceiver(t, nil)
	f.StartWorkers()
	for n := range 40 {
		f.MustSubmit(rig.Release(n))
	}
	f.WaitSettled(40)
	f.Escrow.Answer(rig.Refuses)
	before := len(f.log())
	f.create(later, func(n *webhooks.New) { n.After = nil }) // from now on
	f.DeadLetter(100, rig.Refuses)
	f.waitAll(all)
	f.Wait("the death has arrived", func() bool { return len(deaths.ids()) == 1 })
	if got := deaths.events()[0]; got.Type() != "dev.recourse.run.dead_lettered" || got.Source() != "/tenants/acme" {
		t.Errorf("%s", got)
	}
	f.Wait("the later webhook has what came after it", func() bool { return len(later.ids()) == len(f.log())-before })
	f.Wait("the position is written", func() bool {
		got := f.get(w)
		return got.Delivered == int64(len(all.events())) && got.Waiting == 0 && got.Failures == 0 && got.FailingSince.IsZero() && !got.DeliveredAt.IsZero()
	})
	f.MustAudit()
}

// A receiver that is down misses nothing, and delays no other.
func TestAReceiverThatWasDownMissesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	down, up := newReceiver(t, func(event.Event) int { return http.StatusServiceUnavailable }), newReceiver(t, nil)
	w := f.create(down)
	f.create(up)
	f.StartWorkers()
	const runs = 3 * maxWaiting / 5 // more events than a webhook reads ahead
	for n := range runs {
		f.MustSubmit(rig.Release(n))
	}
	f.WaitSettled(runs)
	f.waitAll(up)
	first := f.log()[0].Position
	f.Wait("the failure is known", func() bool {
		got := f.get(w)
		return got.Failures > 2 && got.LastFailure == "the receiver answered 503" && !got.FailingSince.IsZero() && got.Position == first-1 && got.Waiting == maxWaiting
	})
	if n := len(down.events()); n != 0 {
		t.Errorf("%d events were accepted by a receiver that is down", n)
	}
	down.set(nil)
	f.waitAll(down)
	f.Wait("the failure is over", func() bool {
		got := f.get(w)
		return got.Failures == 0 && got.FailingSince.IsZero() && got.Waiting == 0
	})
}

// An event that its receiver never accepts holds back its case, and no other: also after the
// process that sent has gone.
func TestAnEventThatIsRefusedHoldsBackItsCaseOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.StartWorkers()
	poisoned := f.MustSubmit(rig.Release(0))
	f.WaitState(poisoned.Run, "succeeded")
	refused := f.log()[1].ID
	refuses := func(e event.Event) int {
		if e.ID() == refused {
			return http.StatusUnprocessableEntity
		}
		return http.StatusNoContent
	}
	r := newReceiver(t, refuses)
	w := f.create(r)
	const runs = 2 * maxWaiting / 5
	for n := range runs {
		f.MustSubmit(rig.Release(n + 1))
	}
	f.WaitSettled(runs + 1)
	ofCase := 0
	for _, e := range f.log() {
		if e.Case == poisoned.Case {
			ofCase++
		}
	}
	others := len(f.log()) - ofCase + 1 // the first of the case has arrived
	f.Wait("all other cases have arrived", func() bool { return len(r.ids()) == others })
	f.Wait("the position says what is missing", func() bool { return f.get(w).Waiting == ofCase-1 })
	f.StopWorkers()
	next := f.other()
	next.StartWorkers()
	next.MustSubmit(rig.Release(1000))
	next.WaitSettled(runs + 2)
	next.Wait("the next process sends", func() bool { return len(r.ids()) > others+4 })
	if slices.Contains(r.ids(), refused) {
		t.Error("the refused event was accepted")
	}
	r.set(nil)
	next.waitAll(r)
}

func TestAReceiverThatIsGonePausesItsWebhook(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, func(event.Event) int { return http.StatusGone })
	w := f.create(r)
	f.StartWorkers()
	s := f.MustSubmit(rig.Release(1))
	f.WaitState(s.Run, "succeeded")
	f.Wait("it is paused", func() bool { return f.get(w).State == webhooks.Paused })
	got := f.get(w)
	if got.ChangedBy != "system:webhooks" || got.Reason != "the receiver answered 410: it wants no more events" || f.Health().Stats().Webhooks.Paused != 1 {
		t.Errorf("%+v, %+v", got, f.Health().Stats().Webhooks)
	}
	if !slices.ContainsFunc(f.log(), func(e postadjudication.Event) bool {
		return e.Type == events.WebhookPaused && e.Data.WebhookID == w.ID.String() && e.Data.Actor == "system:webhooks" && e.Data.Reason == got.Reason
	}) {
		t.Error("no event says that it was paused")
	}
	tries := r.tried()
	other := newReceiver(t, nil)
	f.create(other)
	f.MustSubmit(rig.Release(2))
	f.WaitSettled(2)
	f.waitAll(other) // also the newest event, which the paused one would have got as well
	r.set(nil)
	if r.tried() != tries {
		t.Error("a paused webhook was sent to")
	}
	if got, err := f.Resume(context.Background(), w.ID, "it moved back"); err != nil || got.State != webhooks.Active {
		t.Fatalf("%+v, %v", got, err)
	}
	f.waitAll(r)
	history, err := f.As("acme", "").OperationLogs.History(context.Background(), postadjudication.OperationLogWebhooks, 0, 10)
	history = slices.DeleteFunc(history, func(h postadjudication.OperationLogEntry) bool { return h.Webhook != w.ID.String() })
	if err != nil || len(history) != 3 {
		t.Fatalf("%+v, %v", history, err)
	}
	for i, want := range []string{"create", "pause", "resume"} {
		if h := history[i]; h.AskedFor != want || h.Webhook != w.ID.String() || h.Key != "" {
			t.Errorf("%+v", h)
		}
	}
}

func TestAWebhookPausesItselfWhenNothingIsAcceptedForLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Webhooks.GiveUp = time.Millisecond })
	r := newReceiver(t, func(event.Event) int { return http.StatusInternalServerError })
	w := f.create(r)
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.Wait("it is paused", func() bool { return f.get(w).State == webhooks.Paused })
	if got := f.get(w); got.Reason != "an event was not accepted for 1ms; the last failure: the receiver answered 500" {
		t.Errorf("%+v", got)
	}
	r.set(nil)
	if _, err := f.Resume(context.Background(), w.ID, "mended"); err != nil {
		t.Fatal(err)
	}
	f.WaitSettled(1)
	f.waitAll(r)
}

// Another process goes on where the one that sent stopped, and only one sends.
func TestAnotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	f.create(r)
	f.StartWorkers()
	next := f.other()
	next.StartWorkers()
	for n := range 20 {
		f.MustSubmit(rig.Release(n))
	}
	f.WaitSettled(20)
	f.waitAll(r)
	if n := len(r.events()); n != len(r.ids()) {
		t.Errorf("%d events were sent, %d are different: two processes send", n, len(r.ids()))
	}
	sending := f.Health().Stats().Webhooks.Sending + next.Health().Stats().Webhooks.Sending
	if sending != 1 {
		t.Errorf("%d deliveries", sending)
	}
	f.StopWorkers()
	for n := range 20 {
		next.MustSubmit(rig.Release(100 + n))
	}
	next.WaitSettled(40)
	next.waitAll(r)
	if v, err := next.Audit(context.Background()); err != nil || v.Verdict(audit.InvariantFold) != "ok" {
		t.Errorf("%v", err)
	}
}

// The connections of the process that sends are killed all along.
func TestNothingIsMissedWhileConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	f.create(r)
	f.StartWorkers()
	next := f.other()
	next.StartWorkers()
	var kills atomic.Int32
	for n := range 60 {
		if _, err := f.Submit(context.Background(), rig.Release(n)); err != nil {
			t.Logf("submit again: %v", err)
			f.Wait("it is submitted", func() bool { _, err := f.Submit(context.Background(), rig.Release(n)); return err == nil })
		}
		if n%15 == 7 {
			if _, err := f.DB.Exec(`SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = 1919119987 AND l.objid = 5 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
				t.Fatal(err)
			}
			kills.Add(1)
			f.Wait("somebody sends again", func() bool {
				return f.Count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1919119987 AND objid = 5 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 1
			})
		}
	}
	f.WaitSettled(60)
	f.waitAll(r)
	f.Wait("only one process sends", func() bool {
		return f.Health().Stats().Webhooks.Sending+next.Health().Stats().Webhooks.Sending == 1
	})
}

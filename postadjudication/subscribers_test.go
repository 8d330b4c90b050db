package postadjudication_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// subscriberRecorder records the letters that a subscriber received.
type subscriberRecorder struct {
	mu      sync.Mutex
	letters []postadjudication.DeadLetter
}

func (d *subscriberRecorder) record(l postadjudication.DeadLetter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.letters = append(d.letters, l)
}

// runs counts how often each run was received.
func (d *subscriberRecorder) runs() map[background.RunID]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[background.RunID]int{}
	for _, l := range d.letters {
		out[l.Run]++
	}
	return out
}

func checkDeliveredOnce(t *testing.T, who string, delivered map[background.RunID]int, want int) {
	t.Helper()
	if len(delivered) != want {
		t.Errorf("%s received %d letters, want %d", who, len(delivered), want)
	}
	for id, n := range delivered {
		if n != 1 {
			t.Errorf("%s received run %s %d times", who, id, n)
		}
	}
}

// Every death of every process is received once, with its particulars, also in a process that
// executes nothing; successes are not.
func TestEveryDeadLetterIsDeliveredOnceInEveryProcess(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: failTask}}
		c.OnDeath = postadjudication.LetterHandler{Handle: func(context.Context, postadjudication.DeadLetter) background.Result {
			return background.Result{Class: escrow.Executed}
		}}
	}).StartWorkers()
	before := r.DeadLetter(1000, rig.Refuses)
	if err := r.DrainEvents(context.Background()); err != nil {
		t.Fatal(err)
	}
	elsewhere := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
	var here, there subscriberRecorder
	defer r.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) { here.record(l) })()
	defer elsewhere.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) { there.record(l) })()
	r.MustSubmit(rig.Release(2000))
	r.WaitNoneLive()
	r.Escrow.Answer(rig.RateLimits)
	const many = 40
	for i := range many {
		a := rig.Release(i)
		if i%2 == 0 {
			a.Tenant = "other"
		}
		r.MustSubmit(a)
	}
	if _, err := r.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "sweep"}); err != nil {
		t.Fatal(err)
	}
	for who, d := range map[string]*subscriberRecorder{"this process": &here, "another": &there} {
		r.Wait(who+" receives the letters", func() bool { return len(d.runs()) > many })
		checkDeliveredOnce(t, who, d.runs(), many+1)
		if d.runs()[before.Run] != 0 {
			t.Errorf("%s received a death from before it subscribed", who)
		}
	}
	for _, l := range here.letters {
		st, err := r.Status(context.Background(), l.Tenant, l.Run)
		if err != nil {
			t.Fatal(err)
		}
		if st.Case != l.Case || st.Family != l.Family || st.RetryKey != l.RetryKey || st.Attempts != l.Attempts || st.ReasonCode != l.ReasonCode || st.Class != l.Class ||
			st.Error.Type != l.Error.Type || !st.DeadAt.Equal(l.DeadAt) || st.Handler != l.Handler || (l.Transaction == "") != (l.Family == "chores") {
			t.Errorf("received %+v, status %+v", l, st)
		}
	}
	if s := r.Health().Stats(); s.Subscribers != 1 || s.SubscriberCalls != many+1 || s.SubscriberPanics != 0 {
		t.Errorf("%+v", s)
	}
	r.MustAudit()
}

// A subscriber that panics, ends its goroutine or hangs blocks neither the engine nor other
// subscribers; what it failed to receive is counted.
func TestASubscriberThatPanicsBlocksNoOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	var healthy, panicking subscriberRecorder
	defer r.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) { healthy.record(l) })()
	defer r.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) { panicking.record(l); panic("no") })()
	defer r.OnDeadLetter(func(context.Context, postadjudication.DeadLetter) { runtime.Goexit() })()
	hangs := make(chan struct{}, 10)
	leave := r.OnDeadLetter(func(ctx context.Context, _ postadjudication.DeadLetter) { hangs <- struct{}{}; <-ctx.Done() })
	const n = 5
	for i := range n {
		r.DeadLetter(i, rig.Refuses)
	}
	r.Wait("all letters are received", func() bool { return len(healthy.runs()) == n && r.Health().Stats().SubscriberPanics == 2*n })
	checkDeliveredOnce(t, "who panics", panicking.runs(), n)
	<-hangs
	leave()
	leave() // a second call is a no-op
	if len(hangs) != 0 || r.Health().Stats().Subscribers != 3 {
		t.Errorf("%d more calls of one that hangs, %d subscribers", len(hangs), r.Health().Stats().Subscribers)
	}
	r.MustAudit()
}

// Once unsubscribe has returned, fn neither runs nor is called again.
func TestUnsubscribeWaitsForTheRunningCall(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	began, running := make(chan struct{}), false
	leave := r.OnDeadLetter(func(ctx context.Context, _ postadjudication.DeadLetter) {
		running = true // read after unsubscribe only: the race detector checks
		close(began)
		<-ctx.Done()
		running = false
	})
	r.DeadLetter(1, rig.Refuses)
	<-began
	leave()
	if running {
		t.Error("unsubscribe has returned, and the call goes on")
	}
	r.DeadLetter(2, rig.Refuses) // a second call would close began twice
	r.MustAudit()
	if s := r.Health().Stats(); s.SubscriberCalls != 1 || s.SubscriberPanics != 0 || s.Subscribers != 0 {
		t.Errorf("%+v", s)
	}
}

// Of a death whose receipt can't be read a subscriber gets what the rows state, and goes on.
func TestADeathWhoseReceiptIsUnreadableIsDelivered(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	var got subscriberRecorder
	began, goOn := make(chan struct{}, 3), make(chan struct{})
	defer r.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) {
		got.record(l)
		began <- struct{}{}
		<-goOn
	})()
	r.DeadLetter(1, rig.Refuses)
	<-began
	unreadable := r.DeadLetter(2, rig.Refuses)
	testkit.Tamper(t, r.DB, `UPDATE recourse.receipts SET body = '{"payload":[]}' WHERE subtype = 'dead-lettered' AND run_id = '`+unreadable.Run.String()+`'`)
	close(goOn)
	r.Wait("both are received", func() bool { return len(got.runs()) == 2 })
	want := postadjudication.DeadLetter{
		Run: unreadable.Run, Case: unreadable.Case, Tenant: "acme", Family: postadjudication.Family, RetryKey: got.letters[1].RetryKey, Transaction: rig.Release(2).TransactionReceiptID, DeadAt: got.letters[1].DeadAt,
	}
	if got.letters[1] != want || want.RetryKey == "" || want.DeadAt.IsZero() {
		t.Errorf("%+v", got.letters[1])
	}
	r.Wait("the calls return", func() bool { return r.Health().Stats().SubscriberCalls == 2 })
	if s := r.Health().Stats(); s.SubscriberUnreadable != 1 || s.SubscriberPanics != 0 {
		t.Errorf("%+v", s)
	}
}

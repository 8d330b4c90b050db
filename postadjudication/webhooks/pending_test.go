package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// settleUnsent settles so many adjudications by a process without keys of webhooks, which sends nothing, and
// returns it.
func (f *fixture) settleUnsent(n int) *fixture {
	f.T.Helper()
	keyless := f.other(func(c *postadjudication.Config) { c.Webhooks.Keys = webhooks.Keys{} })
	keyless.StartWorkers()
	for i := range n {
		keyless.MustSubmit(rig.Release(i))
	}
	keyless.WaitSettled(n)
	return keyless
}

// What a process left pending is sent by the next one, with what has happened since, and nothing else.
func TestWhatIsPendingIsSentAfterARestart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	w := f.create(r)
	keyless := f.settleUnsent(3)
	before := f.log()
	first, third, last := before[0], before[2], before[len(before)-1].Position
	if _, err := f.DB.Exec(`UPDATE recourse.webhook_positions SET read_to = $1, pending = ARRAY[$2, $3]::bigint[] WHERE webhook_id = $4`,
		int64(last), int64(first.Position), int64(third.Position), w.ID); err != nil {
		t.Fatal(err)
	}
	if got := f.get(w); got.Waiting != 2 || got.Position != first.Position-1 {
		t.Errorf("%+v", got)
	}
	keyless.MustSubmit(rig.Release(3))
	keyless.WaitSettled(4)
	after := f.log()
	f.StartWorkers()
	f.Wait("it has nothing more to send", func() bool {
		got := f.get(w)
		return got.Waiting == 0 && got.Position >= after[len(after)-1].Position
	})
	got, want := r.ids(), []string{first.ID, third.ID}
	for _, e := range after[len(before):] {
		want = append(want, e.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%v arrived, in place of %v", got, want)
	}
}

// Pending events of one case are sent in their order, also if they are stored in another.
func TestPendingEventsAreSentInTheOrderOfTheirPositions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	w := f.create(r)
	f.settleUnsent(1)
	all := f.log()
	var pending pq.Int64Array
	for _, e := range slices.Backward(all) {
		pending = append(pending, int64(e.Position))
	}
	if _, err := f.DB.Exec(`UPDATE recourse.webhook_positions SET read_to = $1, pending = $2 WHERE webhook_id = $3`, pending[0], pending, w.ID); err != nil {
		t.Fatal(err)
	}
	f.StartWorkers()
	f.waitAll(r)
}

// A webhook whose pending event can't be found tells so, and loses none of the others.
func TestAPendingEventThatIsMissingIsTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	w := f.create(r)
	f.StartWorkers()
	f.MustSubmit(rig.Release(1))
	f.WaitSettled(1)
	f.waitAll(r)
	f.Wait("the position is written", func() bool { return f.get(w).Waiting == 0 })
	f.StopWorkers()
	if _, err := f.DB.Exec(`UPDATE recourse.webhook_positions SET pending = '{3}'`); err != nil {
		t.Fatal(err)
	}
	next := f.other()
	next.StartWorkers()
	next.Wait("the failure is told", func() bool {
		got := next.get(w)
		return got.Waiting == 1 && got.Failures > 0 && !got.FailingSince.IsZero() && strings.Contains(got.LastFailure, "can't be found")
	})
	if _, err := next.Replay(t.Context(), w.ID, 0, "a position was altered"); err != nil {
		t.Fatal(err)
	}
	all := 2 * len(next.log())
	next.Wait("all was sent again", func() bool { return len(r.events()) >= all })
}

// A receipt that can't be read holds up the webhooks that come to it. Each says which one it is, and
// since when. What came before it is sent. Once it can be read they go on, and skip nothing.
func TestAnEventThatCantBeReadIsTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r, other := newReceiver(t, nil), newReceiver(t, nil)
	v, w := f.create(r), f.create(other)
	keyless := f.other(func(c *postadjudication.Config) { c.Webhooks.Keys = webhooks.Keys{} })
	keyless.StartWorkers()
	keyless.MustSubmit(rig.Release(1))
	keyless.WaitSettled(1)
	unreadable := keyless.MustSubmit(rig.Release(2)).Case.String()
	keyless.WaitSettled(2)
	all := f.log()
	ofReceipt := ` WHERE case_id = '` + unreadable + `' AND seq = 1`
	testkit.Tamper(t, f.DB, `UPDATE recourse.receipts SET body = '{' || body`+ofReceipt)
	before := slices.IndexFunc(all, func(e postadjudication.Event) bool { return e.Case.String() == unreadable })
	f.StartWorkers()
	for _, one := range []webhooks.Webhook{v, w} {
		f.Wait("the failure is told", func() bool {
			got := f.get(one)
			return got.Failures > 0 && !got.FailingSince.IsZero() && strings.Contains(got.LastFailure, unreadable+".1") && got.Delivered == int64(before)
		})
	}
	if h, err := f.Health().Webhooks(t.Context()); err != nil || h.FailingActive != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	testkit.Tamper(t, f.DB, `UPDATE recourse.receipts SET body = substr(body, 2)`+ofReceipt)
	f.waitAll(r)
	f.waitAll(other)
	f.Wait("the failure is over", func() bool { return f.get(v).Failures == 0 && f.get(v).FailingSince.IsZero() })
	f.MustAudit()
}

package webhooks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
	"github.com/recourse-dev/recourse/receipts/events"
)

// progressed leaves three webhooks that were paused, rotated, resumed and replayed, and whose sender was
// replaced: one has sent everything, one some deaths only, and one waits for an event of each case, and is
// paused with more to read.
func progressed(t *testing.T) (f *fixture, done, deaths, waits webhooks.Webhook) {
	t.Helper()
	f = newFixture(t)
	ctx := t.Context()
	all, some := newReceiver(t, nil), newReceiver(t, nil)
	done = f.create(all)
	deaths = f.create(some, func(n *webhooks.New) { n.Types = []events.Type{events.RunDeadLettered} })
	waits = f.create(newReceiver(t, func(e event.Event) int {
		if e.Type() == "dev.recourse.run.created" {
			return http.StatusNoContent
		}
		return http.StatusServiceUnavailable
	}))
	must := func(_ webhooks.Webhook, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f.StartWorkers()
	for n := range 5 {
		f.MustSubmit(rig.Release(n))
	}
	f.WaitSettled(5)
	f.DeadLetter(100, rig.Refuses)
	f.waitAll(all)
	_, secret, err := f.Rotate(ctx, done.ID, "", time.Hour, "a year old")
	if err != nil {
		t.Fatal(err)
	}
	all.trusts(secret)
	must(f.Pause(ctx, done.ID, "the ledger moves"))
	must(f.Resume(ctx, done.ID, "it has moved"))
	must(f.Replay(ctx, done.ID, f.log()[7].Position, "the ledger lost some"))
	must(f.Replay(ctx, deaths.ID, 0, "likewise"))
	if _, err := f.Test(ctx, done.ID); err != nil {
		t.Fatal(err)
	}
	f.Wait("some wait", func() bool { return f.get(waits).Waiting > 0 && f.get(waits).Delivered > 0 })
	f.StopWorkers()
	next := f.other()
	next.StartWorkers()
	next.MustSubmit(rig.Release(200))
	next.WaitSettled(6)
	must(f.Pause(ctx, waits.ID, "it is down"))
	sentAll := func(w webhooks.Webhook) bool {
		got, log := f.get(w), f.log()
		return got.Waiting == 0 && got.Position >= log[len(log)-1].Position
	}
	f.Wait("the others have sent everything", func() bool { return sentAll(done) && sentAll(deaths) })
	f.Wait("nothing is sent to the paused one", func() bool { return next.Health().Stats().Webhooks.Sending == 2 })
	next.MustSubmit(rig.Release(201))
	next.WaitSettled(7)
	f.Wait("the others have sent the last ones", func() bool { return sentAll(done) && sentAll(deaths) })
	next.StopWorkers()
	return f, done, deaths, waits
}

// What a webhook has delivered and waits for is what it has passed, whatever was done with it. A position
// moved, an event taken out of what waits, or a count of deliveries that is raised alone is found.
func TestTheAuditFindsAWebhookThatWouldMissEvents(t *testing.T) {
	t.Parallel()
	f, done, deaths, waits := progressed(t)
	f.MustAudit()
	newest := int64(f.log()[len(f.log())-1].Position)
	for _, c := range []struct {
		of   webhooks.Webhook
		harm string
		word string
	}{
		{waits, fmt.Sprintf("read_to = %d", newest), "must have been delivered"},
		{waits, "pending = pending[2:]", "must have been delivered"},
		{waits, "pending = '{}'", "must have been delivered"},
		{waits, "pending = pending[2:] || pending[1] + 7", "has no event that it gets"},
		{waits, "delivered = delivered + 1", "must have been delivered"},
		{done, "delivered = delivered + 1", "must have been delivered"},
		{done, fmt.Sprintf("pending = ARRAY[%d]", newest), "must have been delivered"},
		{done, "read_to = 8", "must have been delivered"},
		{deaths, "delivered = 0", "must have been delivered"},
		{deaths, "pending = ARRAY[8]", "has no event that it gets"},
	} {
		testkit.Tamper(t, f.DB, `CREATE TABLE kept AS TABLE recourse.webhook_positions`, `UPDATE recourse.webhook_positions SET `+c.harm+` WHERE webhook_id = '`+c.of.ID.String()+`'`)
		a, err := f.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, b := range a.Breaks {
			found = found || b.Invariant == audit.InvariantFold && strings.Contains(b.What, c.of.ID.String()) && strings.Contains(b.What, c.word)
		}
		if !found {
			t.Errorf("%s: %+v", c.harm, a.Breaks)
		}
		testkit.Tamper(t, f.DB, `DELETE FROM recourse.webhook_positions`, `INSERT INTO recourse.webhook_positions TABLE kept`, `DROP TABLE kept`)
	}
	f.MustAudit()
}

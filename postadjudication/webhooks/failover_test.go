package webhooks_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// The database fails over to a standby that lags: the last events are lost, with the position that the sender had
// written after them. Other events get their places, and the process that sent the lost ones sends these too.
func TestEventsInThePlacesOfLostOnesAreSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	w := f.create(r)
	f.StartWorkers()
	settle := func(n int) []postadjudication.Event {
		t.Helper()
		f.MustSubmit(rig.Release(n))
		f.WaitSettled(n + 1)
		all := f.log()
		f.Wait("everything is sent, and that is written", func() bool {
			got := f.get(w)
			return got.Waiting == 0 && got.Position >= all[len(all)-1].Position
		})
		return all
	}
	kept := settle(0)
	last := f.Count(`SELECT max(last) FROM recourse.event_log`)
	position := f.Count(`SELECT read_to FROM recourse.webhook_positions`)
	settle(1)
	testkit.Tamper(t, f.DB,
		fmt.Sprintf(`DELETE FROM recourse.event_log WHERE last > %d`, last),
		fmt.Sprintf(`UPDATE recourse.projected SET last = %d`, last),
		fmt.Sprintf(`UPDATE recourse.webhook_positions SET read_to = %d, delivered = %d`, position, len(kept)))
	if _, err := f.DB.Exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1919119987 AND objid = 5
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
		t.Fatal(err)
	}
	for _, e := range settle(2) {
		if !slices.Contains(r.ids(), e.ID) {
			t.Errorf("%s at position %d was not sent", e.Type, e.Position)
		}
	}
}

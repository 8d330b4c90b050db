package main

import (
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// A worker is killed while its escrow service has accepted a call and not ended it: before the answer is on record, after it
// was recorded, and as it is recorded what became of the call. The call is asked about by the next worker, is paid once, and no other
// one is made, but where its acceptance was lost.
func TestAKillWhileACallIsAcceptedLosesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		point string // at which the worker is killed; empty: while the run waits
		calls int    // at most
	}{
		"before the answer is on record": {failpoint.Point(failpoint.JournalBefore, string(receipts.RetryScheduled)), 2},
		"after the answer is on record":  {failpoint.Point(failpoint.JournalAfter, string(receipts.RetryScheduled)), 1},
		"while it waits":                 {"", 1},
		"before the lookup is on record": {failpoint.Point(failpoint.JournalBefore, failpoint.Lookup), 1},
		"before the end is on record":    {failpoint.Point(failpoint.JournalBefore, string(receipts.Reconciled)), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			h := s.worker(c.point)
			s.submit(h, adjudication(1, "accept", ""))
			if c.point == "" {
				s.until("the call is accepted", `SELECT EXISTS (SELECT FROM recourse.runs WHERE reason = 'accepted')`)
				if err := h.kill(); err != nil {
					t.Fatal(err)
				}
			} else {
				s.awaitKilled(h)
			}
			s.worker("")
			s.untilRun(string(background.Succeeded))
			s.awaitNoneLive()
			s.checkConsistent()
			if calls := (ledgers{s.escrow}).Calls(); calls > c.calls {
				t.Errorf("%d calls, %d at most", calls, c.calls)
			}
		})
	}
}

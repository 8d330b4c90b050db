package postadjudication_test

import (
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// A clock that was wrong by an hour, either way, is set right after runs have died. Ids and times then contradict the
// order in which things happened, and what happened is in order all the same: the audit has nothing to say, and the
// newest run is the last one that was submitted.
func TestHonestHistoriesAfterAClockWasSetRight(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"it was ahead": time.Hour, "it was behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, clock := rig.New(t).WithClock()
			clock.Set(off)
			r.Escrow.Answer(rig.Refuses)
			r.StartWorkers()
			ctx, ada := t.Context(), r.As("acme", "user:ada")
			var dead []postadjudication.Submitted
			for n := range 6 {
				dead = append(dead, r.MustSubmit(rig.Release(n)))
			}
			for _, s := range dead {
				r.WaitLetter(s.Run)
			}
			planned := r.MustPlan(bulk.Request{Action: bulk.Fork, Filter: deadletter.Filter{Transaction: rig.Release(5).TransactionReceiptID}, Reason: "planned before"})
			clock.Set(0)

			generation := func(n int) postadjudication.Submitted {
				a := rig.Release(n)
				a.Generation, a.AdjudicationID = 2, "adj_2nd"
				s := r.MustSubmit(a)
				r.WaitLetter(s.Run)
				return s
			}
			purge := func(n int) { r.MustPurge(deadletter.Filter{Transaction: rig.Release(n).TransactionReceiptID}, 1) }
			second := generation(0)
			purge(0)
			fork := r.MustFork(dead[1])
			r.WaitLetter(fork.Run)
			again := r.MustFork(fork)
			r.WaitLetter(again.Run)
			purge(1)
			r.WaitLetter(r.MustFork(dead[2]).Run)
			generation(2)
			r.Escrow.Script(nil)
			r.MustFork(dead[3])
			r.WaitSettled(1)
			r.Escrow.Answer(rig.Refuses)
			if _, err := ada.DeadLetters.Hold(ctx, dead[4].Run, "looked into"); err != nil {
				t.Error(err)
			}
			r.RunPlan(planned)
			r.WaitNoneLive()
			r.MustAudit()

			lineage, err := r.Lineage(ctx, "acme", dead[1].Run)
			if err != nil || len(lineage.Runs) != 3 || lineage.Runs[0].Run != dead[1].Run || lineage.Runs[1].Run != fork.Run || lineage.Runs[2].Run != again.Run || lineage.Newest != again.Run {
				t.Errorf("the lineage is %+v, %v", lineage, err)
			}
			var order []background.RunID
			for _, run := range r.CaseOf(rig.Release(0)).Runs {
				order = append(order, run.Run)
			}
			if !slices.Equal(order, []background.RunID{dead[0].Run, second.Run}) {
				t.Errorf("the runs of the case are in the order %v", order)
			}
		})
	}
}

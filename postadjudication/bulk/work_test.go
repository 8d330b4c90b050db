package bulk_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// startedPlan is a running plan while no process runs plans.
func startedPlan(r *rig.Rig, q bulk.Request) bulk.Plan {
	r.T.Helper()
	plan := r.MustPlan(q)
	b, err := r.As(plan.Tenant, "user:bob").Bulk.Run(context.Background(), plan.ID, plan.Hash)
	return checkBulkState(r, b, err, bulk.Running)
}

func mustWorkBulk(r *rig.Rig, b bulk.Plan) {
	if err := r.As(b.Tenant, "").Bulk.Work(context.Background(), b.ID); err != nil {
		r.T.Error(err)
	}
}

// Many processes that all act as the holder of one plan do everything once: the lock only saves
// work, the heads of the cases are the guard.
func TestManyWhoWorkOnOnePlanDoEverythingOnce(t *testing.T) {
	t.Parallel()
	for _, action := range []bulk.Action{bulk.Fork, bulk.Purge, bulk.Hold} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			r := rig.New(t).StartWorkers()
			const n = 300 // more than a chunk
			r.DeadLetters(0, n, rig.Refuses)
			r.StopWorkers()
			q := rig.AllLetters(action)
			plan := startedPlan(r, q)
			var all sync.WaitGroup
			for range 3 {
				other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
				all.Go(func() { mustWorkBulk(other, plan) })
			}
			all.Wait()
			b := r.WaitPlan(plan.ID)
			if b.Progress.Done != n {
				t.Errorf("%+v", b.Progress)
			}
			got := 0
			for _, subtype := range []receipts.Subtype{receipts.ManualRetryRequested, receipts.Purged, receipts.HoldPlaced} {
				got += r.CountReceipts(rig.Receipts{Actor: "user:bob", Subtype: subtype, Payload: map[string]any{"bulk": plan.ID}})
			}
			if got != n {
				t.Errorf("%d receipts of %d letters", got, n)
			}
			checkPlanReceipts(r, plan, "user:ada none to planned", "user:bob planned to running", "system:bulk running to done")
			if action == bulk.Fork {
				rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow).StartWorkers().WaitNoneLive()
			}
			r.MustAudit()
		})
	}
}

// An item whose lookup gives no answer, or panics, is left for a person; the others continue.
func TestALookupThatPanicsStopsNoOtherItem(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	lost := r.DeadLetters(0, 5, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.NoAnswer() })
	r.StopWorkers()
	plan := startedPlan(r, rig.AllLetters(bulk.Reconcile))
	r.Escrow.ScriptLookups(func(c escrow.Call) escrow.Answer {
		switch c.Run {
		case lost[1].Run:
			panic("no route for card 4111 1111 1111 1111")
		case lost[2].Run:
			return rig.NoAnswer()
		}
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "looked up"}
	})
	mustWorkBulk(r, plan)
	b := r.WaitPlan(plan.ID)
	if p := b.Progress; p.Done != 3 || p.Refused != 2 || p.ByGate[refusal.GateReconcileFirst] != 2 {
		t.Errorf("%+v", p)
	}
	for _, i := range r.BulkItems(plan.ID, "refused") {
		if i.Run != lost[1].Run && i.Run != lost[2].Run || strings.Contains(i.Error, "4111") {
			t.Errorf("%+v", i)
		}
	}
	r.MustAudit()
}

// Of two processes that work on a plan, since the first lost its lock, the second gets no answer to its lookup
// and records that, while the first waits for its own, which pays. The item is done, as the receipts say.
func TestAnItemThatAnotherWorkerCouldNotDoIsDone(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	r.DeadLetter(0, func(c escrow.Call) escrow.Answer { r.Escrow.Pay(c, c.Amount.Minor); return rig.NoAnswer() })
	r.StopWorkers()
	plan := startedPlan(r, rig.AllLetters(bulk.Reconcile))
	asked, answer := make(chan struct{}), make(chan struct{})
	r.Escrow.ScriptLookups(func(c escrow.Call) escrow.Answer {
		close(asked)
		<-answer
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "looked up"}
	})
	var first sync.WaitGroup
	first.Go(func() { mustWorkBulk(r, plan) })
	<-asked
	r.Escrow.ScriptLookups(nil)
	second := rig.Join(t, r.DatabaseURL, r.Redis, rig.NewEscrow())
	second.Escrow.ScriptLookups(rig.GivesNoAnswer)
	mustWorkBulk(second, plan)
	if b := r.WaitPlan(plan.ID); b.Progress.Refused != 1 {
		t.Errorf("%+v", b.Progress)
	}
	close(answer)
	first.Wait()
	if b := r.WaitPlan(plan.ID); b.Progress.Done != 1 || b.Progress.Refused != 0 || b.Progress.Money["EUR"] != settlement.SumOf(1000) {
		t.Errorf("%+v", b.Progress)
	}
	r.MustAudit()
}

// A plan does not fork a held letter, since it does not name it.
func TestABulkForkSkipsWhatIsHeld(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letters := r.DeadLetters(0, 3, rig.Refuses)
	if _, err := r.As("acme", "user:cem").DeadLetters.Hold(context.Background(), letters[1].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	if plan.Refused[refusal.GateHeld] != 1 || plan.Ready != 2 || plan.Money["EUR"] != settlement.SumOf(2000) {
		t.Errorf("%+v", plan)
	}
	if b := r.RunPlan(plan); b.Progress.Done != 2 || b.Progress.ByGate[refusal.GateHeld] != 1 {
		t.Errorf("%+v", b.Progress)
	}
	r.WaitNoneLive()
	if st, err := r.Status(context.Background(), "acme", letters[1].Run); err != nil || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
}

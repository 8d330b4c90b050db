package postadjudication

import (
	"context"
	"maps"
	"slices"
	"testing"
)

// That a plan is done says that its forks were made: it tells also what became of them.
func TestAPlanTellsWhatBecameOfItsForks(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.deadLetters(0, 5, func(Call) Answer { return refused() })
	plan := r.mustPlan(allLetters(BulkFork))
	if len(plan.Forks) != 0 {
		t.Errorf("before it runs: %v", plan.Forks)
	}
	var refuse []OperationKey // of two letters, whose forks die as well
	r.escrow.mu.Lock()
	r.escrow.script = func(_ context.Context, c Call) Answer {
		r.escrow.mu.Lock()
		if len(refuse) < 2 && !slices.Contains(refuse, c.OperationKey) {
			refuse = append(refuse, c.OperationKey)
		}
		dies := slices.Contains(refuse, c.OperationKey)
		r.escrow.mu.Unlock()
		if dies {
			return refused()
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.escrow.mu.Unlock()
	r.runPlan(plan)
	r.untilNoneLive()
	b, err := r.Bulk(context.Background(), "acme", plan.ID)
	if want := map[string]int64{"dead_lettered": 2, "succeeded": 3}; err != nil || b.State != BulkDone || b.Progress.Done != 5 || !maps.Equal(b.Forks, want) {
		t.Errorf("%v, %+v", err, b)
	}
	page, err := r.Bulks(context.Background(), "acme", "")
	if err != nil || len(page.Bulks) != 1 || page.Bulks[0].Forks != nil {
		t.Errorf("%v, %+v", err, page)
	}
	r.mustAudit()
}

package background_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func answers(r background.Result) func(context.Context, background.Run) background.Result {
	return func(context.Context, background.Run) background.Result { return r }
}

func TestUnknownIsLookedUpBeforeItsLetterIsOpened(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks  func(context.Context, background.Run) background.Result
		state  background.State
		class  background.Class
		lookup background.Class
	}{
		"executed":     {answers(paid), background.Succeeded, background.Executed, background.Executed},
		"not executed": {answers(refused), background.DeadLettered, background.NotExecuted, background.NotExecuted},
		"unknown":      {answers(vague), background.DeadLettered, background.Unknown, background.Unknown},
		"panics": {func(context.Context, background.Run) background.Result { panic("no") },
			background.DeadLettered, background.Unknown, background.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, func(context.Context, background.Attempt) background.Result { return vague })
			h.family.LookupFunc = c.looks
			w := h.start()
			r := h.submit(w)
			r = h.await(r.ID, "ended", func(r background.Run) bool { return !r.State.Live() })
			transitions := h.journal.Transitions(r.ID)
			last := transitions[len(transitions)-1]
			if r.State != c.state || r.Class != c.class || last.Lookup != c.lookup || h.calls.Load() != 3 {
				t.Errorf("calls %d, run %+v, move %+v", h.calls.Load(), r, last)
			}
			if c.class == background.Executed && (last.Result.Moved != 100 || last.Result.Reference != "ref") {
				t.Errorf("result %+v", last.Result)
			}
		})
	}
}

func TestExpiredKeyIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks background.Result
		state background.State
		calls int64
		facts []receipts.Subtype
	}{
		"executed": {paid, background.Succeeded, 1, []receipts.Subtype{receipts.Reconciled}},
		"not executed": {refused, background.Succeeded, 2,
			[]receipts.Subtype{receipts.Reconciled, receipts.AttemptStarted, receipts.AttemptSucceeded}},
		"unknown": {vague, background.DeadLettered, 1, []receipts.Subtype{receipts.DeadLettered}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, func(_ context.Context, a background.Attempt) background.Result {
				if a.Number == 1 {
					return vague
				}
				return paid
			})
			h.journal.SetKeyLifetime(time.Millisecond)
			h.family.LookupFunc = answers(c.looks)
			w := h.start()
			r := h.submit(w)
			r = h.await(r.ID, "ended", func(r background.Run) bool { return !r.State.Live() })
			want := append([]receipts.Subtype{receipts.AttemptStarted, receipts.RetryScheduled}, c.facts...)
			if got := h.events(r.ID); r.State != c.state || h.calls.Load() != c.calls || !slices.Equal(got, want) {
				t.Errorf("calls %d, run %+v, facts %v", h.calls.Load(), r, got)
			}
			if r.State == background.DeadLettered && (r.Reason != background.ReasonOutcomeUnknown || r.BudgetSpent != 1 || r.UnresolvedUnknowns != 1) {
				t.Errorf("run %+v", r)
			}
		})
	}
}

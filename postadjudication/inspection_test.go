package postadjudication_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// An inspection's actions match what the actions do: each allowed one succeeds, each other one is
// refused by the named gate.
func TestAnInspectionSaysWhatEachActionWillAnswer(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.SetKeyLife(time.Second)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx := context.Background()
	plain, held, forked, unknown := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.Refuses), r.DeadLetter(3, rig.RateLimits), r.DeadLetter(4, rig.GivesNoAnswer)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, forked.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	<-time.After(time.Second) // the key's lifetime, which the test is about
	finding := deadletter.Finding{Reason: "the statement", Class: escrow.NotExecuted, Reference: "stmt-7"}
	do := map[refusal.Action]func(id background.RunID) error{
		refusal.ActionFork: func(id background.RunID) error {
			_, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, id, rig.ForkRequest)
			return err
		},
		refusal.ActionRetry: func(id background.RunID) error {
			_, err := r.As("acme", "user:ada").DeadLetters.Retry(ctx, id, "again")
			return err
		},
		refusal.ActionReconcile: func(id background.RunID) error { _, err := r.Reconcile(ctx, "acme", id, finding); return err },
		refusal.ActionHold: func(id background.RunID) error {
			_, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, id, "a court asks")
			return err
		},
		refusal.ActionRelease: func(id background.RunID) error {
			_, err := r.As("acme", "user:ada").DeadLetters.Release(ctx, id, "a court asks")
			return err
		},
		refusal.ActionMark: func(id background.RunID) error {
			_, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, id, deadletter.Mark{Reason: "look", ManualReviewRequired: ptr(true)})
			return err
		},
	}
	for name, c := range map[string]struct {
		letter  postadjudication.Submitted
		refused map[refusal.Action]refusal.Gate
	}{
		"plain": {plain, map[refusal.Action]refusal.Gate{refusal.ActionRelease: refusal.GateNotHeld}},
		"held":  {held, map[refusal.Action]refusal.Gate{refusal.ActionHold: refusal.GateHeld, refusal.ActionPurge: refusal.GateHeld, refusal.ActionFree: refusal.GateHeld}},
		"unknown": {unknown, map[refusal.Action]refusal.Gate{refusal.ActionFork: refusal.GateReconcileFirst, refusal.ActionRetry: refusal.GateReconcileFirst, refusal.ActionRelease: refusal.GateNotHeld, refusal.ActionPurge: refusal.GateReconcileFirst,
			refusal.ActionFree: refusal.GateReconcileFirst, refusal.ActionAdjudicate: refusal.GateReconcileFirst}},
		"forked": {forked, map[refusal.Action]refusal.Gate{refusal.ActionFork: refusal.GateNotOpen, refusal.ActionRetry: refusal.GateNotALetter, refusal.ActionLookup: refusal.GateNotOpen, refusal.ActionHold: refusal.GateNotOpen,
			refusal.ActionRelease: refusal.GateNotOpen, refusal.ActionMark: refusal.GateNotOpen, refusal.ActionPurge: refusal.GateNotOpen, refusal.ActionFree: refusal.GateNothingReserved, refusal.ActionAdjudicate: refusal.GateCaseEnded}},
	} {
		i, err := r.As("acme", "").DeadLetters.Inspect(ctx, c.letter.Run)
		if err != nil || len(i.Actions) != 10 {
			t.Fatalf("%s: %+v, %v", name, i.Actions, err)
		}
		for _, a := range i.Actions {
			wantFindings := map[refusal.Action][]escrow.Class{refusal.ActionReconcile: {escrow.Executed, escrow.NotExecuted}}[a.Name]
			if name == "forked" && a.Name == refusal.ActionReconcile { // only a payment that is not on record
				wantFindings = []escrow.Class{escrow.Executed}
			}
			if !slices.Equal(a.Findings, wantFindings) {
				t.Errorf("%s: %+v, want the findings %v", name, a, wantFindings)
			}
			if a.RefusedBy != c.refused[a.Name] || a.Allowed != (a.RefusedBy == "") {
				t.Errorf("%s: %+v, want %q", name, a, c.refused[a.Name])
			}
			act := do[a.Name]
			if act == nil || a.Allowed {
				continue
			}
			var refused *refusal.RefusedError
			if err := act(c.letter.Run); !errors.As(err, &refused) || refused.Gate != a.RefusedBy {
				t.Errorf("%s: %s returned %v, the inspection said %q", name, a.Name, err, a.RefusedBy)
			}
		}
	}
	for _, name := range []refusal.Action{refusal.ActionMark, refusal.ActionHold, refusal.ActionRelease, refusal.ActionReconcile, refusal.ActionFork} {
		if err := do[name](plain.Run); err != nil {
			t.Errorf("%s was allowed: %v", name, err)
		}
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// An inspection returns the whole case: attempts with their errors, receipts, forks,
// annotations and money; and nothing to another tenant.
func TestAnInspectionTellsTheWholeCase(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	first := r.DeadLetter(1, rig.RateLimits)
	r.Escrow.Answer(rig.Refuses)
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, first.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, fork.Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	old, err := r.As("acme", "").DeadLetters.Inspect(ctx, first.Run)
	if err != nil || len(old.Attempts) != 3 || old.Attempts[2].EndedBy != receipts.DeadLettered || old.Attempts[0].Error == nil || old.Attempts[0].Error.Code != "429" || len(old.Run.Forks) != 1 || old.Run.Forks[0] != fork.Run {
		t.Errorf("%+v, %v", old, err)
	}
	i, err := r.As("acme", "").DeadLetters.Inspect(ctx, fork.Run)
	if err != nil || len(i.Attempts) != 1 || i.Attempts[0].Error.Message != "account closed" || len(i.Run.Parents) != 1 || len(i.Case.Runs) != 2 || i.Case.Reserved != 1000 || i.Handler != nil ||
		!i.Annotations.Held || i.Annotations.HoldReason != "a court asks" || i.Annotations.ExpiresAt != nil || i.Letter.ExpiresAt != nil {
		t.Fatalf("%+v, %v", i, err)
	}
	if n := len(i.Receipts); int64(n) != i.Case.Receipts || i.ReceiptsAfter != 0 || i.Receipts[n-1].Subtype != receipts.HoldPlaced || i.Receipts[n-1].Actor != "user:ada" || string(i.Receipts[n-1].Payload) == "" || *i.Receipts[0].Run != first.Run {
		t.Errorf("%d receipts of %d, %+v", n, i.Case.Receipts, i.Receipts)
	}
	for _, tenant := range []string{"", "other"} {
		if _, err := r.As(tenant, "").DeadLetters.Inspect(ctx, fork.Run); !errors.Is(err, refusal.ErrNotFound) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
}

// receiptsShown is how many receipts an inspection has at most.
const receiptsShown = 200

// For a long trail an inspection returns the beginning and where to continue.
func TestAnInspectionOfALongTrailGoesOn(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	for n := range receiptsShown {
		if _, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, letter.Run, deadletter.Mark{Reason: "look " + strconv.Itoa(n), ManualReviewRequired: ptr(n%2 == 0)}); err != nil {
			t.Fatal(err)
		}
	}
	i, err := r.As("acme", "").DeadLetters.Inspect(ctx, letter.Run)
	if err != nil || len(i.Receipts) != receiptsShown || i.ReceiptsAfter != receiptsShown {
		t.Fatalf("%d receipts, after %d, %v", len(i.Receipts), i.ReceiptsAfter, err)
	}
	rest, err := r.Receipts(ctx, "acme", i.Case.Case, i.ReceiptsAfter, 1000)
	if err != nil || int64(len(rest)+len(i.Receipts)) != i.Case.Receipts {
		t.Errorf("%d more of %d, %v", len(rest), i.Case.Receipts, err)
	}
}

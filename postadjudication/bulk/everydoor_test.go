package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// What may be done with a letter is what its inspection, the list of letters, the list of cases and a plan say, and what then
// happens: after each step of a random history of letters all are asked about one of them, and an action is done.
func TestEveryAnswerAboutALetterIsTheSameAndComesTrue(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.StartWorkers()
	const seed = 21
	h := letterHistory{Rig: r, rng: rand.New(rand.NewPCG(seed, seed)), generation: map[int]int{}, seen: map[string]int{}}
	for n := 1; n <= 8; n++ {
		h.generation[n] = 1
		h.runs = append(h.runs, runOfCase{h.DeadLetter(n, h.answer()).Run, n})
	}
	for range 60 {
		h.step()
	}
	for _, a := range []refusal.Action{
		refusal.ActionFork, refusal.ActionRetry, refusal.ActionReconcile, refusal.ActionLookup, refusal.ActionHold, refusal.ActionRelease,
		refusal.ActionMark, refusal.ActionPurge, refusal.ActionFree, refusal.ActionAdjudicate,
	} {
		if h.seen[string(a)+" true"] == 0 || h.seen[string(a)+" false"] == 0 {
			t.Errorf("the history with seed %d asks too little about %s: %v", seed, a, h.seen)
		}
	}
	r.MustAudit()
}

type runOfCase struct {
	run background.RunID
	n   int // of its transaction
}

// letterHistory is a history of letters, of which all doors are asked.
type letterHistory struct {
	*rig.Rig
	rng        *rand.Rand
	runs       []runOfCase // letters, and forks that have ended
	generation map[int]int
	seen       map[string]int // how often each action was done, by whether it was allowed
}

// answer returns how the escrow service answers from now on.
func (h *letterHistory) answer() func(escrow.Call) escrow.Answer {
	switch h.rng.IntN(5) {
	case 0:
		return rig.RateLimits
	case 1:
		return rig.GivesNoAnswer
	case 2:
		return func(c escrow.Call) escrow.Answer { return h.Escrow.Pay(c, c.Amount.Minor/2) }
	}
	return rig.Refuses
}

// step asks all doors about a letter, does one action, and compares.
func (h *letterHistory) step() {
	h.T.Helper()
	ctx := context.Background()
	of := h.runs[h.rng.IntN(len(h.runs))]
	inspected, err := h.As("acme", "").DeadLetters.Inspect(ctx, of.run)
	if errors.Is(err, refusal.ErrNotFound) { // it was purged, or never died
		return
	}
	if err != nil {
		h.T.Fatal(err)
	}
	h.compareLists(ctx, of, inspected)
	at := func(a deadletter.Action) string { return fmt.Sprint(a.Name, " ", a.Allowed) }
	h.rng.Shuffle(len(inspected.Actions), func(i, j int) {
		inspected.Actions[i], inspected.Actions[j] = inspected.Actions[j], inspected.Actions[i]
	})
	a := slices.MinFunc(inspected.Actions, func(a, b deadletter.Action) int { return h.seen[at(a)] - h.seen[at(b)] })
	h.seen[at(a)]++
	h.Escrow.Answer(h.answer())
	gate, err := h.do(ctx, a.Name, of, inspected.Letter.Dispatch)
	if err != nil || gate != a.RefusedBy || a.Allowed != (gate == "") || (a.Why == "") != a.Allowed || len(a.Roles) == 0 {
		h.T.Errorf("%s of run %s of txr_%d: the inspection says %+v; done: refused by %q, %v", a.Name, of.run, of.n, a, gate, err)
	}
	h.WaitNoneLive()
}

// compareLists compares an inspection with the letter's line in the list of letters, and that of its case in the list of cases.
func (h *letterHistory) compareLists(ctx context.Context, of runOfCase, i deadletter.Inspection) {
	h.T.Helper()
	allowed := map[refusal.Action]bool{}
	for _, a := range i.Actions {
		allowed[a.Name] = a.Allowed
	}
	if i.Letter.CanFork != allowed[refusal.ActionFork] || i.Letter.RefusedBy != i.Actions[0].RefusedBy {
		h.T.Errorf("txr_%d: the list says %q of a fork, the inspection %+v", of.n, i.Letter.RefusedBy, i.Actions[0])
	}
	page, err := h.As("acme", "").Cases.List(ctx, casestatus.Filter{Transaction: fmt.Sprintf("txr_%d", of.n)}, "", 1)
	if err != nil || len(page.Cases) != 1 {
		h.T.Fatal(page, err)
	}
	row := page.Cases[0]
	if row.Run != of.run { // another run of the case is the one that is acted on
		return
	}
	for _, a := range []refusal.Action{
		refusal.ActionFork, refusal.ActionReconcile, refusal.ActionLookup, refusal.ActionHold, refusal.ActionRelease, refusal.ActionPurge,
		refusal.ActionFree, refusal.ActionAdjudicate,
	} {
		if slices.Contains(row.Actions, a) != allowed[a] {
			h.T.Errorf("txr_%d: the list of cases allows %v, the inspection %+v", of.n, row.Actions, i.Actions)
		}
	}
}

// do does an action and returns the gate that refused it, if one did.
func (h *letterHistory) do(ctx context.Context, a refusal.Action, of runOfCase, dispatch string) (refusal.Gate, error) {
	h.T.Helper()
	letters := h.As("acme", "user:ada").DeadLetters
	var err error
	switch a {
	case refusal.ActionFork, refusal.ActionRetry:
		do := func() (deadletter.Forked, error) { return letters.Fork(ctx, of.run, rig.ForkRequest) }
		if a == refusal.ActionRetry {
			do = func() (deadletter.Forked, error) { return letters.Retry(ctx, of.run, "again") }
		}
		var f deadletter.Forked
		if f, err = do(); err == nil {
			h.runs = append(h.runs, runOfCase{f.Run, of.n})
		}
	case refusal.ActionReconcile:
		_, err = h.Reconcile(ctx, "acme", of.run, deadletter.Finding{Reason: "the statement", Class: escrow.NotExecuted, Reference: "stmt-7", CallOutstanding: true, ContradictsRecord: true})
	case refusal.ActionLookup:
		_, err = rig.Lookup(ctx, h.Rig, "acme", of.run)
	case refusal.ActionHold:
		_, err = letters.Hold(ctx, of.run, "a court asks")
	case refusal.ActionRelease:
		_, err = letters.Release(ctx, of.run, "the court has ended")
	case refusal.ActionMark:
		_, err = letters.Mark(ctx, of.run, deadletter.Mark{Reason: "look", ManualReviewRequired: new(h.rng.IntN(2) == 0)})
	case refusal.ActionPurge:
		var plan bulk.Plan
		if plan, err = h.As("acme", "user:ada").Bulk.Plan(ctx, bulk.Request{Filter: deadletter.Filter{Dispatch: dispatch}, Action: bulk.Purge, Reason: "settled by hand"}); err == nil {
			return h.runToItsEnd(plan), nil
		}
		if none := (*bulk.NothingSelectedError)(nil); errors.As(err, &none) { // plans select open letters
			return refusal.GateNotOpen, nil
		}
	case refusal.ActionFree:
		var plan bulk.Plan
		if plan, err = h.As("acme", "user:ada").Bulk.PlanFree(ctx, rig.FreeRequest(fmt.Sprintf("txr_%d", of.n))); err == nil {
			return h.runToItsEnd(plan), nil
		}
	case refusal.ActionAdjudicate:
		next := rig.Release(of.n)
		next.Generation = h.generation[of.n] + 1
		next.Amount.Minor -= h.CaseOf(next).Released // a part may be paid
		var s postadjudication.Submitted
		if s, err = h.Submit(ctx, next); err == nil && s.Reply == postadjudication.Created {
			h.generation[of.n]++
			h.runs = append(h.runs, runOfCase{s.Run, of.n})
		}
		gates := map[postadjudication.Reply]refusal.Gate{postadjudication.Created: "", postadjudication.CaseEnded: refusal.GateCaseEnded, postadjudication.ReconcileFirst: refusal.GateReconcileFirst}
		gate, known := gates[s.Reply]
		if err == nil && !known {
			err = fmt.Errorf("the reply is %s", s.Reply)
		}
		return gate, err
	}
	var refused *refusal.RefusedError
	if errors.As(err, &refused) {
		return refused.Gate, nil
	}
	return "", err
}

// runToItsEnd runs a plan of one item and returns the gate that refused it. The plan has predicted as much.
func (h *letterHistory) runToItsEnd(plan bulk.Plan) refusal.Gate {
	h.T.Helper()
	b := h.RunPlan(plan)
	if b.Progress.PlanStale+b.Progress.Failed > 0 || b.Items != 1 || fmt.Sprint(b.Progress.ByGate) != fmt.Sprint(plan.Refused) {
		h.T.Errorf("planned %+v, done %+v", plan, b.Progress)
	}
	for gate := range b.Progress.ByGate {
		return gate
	}
	return ""
}

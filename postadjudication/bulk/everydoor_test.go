package bulk_test

import (
	"context"
	"crypto/sha256"
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
	"github.com/recourse-dev/recourse/settlement"
)

// What may be done with a letter or a case is what the inspection, the list of letters, the list of cases and a plan say, and
// what then happens: after each step of a random history all are asked about one letter or case, and an action is done. The
// history has findings of both classes, forks that wait behind an open circuit breaker, and cancelled forks.
func TestEveryAnswerAboutALetterIsTheSameAndComesTrue(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.StartWorkers()
	const seed = 21
	r.AllowOverpaid = true // findings state more than was decided
	h := letterHistory{Rig: r, rng: rand.New(rand.NewPCG(seed, seed)), generation: map[int]int{}, seen: map[string]int{}}
	for range 8 {
		h.die()
	}
	for range 160 {
		h.step()
	}
	h.letRun()
	for _, a := range []refusal.Action{
		refusal.ActionFork, refusal.ActionRetry, refusal.ActionLookup, refusal.ActionHold, refusal.ActionRelease,
		refusal.ActionMark, refusal.ActionPurge, refusal.ActionFree, refusal.ActionAdjudicate,
	} { // a letter takes a finding of a payment in each state
		if h.seen[string(a)+" true"] == 0 || h.seen[string(a)+" false"] == 0 {
			t.Errorf("the history with seed %d asks too little about %s: %v", seed, a, h.seen)
		}
	}
	for _, of := range []string{"executed of an open letter", "executed of a closed letter", "not_executed of an open letter", "not_executed of a closed letter", "not_executed of a cancelled run", "executed of a cancelled run"} {
		if h.seen[of] == 0 {
			t.Errorf("the history with seed %d has no finding %s: %v", seed, of, h.seen)
		}
	}
	for _, a := range []refusal.Action{refusal.ActionFork, refusal.ActionReconcile, refusal.ActionLookup, refusal.ActionHold, refusal.ActionPurge, refusal.ActionFree, refusal.ActionCancel, refusal.ActionAdjudicate} {
		if h.seen["case: "+string(a)+" true"] == 0 || h.seen["case: "+string(a)+" false"] == 0 {
			t.Errorf("the history with seed %d asks too little about %s of a case: %v", seed, a, h.seen)
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
	stopped    bool           // runs wait behind an open circuit breaker
}

// die submits a transaction, whose run dies unless the escrow service pays it in part.
func (h *letterHistory) die() {
	h.T.Helper()
	n := len(h.generation) + 1
	h.generation[n] = 1
	h.runs = append(h.runs, runOfCase{h.DeadLetter(n, h.answer()).Run, n})
}

// stop opens the circuit breaker, so that a new letter's fork waits behind it.
func (h *letterHistory) stop() {
	h.T.Helper()
	h.die()
	if _, err := h.As("acme", "user:ada").Breakers.Open(context.Background(), escrow.DefaultTarget, "stop"); err != nil {
		h.T.Fatal(err)
	}
	h.stopped = true
	if _, err := h.do(context.Background(), refusal.ActionFork, h.runs[len(h.runs)-1], ""); err != nil && !errors.Is(err, refusal.ErrNotFound) {
		h.T.Fatal(err)
	}
	h.actOnCase(len(h.generation))
}

// letRun releases the circuit breaker if it is open, and waits until no run is live.
func (h *letterHistory) letRun() {
	h.T.Helper()
	if h.stopped {
		if _, err := h.As("acme", "user:ada").Breakers.Release(context.Background(), escrow.DefaultTarget, "go"); err != nil {
			h.T.Fatal(err)
		}
		h.stopped = false
	}
	h.WaitNoneLive()
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

// step asks all doors about a letter or a case, does one action, and compares.
func (h *letterHistory) step() {
	h.T.Helper()
	switch h.rng.IntN(6) {
	case 0:
		if !h.stopped {
			h.stop()
		}
	case 1:
		h.letRun()
	case 2:
		if !h.stopped {
			h.die()
		}
	}
	h.Escrow.Answer(h.answer())
	if of := h.runs[max(len(h.runs)-1-h.rng.IntN(12), 0)]; h.rng.IntN(2) == 0 { // older ones have ended
		h.actOnCase(of.n)
	} else {
		h.actOnLetter(of)
	}
	if !h.stopped {
		h.WaitNoneLive()
	}
}

// actOnLetter does one of the actions of a letter's inspection.
func (h *letterHistory) actOnLetter(of runOfCase) {
	h.T.Helper()
	ctx := context.Background()
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
	if a.Allowed == (a.RefusedBy != "") || (a.Why == "") != a.Allowed || len(a.Roles) == 0 {
		h.T.Errorf("%s of run %s: %+v", a.Name, of.run, a)
	}
	if a.Name == refusal.ActionReconcile {
		h.state(ctx, of, inspected.Run, a.Findings)
		return
	}
	gate, err := h.do(ctx, a.Name, of, inspected.Letter.Dispatch)
	if err != nil || gate != a.RefusedBy {
		h.T.Errorf("%s of run %s of txr_%d: the inspection says %+v; done: refused by %q, %v", a.Name, of.run, of.n, a, gate, err)
	}
}

// actOnCase does one of the actions of a case's line in the list of cases, on its active or last run.
func (h *letterHistory) actOnCase(n int) {
	h.T.Helper()
	ctx := context.Background()
	row := h.rowOf(ctx, n)
	allowed := func(a refusal.Action) bool { return slices.Contains(row.Actions, a) }
	at := func(a refusal.Action) string { return fmt.Sprint("case: ", a, " ", allowed(a)) }
	a := slices.MinFunc([]refusal.Action{
		refusal.ActionFork, refusal.ActionLookup, refusal.ActionReconcile, refusal.ActionHold, refusal.ActionRelease, refusal.ActionPurge,
		refusal.ActionFree, refusal.ActionCancel, refusal.ActionAdjudicate,
	}, func(a, b refusal.Action) int { return h.seen[at(a)] - h.seen[at(b)] })
	h.seen[at(a)]++
	of, st := runOfCase{row.Run, n}, h.StatusOf(row.Run)
	if a == refusal.ActionReconcile {
		if allowed(a) != (len(row.Findings) > 0) {
			h.T.Errorf("txr_%d: %+v", n, row)
		}
		h.state(ctx, of, st, row.Findings)
		return
	}
	gate, err := h.do(ctx, a, of, st.Dispatch)
	if errors.Is(err, refusal.ErrNotFound) { // the run is no letter, or a purged one
		gate, err = refusal.GateNotALetter, nil
	}
	if err != nil || allowed(a) != (gate == "") {
		h.T.Errorf("%s of run %s of txr_%d: the list of cases allows %v; done: refused by %q, %v", a, row.Run, n, row.Actions, gate, err)
	}
}

// state states a finding about a run, of the class that was stated less often about its kind. It is taken if and only if a door named the class.
func (h *letterHistory) state(ctx context.Context, of runOfCase, st casestatus.Status, taken []escrow.Class) {
	h.T.Helper()
	before := h.CaseOf(rig.Release(of.n)).Released
	f := deadletter.Finding{Reason: "the statement", Class: escrow.NotExecuted, Reference: "stmt-7", CallOutstanding: true, ContradictsRecord: true}
	kind := "a live run"
	switch {
	case st.Letter == background.LetterOpen:
		kind = "an open letter"
	case st.Letter != "":
		kind = "a closed letter"
	case st.State == background.Cancelled:
		kind = "a cancelled run"
	case st.State == background.Succeeded:
		kind = "a run that succeeded"
	}
	if h.seen["executed of "+kind] < h.seen["not_executed of "+kind] {
		f.Class, f.CallOutstanding, f.Moved, f.OtherAmount = escrow.Executed, false, before+100, true // more than is on record under any key
	}
	var said refusal.Gate
	_, err := h.Service.As("acme", "user:ada").DeadLetters.Reconcile(ctx, of.run, f)
	var refused *refusal.RefusedError
	var second *bulk.SecondPersonError
	switch {
	case errors.As(err, &refused):
		said, err = refused.Gate, nil
	case errors.As(err, &second):
		said, err = h.runToItsEnd(second.Plan), nil
	}
	if err != nil || (said == "") != slices.Contains(taken, f.Class) {
		h.T.Errorf("a finding %s of run %s of txr_%d, %+v: %v are taken, says a door; done: refused by %q, %v", f.Class, of.run, of.n, st, taken, said, err)
	}
	of.paid(h, h.CaseOf(rig.Release(of.n)).Released-before)
	h.seen[string(f.Class)+" of "+kind]++
}

// paid adds to the ledger of the escrow service what a finding has recorded.
func (of runOfCase) paid(h *letterHistory, minor int64) {
	if minor > 0 {
		h.Escrow.Pay(escrow.Call{Tenant: "acme", Run: of.run, OperationKey: escrow.OperationKey(sha256.Sum256([]byte(fmt.Sprint(of, h.seen)))), Outcome: settlement.Release}, minor)
	}
}

// rowOf returns the line of a transaction in the list of cases.
func (h *letterHistory) rowOf(ctx context.Context, n int) casestatus.Row {
	h.T.Helper()
	page, err := h.As("acme", "").Cases.List(ctx, casestatus.Filter{Transaction: fmt.Sprintf("txr_%d", n)}, "", 1)
	if err != nil || len(page.Cases) != 1 {
		h.T.Fatal(page, err)
	}
	return page.Cases[0]
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
	row := h.rowOf(ctx, of.n)
	if row.Run != of.run { // the line is about another run of the case
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
	case refusal.ActionCancel:
		before := h.StatusOf(of.run).State
		_, err = h.As("acme", "user:ada").Cases.Cancel(ctx, of.run, "the parties agreed")
		switch {
		case errors.Is(err, refusal.ErrEnded), err == nil && before == background.Cancelled: // a cancel repeats its answer
			return refusal.GateNotLive, nil
		case errors.Is(err, background.ErrReconcileFirst):
			return refusal.GateReconcileFirst, nil
		}
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
		next.Amount.Minor = max(next.Amount.Minor-h.CaseOf(next).Released, 1) // a part may be paid
		var s postadjudication.Submitted
		if s, err = h.Submit(ctx, next); err == nil && s.Reply == postadjudication.Created {
			h.generation[of.n]++
			h.runs = append(h.runs, runOfCase{s.Run, of.n})
		}
		gates := map[postadjudication.Reply]refusal.Gate{postadjudication.Created: "", postadjudication.CaseEnded: refusal.GateCaseEnded, postadjudication.ReconcileFirst: refusal.GateReconcileFirst, postadjudication.Conflicting: refusal.GateLive}
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

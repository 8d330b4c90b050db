package postadjudication_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// Attempts of a case end in every way, calls that are out are answered late or never, people find, fork and cancel, and
// generations follow each other, in random order. No call is made that could only pay on top, nothing stays unknown
// that nobody can resolve, each payment that was reported is counted once, and the receipts verify.
func TestRandomHistoriesOfACase(t *testing.T) {
	t.Parallel()
	const histories, steps = 15, 40
	for name, change := range map[string]func(*postadjudication.Config){
		"the service repeats its refusals":     func(c *postadjudication.Config) { c.Executor = replayingEscrow{c.Executor.(*rig.Escrow)} },
		"a refused call may be executed later": func(*postadjudication.Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, change, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 100 })
			r.AllowOverpaid = true
			for n := range histories {
				h := newCaseHistory(r, n+1)
				for range steps {
					h.step()
					h.check()
				}
				h.checkSums()
				if t.Failed() {
					t.Fatalf("history %d:\n%s", n+1, strings.Join(h.log, "\n"))
				}
			}
			if err := r.DrainEvents(context.Background()); err != nil {
				t.Fatal(err)
			}
			report, err := r.Audit(context.Background())
			if err != nil || !report.OK() {
				t.Errorf("%v, %v", report.Broken, err)
			}
		})
	}
}

// caseHistory is one case, and what really happened to its money.
type caseHistory struct {
	*rig.Rig
	rnd         *rand.Rand
	n           int
	generation  int
	runs        []background.RunID
	out         []background.Run // of calls that are not answered yet
	executed    map[escrow.OperationKey]int64
	reported    map[escrow.OperationKey]bool // somebody told of the payment
	log         []string
	presentCase casestatus.Case
	active      background.Run // the newest run
}

func newCaseHistory(r *rig.Rig, n int) *caseHistory {
	h := &caseHistory{Rig: r, rnd: rand.New(rand.NewPCG(1, uint64(n))), n: n, generation: 1, executed: map[escrow.OperationKey]int64{}, reported: map[escrow.OperationKey]bool{}}
	first := rig.Release(n)
	if h.oneOf(2) {
		first.Amount = rig.Euros(400)
	}
	h.runs = append(h.runs, r.MustSubmit(first).Run)
	h.read()
	return h
}

func (h *caseHistory) oneOf(n int) bool { return h.rnd.IntN(n) == 0 }

func (h *caseHistory) logf(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *caseHistory) read() {
	h.presentCase = h.CaseOf(rig.Release(h.n))
	h.active = h.runOf(h.presentCase.Runs[len(h.presentCase.Runs)-1].Run)
}

func (h *caseHistory) runOf(id background.RunID) background.Run {
	snapshot, err := h.Journal().Cases.Snapshot(context.Background(), id)
	if err != nil {
		h.T.Fatal(err)
	}
	return snapshot.Run
}

// step does one thing at random, if it can be done now.
func (h *caseHistory) step() {
	switch op := h.rnd.IntN(12); {
	case op <= 2 && h.active.State.Waiting():
		h.claim()
	case op <= 6 && h.active.State == background.Running:
		h.endAttempt()
	case op == 7 && len(h.out) > 0:
		h.answerLate()
	case op == 8:
		h.find()
	case op == 9 && h.active.Letter == background.LetterOpen:
		forked, err := h.As("acme", "user:ada").DeadLetters.Fork(context.Background(), h.active.ID, rig.ForkRequest)
		if err == nil {
			h.runs = append(h.runs, forked.Run)
		}
		h.logf("fork %s: %s, %v", h.active.ID, forked.Run, err)
	case op == 10 && h.active.State.Live() && h.oneOf(2):
		st, err := h.As("acme", "user:ada").Cases.Cancel(context.Background(), h.active.ID, "stop")
		h.logf("cancel %s: %s, %v", h.active.ID, st.State, err)
	case op == 11 && !h.active.State.Live():
		h.adjudicateAgain()
	}
	h.read()
}

func (h *caseHistory) claim() {
	after, err := h.Claim(context.Background(), h.active)
	h.logf("claim %s: %s, %v", h.active.ID, after.State, err)
	if s := h.presentCase.State; err == nil && after.State == background.Running && (s.Progression.Ended() || s.Underfunded()) {
		h.T.Errorf("claimed although %+v", s)
	}
	if err != nil && after.State.Waiting() {
		h.T.Errorf("a waiting run can't be claimed: %v", err)
	}
}

// record writes a transition of the engine.
func (h *caseHistory) record(tr background.Transition) {
	tr.ID, tr.At, tr.Worker = casework.NewID(), h.Now(), "w"
	after, err := h.Family().Record(context.Background(), tr)
	h.logf("%s of %s, attempt %d, %s: %s %s %s, %v", tr.Subtype, tr.Run.ID, tr.Run.Attempt, tr.Result.Class, after.State, after.Letter, after.Class, err)
	if err != nil && tr.Subtype != receipts.AnsweredLate {
		h.T.Errorf("the end of an attempt: %v", err)
	}
}

// endAttempt ends the attempt that runs as its worker, or the recovery of a lost one, would.
func (h *caseHistory) endAttempt() {
	if !h.active.CancelRequested && h.oneOf(8) {
		_, err := h.As("acme", "user:ada").Cases.Cancel(context.Background(), h.active.ID, "stop")
		h.logf("request to cancel %s: %v", h.active.ID, err)
		h.active = h.runOf(h.active.ID)
	}
	run := h.active
	tr := background.Transition{Run: run}
	failed := &background.Failure{Type: "test", Message: "test"}
	switch outcome := h.rnd.IntN(7); {
	case outcome == 0 || outcome <= 3 && h.executed[run.Operation] > 0: // a service that has executed says so
		tr.Subtype, tr.Result = receipts.AttemptSucceeded, h.pay(run, 3)
	case outcome <= 3:
		tr.Result = background.Result{Class: escrow.NotExecuted, Retry: true, Failure: failed}
		provenUnpaid := run.Class != escrow.Unknown && run.UnknownOpen == 0
		switch {
		case provenUnpaid && run.CancelRequested:
			tr.Subtype = receipts.Cancelled
		case provenUnpaid && outcome == 1:
			tr.Subtype, tr.Charge, tr.Reason = receipts.DeadLettered, background.ChargeAttempt, "final"
		case provenUnpaid && outcome == 2 && h.oneOf(2):
			tr.Subtype, tr.NextRetryAt = receipts.AttemptInterrupted, h.Now()
		default:
			tr.Subtype, tr.NextRetryAt = receipts.RetryScheduled, h.Now()
		}
	default:
		if h.oneOf(3) {
			h.execute(run, run.Terms.Amount)
		}
		h.out = append(h.out, run)
		tr.Result, tr.LeavesCallOutstanding = background.Result{Class: escrow.Unknown, Retry: true, Failure: failed}, true
		switch h.rnd.IntN(3) {
		case 0:
			tr.Subtype, tr.NextRetryAt = receipts.RetryScheduled, h.Now()
		case 1:
			tr.Subtype, tr.NextRetryAt, tr.Charge = receipts.AttemptInterrupted, h.Now(), background.ChargeRecovery
		default:
			tr.Subtype, tr.Charge, tr.Reason, tr.Lookup = receipts.DeadLettered, background.ChargeAttempt, "outcome_unknown", escrow.Unknown
		}
	}
	h.record(tr)
}

// execute moves money under the key of a run, once.
func (h *caseHistory) execute(run background.Run, minor int64) {
	if h.executed[run.Operation] == 0 {
		h.executed[run.Operation] = minor
	}
}

// pay executes a run and reports it; of partOf runs one is paid in part.
func (h *caseHistory) pay(run background.Run, partOf int) background.Result {
	minor := run.Terms.Amount
	if h.oneOf(partOf) {
		minor /= 2
	}
	h.execute(run, minor)
	h.reported[run.Operation] = true
	return background.Result{Class: escrow.Executed, Moved: h.executed[run.Operation], Reference: "paid"}
}

// answerLate answers a call that is out.
func (h *caseHistory) answerLate() {
	i := h.rnd.IntN(len(h.out))
	run := h.out[i]
	h.out = slices.Delete(h.out, i, i+1)
	tr := background.Transition{Run: run, Subtype: receipts.AnsweredLate, Result: background.Result{Class: escrow.Unknown, Failure: &background.Failure{Type: "test"}}}
	switch {
	case h.executed[run.Operation] > 0 || h.oneOf(2):
		h.execute(run, run.Terms.Amount)
		tr.Result = h.pay(run, 3)
	case h.oneOf(2):
		tr.Result.Class = escrow.NotExecuted
	}
	h.record(tr)
}

// find states of a run whether it was executed. One finding in four of an executed run is wrong.
func (h *caseHistory) find() {
	run := h.active
	if h.oneOf(2) {
		run = h.runOf(h.runs[h.rnd.IntN(len(h.runs))])
	}
	finding := deadletter.Finding{Reason: "looked", Reference: "statement", Class: escrow.NotExecuted, CallOutstanding: true, ContradictsRecord: true}
	if moved := h.executed[run.Operation]; moved > 0 && !h.oneOf(4) {
		finding.Class, finding.Moved, finding.OtherAmount, finding.CallOutstanding = escrow.Executed, moved, true, false
	}
	_, err := h.Reconcile(context.Background(), "acme", run.ID, finding)
	if err == nil && finding.Class == escrow.Executed {
		h.reported[run.Operation] = true
	}
	h.logf("finding %s of %s: %v", finding.Class, run.ID, err)
}

// adjudicateAgain submits the next generation.
func (h *caseHistory) adjudicateAgain() {
	a := rig.Release(h.n)
	if h.oneOf(2) {
		a = rig.Refund(h.n)
	}
	a.Generation, a.Amount = h.generation+1, rig.Euros([]int64{1000, 600, 400}[h.rnd.IntN(3)])
	submitted := h.MustSubmit(a)
	if submitted.Reply == postadjudication.Created {
		h.generation++
		h.runs = append(h.runs, submitted.Run)
	}
	h.logf("generation %d: %s", a.Generation, submitted.Reply)
}

// check fails the test if something is unknown, or waits, and nobody can end that.
func (h *caseHistory) check() {
	c, run := h.presentCase, h.active
	switch {
	case c.UnknownOpen > 0 && !run.State.Live() && run.Letter != background.LetterOpen:
		h.T.Errorf("unknown for ever: %s %s", run.State, run.Letter)
	case c.UnknownOpen == 0 && run.Letter == background.LetterOpen && run.Class == escrow.Unknown:
		h.T.Errorf("the letter is unknown, its case is not")
	case run.CancelRequested && run.State.Waiting() && c.UnknownOpen == 0:
		h.T.Errorf("a run waits for another attempt although its cancel was asked for")
	case c.Progression.Ended() && run.State.Waiting():
		h.T.Errorf("a run waits in a case that has ended")
	}
}

// checkSums fails the test if another sum is counted than what was reported.
func (h *caseHistory) checkSums() {
	var want int64
	for key := range h.reported {
		want += h.executed[key]
	}
	if got := h.presentCase.Released + h.presentCase.Refunded; got != want {
		h.T.Errorf("%d was reported, %d is counted", want, got)
	}
}

package casework

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/histories.txt")

func executed(moved int64, reference string) background.Result {
	return background.Result{Class: escrow.Executed, Moved: moved, Reference: reference}
}

func failedWith(class escrow.Class) background.Result {
	return background.Result{Class: class, Retry: true, Failure: &background.Failure{Type: "http", Code: "500", Message: "no"}}
}

// What happens to a run. The answers of attempts fit only a run that executes.

func claim(run byte) step {
	return step{run: run, Transition: background.Transition{Subtype: receipts.AttemptStarted}}
}

func retry(run byte, class escrow.Class) step {
	return step{run: run, Transition: background.Transition{Subtype: receipts.RetryScheduled, Charge: background.ChargeAttempt, Result: failedWith(class), NextRetryAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)}}
}

func timedOut(run byte) step {
	s := retry(run, escrow.Unknown)
	s.LeavesCallOutstanding, s.Result.Failure.Type = true, background.FailureTimeout
	return s
}

func dies(run byte, class escrow.Class) step {
	return step{run: run, Transition: background.Transition{Subtype: receipts.DeadLettered, Charge: background.ChargeAttempt, Result: failedWith(class), Reason: background.ReasonRetryExhausted}}
}

func interrupted(run byte) step {
	s := retry(run, escrow.Unknown)
	s.Subtype, s.Charge, s.Result.Failure.Type = receipts.AttemptInterrupted, background.ChargeRecovery, background.FailureInterrupted
	return s
}

func pays(run byte, moved int64) step {
	return step{run: run, Transition: background.Transition{Subtype: receipts.AttemptSucceeded, Result: executed(moved, "ref")}}
}

func late(run byte, attempt int, r background.Result) step {
	return step{run: run, attempt: attempt, Transition: background.Transition{Subtype: receipts.AnsweredLate, Result: r}}
}

func lateUnrecordable(run byte) step {
	s := late(run, 1, background.Result{Class: escrow.Unknown, Failure: &background.Failure{Type: background.FailureUnrecordable, Code: "executed", Message: "much"}})
	s.Reason = background.ReasonUnrecordable
	return s
}

func finding(run byte, r background.Result, by string) step {
	s := step{run: run, Transition: background.Transition{Subtype: receipts.Reconciled, Result: r}}
	if s.Reason, s.Actor = "seen in the ledger", by; by == "lookup" {
		s.Lookup, s.Reason = r.Class, ""
	}
	return s
}

func cancels(run byte) step {
	return step{run: run, Transition: background.Transition{Subtype: receipts.Cancelled, Reason: "not wanted", Actor: "ada"}}
}

// play carries steps out that are all accepted.
func (h *history) play(steps ...step) *history {
	h.t.Helper()
	for _, s := range steps {
		if _, err := h.decide(s); err != nil {
			h.t.Fatalf("%s of run %c: %v", s.Subtype, s.run, err)
		}
		h.do(s)
	}
	return h
}

func (h *history) forked(name, of byte) *history { h.t.Helper(); h.fork(name, of); return h }
func (h *history) again(name byte, outcome settlement.Outcome) *history {
	h.t.Helper()
	h.adjudicate(name, settlement.Readjudicated, outcome)
	return h
}

// cancelRequested has somebody ask for the cancel of a run.
func (h *history) cancelRequested(name byte) *history {
	r := h.runs[name]
	r.CancelRequested, r.CancelBy, r.CancelReason = true, "ada", "not wanted"
	h.runs[name] = r
	return h
}

// purged has a person purge the letter of a run.
func (h *history) purged(name byte) *history {
	r := h.runs[name]
	r.Letter = background.LetterPurged
	h.runs[name] = r
	return h
}

// returned has a sum come back that a run paid.
func (h *history) returned(name byte, amount int64) *history {
	h.t.Helper()
	folded, err := binding.FoldSettlement(h.trail)
	if err != nil {
		h.t.Fatal(err)
	}
	ch, err := returning(journal.LetterRow{Snapshot: journal.Snapshot{Case: h.c, Run: h.runs[name]}}, folded, "ada", "bank", []Return{{Run: runID(name), Amount: amount, Reference: "r"}}, h.at)
	if err != nil {
		h.t.Fatal(err)
	}
	h.c = withHead(ch.After.Case, h.c.Head)
	h.write(ch.Drafts...)
	return h
}

// waits puts a run back to where it waits, as versions left it that did not end the waiting run of a case that ended.
func (h *history) waits(name byte) *history {
	r := h.runs[name]
	r.State, r.Letter = background.Scheduled, ""
	h.runs[name] = r
	return h
}

// later has time pass beyond the lifetime of an operation key.
func (h *history) later() *history { h.at = h.at.Add(48 * time.Hour); return h }

// histories are cases in every state that matters for what an answer or a finding does to them. The last run is the active one.
func histories(t *testing.T) []struct {
	name string
	h    *history
} {
	t.Helper()
	no, unknown := escrow.NotExecuted, escrow.Unknown
	none := background.Result{Class: no}
	dead := func(class escrow.Class) *history { return begin(t).play(claim('a'), dies('a', class)) }
	return []struct {
		name string
		h    *history
	}{
		{"pending", begin(t)},
		{"running", begin(t).play(claim('a'))},
		{"running, to be cancelled", begin(t).play(claim('a')).cancelRequested('a')},
		{"waiting after a refusal", begin(t).play(claim('a'), retry('a', no))},
		{"waiting after a time-out", begin(t).play(claim('a'), timedOut('a'))},
		{"waiting after a time-out, to be cancelled", begin(t).play(claim('a'), timedOut('a')).cancelRequested('a')},
		{"running after a time-out", begin(t).play(claim('a'), timedOut('a'), claim('a'))},
		{"running, and paid meanwhile", begin(t).play(claim('a'), timedOut('a'), claim('a'), late('a', 1, executed(100, "ref")))},
		{"dead, refused", dead(no)},
		{"dead, unknown", dead(unknown)},
		{"dead, purged", dead(no).purged('a')},
		{"settled", begin(t).play(claim('a'), pays('a', 100))},
		{"settled after a time-out", begin(t).play(claim('a'), timedOut('a'), claim('a'), pays('a', 100))},
		{"settled, and contradicted", begin(t).play(claim('a'), pays('a', 100), late('a', 1, executed(40, "ref")), late('a', 1, failedWith(no)))},
		{"settled in part", begin(t).play(claim('a'), pays('a', 60))},
		{"paid too much", begin(t).play(claim('a'), pays('a', 130))},
		{"closed by a finding", dead(unknown).play(finding('a', executed(100, "ledger"), "ada"))},
		{"cancelled", begin(t).play(cancels('a'))},
		{"a fork waits", dead(no).forked('b', 'a')},
		{"a fork runs", dead(no).forked('b', 'a').play(claim('b'))},
		{"a fork died", dead(no).forked('b', 'a').play(claim('b'), dies('b', no))},
		{"a fork was cancelled", dead(no).forked('b', 'a').play(cancels('b'))},
		{"a fork runs, and its parent paid", dead(unknown).forked('b', 'a').play(claim('b'), late('a', 1, executed(100, "ref")))},
		{"a fork runs, and its parent paid a part", dead(unknown).forked('b', 'a').play(claim('b'), late('a', 1, executed(40, "ref")))},
		{"decided again", dead(no).again('b', settlement.Refund)},
		{"decided again, running", dead(no).again('b', settlement.Refund).play(claim('b'))},
		{"decided again, waiting after a time-out", dead(no).again('b', settlement.Refund).play(claim('b'), timedOut('b'))},
		{"decided again, dead", dead(no).again('b', settlement.Refund).play(claim('b'), dies('b', no))},
		{"decided again, settled", dead(no).again('b', settlement.Refund).play(claim('b'), pays('b', 100))},
		{"decided again, and the older paid a part", dead(no).again('b', settlement.Refund).play(late('a', 1, executed(30, "old")))},
		{"decided again, and the older paid a part while it runs", dead(no).again('b', settlement.Refund).play(claim('b'), late('a', 1, executed(30, "old")))},
		{"decided again, and the older paid unrecordably while it runs", dead(no).again('b', settlement.Refund).play(claim('b'), lateUnrecordable('a'))},
		{"decided again after a cancel, running", begin(t).play(claim('a'), retry('a', no), cancels('a')).again('b', settlement.Release).play(claim('b'))},
		{"closed, for the older paid", dead(no).again('b', settlement.Refund).play(late('a', 1, executed(30, "old")), finding('b', none, "ada"))},
		{"decided again, and the older paid all while it runs", dead(no).again('b', settlement.Refund).play(claim('b'), late('a', 1, executed(100, "old")))},
		{"decided again, and the older paid all", dead(no).again('b', settlement.Refund).play(late('a', 1, executed(100, "old")))},
		{"decided again, dead, and the older paid unrecordably", dead(no).again('b', settlement.Refund).play(claim('b'), lateUnrecordable('a'), retry('b', no))},
		{"decided again, waiting after an interruption", dead(no).again('b', settlement.Refund).play(claim('b'), interrupted('b'), finding('b', none, "lookup"))},
		{"decided again, after the older paid a part", dead(no).again('b', settlement.Refund).play(late('a', 1, executed(50, "old")), finding('b', none, "ada")).again('c', settlement.Refund)},
		{"running, and what it paid meanwhile came back", begin(t).play(claim('a'), timedOut('a'), claim('a'), late('a', 1, executed(100, "ref"))).returned('a', 100)},
		{"a fork with a new key waits", dead(no).later().forked('b', 'a')},
		{"a fork with a new key waits after a time-out", dead(no).later().forked('b', 'a').play(claim('b'), timedOut('b'))},
		{"a fork with a new key died of its parent's payment", dead(no).later().forked('b', 'a').play(claim('b'), timedOut('b'), late('a', 1, executed(100, "ref")))},
		{"a fork with a new key waits, though its parent paid", dead(no).later().forked('b', 'a').play(claim('b'), timedOut('b'), late('a', 1, executed(100, "ref"))).waits('b')},
		{"decided a third time", dead(no).again('b', settlement.Refund).play(claim('b'), dies('b', no)).again('c', settlement.Release).play(claim('c'), retry('c', no))},
	}
}

// happenings are all that may happen to a run.
func happenings(run byte) []struct {
	name string
	step
} {
	no, unknown := escrow.NotExecuted, escrow.Unknown
	none := background.Result{Class: no}
	probed := retry(run, no)
	probed.Reason = "probe"
	handedBack := interrupted(run)
	handedBack.HandedBack, handedBack.Result = true, failedWith(no)
	sure := finding(run, none, "ada")
	sure.DespiteOutstandingCall = true
	refusedByLookup, diesByLookup := retry(run, no), dies(run, no)
	refusedByLookup.Lookup, diesByLookup.Lookup = no, no
	askedFirst := pays(run, 100)
	askedFirst.Lookup = escrow.Executed
	return []struct {
		name string
		step
	}{
		{"claimed", claim(run)}, {"refused, again later", retry(run, no)}, {"looked up, again later", refusedByLookup}, {"looked up, dead", diesByLookup}, {"probed", probed}, {"failed, again later", retry(run, unknown)}, {"timed out", timedOut(run)},
		{"interrupted", interrupted(run)}, {"handed back", handedBack}, {"refused, dead", dies(run, no)}, {"failed, dead", dies(run, unknown)},
		{"paid all", pays(run, 100)}, {"paid, found by lookup", askedFirst}, {"paid a part", pays(run, 60)}, {"paid too much", pays(run, 130)}, {"cancelled", cancels(run)},
		{"late: all", late(run, 1, executed(100, "ref"))}, {"late: a part", late(run, 1, executed(40, "ref"))}, {"late: too much", late(run, 1, executed(130, "ref"))},
		{"late: all, by another reference", late(run, 1, executed(100, "other"))}, {"late: all, of another attempt", late(run, 9, executed(100, ""))},
		{"late: nothing", late(run, 1, failedWith(no))}, {"late: nothing, of another attempt", late(run, 9, failedWith(no))}, {"late: failed", late(run, 1, failedWith(unknown))},
		{"late: unrecordable", lateUnrecordable(run)},
		{"found: all", finding(run, executed(100, "ledger"), "ada")}, {"found: a part", finding(run, executed(40, "ledger"), "ada")}, {"found: too much", finding(run, executed(130, "ledger"), "ada")},
		{"found: nothing", finding(run, none, "ada")}, {"found: nothing, though a call is out", sure},
		{"looked up: all", finding(run, executed(100, "ref"), "lookup")}, {"looked up: nothing", finding(run, none, "lookup")},
	}
}

// What each answer, finding and end of an attempt does to a case, to each of its runs, and what its receipts say. The receipts give the
// settlement each time.
func TestWhatAnAnswerDoes(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, c := range histories(t) {
		for name := byte('a'); name <= c.h.c.ActiveRun[15]; name++ {
			r := c.h.runs[name]
			fmt.Fprintf(&text, "\n== %s: run %c, %s; the case is %s, reserved %d, moved %d\n", c.name, name, state(r), c.h.c.State.Progression, c.h.c.State.Reserved, c.h.c.State.Moved)
			refused := map[string][]string{}
			var why []string
			for _, what := range happenings(name) {
				does := c.h.copied().do(what.step)
				if !strings.HasPrefix(does, "  "+string(name)+" ") {
					if refused[does] == nil {
						why = append(why, does)
					}
					refused[does] = append(refused[does], what.name)
					continue
				}
				fmt.Fprintf(&text, "-- %s\n%s", what.name, does)
			}
			for _, does := range why {
				fmt.Fprintf(&text, "-- %s\n%s", strings.Join(refused[does], "; "), does)
			}
		}
	}
	compareHistories(t, text.String())
}

func compareHistories(t *testing.T, got string) {
	t.Helper()
	const file = "testdata/histories.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.SplitAfter(string(want), "\n"), strings.SplitAfter(got, "\n")
	at := ""
	for i := range min(len(was), len(is)) {
		if strings.HasPrefix(was[i], "==") || strings.HasPrefix(was[i], "--") {
			at += was[i]
			if strings.HasPrefix(was[i], "==") {
				at = was[i]
			}
		}
		if was[i] != is[i] {
			t.Fatalf("line %d, after %q:\n%s, not\n%s(with -rewrite it is written to %s)", i+1, at, is[i], was[i], file)
		}
	}
	if len(was) != len(is) {
		t.Errorf("%d lines, not %d", len(is), len(was))
	}
}

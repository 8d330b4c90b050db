package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// A verification without findings proves something only if it can find something.
func TestVerifyFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.notifyUnserved(adjudication(4, "ok", ""))
	s.archive() // somebody archives a task, which leaves a receipt
	h := s.worker("")
	s.submit(h, adjudication(1, "ok", ""), adjudication(2, "refused", ""), adjudication(3, "dark", ""))
	s.awaitNoneLive()
	s.until("the archiving was noticed", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'out-of-band-change-detected')`)
	s.terminate(h)
	s.checkConsistent()

	const nowhere = "01890000-0000-7000-8000-000000000000"
	for _, tc := range []struct {
		name       string
		breakInput func(*verifyInput)
		want       string
	}{
		{"an accepted run that does not exist", func(w *verifyInput) {
			w.accepted.noteReply(adjudication(5, "ok", ""), worker.Reply{Reply: postadjudication.Created, Run: nowhere})
		}, "was accepted and does not exist"},
		{"a plain run that does not exist", func(w *verifyInput) {
			w.accepted.noteOtherRun(worker.Reply{Reply: postadjudication.Created, Run: nowhere})
		}, "was accepted and does not exist"},
		{"a decision that was answered as accepted and is nowhere", func(w *verifyInput) {
			w.accepted.noteReply(higherOf(1, settlement.Refund), worker.Reply{Reply: postadjudication.AlreadyExecuted, Run: nowhere})
		}, "refund of 1000 by generation 2 of txr_1 (adj_1_2) was answered already_executed, and left neither effect nor letter nor run"},
		{"a decision of a case that does not exist", func(w *verifyInput) {
			w.accepted.noteReply(adjudication(6, "ok", ""), worker.Reply{Reply: postadjudication.Deduplicated, Run: nowhere})
		}, "by generation 1 of txr_6 (adj_6) was answered deduplicated, and left neither effect nor letter nor run"},
		{"money of unknown outcome", func(w *verifyInput) { w.maxUnknown = 0 }, "1 cases are still unknown, and 0 may be"},
		{"a receipt of tampering that nobody did", func(w *verifyInput) { w.tampering = newTamperLog() }, "reports task_archived, and nobody did that"},
		{"a receipt of other tampering than was done", func(w *verifyInput) {
			w.tampering = newTamperLog()
			w.tampering.record(s.onlyRun("retry_key = 'txr_4:release'")+".1", time.Now(), background.TaskRemoved)
		}, "reports task_archived, and nobody did that"},
		{"money that is reserved for nothing", func(*verifyInput) {
			s.exec(`UPDATE recourse.cases SET reserved = 7 WHERE subject = 'txr_1'`)
		}, "txr_1: 7 is reserved, and neither a live run nor an open letter shows it"},
		{"a payment without a receipt", func(*verifyInput) {
			pay(t, s.escrow.URL(), "ab", "txr_foreign", "release", 1000)
		}, "and has no receipt"},
		{"a decision that was paid twice", func(*verifyInput) {
			pay(t, s.escrow.URL(), "cd", "txr_1", "release", 1000)
		}, "its decision was paid before"},
		{"a case that was paid both ways", func(*verifyInput) {
			pay(t, s.escrow.URL(), "ef", "txr_1", "refund", 1000)
		}, "was paid the other way before"},
		{"an escrow that paid more than it holds", func(*verifyInput) {
			pay(t, s.escrow.URL(), "12", "txr_beside", "release", 1001)
		}, "has paid out more than it holds"},
	} {
		w := s.verifyInput()
		w.accepted = newAccepted()
		for run, ad := range s.accepted.runs {
			w.accepted.noteSubmitted(ad)
			w.accepted.noteReply(ad, worker.Reply{Reply: postadjudication.Created, Run: run})
		}
		tc.breakInput(&w)
		v, err := verify(s.ctx(), w)
		if err != nil || !slices.ContainsFunc(v.Broken, func(b string) bool { return strings.Contains(b, tc.want) }) {
			t.Errorf("%s: found %q, %v", tc.name, v.Broken, err)
		}
	}
}

// higherOf returns the second decision of the nth transaction.
func higherOf(n int, outcome settlement.Outcome) postadjudication.Adjudication {
	a := adjudication(n, "ok", "")
	a.Outcome, a.Generation, a.AdjudicationID = outcome, 2, fmt.Sprintf("adj_%d_2", n)
	return a
}

// A wait is measured by the clock of the escrow service, from the answer of one call to the
// arrival of the next.
func TestVerifyMeasuresWaitsByTheLedger(t *testing.T) {
	t.Parallel()
	run, err := receipts.ParseRunID("01890000-0000-7000-8000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	story := func(worker, class string) *caseTrail {
		lies := noon.Add(time.Hour) // times by a clock that is off are not read
		return &caseTrail{receipts: []parsedReceipt{
			{receipts.Receipt{Run: run, Subtype: receipts.Submitted}, receipts.Payload{Policy: retrypolicy.Policy{}.Normalize().Encode()}},
			{receipts.Receipt{Run: run, Subtype: receipts.AttemptStarted}, receipts.Payload{Attempt: 1, Worker: "a"}},
			{receipts.Receipt{Run: run, Subtype: receipts.RetryScheduled, At: lies}, receipts.Payload{Attempt: 1, BudgetSpent: 1, NextRetryAt: lies, AttemptClass: class}},
			{receipts.Receipt{Run: run, Subtype: receipts.AttemptStarted, At: lies}, receipts.Payload{Attempt: 2, Worker: worker}},
		}}
	}
	after := func(d time.Duration) time.Time { return noon.Add(d) }
	const ms = time.Millisecond
	busy := func(at time.Time, asked time.Duration) fakeescrow.Call {
		return fakeescrow.Call{At: noon, Answered: at, Status: 429, RetryAfter: asked}
	}
	ahead := func(from, until time.Duration) remote.Clock {
		return remote.Clock{{From: after(from), Until: after(until), Ahead: 600 * ms}}
	}
	for name, tc := range map[string]struct {
		worker, class string
		first         fakeescrow.Call
		second        time.Duration
		early         int
		clock         remote.Clock
	}{
		"in time":                        {"a", "not_executed", busy(after(5*ms), 0), 30 * ms, 0, nil},
		"early":                          {"a", "not_executed", busy(after(5*ms), 0), 29 * ms, 1, nil},
		"of an answer that nobody read":  {"a", "unknown", busy(after(5*ms), 0), 6 * ms, 0, nil},
		"of a call without an answer":    {"a", "not_executed", fakeescrow.Call{At: noon}, 6 * ms, 0, nil},
		"earlier than it was asked for":  {"a", "not_executed", busy(noon, time.Second), 900 * ms, 1, nil},
		"as it was asked for":            {"a", "not_executed", busy(noon, time.Second), time.Second, 0, nil},
		"in another process, by clocks":  {"b", "not_executed", busy(noon, time.Second), 900 * ms, 0, nil},
		"in another process, and early":  {"b", "not_executed", busy(noon, time.Second), 799 * ms, 1, nil},
		"the database's clock was ahead": {"a", "not_executed", busy(noon, time.Second), 400 * ms, 0, ahead(0, 10*ms)},
		"it was ahead, and early":        {"a", "not_executed", busy(noon, time.Second), 399 * ms, 1, ahead(0, 10*ms)},
		"it was ahead before":            {"a", "not_executed", busy(noon, time.Second), 999 * ms, 1, ahead(-20*ms, -10*ms)},
	} {
		v := &verification{}
		v.checkWaits(story(tc.worker, tc.class), map[string]fakeescrow.Call{run.String() + ".1": tc.first, run.String() + ".2": {At: after(tc.second)}}, 200*ms, tc.clock)
		if v.Early != tc.early || len(v.Broken) != tc.early {
			t.Errorf("%s: %d early of %d, %q", name, v.Early, v.Gaps, v.Broken)
		}
	}
}

// A decision that is not carried out was cancelled by somebody, or its case had ended.
func TestVerifyChecksWhoCancelled(t *testing.T) {
	t.Parallel()
	cancelled := func(progression settlement.Status, actor, reason string) *caseTrail {
		c := &caseTrail{receipts: []parsedReceipt{{receipts.Receipt{Subtype: receipts.Cancelled, Actor: actor}, receipts.Payload{Reason: reason}}}}
		c.Progression = progression
		return c
	}
	for name, tc := range map[string]struct {
		trail *caseTrail
		want  string
	}{
		"by a person":                 {cancelled(settlement.ReviewNeeded, operatorActor, operatorReason), ""},
		"by an operator":              {cancelled(settlement.ReviewNeeded, worker.Operator, operatorReason), ""},
		"since another payment ended": {cancelled(settlement.Settled, "worker:a", caseEnded), ""},
		"by a worker":                 {cancelled(settlement.ReviewNeeded, "worker:a", ""), "nobody asked for that"},
		"by a worker, at an end":      {cancelled(settlement.Refunded, "worker:a", ""), "nobody asked for that"},
		"since nothing had ended":     {cancelled(settlement.ReviewNeeded, "worker:a", caseEnded), "and that is review-needed"},
	} {
		v := &verification{}
		v.checkCancelledRuns(tc.trail)
		if got := strings.Join(v.Broken, "; "); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: found %q, want %q", name, got, tc.want)
		}
	}
}

// A payment without a receipt is accepted only where its case is counted as unknown.
func TestVerifyCountsARunAsUnknownOnlyInAnUnknownCase(t *testing.T) {
	t.Parallel()
	run, err := receipts.ParseRunID("01890000-0000-7000-8000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	for unknownOpen, broken := range []int{1, 0} {
		c := &caseTrail{receipts: []parsedReceipt{{receipts.Receipt{Run: run, Subtype: receipts.Submitted}, receipts.Payload{OperationKey: "key"}}}}
		c.UnknownOpen, c.Runs = unknownOpen, []casestatus.Status{{Run: run, Class: background.Unknown}}
		v, operations := &verification{}, map[string]*operation{}
		v.collectOperations(c, false, operations)
		v.compareLedger([]fakeescrow.Effect{{OperationKey: "key", Moved: settlement.Money{Minor: 1000, Currency: "EUR"}}}, operations)
		if len(v.Broken) != broken {
			t.Errorf("%d unknown in the case: found %q", unknownOpen, v.Broken)
		}
	}
}

// The reservation of a cancelled fork is shown by the list of cases, and by no other list.
func TestVerifyFindsTheReservationOfACancelledForkInTheListOfCases(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	letter(s)
	h := s.worker("", func(c *worker.Settings) { c.CommandsOnly = true }) // submits and reads
	s.command(h, worker.Fork, s.onlyRun("letter = 'open'"))
	s.command(h, worker.Cancel, s.onlyRun("live"))
	s.terminate(h)
	s.until("the case keeps it", `SELECT count(*) = 1 FROM recourse.cases WHERE kind = 'settlement' AND reserved > 0 AND progression = 'review-needed'`)
	s.checkConsistent()
}

func TestVerifyRefusesLiveRuns(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	h := s.worker("", func(c *worker.Settings) { c.CommandsOnly = true })
	s.submit(h, adjudication(1, "ok", ""))
	v, err := verify(s.ctx(), s.verifyInput())
	if err != nil || len(v.Broken) != 1 || !strings.Contains(v.Broken[0], "is still pending") {
		t.Errorf("found %q, %v", v.Broken, err)
	}
}

// pay has the escrow service pay out of an escrow of 1000 without a submission.
func pay(t *testing.T, escrow, key, transaction, outcome string, amount int64) {
	t.Helper()
	body := fmt.Sprintf(`{"tenant":"chaos","transaction_receipt_id":%q,"escrow_reference":"esc_foreign_%s","outcome":%q,"generation":1,
		"amount":{"minor":%d,"currency":"EUR"},"held":{"minor":1000,"currency":"EUR"}}`, transaction, key, outcome, amount)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, escrow+"/v1/executions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", strings.Repeat(key, 32))
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", resp, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

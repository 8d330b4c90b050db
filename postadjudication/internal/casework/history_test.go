package casework

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// history is a case in memory, with its runs and receipts. What is decided about it is checked against its receipts.
type history struct {
	t     *testing.T
	f     *SettlementFamily
	c     journal.Case
	runs  map[byte]background.Run // by name: a, b, ...
	trail []receipts.Receipt
	at    time.Time
}

// runID returns the id of the run of a name.
func runID(name byte) background.RunID {
	return background.RunID(uuid.MustParse("00000000-0000-7000-8000-0000000000" + hex.EncodeToString([]byte{name})))
}

// begin begins a case with run a, which releases 100.
func begin(t *testing.T) *history {
	t.Helper()
	h := &history{t: t, runs: map[byte]background.Run{}, at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), f: &SettlementFamily{
		Executor: fixedEscrow{keyLifetime: 24 * time.Hour}, Targets: Targets{escrow.DefaultTarget: nil}, CallTimeLimit: time.Second, CallBound: time.Second, ClockSetBack: never, ClockUnchanged: never,
	}}
	h.c = journal.Case{ID: receipts.CaseID(runID('c')), Tenant: "acme", Kind: journal.KindSettlement, Subject: "tx", Currency: "EUR", Held: 1000}
	h.c.Head = receipts.Genesis(h.c.ID)
	h.adjudicate('a', settlement.Adjudicated, settlement.Release)
	return h
}

// adjudicate begins the next generation with a run.
func (h *history) adjudicate(name byte, fact settlement.Fact, outcome settlement.Outcome) {
	h.t.Helper()
	e := settlement.Event{Fact: fact, Outcome: outcome, Generation: h.c.State.Generation + 1, Amount: 100}
	state, _, err := settlement.Apply(h.c.State, e)
	if err != nil {
		h.t.Fatal(err)
	}
	for other, r := range h.runs {
		if r.Letter == background.LetterOpen {
			r.Letter = background.LetterSuperseded
			h.runs[other] = r
		}
	}
	h.c.State, h.c.ActiveRun, h.c.Epoch = state, runID(name), 0
	r := background.Run{ID: runID(name), Case: h.c.ID, Tenant: "acme", Family: Family, Target: escrow.DefaultTarget, Payload: []byte("{}"), State: background.Pending, NotificationNumber: 1}
	r.Operation = binding.OperationKey(settlement.Instruction{Tenant: "acme", TransactionReceiptID: "tx", Outcome: outcome, Generation: e.Generation}, r.Target, 0)
	h.submitted(r, receipts.Draft{Run: r.ID, Subtype: receipts.Submitted, Actor: "judge", At: h.at, Payload: receipts.Payload{
		TransactionReceiptID: "tx", OperationKey: hex.EncodeToString(r.Operation[:]), Outcome: string(outcome), Generation: e.Generation, Amount: 100, Currency: "EUR",
		Target: r.Target, RequestDigest: binding.RequestDigest(r.Payload), Readjudicated: fact == settlement.Readjudicated,
	}})
}

// submitted adds a run with the terms of its receipt.
func (h *history) submitted(r background.Run, drafts ...receipts.Draft) {
	h.t.Helper()
	for i := range drafts {
		if drafts[i].Subtype == receipts.Submitted {
			terms := drafts[i].Terms(h.c.ID, h.c.Tenant)
			r.Terms = &terms
		}
	}
	h.runs[r.ID[15]] = r
	h.share(r)
	h.write(drafts...)
}

// write adds receipts, and checks that they give the settlement that is stored.
func (h *history) write(drafts ...receipts.Draft) {
	h.t.Helper()
	rs, head, err := receipts.Chain(h.c.ID, h.c.Tenant, h.c.Head, drafts...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.trail, h.c.Head = append(h.trail, rs...), head
	if folded, err := binding.FoldSettlement(h.trail); err != nil || folded.State != h.c.State {
		h.t.Errorf("the receipts give %+v, %v\nstored is      %+v\n%s", folded.State, err, h.c.State, h.describe(drafts))
	}
}

// copied returns a copy of a history.
func (h *history) copied() *history {
	c := *h
	c.runs, c.trail = maps.Clone(h.runs), slices.Clip(h.trail)
	return &c
}

// share gives all runs what the row of their case has of a run.
func (h *history) share(of background.Run) {
	for name, r := range h.runs {
		r.UnknownOpen, r.FirstSentAt = of.UnknownOpen, of.FirstSentAt
		h.runs[name] = r
	}
}

// fork forks the open letter of a run, under a new key or the same.
func (h *history) fork(name, of byte) {
	h.t.Helper()
	s := journal.Snapshot{Case: h.c, Run: h.runs[of]}
	facts := ForkFacts{family: h.f, at: h.at, served: map[string]bool{Family: true}, calls: map[background.RunID]otherCall{s.Run.ID: {}}}
	ch, err := Forking{Facts: facts, Actor: "ada", Reason: "mended", Run: runID(name)}.Decide(journal.LetterRow{Snapshot: s})
	if err != nil {
		h.t.Fatal(err)
	}
	h.c, h.runs[of] = withHead(ch.After.Case, h.c.Head), ch.After.Run
	h.submitted(*ch.NewRun, ch.Drafts...)
}

func withHead(c journal.Case, head receipts.Head) journal.Case {
	c.Head = head
	return c
}

// step is a transition of a run, but for what it expects of the run.
type step struct {
	run byte
	background.Transition
	attempt int // of a late answer
}

// decide returns what a step changes. What must be read of the other runs is read only if a decision asks for it.
func (h *history) decide(st step) (journal.Change, error) {
	h.t.Helper()
	s := &journal.Snapshot{Case: h.c, Run: h.runs[st.run]}
	tr := st.Transition
	tr.ID, tr.Run, tr.At, tr.Worker = background.TransitionID(runID('t')), s.Run, h.at, "w"
	if st.attempt > 0 {
		tr.Run.Attempt = st.attempt
	}
	decide := func(runs *caseRuns) (journal.Change, error) {
		if tr.Subtype == receipts.AnsweredLate || tr.Subtype == receipts.Reconciled && (s.Run.ClosedUnpaid() || s.Run.ClosedPaid()) {
			return lateChangeOf(&tr, s, runs)
		}
		return h.f.changeOf(&tr, s, runs)
	}
	ch, err := decide(nil)
	if !errors.Is(err, errCaseRunsStale) {
		return ch, err
	}
	runs := &caseRuns{byID: map[background.RunID]background.Run{}}
	for _, r := range h.runs {
		runs.byID[r.ID] = r
	}
	if _, err := decide(runs); !errors.Is(err, errCaseRunsStale) {
		h.t.Errorf("decided on runs of another head: %v", err)
	}
	if runs.money, err = binding.FoldSettlement(h.trail); err != nil {
		h.t.Fatal(err)
	}
	runs.head, runs.olderPaid = h.c.Head, runs.money.PaidUnderOlderKeys
	return decide(runs)
}

// do carries a step out, and describes what it changes.
func (h *history) do(st step) string {
	h.t.Helper()
	ch, err := h.decide(st)
	if err != nil {
		return "  " + strings.ReplaceAll(err.Error(), "\n", "; ") + "\n"
	}
	changed := append([]journal.RunChange{{Before: ch.Before.Run, After: ch.After.Run}}, ch.Others...)
	h.c = withHead(ch.After.Case, h.c.Head)
	text := h.describe(ch.Drafts)
	for _, c := range changed {
		name := c.After.ID[15]
		if before, after := state(c.Before), state(c.After); before != after {
			text += fmt.Sprintf("  %c: %s -> %s\n", name, before, after)
		}
		if c.After.LastTransition != background.TransitionID(runID('t')) {
			h.t.Errorf("run %c has the last transition %v", name, c.After.LastTransition)
		}
		h.runs[name] = c.After
	}
	h.share(ch.After.Run)
	if dead := newlyDeadRun(&ch); dead != nil {
		text += fmt.Sprintf("  dead: %c\n", dead.ID[15])
	}
	if excess := excessIn(&ch); excess > 0 {
		text += fmt.Sprintf("  excess: %d\n", excess)
	}
	h.write(ch.Drafts...)
	// Some answers are of attempts that have not been: these receipts are refused.
	if folded, err := receipts.Fold(h.trail); err == nil && folded.UnknownOpen != ch.After.Run.UnknownOpen {
		h.t.Errorf("the receipts give %d unknown outcomes, stored are %d\n%s", folded.UnknownOpen, ch.After.Run.UnknownOpen, text)
	}
	return text
}

func state(r background.Run) string {
	text := fmt.Sprintf("%s %s class=%s unknown=%d", r.State, r.Letter, r.Class, r.UnknownOpen)
	if r.HasOutstandingCall() {
		text += fmt.Sprintf(" out=%v", r.OutstandingCalls)
	}
	return strings.ReplaceAll(text, "  ", " ")
}

// describe describes receipts, one a line: without what the worker and the ids are.
func (h *history) describe(drafts []receipts.Draft) (text string) {
	h.t.Helper()
	for _, d := range drafts {
		p := d.Payload
		status := ""
		if p.Settlement != nil {
			status = " => " + string(h.c.State.Progression)
		}
		p.Settlement, p.Worker = nil, ""
		raw, err := json.Marshal(p)
		if err != nil {
			h.t.Fatal(err)
		}
		line := fmt.Sprintf("  %c %s by %s %s%s\n", d.Run[15], d.Subtype, d.Actor, raw, status)
		for name := range h.runs {
			line = strings.ReplaceAll(line, runID(name).String(), string(name))
		}
		text += strings.ReplaceAll(line, h.at.Format("2006-01-02T"), "T")
	}
	return text
}

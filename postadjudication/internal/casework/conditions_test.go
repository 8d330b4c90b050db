package casework

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A letter on which nobody set a mark has those that follow from what is known of its money.
func TestTheMarksThatNobodySet(t *testing.T) {
	t.Parallel()
	exhausted := func(f *journal.LetterRow) { f.Run.Reason = background.ReasonRetryExhausted }
	paid := func(f *journal.LetterRow) { f.Run.Class = escrow.Executed }
	for name, c := range map[string]struct {
		letter             journal.LetterRow
		reprocess, reviews bool
	}{
		"refused":                  {openLetter(exhausted), true, false},
		"refused for good":         {openLetter(), false, false},
		"unknown":                  {openLetter(exhausted, unknown), false, true},
		"another is unknown":       {openLetter(exhausted, ofOther), true, true},
		"unknown of no settlement": {openLetter(exhausted, unknown, plain), true, false},
		"paid, of no settlement":   {openLetter(exhausted, paid, plain), false, false},
	} {
		if a, b := ReprocessEligible(c.letter.Snapshot), ManualReviewRequired(c.letter.Snapshot); a != c.reprocess || b != c.reviews {
			t.Errorf("%s: %t, %t", name, a, b)
		}
	}
}

// A run dies once: one whose letter was open before does not.
func TestWhichRunDiesOfAChange(t *testing.T) {
	t.Parallel()
	dead, live := background.Run{Letter: background.LetterOpen, Attempt: 1}, background.Run{Attempt: 2}
	for name, c := range map[string]struct {
		before, after, otherBefore, otherAfter background.Run
		want                                   int
	}{
		"its own run":     {live, dead, live, live, 1},
		"another run":     {live, live, live, dead, 1},
		"dead before":     {dead, dead, live, live, 0},
		"another before":  {live, live, dead, dead, 0},
		"one that closes": {dead, live, dead, live, 0},
	} {
		got := newlyDeadRun(&journal.Change{Before: &journal.Snapshot{Run: c.before}, After: &journal.Snapshot{Run: c.after}, Others: []journal.RunChange{{Before: c.otherBefore, After: c.otherAfter}}})
		if (got != nil) != (c.want > 0) || got != nil && got.Attempt != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A call has what the submission states, and a plain task has none.
func TestACallIsOfTheTermsOfItsSubmission(t *testing.T) {
	t.Parallel()
	h := begin(t).play(claim('a'), dies('a', escrow.NotExecuted)).again('b', settlement.Refund)
	r := h.runs['b']
	call, err := callOf(r, 3)
	if err != nil || call.Generation != 2 || call.Outcome != settlement.Refund || call.Attempt != 3 || call.Amount.Minor != 100 || call.OperationKey != r.Operation {
		t.Errorf("%+v, %v", call, err)
	}
	terms := *r.Terms
	terms.OperationKey, r.Terms, r.Operation = [32]byte{}, &terms, [32]byte{}
	if _, err := callOf(r, 1); !errors.Is(err, background.ErrRequestAltered) {
		t.Errorf("a plain task: %v", err)
	}
}

// What is handled without a call was not executed.
func TestAnAttemptThatCallsNothing(t *testing.T) {
	t.Parallel()
	h := begin(t)
	called := escrow.Call{}
	h.f.Executor = callRecorder{fixedEscrow{}, &called}
	fresh := func() error { return nil }
	notAfter := h.at.Add(time.Hour)
	altered, elsewhere := h.runs['a'], h.runs['a']
	altered.Payload = []byte("[]")
	h.f.Handle(context.Background(), background.Attempt{Run: h.runs['a'], Number: 1, Fresh: fresh, NotAfter: notAfter})
	if !called.NotAfter.Equal(notAfter) || called.Fresh == nil {
		t.Errorf("%+v", called)
	}
	for name, a := range map[string]background.Attempt{
		"no age": {Run: h.runs['a'], Number: 1}, "altered": {Run: altered, Number: 1, Fresh: fresh},
	} {
		if r := h.f.Handle(context.Background(), a); r.Class != escrow.NotExecuted || r.Failure == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	running := h.copied().play(claim('a'))
	changed := running.runs['a']
	changed.Payload = []byte("[]")
	running.runs['a'] = changed
	if _, err := running.decide(claim('a')); !errors.Is(err, background.ErrConflict) {
		t.Errorf("a claim of what runs: %v", err)
	}
	if why, err := h.f.mayStillPay(context.Background(), h.runs['a']); why != "" || err != nil {
		t.Errorf("a run without a call: %q, %v", why, err)
	}
	h.f.Executor = nil
	if r := h.f.Handle(context.Background(), background.Attempt{Run: elsewhere, Number: 1, Fresh: fresh}); r.Class != escrow.NotExecuted || !r.Retry {
		t.Errorf("no executor: %+v", r)
	}
	if _, err := h.decide(claim('a')); !errors.Is(err, background.ErrTargetUnknown) {
		t.Errorf("a claim without an executor: %v", err)
	}
	if r := (remoteExecutor{}).Execute(context.Background(), escrow.Call{}); r.Class != escrow.NotExecuted || !r.Retry {
		t.Errorf("remote: %+v", r)
	}
	for stated, want := range map[time.Duration]time.Duration{0: escrow.Forever, -1: escrow.Forever, 5: 5} {
		if got := (remoteExecutor{RemoteWorkers{InFlight: stated}}).InFlight(); got != want {
			t.Errorf("in flight for %v: %v", stated, got)
		}
	}
}

// callRecorder keeps the last call.
type callRecorder struct {
	fixedEscrow
	last *escrow.Call
}

func (c callRecorder) Execute(_ context.Context, call escrow.Call) escrow.Answer {
	*c.last = call
	return escrow.Answer{Class: escrow.NotExecuted}
}

// An error of a decision that nobody expects is about the values of its transition.
func TestWhichErrorsOfADecisionAreOfItsValues(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{nil: false, background.ErrConflict: false, errCaseRunsStale: false, errors.New("too high"): true} {
		if got := unrecordableUnlessKnown(err); errors.Is(got, background.ErrUnrecordable) != want || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A key protects a call only if one was made, and its lifetime matters only where a run waits.
func TestWhenAKeyHasNoEnd(t *testing.T) {
	t.Parallel()
	f := begin(t).f
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := background.Run{Target: escrow.DefaultTarget, State: background.Scheduled, UnknownOpen: 1, FirstSentAt: first}
	late := first.Add(48 * time.Hour)
	if err := f.checkKeyLifetime(&r, late); !errors.Is(err, background.ErrKeyExpired) {
		t.Errorf("expired: %v", err)
	}
	never, runs := r, r
	never.FirstSentAt, runs.State = time.Time{}, background.Running
	for name, r := range map[string]background.Run{"never called": never, "running": runs} {
		if err := f.checkKeyLifetime(&r, late); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !lastUse(&never, time.Hour, 0).IsZero() || !lastUse(&r, escrow.Forever, 0).IsZero() || !lastUse(&r, time.Hour, 0).After(first) {
		t.Errorf("last use %v, %v", lastUse(&never, time.Hour, 0), lastUse(&r, escrow.Forever, 0))
	}
	f.Executor = fixedEscrow{keyLifetime: escrow.Forever}
	if err := f.checkKeyLifetime(&r, first.Add(-time.Second)); err != nil {
		t.Errorf("for ever: %v", err)
	}
	remote := RemoteRuns{Settlements: &SettlementFamily{Remote: RemoteWorkers{KeyLifetime: time.Hour}, ClockSetBack: f.ClockSetBack, ClockUnchanged: f.ClockUnchanged}}
	if remote.forgottenByWorkers(&never, late) || !remote.forgottenByWorkers(&r, late) {
		t.Error("a key that was never called is forgotten, or one that was is not")
	}
	remote.Settlements.ClockUnchanged = func() time.Time { return late.Add(-time.Minute) }
	if remote.forgottenByWorkers(&r, late) {
		t.Error("a key is surely forgotten by a clock that was set ahead a minute ago")
	}
}

// If the receipts do not say what an executed run has paid, what is stated counts as recorded.
func TestAPaymentWithoutReceiptsIsWhatIsStated(t *testing.T) {
	t.Parallel()
	runs := &caseRuns{byID: map[background.RunID]background.Run{runID('a'): {ID: runID('a'), Operation: [32]byte{1}, Class: escrow.Executed}}}
	for stated, want := range map[int64]int64{0: 1, 70: 70} {
		if got := runs.recordedUnder([32]byte{1}, stated); got.Paid != want {
			t.Errorf("%d: %+v", stated, got)
		}
	}
	if got := runs.recordedUnder([32]byte{2}, 70); got.Paid != 0 {
		t.Errorf("another key: %+v", got)
	}
	needs := &journal.Snapshot{Case: journal.Case{State: settlement.State{Progression: settlement.DisputeReady, Asked: 100, Released: 30}, Head: receipts.Head{Seq: 2}}}
	for name, a := range map[string]*caseRuns{"not read": nil, "of another head": runs} {
		if _, err := a.olderPaidAt(needs); !errors.Is(err, errCaseRunsStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if needs.Case.State.Reserved = 1; needs.Case.State.NeedsOlderPaid() {
		t.Error("it needs what the older paid")
	} else if older, err := (*caseRuns)(nil).olderPaidAt(needs); older != 0 || err != nil {
		t.Errorf("%d, %v", older, err)
	}
}

// A fork keeps its decision, and a new key is of the next epoch.
func TestTheKeyOfAFork(t *testing.T) {
	t.Parallel()
	h := begin(t).play(claim('a'), dies('a', escrow.NotExecuted)).again('b', settlement.Refund).play(claim('b'), dies('b', escrow.NotExecuted))
	ch, err := Forking{Facts: ForkFacts{family: h.f, at: h.at, served: map[string]bool{Family: true}}, Actor: "ada", Reason: "mended", Run: runID('c')}.Decide(journal.LetterRow{Snapshot: journal.Snapshot{Case: h.c, Run: h.runs['b']}})
	if err != nil || ch.Drafts[0].Payload.Outcome != "refund" || ch.Drafts[1].Payload.Amount != 100 || h.runs['b'].FirstSentAt.IsZero() || ch.NewRun.FirstSentAt != h.runs['b'].FirstSentAt {
		t.Errorf("%+v, %+v, %v", ch.NewRun, ch.Drafts, err)
	}
	kept := h.copied()
	kept.fork('c', 'b')
	if kept.runs['c'].Operation != h.runs['b'].Operation || kept.c.Epoch != 0 {
		t.Error("the same key lasts, and the fork has another")
	}
	h.at = h.at.Add(48 * time.Hour)
	h.fork('c', 'b')
	want := binding.OperationKey(settlement.Instruction{Tenant: "acme", TransactionReceiptID: "tx", Outcome: settlement.Refund, Generation: 2}, escrow.DefaultTarget, 1)
	if c := h.runs['c']; c.Operation != want || !c.FirstSentAt.IsZero() || h.c.Epoch != 1 {
		t.Errorf("%+v, epoch %d", c, h.c.Epoch)
	}
	decide := func(change func(*journal.LetterRow)) error {
		f := journal.LetterRow{Snapshot: journal.Snapshot{Case: kept.c, Run: h.runs['a']}}
		f.Run.Letter, f.Case.State.Progression = background.LetterOpen, settlement.DisputeReady
		change(&f)
		_, err := Forking{Facts: ForkFacts{family: h.f, at: h.at, served: map[string]bool{Family: true}}, Actor: "ada", Reason: "mended", Run: runID('d')}.Decide(f)
		return err
	}
	if err := decide(purged); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("purged: %v", err)
	}
	for name, change := range map[string]func(*journal.LetterRow){
		"paid under an older key": func(f *journal.LetterRow) { f.Run.Reason = ReasonPaidUnderOlderKey }, "unknown, and the key has expired": unknown,
	} {
		var gate *refusal.RefusedError
		if err := decide(change); !errors.As(err, &gate) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Freeing frees all that is reserved, closes an open letter, and no other one. The receipts give the settlement.
func TestFreeing(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]*history{
		"open":   begin(t).play(claim('a'), dies('a', escrow.NotExecuted)),
		"purged": begin(t).play(claim('a'), dies('a', escrow.NotExecuted)).purged('a'),
	} {
		before := h.runs['a'].Letter
		ch, err := Freeing("ada", "never paid", "ledger", h.at)(journal.LetterRow{Snapshot: journal.Snapshot{Case: h.c, Run: h.runs['a']}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		h.c = withHead(ch.After.Case, h.c.Head)
		h.write(ch.Drafts...)
		p, want := ch.Drafts[0].Payload, before
		if before == background.LetterOpen {
			want = background.LetterReconciled
		}
		if h.c.State.Reserved != 0 || p.Freed != 100 || p.Outcome != "release" || ch.After.Run.Letter != want {
			t.Errorf("%s: %+v, letter %s", name, p, ch.After.Run.Letter)
		}
	}
}

// Returns are recorded one by one, up to what was paid.
func TestReturning(t *testing.T) {
	t.Parallel()
	h := begin(t).play(claim('a'), pays('a', 100))
	folded, err := binding.FoldSettlement(h.trail)
	if err != nil {
		t.Fatal(err)
	}
	f := journal.LetterRow{Snapshot: journal.Snapshot{Case: h.c, Run: h.runs['a']}}
	came := []Return{{Run: runID('a'), Amount: 30, Reference: "r1"}, {Run: runID('a'), Amount: 70, Reference: "r2"}}
	ch, err := returning(f, folded, "ada", "bank", came, h.at)
	if err != nil {
		t.Fatal(err)
	}
	effect := ch.SideEffect.(journal.ReturnedPayments)
	for i, r := range effect.Returns {
		if r.Amount != came[i].Amount || r.Seq != h.c.Head.Seq+1+int64(i) || ch.Drafts[i].Payload.Outcome != "release" {
			t.Errorf("%+v, %+v", r, ch.Drafts[i].Payload)
		}
	}
	h.c = withHead(ch.After.Case, h.c.Head)
	h.write(ch.Drafts...)
	var refused *refusal.RefusedError
	if _, err := returning(f, folded, "ada", "bank", slices.Concat(came, []Return{{Run: runID('a'), Amount: 1}}), h.at); !errors.As(err, &refused) || refused.Gate != refusal.GateExceedsPaid {
		t.Errorf("more than was paid: %v", err)
	}
}

// A plain run is claimed only as it was submitted, and its receipts have what became of it.
func TestWhatHappensToAPlainRun(t *testing.T) {
	t.Parallel()
	var f PlainFamily
	if r := f.Lookup(context.Background(), background.Run{}); r.Class != escrow.Unknown || f.TimeLimit() != 30*time.Second || (&PlainFamily{AttemptTimeLimit: time.Minute}).TimeLimit() != time.Minute {
		t.Errorf("%+v, %v", r, f.TimeLimit())
	}
	run := background.Run{State: background.Scheduled, Attempt: 1, Remote: true}
	tr := background.Transition{Subtype: receipts.AttemptStarted}
	if _, err := f.changeOf(&tr, &journal.Snapshot{Run: run}); !errors.Is(err, background.ErrRequestAltered) {
		t.Errorf("a claim without terms: %v", err)
	}
	if _, err := f.changeOf(&background.Transition{Subtype: receipts.Cancelled, Run: run}, &journal.Snapshot{Run: run}); err != nil {
		t.Errorf("a cancel without terms: %v", err)
	}
	run.State = background.Running
	if _, err := f.changeOf(&tr, &journal.Snapshot{Run: run}); !errors.Is(err, background.ErrConflict) {
		t.Errorf("a claim of what runs: %v", err)
	}
	for subtype, want := range map[receipts.Subtype]receipts.Payload{
		receipts.AttemptSucceeded: {Attempt: 1, OutputDigest: binding.RequestDigest([]byte("{}")), OutcomeClass: "executed", AttemptClass: "executed"},
		receipts.Discarded:        {Attempt: 1, Attempts: 1, ReasonCode: "final", Reason: "final", OutcomeClass: "executed", AttemptClass: "executed"},
	} {
		ch, err := f.changeOf(&background.Transition{Subtype: subtype, Run: run, Reason: "final", Result: background.Result{Class: escrow.Executed, Output: []byte("{}")}}, &journal.Snapshot{Run: run})
		if err != nil || ch.Drafts[0].Payload != want {
			t.Errorf("%s: %+v, %v", subtype, ch.Drafts, err)
		}
	}
	remote := RemoteRuns{Families: map[string]*PlainFamily{"local": {}}}
	for _, family := range []string{"none", "local"} {
		if _, err := remote.changeOf(tr, &journal.Snapshot{Run: background.Run{Family: family}}); !errors.Is(err, background.ErrUnknownFamily) {
			t.Errorf("%s: %v", family, err)
		}
	}
}

// An unclear lookup says what to do, unless its message does.
func TestWhatAnUnclearLookupSays(t *testing.T) {
	t.Parallel()
	for failure, want := range map[string]string{
		lookupPremature:   "the lookup decided nothing: " + lookupPremature + ": wait",
		lookupForgotten:   "the lookup decided nothing: " + lookupForgotten + ": wait",
		lookupUnsupported: "the lookup decided nothing: " + lookupUnsupported + ": wait: record a finding",
		lookupUnsure:      "the lookup decided nothing: " + lookupUnsure + ": wait: look up again later, or record a finding",
	} {
		if got := lookupUnclear(unknownResult(failure, "wait")); got != want {
			t.Errorf("%s: %q", failure, got)
		}
	}
}

// An unclear answer begins no wait for a second one, and a payment is kept with its sum.
func TestWhatALookupRecords(t *testing.T) {
	t.Parallel()
	h := begin(t)
	r := h.runs['a']
	h.f.Lookups = LookupRule{}.WithDefaults()
	unclear, believed := weigh(h.f, &journal.LookupRecord{}, &r, unknownResult(lookupUnsure, "down"), h.at)
	if believed || !unclear.NotExecutedAt.IsZero() || unclear.FailureType != lookupUnsure {
		t.Errorf("%t, %+v", believed, unclear)
	}
	paid, believed := weigh(h.f, &journal.LookupRecord{}, &r, executed(70, "ref"), h.at)
	if !believed || paid.Moved != 70 || paid.Answer != escrow.Executed {
		t.Errorf("%t, %+v", believed, paid)
	}
}

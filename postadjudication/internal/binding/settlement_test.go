package binding

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Receipts of older versions, in which a cancel freed the reservation, don't mention it and are
// read as before.
func TestOlderReceiptsOfCancelsAndClosingsFreedTheReservation(t *testing.T) {
	t.Parallel()
	var f Settlement
	for kept, reserved := range map[bool]int64{false: 0, true: 10} {
		for subtype, from := range map[receipts.Subtype]settlement.Status{receipts.Cancelled: settlement.InProgress, receipts.Reconciled: settlement.DisputeReady} {
			e, ok := f.event(receipts.Receipt{Subtype: subtype}, receipts.Payload{ReservationKept: kept, LetterClosed: true})
			s, _, err := settlement.Apply(settlement.State{Progression: from, Generation: 1, Asked: 10, Reserved: 10}, e)
			if !ok || err != nil || s.Reserved != reserved || s.Progression == from {
				t.Errorf("%s, kept %t: %+v, %v", subtype, kept, s, err)
			}
		}
	}
}

// The receipt of a breach follows from the payment before it.
func TestTheReceiptOfABreachStatesWhatFollows(t *testing.T) {
	t.Parallel()
	id, run := receipts.CaseID(uuid.New()), receipts.RunID(uuid.New())
	draft := func(subtype receipts.Subtype, p receipts.Payload) receipts.Draft {
		return receipts.Draft{Run: run, Subtype: subtype, Actor: "test", At: time.Unix(1_800_000_000, 0), Payload: p}
	}
	submitted := draft(receipts.Submitted, receipts.Payload{OperationKey: "k", Outcome: "release", Generation: 1, Amount: 100})
	started := draft(receipts.AttemptStarted, receipts.Payload{Attempt: 1})
	paid := func(sum int64) receipts.Draft {
		return draft(receipts.AttemptSucceeded, receipts.Payload{Attempt: 1, Moved: sum})
	}
	breach := func(excess int64) receipts.Draft {
		return draft(receipts.ConservationBreach, receipts.Payload{Excess: excess})
	}
	hold := draft(receipts.HoldPlaced, receipts.Payload{})
	freed := []receipts.Draft{submitted, started, draft(receipts.Cancelled, receipts.Payload{Attempt: 1})} // of older versions: it frees
	found := draft(receipts.AnsweredLate, receipts.Payload{Attempt: 1, AttemptClass: receipts.ClassExecuted, Moved: 130})
	for what, c := range map[string]struct {
		drafts    []receipts.Draft
		uncovered int64
		word      string
	}{
		"paid as decided":            {[]receipts.Draft{submitted, started, paid(100)}, 0, ""},
		"paid beyond":                {[]receipts.Draft{submitted, started, paid(130), breach(30), hold}, 30, ""},
		"no receipt":                 {[]receipts.Draft{submitted, started, paid(130)}, 30, "no receipt says so"},
		"another receipt":            {[]receipts.Draft{submitted, started, paid(130), hold, breach(30)}, 30, "does not state that 30 was paid"},
		"another sum":                {[]receipts.Draft{submitted, started, paid(130), breach(3000)}, 30, "states 3000 paid beyond what was decided, and 30 follows"},
		"nothing was paid beyond":    {[]receipts.Draft{submitted, started, paid(100), breach(30)}, 0, "of no such payment"},
		"nothing was paid":           {[]receipts.Draft{submitted, breach(30)}, 0, "of no such payment"},
		"twice":                      {[]receipts.Draft{submitted, started, paid(130), breach(30), breach(30)}, 30, "of no such payment"},
		"of an escrow as a whole":    {[]receipts.Draft{submitted, {Subtype: receipts.ConservationBreach, Actor: "test", At: started.At, Payload: receipts.Payload{Excess: 7}}}, 0, ""},
		"after it was freed":         {append(freed, found, breach(30)), 130, ""},
		"likewise, an older version": {append(freed, found, breach(130)), 130, ""},
		"likewise, another sum":      {append(freed, found, breach(100)), 130, "and 30 follows"},
	} {
		rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id), c.drafts...)
		if err != nil {
			t.Fatal(err)
		}
		f, err := FoldSettlement(rs)
		if f.Uncovered != c.uncovered || (c.word == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %d uncovered, %v", what, f.Uncovered, err)
		}
	}
}

// What came back follows from what the same key has paid, and the settlement from both.
func TestWhatCameBackWasPaidUnderTheSameKey(t *testing.T) {
	t.Parallel()
	id, first, second := receipts.CaseID(uuid.New()), receipts.RunID(uuid.New()), receipts.RunID(uuid.New())
	draft := func(run receipts.RunID, subtype receipts.Subtype, p receipts.Payload) receipts.Draft {
		return receipts.Draft{Run: run, Subtype: subtype, Actor: "test", At: time.Unix(1_800_000_000, 0), Payload: p}
	}
	back := func(run receipts.RunID, sum int64) receipts.Draft {
		return draft(run, receipts.Returned, receipts.Payload{Returned: sum, Reference: "R"})
	}
	paid := []receipts.Draft{
		draft(first, receipts.Submitted, receipts.Payload{OperationKey: "k", Outcome: "release", Generation: 1, Amount: 100}),
		draft(first, receipts.AttemptStarted, receipts.Payload{Attempt: 1}),
		draft(first, receipts.AttemptSucceeded, receipts.Payload{Attempt: 1, Moved: 100}),
	}
	again := append(slices.Clone(paid), back(first, 60),
		draft(second, receipts.Submitted, receipts.Payload{OperationKey: "l", Outcome: "refund", Generation: 2, Amount: 60, Readjudicated: true}),
		draft(second, receipts.AttemptStarted, receipts.Payload{Attempt: 1}),
		draft(second, receipts.AttemptSucceeded, receipts.Payload{Attempt: 1, Moved: 60}))
	for what, c := range map[string]struct {
		drafts []receipts.Draft
		back   int64
		word   string
	}{
		"in parts":                {append(slices.Clone(paid), back(first, 60), back(first, 40)), 100, ""},
		"beyond":                  {append(slices.Clone(paid), back(first, 60), back(first, 41)), 60, "more than"},
		"before it was paid":      {append(slices.Clone(paid[:2]), back(first, 1)), 0, "more than"},
		"of both payments":        {append(slices.Clone(again), back(first, 40), back(second, 60)), 160, ""},
		"beyond one of both":      {append(slices.Clone(again), back(second, 61)), 60, "more than it has paid"},
		"of a run that never was": {append(slices.Clone(paid), back(second, 1)), 0, "is none of the case's"},
		"another settlement":      {append(slices.Clone(paid), draft(first, receipts.Returned, receipts.Payload{Returned: 1, Settlement: &receipts.SettlementSnapshot{Returned: 2}})), 1, "does not follow"},
	} {
		rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id), c.drafts...)
		if err != nil {
			t.Fatal(err)
		}
		f, err := FoldSettlement(rs)
		if f.State.Returned != c.back || (c.word == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %+v, %v", what, f.State, err)
		}
	}
}

// A payment that a lookup found is the word of the attempt that ended with it only if no earlier call can have paid: what that
// attempt says of its own call later contradicts nothing else.
func TestAPaymentThatALookupFoundIsTheWordOfTheOnlyCall(t *testing.T) {
	t.Parallel()
	id, run := receipts.CaseID(uuid.New()), receipts.RunID(uuid.New())
	draft := func(subtype receipts.Subtype, p receipts.Payload) receipts.Draft {
		return receipts.Draft{Run: run, Subtype: subtype, Actor: "test", At: time.Unix(1_800_000_000, 0), Payload: p}
	}
	submitted := draft(receipts.Submitted, receipts.Payload{OperationKey: "k", Outcome: "release", Generation: 1, Amount: 100})
	started := func(attempt int) receipts.Draft {
		return draft(receipts.AttemptStarted, receipts.Payload{Attempt: attempt})
	}
	unanswered := draft(receipts.RetryScheduled, receipts.Payload{Attempt: 1, AttemptClass: receipts.ClassUnknown, OutcomeClass: receipts.ClassUnknown})
	refused := draft(receipts.RetryScheduled, receipts.Payload{Attempt: 1, AttemptClass: receipts.ClassNotExecuted, OutcomeClass: receipts.ClassNotExecuted})
	paid := func(attempt int, class, lookup string) receipts.Draft {
		return draft(receipts.AttemptSucceeded, receipts.Payload{Attempt: attempt, AttemptClass: class, OutcomeClass: receipts.ClassExecuted, Lookup: lookup, Moved: 100})
	}
	for what, c := range map[string]struct {
		drafts  []receipts.Draft
		attempt int
		want    bool
	}{
		"its own call paid":                         {[]receipts.Draft{submitted, started(1), paid(1, receipts.ClassExecuted, "")}, 1, true},
		"its own call, after one without an answer": {[]receipts.Draft{submitted, started(1), unanswered, started(2), paid(2, receipts.ClassExecuted, "")}, 2, true},
		"a lookup after the only call":              {[]receipts.Draft{submitted, started(1), paid(1, receipts.ClassUnknown, receipts.ClassExecuted)}, 1, true},
		"a lookup after one that was refused":       {[]receipts.Draft{submitted, started(1), refused, started(2), paid(2, receipts.ClassUnknown, receipts.ClassExecuted)}, 2, true},
		"one that states nothing": {[]receipts.Draft{submitted, started(1), draft(receipts.AnsweredLate, receipts.Payload{Attempt: 1, AttemptClass: receipts.ClassExecuted, OutcomeClass: receipts.ClassExecuted, Moved: 100}),
			draft(receipts.AttemptSucceeded, receipts.Payload{Attempt: 2, AttemptClass: receipts.ClassUnknown, OutcomeClass: receipts.ClassExecuted, Lookup: receipts.ClassExecuted})}, 2, false},
		"a lookup after one without an answer": {[]receipts.Draft{submitted, started(1), unanswered, started(2), paid(2, receipts.ClassUnknown, receipts.ClassExecuted)}, 2, false},
	} {
		rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id), c.drafts...)
		if err != nil {
			t.Fatal(err)
		}
		f, err := FoldSettlement(rs)
		if err != nil || f.PaymentOf(run) == nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := f.PaymentOf(run).IsStatedBy(run, c.attempt); got != c.want {
			t.Errorf("%s: attempt %d has stated the payment: %v", what, c.attempt, got)
		}
	}
}

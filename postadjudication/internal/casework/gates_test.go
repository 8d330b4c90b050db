package casework

import (
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

// openLetter is an open letter of a settlement that was certainly not paid, and keeps its reservation.
func openLetter(change ...func(*journal.LetterRow)) journal.LetterRow {
	var f journal.LetterRow
	f.Case.Kind = journal.KindSettlement
	f.Case.State = settlement.State{Progression: settlement.DisputeReady, Asked: 100, Reserved: 100, Generation: 1}
	f.Run = background.Run{State: background.DeadLettered, Letter: background.LetterOpen, Class: escrow.NotExecuted}
	for _, c := range change {
		c(&f)
	}
	return f
}

func plain(f *journal.LetterRow)     { f.Case.Kind = journal.KindPlain }
func waiting(f *journal.LetterRow)   { f.Run.State, f.Run.Letter = background.Scheduled, "" }
func running(f *journal.LetterRow)   { f.Run.State, f.Run.Letter = background.Running, "" }
func unknown(f *journal.LetterRow)   { f.Run.Class, f.Run.UnknownOpen = escrow.Unknown, 1 }
func ofOther(f *journal.LetterRow)   { f.Run.UnknownOpen = 1 } // the outcome of another run is unknown
func ofClass(f *journal.LetterRow)   { f.Run.Class = escrow.Unknown }
func held(f *journal.LetterRow)      { f.Annotations.Held = true }
func purged(f *journal.LetterRow)    { f.Run.Letter = background.LetterPurged }
func cancelled(f *journal.LetterRow) { f.Run.State, f.Run.Letter = background.Cancelled, "" }
func succeeded(f *journal.LetterRow) { f.Run.State, f.Run.Letter = background.Succeeded, "" }
func freed(f *journal.LetterRow)     { f.Case.State.Reserved = 0 }

// Each gate of a letter opens only if nothing forbids its action.
func TestTheGatesOfALetter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		letter                  journal.LetterRow
		purge, free, settlement refusal.Gate
		found                   refusal.Gate
	}{
		"open":                        {openLetter(), "", "", "", ""},
		"of no settlement":            {openLetter(plain), "", refusal.GateNotSettlement, refusal.GateNotSettlement, refusal.GateNotSettlement},
		"of no settlement, unknown":   {openLetter(plain, unknown), "", refusal.GateNotSettlement, refusal.GateNotSettlement, refusal.GateNotSettlement},
		"waiting":                     {openLetter(waiting), refusal.GateNotALetter, refusal.GateLive, refusal.GateNotALetter, refusal.GateNotALetter},
		"waiting, unknown":            {openLetter(waiting, unknown), refusal.GateNotALetter, refusal.GateLive, refusal.GateNotALetter, ""},
		"waiting, another is unknown": {openLetter(waiting, ofOther), refusal.GateNotALetter, refusal.GateLive, refusal.GateNotALetter, ""},
		"running, unknown":            {openLetter(running, unknown), refusal.GateNotALetter, refusal.GateLive, refusal.GateNotALetter, refusal.GateRunning},
		"unknown":                     {openLetter(unknown), refusal.GateReconcileFirst, refusal.GateReconcileFirst, "", ""},
		"another is unknown":          {openLetter(ofOther), refusal.GateReconcileFirst, refusal.GateReconcileFirst, "", ""},
		"held":                        {openLetter(held), refusal.GateHeld, refusal.GateHeld, "", ""},
		"purged":                      {openLetter(purged), refusal.GateNotOpen, "", refusal.GateNotOpen, refusal.GateNotOpen},
		"cancelled":                   {openLetter(cancelled), refusal.GateNotALetter, "", refusal.GateNotALetter, refusal.GateNotALetter},
		"cancelled, unknown":          {openLetter(cancelled, unknown), refusal.GateNotALetter, refusal.GateReconcileFirst, refusal.GateNotALetter, refusal.GateNotALetter},
		"unknown, by its class":       {openLetter(ofClass), refusal.GateReconcileFirst, refusal.GateReconcileFirst, "", ""},
		"succeeded":                   {openLetter(succeeded), refusal.GateNotALetter, refusal.GateNotALetter, refusal.GateNotALetter, refusal.GateNotALetter},
		"nothing is reserved":         {openLetter(freed), "", refusal.GateNothingReserved, "", ""},
	} {
		if got := PurgeGate(c.letter); got != c.purge {
			t.Errorf("%s: purge %q, want %q", name, got, c.purge)
		}
		if got := reservationGate(c.letter); got != c.free {
			t.Errorf("%s: free %q, want %q", name, got, c.free)
		}
		if got := SettlementLetterGate(c.letter.Snapshot); got != c.settlement {
			t.Errorf("%s: settlement %q, want %q", name, got, c.settlement)
		}
		if got := ReconcileGate(c.letter.Snapshot); got != c.found {
			t.Errorf("%s: finding %q, want %q", name, got, c.found)
		}
	}
}

// A payment of a run that has ended can still be found, unless it is no settlement's.
func TestWhichEndedRunsTakeAPayment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		letter journal.LetterRow
		want   bool
	}{
		"purged":           {openLetter(purged), true},
		"of no settlement": {openLetter(purged, plain), false},
		"open":             {openLetter(), false},
	} {
		if got := closed(c.letter.Snapshot); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A fork gets a new key only if its own calls certainly executed nothing, and only for a settlement.
func TestWhichForksNeedANewKey(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	family := func(life time.Duration) *SettlementFamily {
		return &SettlementFamily{Executor: fixedEscrow{keyLifetime: life}, Targets: Targets{escrow.DefaultTarget: nil}, CallTimeLimit: time.Second, CallBound: time.Second, ClockSetBack: never, ClockUnchanged: never}
	}
	called := func(f *journal.LetterRow) { f.Run.Target, f.Run.FirstSentAt = escrow.DefaultTarget, first }
	out := func(f *journal.LetterRow) { f.Run.Attempt, f.Run.OutstandingCalls = 1, []int{1} }
	for name, c := range map[string]struct {
		letter journal.LetterRow
		life   time.Duration
		want   bool
	}{
		"the old key has expired":           {openLetter(called), time.Minute, true},
		"of no settlement":                  {openLetter(called, plain), time.Minute, false},
		"unknown":                           {openLetter(called, unknown), time.Minute, false},
		"another is unknown":                {openLetter(called, ofOther), time.Minute, false},
		"a call is out":                     {openLetter(called, out), time.Minute, false},
		"the old key is valid":              {openLetter(called), 24 * time.Hour, false},
		"the service keeps no key":          {openLetter(called), 0, false},
		"it was never called":               {openLetter(func(f *journal.LetterRow) { f.Run.Target = escrow.DefaultTarget }), time.Minute, false},
		"this process calls no such target": {openLetter(called, func(f *journal.LetterRow) { f.Run.Target = "other" }), time.Minute, false},
	} {
		if got := family(c.life).wantsNewKey(&c.letter.Snapshot, first.Add(time.Hour)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What is already on record under an operation key takes an answer or finding only if that adds something.
func TestWhatAddsToTheRecord(t *testing.T) {
	t.Parallel()
	recorded := binding.Payment{Paid: 100}
	for name, c := range map[string]struct {
		subtype receipts.Subtype
		class   escrow.Class
		moved   int64
		run     background.Run
		want    bool
	}{
		"a higher sum":                        {receipts.Reconciled, escrow.Executed, 101, background.Run{}, true},
		"a sum of what was not executed":      {receipts.Reconciled, escrow.NotExecuted, 101, background.Run{}, false},
		"the same":                            {receipts.Reconciled, escrow.Executed, 100, background.Run{}, false},
		"the same about a purged letter":      {receipts.Reconciled, escrow.Executed, 100, background.Run{Letter: background.LetterPurged}, true},
		"late, of a run that is not paid yet": {receipts.AnsweredLate, escrow.Executed, 100, background.Run{Class: escrow.Unknown}, true},
		"late, of a paid run":                 {receipts.AnsweredLate, escrow.Executed, 100, background.Run{Class: escrow.Executed}, false},
		"late, a call has come back":          {receipts.AnsweredLate, escrow.Executed, 100, background.Run{Class: escrow.Executed, OutstandingCalls: []int{1}}, true},
		"in time":                             {receipts.AttemptSucceeded, escrow.Executed, 100, background.Run{Class: escrow.Unknown}, false},
	} {
		tr := background.Transition{Subtype: c.subtype, Run: background.Run{Attempt: 1}, Result: background.Result{Class: c.class, Moved: c.moved}}
		if got := addsToRecord(&tr, &journal.Snapshot{Run: c.run}, recorded); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Only a person's finding that nothing more was executed closes a letter, and only one that a payment under an older key
// left without its reservation.
func TestWhichFindingsCloseALetter(t *testing.T) {
	t.Parallel()
	undercut := func(f *journal.LetterRow) { f.Case.State.Reserved = 60 }
	none := background.Transition{Subtype: receipts.Reconciled, Result: background.Result{Class: escrow.NotExecuted}}
	paid, looked, died := none, none, none
	paid.Result.Class, looked.Lookup, died.Subtype = escrow.Executed, escrow.NotExecuted, receipts.DeadLettered
	for name, c := range map[string]struct {
		tr     background.Transition
		letter journal.LetterRow
		want   bool
	}{
		"nothing more":             {none, openLetter(undercut), true},
		"it paid":                  {paid, openLetter(undercut), false},
		"a lookup found nothing":   {looked, openLetter(undercut), false},
		"it died":                  {died, openLetter(undercut), false},
		"all is reserved":          {none, openLetter(), false},
		"a run that waits":         {none, openLetter(undercut, waiting), false},
		"it was purged":            {none, openLetter(undercut, purged), false},
		"the decision is executed": {none, openLetter(undercut, func(f *journal.LetterRow) { f.Case.State.Progression = settlement.ApprovedForSettlement }), false},
	} {
		if got := closesLetter(&c.tr, &c.letter.Snapshot, &c.letter.Run); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Only the cancel of a fork keeps what is reserved.
func TestWhichCancelsKeepTheReservation(t *testing.T) {
	t.Parallel()
	fork := func(f *journal.LetterRow) { f.Run.Parent = background.RunID(NewID()) }
	for name, c := range map[string]struct {
		subtype receipts.Subtype
		letter  journal.LetterRow
		want    bool
	}{
		"a fork":                             {receipts.Cancelled, openLetter(waiting, fork), true},
		"a fork that dies":                   {receipts.DeadLettered, openLetter(waiting, fork), false},
		"no fork":                            {receipts.Cancelled, openLetter(waiting), false},
		"a fork of what was freed meanwhile": {receipts.Cancelled, openLetter(waiting, fork, freed), false},
	} {
		if got := keepsReservation(&background.Transition{Subtype: c.subtype}, &c.letter.Snapshot); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A run that executes on an ended case gets no further attempt, and is cancelled only if it certainly paid nothing.
func TestHowARunOfAnEndedCaseEnds(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{true, false} {
		for _, subtype := range []receipts.Subtype{receipts.RetryScheduled, receipts.AttemptInterrupted, receipts.DeadLettered} {
			for _, answered := range []escrow.Class{escrow.NotExecuted, escrow.Unknown} {
				for _, before := range []escrow.Class{"", escrow.NotExecuted, escrow.Unknown} {
					f := openLetter(running)
					if f.Run.Class = before; ended {
						f.Case.State.Progression = settlement.Settled
					}
					want := subtype
					if ended && subtype != receipts.DeadLettered {
						want = receipts.Cancelled
						if answered == escrow.Unknown || before == escrow.Unknown {
							want = receipts.DeadLettered
						}
					}
					tr := background.Transition{Subtype: subtype, NextRetryAt: time.Unix(1, 0), Result: background.Result{Class: answered}}
					onEndedCase(&tr, &f.Snapshot)
					if tr.Subtype != want || tr.NextRetryAt.IsZero() != (ended && subtype != receipts.DeadLettered) {
						t.Errorf("ended %t, %s, answered %s, before %q: %+v", ended, subtype, answered, before, tr)
					}
				}
			}
		}
	}
}

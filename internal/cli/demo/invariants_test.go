package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func paid(key, id string, outcome settlement.Outcome, minor int64) fakeescrow.Effect {
	return fakeescrow.Effect{OperationKey: key, Tenant: "t", TransactionReceiptID: id, Outcome: outcome, Moved: settlement.Money{Minor: minor, Currency: "USD"}}
}

func runThatMoved(key string, moved int64, class background.Class) runEvidence {
	return runEvidence{operation: key, moved: moved, Status: casestatus.Status{Class: class}}
}

func TestEffectsAndSettlementsMustMatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		effects []fakeescrow.Effect
		runs    []runEvidence
		holds   bool
	}{
		"nothing":                               {nil, nil, true},
		"paid and said":                         {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []runEvidence{runThatMoved("k", 5, "executed")}, true},
		"nothing paid, nothing said":            {nil, []runEvidence{runThatMoved("k", 0, "not_executed")}, true},
		"paid, not said":                        {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []runEvidence{runThatMoved("k", 0, "not_executed")}, false},
		"paid, and openly unknown":              {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []runEvidence{runThatMoved("k", 0, "unknown")}, true},
		"paid under a key of nobody":            {[]fakeescrow.Effect{paid("x", "1", "release", 5)}, []runEvidence{runThatMoved("k", 0, "not_executed")}, false},
		"said, not paid":                        {nil, []runEvidence{runThatMoved("k", 5, "executed")}, false},
		"another amount":                        {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []runEvidence{runThatMoved("k", 4, "executed")}, false},
		"paid twice, said once":                 {[]fakeescrow.Effect{paid("k", "1", "release", 5), paid("k", "1", "release", 5)}, []runEvidence{runThatMoved("k", 5, "executed")}, false},
		"two runs of one key, one of them said": {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []runEvidence{runThatMoved("k", 0, "not_executed"), runThatMoved("k", 5, "executed")}, true},
	} {
		if got := checkEffects(tc.effects, &evidence{runs: tc.runs}); (got == verdictOK) != tc.holds {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The audit folds receipts as the product does. Only the ledger shows that both are wrong together.
func TestWhatIsBookedMustMatchTheLedger(t *testing.T) {
	t.Parallel()
	booked := func(released, refunded, reserved, committed int64) casestatus.Case {
		return casestatus.Case{Tenant: "t", Transaction: "1", Escrow: "e", Currency: "USD", Committed: committed,
			State: settlement.State{Released: released, Refunded: refunded, Reserved: reserved}}
	}
	release, refund, euros := paid("k", "1", settlement.Release, 5), paid("l", "1", settlement.Refund, 2), paid("k", "1", settlement.Release, 5)
	euros.Moved.Currency = "EUR"
	for name, tc := range map[string]struct {
		effects []fakeescrow.Effect
		class   background.Class
		said    int64
		booked  casestatus.Case
		holds   bool
	}{
		"as it was paid":         {[]fakeescrow.Effect{release}, "executed", 5, booked(5, 0, 0, 5), true},
		"both ways, in parts":    {[]fakeescrow.Effect{release, refund}, "executed", 5, booked(5, 2, 0, 7), true},
		"1 where 5 were paid":    {[]fakeescrow.Effect{release}, "executed", 5, booked(1, 0, 0, 5), false},
		"the other way":          {[]fakeescrow.Effect{release}, "executed", 5, booked(0, 5, 0, 5), false},
		"another currency":       {[]fakeescrow.Effect{euros}, "executed", 5, booked(5, 0, 0, 5), false},
		"booked, and never paid": {nil, "executed", 5, booked(5, 0, 0, 5), false},
		"reserved":               {nil, "not_executed", 0, booked(0, 0, 5, 5), true},
		"committed too little":   {nil, "not_executed", 0, booked(0, 0, 5, 4), false},
		"openly unknown":         {[]fakeescrow.Effect{release}, "unknown", 0, booked(0, 0, 5, 5), true},
	} {
		if got := checkBooked(tc.effects, &evidence{runs: []runEvidence{runThatMoved("k", tc.said, tc.class)}, cases: []casestatus.Case{tc.booked}}); (got == verdictOK) != tc.holds {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestACasePaidBothWaysIsFound(t *testing.T) {
	t.Parallel()
	a, b := paid("k", "1", settlement.Release, 5), paid("l", "1", settlement.Refund, 5)
	if got := checkOneWay([]fakeescrow.Effect{a, b}); got == verdictOK {
		t.Error("not found")
	}
	b.Tenant = "u"
	if got := checkOneWay([]fakeescrow.Effect{a, a, b}); got != verdictOK {
		t.Error(got)
	}
}

func TestEveryAcceptedRunIsInOnePlace(t *testing.T) {
	t.Parallel()
	run := func(state background.State, letter background.LetterStatus, end settlement.Status, moved int64) runEvidence {
		return runEvidence{Status: casestatus.Status{State: state, Letter: letter}, end: end, moved: moved}
	}
	for _, tc := range []struct {
		run  runEvidence
		want string
	}{
		{run(background.Succeeded, "", settlement.Settled, 5), placeSettled},
		{run(background.Succeeded, "", settlement.Refunded, 5), placeRefunded},
		{run(background.Succeeded, "", settlement.PartiallySettled, 2), placePartial},
		{run(background.DeadLettered, background.LetterOpen, settlement.DisputeReady, 0), placeDeadLetter},
		{run(background.DeadLettered, background.LetterSuperseded, settlement.DisputeReady, 0), placeDeadLetter},
		{run(background.DeadLettered, background.LetterReconciled, settlement.Settled, 5), placeSettled},
		{run(background.Cancelled, "", settlement.ReviewNeeded, 0), placeCancelled},
		{run(background.Pending, "", settlement.ApprovedForSettlement, 0), placeLive},
		{run(background.Running, "", settlement.InProgress, 0), placeLive},
		{run(background.Scheduled, "", settlement.InProgress, 0), placeLive},
		{run(background.Succeeded, "", settlement.InProgress, 0), placeNowhere},
		{run(background.DeadLettered, "", settlement.DisputeReady, 0), placeNowhere},
	} {
		if got := tc.run.place(); got != tc.want {
			t.Errorf("%s/%s/%s: %q, want %q", tc.run.State, tc.run.Letter, tc.run.end, got, tc.want)
		}
	}
	settled, lost := run(background.Succeeded, "", settlement.Settled, 5), run(background.Succeeded, "", settlement.InProgress, 0)
	for _, tc := range []struct {
		accepted int
		runs     []runEvidence
		holds    bool
	}{{1, []runEvidence{settled}, true}, {2, []runEvidence{settled}, false}, {1, []runEvidence{settled, settled}, false}, {2, []runEvidence{settled, lost}, false}} {
		if got := checkSum(tc.accepted, &evidence{runs: tc.runs}); (got == verdictOK) != tc.holds {
			t.Errorf("%d accepted of %d runs: %s", tc.accepted, len(tc.runs), got)
		}
	}
}

func TestRetryWaitsAreMeasuredFromTheTimeThatWasSet(t *testing.T) {
	t.Parallel()
	base := time.Unix(1000, 0)
	ms := func(n int) time.Time { return base.Add(time.Duration(n) * time.Millisecond) }
	at := func(n int, s receipts.Subtype, next int) parsedReceipt {
		out := parsedReceipt{Receipt: receipts.Receipt{At: ms(n), Subtype: s}}
		if next > 0 {
			out.payload.NextRetryAt = ms(next)
		}
		return out
	}
	got := retryWaits([]parsedReceipt{
		at(0, receipts.Submitted, 0), at(1, receipts.AttemptStarted, 0), at(10, receipts.RetryScheduled, 35), at(37, receipts.AttemptStarted, 0),
		at(40, receipts.RetryScheduled, 90), at(89, receipts.AttemptStarted, 0), at(95, receipts.DeadLettered, 0),
	})
	want := []retryWait{{25 * time.Millisecond, 2 * time.Millisecond}, {50 * time.Millisecond, -time.Millisecond}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%v", got)
	}
}

func TestAReportWithABrokenInvariantIsNotOK(t *testing.T) {
	t.Parallel()
	r := &Report{}
	if r.OK() {
		t.Error("nothing was checked")
	}
	if r.invariants = []Invariant{{"a", "", verdictOK}}; !r.OK() {
		t.Error("all hold")
	}
	if r.invariants = append(r.invariants, Invariant{"b", "", "case 1 is lost"}); r.OK() {
		t.Error("one is broken")
	}
	if strings.Contains(verdictOK, " ") {
		t.Error("programs compare with ok")
	}
}

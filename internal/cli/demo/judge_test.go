package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func paid(key, id string, outcome settlement.Outcome, minor int64) fakeescrow.Effect {
	return fakeescrow.Effect{OperationKey: key, Tenant: "t", TransactionReceiptID: id, Outcome: outcome, Moved: settlement.Money{Minor: minor, Currency: "USD"}}
}

func said(key string, moved int64, class background.Class) execution {
	return execution{operation: key, moved: moved, Status: postadjudication.Status{Class: class}}
}

func TestEffectsAndSettlementsMustMatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		effects []fakeescrow.Effect
		runs    []execution
		holds   bool
	}{
		"nothing":                               {nil, nil, true},
		"paid and said":                         {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []execution{said("k", 5, "executed")}, true},
		"nothing paid, nothing said":            {nil, []execution{said("k", 0, "not_executed")}, true},
		"paid, not said":                        {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []execution{said("k", 0, "not_executed")}, false},
		"paid, and openly unknown":              {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []execution{said("k", 0, "unknown")}, true},
		"paid under a key of nobody":            {[]fakeescrow.Effect{paid("x", "1", "release", 5)}, []execution{said("k", 0, "not_executed")}, false},
		"said, not paid":                        {nil, []execution{said("k", 5, "executed")}, false},
		"another amount":                        {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []execution{said("k", 4, "executed")}, false},
		"paid twice, said once":                 {[]fakeescrow.Effect{paid("k", "1", "release", 5), paid("k", "1", "release", 5)}, []execution{said("k", 5, "executed")}, false},
		"two runs of one key, one of them said": {[]fakeescrow.Effect{paid("k", "1", "release", 5)}, []execution{said("k", 0, "not_executed"), said("k", 5, "executed")}, true},
	} {
		if got := matched(tc.effects, &evidence{runs: tc.runs}); (got == holds) != tc.holds {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestACasePaidBothWaysIsFound(t *testing.T) {
	t.Parallel()
	a, b := paid("k", "1", settlement.Release, 5), paid("l", "1", settlement.Refund, 5)
	if got := oneWay([]fakeescrow.Effect{a, b}); got == holds {
		t.Error("not found")
	}
	b.Tenant = "u"
	if got := oneWay([]fakeescrow.Effect{a, a, b}); got != holds {
		t.Error(got)
	}
}

func TestEveryAcceptedRunIsInOnePlace(t *testing.T) {
	t.Parallel()
	run := func(state background.State, letter background.Letter, end settlement.Status, moved int64) execution {
		return execution{Status: postadjudication.Status{State: state, Letter: letter}, end: end, moved: moved}
	}
	for _, tc := range []struct {
		run  execution
		want string
	}{
		{run(background.Succeeded, "", settlement.Settled, 5), placeSettled},
		{run(background.Succeeded, "", settlement.Refunded, 5), placeRefunded},
		{run(background.Succeeded, "", settlement.PartiallySettled, 2), placePartial},
		{run(background.DeadLettered, background.LetterOpen, settlement.DisputeReady, 0), placeLetter},
		{run(background.DeadLettered, background.LetterSuperseded, settlement.DisputeReady, 0), placeLetter},
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
		runs     []execution
		holds    bool
	}{{1, []execution{settled}, true}, {2, []execution{settled}, false}, {1, []execution{settled, settled}, false}, {2, []execution{settled, lost}, false}} {
		if got := sum(tc.accepted, &evidence{runs: tc.runs}); (got == holds) != tc.holds {
			t.Errorf("%d accepted of %d runs: %s", tc.accepted, len(tc.runs), got)
		}
	}
}

func TestGapsAreMeasuredFromTheTimeThatWasSet(t *testing.T) {
	t.Parallel()
	base := time.Unix(1000, 0)
	ms := func(n int) time.Time { return base.Add(time.Duration(n) * time.Millisecond) }
	at := func(n int, s receipts.Subtype, next int) told {
		out := told{Receipt: receipts.Receipt{At: ms(n), Subtype: s}}
		if next > 0 {
			out.payload.NextRetryAt = ms(next)
		}
		return out
	}
	got := gaps([]told{
		at(0, receipts.Submitted, 0), at(1, receipts.AttemptStarted, 0), at(10, receipts.RetryScheduled, 35), at(37, receipts.AttemptStarted, 0),
		at(40, receipts.RetryScheduled, 90), at(89, receipts.AttemptStarted, 0), at(95, receipts.DeadLettered, 0),
	})
	want := []gap{{25 * time.Millisecond, 2 * time.Millisecond}, {50 * time.Millisecond, -time.Millisecond}}
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
	if r.invariants = []Invariant{{"a", "", holds}}; !r.OK() {
		t.Error("all hold")
	}
	if r.invariants = append(r.invariants, Invariant{"b", "", "case 1 is lost"}); r.OK() {
		t.Error("one is broken")
	}
	if strings.Contains(holds, " ") {
		t.Error("programs compare with ok")
	}
}

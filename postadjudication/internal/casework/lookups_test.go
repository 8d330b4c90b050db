package casework

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// An address that can't be parsed is left out: it could hold a secret anywhere.
func TestALookupNamesNoAddressThatCantBeRead(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"https://escrow.example/a%2Fb?": "https://escrow.example/a%2Fb", "http://x:y@[::1]:80": "http://[::1]:80", "https://ada:hunter2@escrow.example:port": "", "": "",
	} {
		if got := lookupURL(fixedEscrow{at: at}); got != want {
			t.Errorf("%q: %q, want %q", at, got, want)
		}
	}
	if got := lookupURL(unaddressed{fixedEscrow{}}); got != "" {
		t.Errorf("none: %q", got)
	}
}

// conclude is right in every combination of its inputs.
func TestWhatTheAnswerOfALookupMeans(t *testing.T) {
	t.Parallel()
	const reach, flight, clocks, margin = 13 * time.Second, time.Minute, 2 * background.MaxClockOffset, 5 * time.Second
	type traffic struct {
		name          string
		q             lookupEvidence
		stated, other string // why it is not believed, if the executor states its in-flight time, and if it does not
	}
	calls := []traffic{
		{"a call is outstanding", lookupEvidence{outstanding: true, sinceLastCall: time.Hour}, lookupOutstanding, lookupOutstanding},
		{"just come back", lookupEvidence{}, lookupPremature, ""},
		{"nearly over", lookupEvidence{sinceLastCall: reach + flight + clocks - 1}, lookupPremature, ""},
		{"over", lookupEvidence{sinceLastCall: reach + flight + clocks}, "", ""},
		{"a worker just lost", lookupEvidence{lostCall: true}, lookupPremature, lookupPremature},
		{"a worker lost, call bound and time limit nearly over", lookupEvidence{sinceLastCall: time.Hour, lostCall: true, sinceLost: reach + clocks - 1}, lookupPremature, lookupPremature},
		{"a worker lost, call bound and time limit over", lookupEvidence{sinceLastCall: time.Hour, lostCall: true, sinceLost: reach + clocks}, lookupPremature, ""},
		{"a worker lost for long", lookupEvidence{sinceLastCall: time.Hour, lostCall: true, sinceLost: time.Hour}, "", ""},
		{"a worker lost for long, another call just back", lookupEvidence{lostCall: true, sinceLost: time.Hour}, lookupPremature, ""},
	}
	keys := []struct {
		name      string
		q         lookupEvidence
		forgotten bool
	}{
		{"none is known", lookupEvidence{called: true}, true},
		{"known for ever", lookupEvidence{called: true, keyAge: 1000 * time.Hour, keyRetention: escrow.Forever}, false},
		{"known for ever, clock before", lookupEvidence{called: true, keyAge: -time.Hour, keyRetention: escrow.Forever}, false},
		{"clock before the first call", lookupEvidence{called: true, keyAge: -1, keyRetention: time.Hour}, true},
		{"fresh", lookupEvidence{called: true, keyRetention: time.Hour}, false},
		{"known to the margin", lookupEvidence{called: true, keyAge: time.Hour - margin - 1, keyRetention: time.Hour}, false},
		{"within the margin", lookupEvidence{called: true, keyAge: time.Hour - margin, keyRetention: time.Hour}, true},
		{"long forgotten", lookupEvidence{called: true, keyAge: 24 * time.Hour, keyRetention: time.Hour}, true},
		{"a life shorter than the margin", lookupEvidence{called: true, keyAge: 1, keyRetention: margin}, true},
		{"never called", lookupEvidence{keyAge: 24 * time.Hour, keyRetention: time.Hour}, false},
	}
	for _, answer := range []escrow.Class{escrow.Executed, escrow.NotExecuted, escrow.Unknown, ""} {
		for _, c := range calls {
			for _, k := range keys {
				for _, inFlight := range []time.Duration{flight, 0, -1} {
					q := c.q
					q.answer, q.maxSendDelay, q.inFlight, q.called, q.keyAge, q.keyRetention, q.margin = answer, reach, inFlight, k.q.called, k.q.keyAge, k.q.keyRetention, margin
					class, why := escrow.NotExecuted, c.stated
					if inFlight <= 0 {
						why = c.other
					}
					if k.forgotten && why != lookupOutstanding {
						why = lookupForgotten
					}
					if why != "" {
						class = escrow.Unknown
					}
					if answer == escrow.Executed {
						class, why = escrow.Executed, ""
					} else if answer != escrow.NotExecuted {
						class, why = escrow.Unknown, ""
					}
					if got, because := q.conclude(); got != class || because != why {
						t.Errorf("%q, %s, key %s, in flight %s: %s %q, want %s %q", answer, c.name, k.name, inFlight, got, because, class, why)
					}
				}
			}
		}
	}
}

// If nobody states how long a call can be in flight, a lookup that finds nothing is
// not conclusive, however long ago the call was.
func TestACallThatIsOnItsWayForEverIsNeverOver(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]SettlementFamily{
		"stated":  {Executor: fixedEscrow{inFlight: escrow.Forever}, Targets: Targets{escrow.DefaultTarget: nil}},
		"nearly":  {Executor: fixedEscrow{inFlight: escrow.Forever - time.Second}, Targets: Targets{escrow.DefaultTarget: nil}},
		"assumed": {DefaultInFlight: escrow.Forever},
	} {
		for _, longest := range []time.Duration{10 * time.Second, 24 * time.Hour} {
			for _, quiet := range []time.Duration{0, time.Hour, 50 * 365 * 24 * time.Hour, escrow.Forever / 2} {
				q := lookupEvidence{answer: escrow.NotExecuted, maxSendDelay: background.MaxClaimAge(15*time.Second) + longest, inFlight: f.inFlight(escrow.DefaultTarget), keyRetention: escrow.Forever, sinceLastCall: quiet, lostCall: true, sinceLost: quiet}
				if class, why := q.conclude(); class != escrow.Unknown || why != lookupPremature {
					t.Errorf("%s, quiet for %s: %s %q", name, quiet, class, why)
				}
			}
		}
	}
}

// A wrapper that hides its executor's InFlight does not make early answers of not executed
// believed.
func TestAnExecutorThatStatesNoSpanIsGivenTheAssumedOne(t *testing.T) {
	t.Parallel()
	type wrapper struct {
		escrow.Executor
		escrow.Lookuper
	}
	e := fixedEscrow{}
	for name, tc := range map[string]struct {
		executor escrow.Executor
		want     time.Duration
	}{
		"stated":  {e, 0},
		"hidden":  {wrapper{e, e}, time.Minute},
		"no call": {nil, time.Minute},
	} {
		f := SettlementFamily{Executor: tc.executor, Targets: Targets{escrow.DefaultTarget: nil}, DefaultInFlight: escrow.DefaultInFlight}
		if got := f.inFlight(escrow.DefaultTarget); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// cameBack is a case of which a part came back.
func cameBack(c casestatus.Case, minor int64) casestatus.Case {
	c.Returned = minor
	return c
}

// What people say came back is what the case has booked.
func TestVerifyComparesWhatCameBackWithWhatPeopleSaid(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		said   map[transaction]returned
		booked int64
		broken bool
	}{
		"as it was said": {map[transaction]returned{{"t", "x"}: {400, true}}, 400, false},
		"lost":           {map[transaction]returned{{"t", "x"}: {400, true}}, 0, true},
		"another sum":    {map[transaction]returned{{"t", "x"}: {400, true}}, 401, true},
		"in doubt":       {map[transaction]returned{{"t", "x"}: {}}, 400, false},
		"nobody said so": {nil, 400, true},
	} {
		var v verification
		v.checkReturns(c.said, map[transaction]*caseTrail{{"t", "x"}: {Case: cameBack(casestatus.Case{}, c.booked)}})
		if (len(v.Broken) > 0) != c.broken {
			t.Errorf("%s: %v", what, v.Broken)
		}
	}
}

// What a case and an escrow have booked is compared with the ledger, each sum by itself.
func TestVerifyComparesWhatIsBookedWithTheLedger(t *testing.T) {
	t.Parallel()
	effect := func(key string, outcome settlement.Outcome, generation, moved int64) fakeescrow.Effect {
		eur := func(minor int64) settlement.Money { return settlement.Money{Minor: minor, Currency: "EUR"} }
		return fakeescrow.Effect{OperationKey: key, Tenant: "t", TransactionReceiptID: "x", Outcome: outcome, Generation: generation, Asked: eur(1000), Moved: eur(moved)}
	}
	booked := func(released, refunded, reserved, committed int64) casestatus.Case {
		return casestatus.Case{Tenant: "t", Transaction: "x", Escrow: "e", Currency: "EUR", Committed: committed, State: settlement.State{
			Outcome: settlement.Release, Generation: 1, Asked: 1000, Released: released, Refunded: refunded, Reserved: reserved}}
	}
	letter := func(c casestatus.Case) casestatus.Case {
		c.Runs = []casestatus.Status{{Letter: background.LetterOpen}}
		return c
	}
	unknown := func(c casestatus.Case) casestatus.Case { c.UnknownOpen = 1; return c }
	dollars := func(e fakeescrow.Effect) fakeescrow.Effect { e.Moved.Currency = "USD"; return e }
	paid, known := []fakeescrow.Effect{effect("a", settlement.Release, 1, 1000)}, operation{moved: 1000}
	for name, tc := range map[string]struct {
		effects []fakeescrow.Effect
		a       operation
		booked  casestatus.Case
		freed   bool
		want    string // "" for nothing broken
	}{
		"as it was paid":                       {paid, known, booked(1000, 0, 0, 1000), false, ""},
		"1 where 1000 were paid":               {paid, known, booked(1, 0, 0, 1000), false, "released 1000 and refunded 0 EUR, the case has booked 1 and 0"},
		"the other way":                        {paid, known, booked(0, 1000, 0, 1000), false, "has booked 0 and 1000"},
		"nothing was paid":                     {nil, operation{}, booked(1000, 0, 0, 1000), false, "released 0 and refunded 0"},
		"another sum of the escrow":            {paid, known, booked(1000, 0, 0, 999), false, "its cases were paid or have reserved 1000 EUR, and it has committed 999"},
		"a part came back":                     {paid, known, cameBack(booked(1000, 0, 0, 600), 400), false, ""},
		"what came back is still committed":    {paid, known, cameBack(booked(1000, 0, 0, 1000), 400), false, "its cases were paid or have reserved 600 EUR, and it has committed 1000"},
		"another currency":                     {[]fakeescrow.Effect{dollars(paid[0])}, known, booked(1000, 0, 0, 1000), false, "moved USD under operation"},
		"a part of two ways":                   {[]fakeescrow.Effect{effect("a", settlement.Release, 1, 400), effect("b", settlement.Refund, 2, 600)}, operation{moved: 400}, booked(400, 600, 0, 1000), false, ""},
		"the second way is not booked":         {[]fakeescrow.Effect{effect("a", settlement.Release, 1, 400), effect("b", settlement.Refund, 2, 600)}, operation{moved: 400}, booked(400, 0, 0, 400), false, "refunded 600"},
		"twice under one key, booked once":     {[]fakeescrow.Effect{paid[0], paid[0]}, known, booked(1000, 0, 0, 1000), false, "released 2000"},
		"an executor that says twice":          {paid, operation{moved: 2000, misreports: true}, booked(2000, 0, 0, 2000), false, ""},
		"a payment that is unknown":            {paid, operation{open: true}, unknown(booked(0, 0, 1000, 1000)), false, ""},
		"what was paid is still reserved":      {paid, known, booked(1000, 0, 1, 1001), false, "and 1 is still reserved"},
		"a letter keeps what it asked for":     {nil, operation{}, letter(booked(0, 0, 1000, 1000)), false, ""},
		"a letter keeps less":                  {nil, operation{}, letter(booked(0, 0, 999, 999)), false, "its letter is open, and 999 is reserved"},
		"the reservation of a letter was free": {nil, operation{}, letter(booked(0, 0, 0, 0)), true, ""},
	} {
		c := &caseTrail{Case: tc.booked}
		if tc.freed {
			c.receipts = []parsedReceipt{{Receipt: receipts.Receipt{Subtype: receipts.ReservationFreed}}}
		}
		v := &verification{}
		v.checkSums(tc.effects, map[string]*operation{"a": &tc.a, "b": {moved: 600}}, map[transaction]*caseTrail{{"t", "x"}: c})
		if got := strings.Join(v.Broken, "; "); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: found %q, want %q", name, got, tc.want)
		}
	}
}

package main

import (
	"testing"

	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Payments both ways are a violation unless the second was decided for the rest, when the receipts
// had what was moved the first way.
func TestVerifyChecksWhatWasKnownWhenTheOppositeWasDecided(t *testing.T) {
	t.Parallel()
	effect := func(key string, outcome settlement.Outcome, generation, moved int64) fakeescrow.Effect {
		e := fakeescrow.Effect{OperationKey: key, Tenant: "t", TransactionReceiptID: "x", Outcome: outcome, Generation: generation}
		e.Asked.Minor, e.Moved.Minor = 10, moved
		return e
	}
	decided := func(key string, refunded int64) *caseTrail {
		return &caseTrail{receipts: []parsedReceipt{{Receipt: receipts.Receipt{Subtype: receipts.Submitted}, p: receipts.Payload{
			OperationKey: key, Settlement: &receipts.SettlementSnapshot{Refunded: refunded}}}}}
	}
	release := effect("b", settlement.Release, 2, 5)
	for _, tc := range []struct {
		name   string
		before fakeescrow.Effect
		trail  *caseTrail
		fine   bool
	}{
		{"a part, and the receipts had it", effect("a", settlement.Refund, 1, 5), decided("b", 5), true},
		{"a part, and they had less", effect("a", settlement.Refund, 1, 5), decided("b", 0), false},
		{"all of it", effect("a", settlement.Refund, 1, 10), decided("b", 10), false},
		{"a part, of no older decision", effect("a", settlement.Refund, 2, 5), decided("b", 5), false},
		{"a part, and nobody decided", effect("a", settlement.Refund, 1, 5), decided("c", 5), false},
		{"a part of a case that is not known", effect("a", settlement.Refund, 1, 5), nil, false},
	} {
		if got := decidedKnowingParts(release, []fakeescrow.Effect{tc.before, release}, tc.trail); got != tc.fine {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

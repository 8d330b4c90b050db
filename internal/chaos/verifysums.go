package main

import (
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// checkSums compares what cases and escrows have booked with what the escrow service moved, by case, operation
// key, way and currency. The audit can't find a wrong sum that the product derives from its receipts the same way.
func (v *verification) checkSums(effects []fakeescrow.Effect, operations map[string]*operation, cases map[transaction]*caseTrail) {
	keys := map[transaction]map[string]fakeescrow.Effect{} // the last effect under each key of a transaction
	moved := map[string]int64{}
	for _, e := range effects {
		t := transaction{e.Tenant, e.TransactionReceiptID}
		if keys[t] == nil {
			keys[t] = map[string]fakeescrow.Effect{}
		}
		keys[t][e.OperationKey] = e
		moved[e.OperationKey] += e.Moved.Minor
		if c := cases[t]; c != nil && c.Currency != e.Moved.Currency {
			v.fail("%s: the escrow service moved %s under operation %.12s, and the case is in %s", t.id, e.Moved.Currency, e.OperationKey, c.Currency)
		}
	}
	type account struct{ tenant, reference string }
	committed, one := map[account]int64{}, map[account]*caseTrail{}
	for t, c := range cases {
		released, refunded := sumsByWay(keys[t], moved, operations)
		if c.Released != released || c.Refunded != refunded {
			v.WrongSums++
			v.fail("%s: the escrow service released %d and refunded %d %s, the case has booked %d and %d", t.id, released, refunded, c.Currency, c.Released, c.Refunded)
		}
		v.checkReservedSum(c, keys[t])
		a := account{c.Tenant, c.Escrow}
		committed[a], one[a] = committed[a]+released+refunded-c.Returned+c.Reserved, c
	}
	for a, sum := range committed {
		if c := one[a]; c.Committed != sum {
			v.WrongSums++
			v.fail("escrow %s: its cases were paid or have reserved %d %s, and it has committed %d", a.reference, sum, c.Currency, c.Committed)
		}
	}
}

// sumsByWay adds up what was moved each way under the keys of a case, as Recourse can know it.
func sumsByWay(keys map[string]fakeescrow.Effect, moved map[string]int64, operations map[string]*operation) (released, refunded int64) {
	for key, e := range keys {
		sum := moved[key]
		if o := operations[key]; o != nil {
			switch {
			case o.moved == 0 && o.open:
				sum = 0 // counted as unknown
			case o.misreports && o.moved == 2*sum:
				sum *= 2
			}
		}
		if e.Outcome == settlement.Refund {
			refunded += sum
		} else {
			released += sum
		}
	}
	return released, refunded
}

// checkReservedSum checks what a case has reserved where the ledger decides it: all of an unpaid decision whose letter
// is open, and nothing of one that was paid.
func (v *verification) checkReservedSum(c *caseTrail, keys map[string]fakeescrow.Effect) {
	for _, e := range keys {
		if int(e.Generation) == c.Generation && e.Outcome == c.Outcome && c.UnknownOpen == 0 && c.Reserved != 0 {
			v.WrongSums++
			v.fail("%s: generation %d was paid %d of %d, and %d is still reserved", c.Transaction, c.Generation, e.Moved.Minor, e.Asked.Minor, c.Reserved)
			return
		}
	}
	open := slices.ContainsFunc(c.Runs, func(r casestatus.Status) bool { return r.Letter == background.LetterOpen })
	freed := slices.ContainsFunc(c.receipts, func(r parsedReceipt) bool { return r.Subtype == receipts.ReservationFreed })
	if len(keys) == 0 && open && !freed && c.Reserved != c.Asked {
		v.WrongSums++
		v.fail("%s: nothing of %d was paid, its letter is open, and %d is reserved", c.Transaction, c.Asked, c.Reserved)
	}
}

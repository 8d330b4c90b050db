package main

import (
	"context"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// operation is the sum moved under an operation key by the receipts.
type operation struct {
	moved      int64
	open       bool // a run of it is unknown, and its case says so
	misreports bool // its executor reports other sums than the escrow service
}

// collectOperations reads the operations of a case from its receipts.
func (v *verification) collectOperations(c *caseTrail, misreports bool, operations map[string]*operation) {
	keys := map[background.RunID]*operation{}
	for _, r := range c.receipts {
		switch r.Subtype {
		case receipts.Submitted:
			if r.p.OperationKey == "" {
				continue // of a plain family
			}
			o := operations[r.p.OperationKey]
			if o == nil {
				o = &operation{}
				operations[r.p.OperationKey] = o
			}
			keys[r.Run] = o
			continue
		case receipts.AttemptInterrupted:
			v.Recovered++
		case receipts.AnsweredLate:
			v.Late++
		}
		if o := keys[r.Run]; o != nil {
			o.moved = max(o.moved, r.p.Moved)
		}
	}
	for _, r := range c.Runs {
		if o := keys[r.Run]; o != nil {
			o.misreports, o.open = misreports, o.open || r.Class == background.Unknown && c.UnknownOpen > 0
		}
	}
}

// checkEffects counts the violations in the escrow service's ledger.
func (v *verification) checkEffects(wrongs []fakeescrow.Violation, effects []fakeescrow.Effect, cases map[transaction]*caseTrail) {
	for _, w := range wrongs {
		if w.Why == fakeescrow.BothWays && decidedKnowingParts(w.Effect, effects, cases[transaction{w.Tenant, w.TransactionReceiptID}]) {
			continue
		}
		if (w.Why == fakeescrow.BothWays || w.Why == fakeescrow.PaidInFull) && decidedAfterReturn(w.Effect, cases[transaction{w.Tenant, w.TransactionReceiptID}]) {
			continue
		}
		v.Wrong[w.Why]++
		v.fail("an effect too many of %s (%s of generation %d, %d of %s): %s", w.TransactionReceiptID, w.Outcome, w.Generation, w.Moved.Minor, w.EscrowReference, w.Why)
	}
}

// decidedAfterReturn reports whether an effect was decided by a higher generation after a payment of its case had come
// back. The ledger keeps what came back as paid.
func decidedAfterReturn(later fakeescrow.Effect, c *caseTrail) bool {
	return c != nil && slices.ContainsFunc(c.receipts, func(r parsedReceipt) bool {
		return r.Subtype == receipts.Submitted && r.p.OperationKey == later.OperationKey && r.p.Readjudicated && r.p.Settlement != nil && r.p.Settlement.Returned > 0
	})
}

// decidedKnowingParts reports whether an effect the other way was decided for the rest: by a higher
// generation, after only parts had been moved, and when the receipts had each of them.
func decidedKnowingParts(later fakeescrow.Effect, effects []fakeescrow.Effect, c *caseTrail) bool {
	if c == nil {
		return false
	}
	var before int64
	for _, e := range effects {
		if e.Tenant != later.Tenant || e.TransactionReceiptID != later.TransactionReceiptID || e.Outcome == later.Outcome {
			continue
		}
		if e.Generation >= later.Generation || e.Moved.Minor >= e.Asked.Minor {
			return false
		}
		before += e.Moved.Minor
	}
	for _, r := range c.receipts {
		if r.Subtype != receipts.Submitted || r.p.OperationKey != later.OperationKey || r.p.Settlement == nil {
			continue
		}
		known := r.p.Settlement.Refunded
		if later.Outcome == settlement.Refund {
			known = r.p.Settlement.Released
		}
		return known == before
	}
	return false
}

// compareLedger compares the receipts with the escrow service's own ledger.
func (v *verification) compareLedger(effects []fakeescrow.Effect, operations map[string]*operation) {
	v.Effects = len(effects)
	paid := map[string]int64{}
	for _, e := range effects {
		paid[e.OperationKey] += e.Moved.Minor
		if operations[e.OperationKey] == nil {
			v.fail("operation %.12s of %s was paid by the escrow service, and has no receipt", e.OperationKey, e.TransactionReceiptID)
		}
	}
	for key, o := range operations {
		switch {
		case o.moved == paid[key], o.misreports && o.moved == 2*paid[key]:
		case o.moved == 0 && o.open: // counted as unknown
		default:
			v.fail("operation %.12s: the escrow service moved %d, the receipts say %d", key, paid[key], o.moved)
		}
	}
}

// checkUnknown counts the cases whose outcome is unknown. Where the escrow service answers again,
// and all lookups were made, there must be none.
func (v *verification) checkUnknown(cases map[transaction]*caseTrail, bound int) {
	var one *caseTrail
	for _, c := range cases {
		if c.UnknownOpen > 0 {
			v.Unknown++
			one = c
		}
	}
	if v.Unknown > bound {
		v.fail("%d cases are still unknown, and %d may be; one is %s", v.Unknown, bound, one.Transaction)
	}
}

// checkReserved reports reserved money that no list shows: of live runs, of dead letters, or of
// cases. Only the list of cases shows it once the letter was purged, or closed although its money was
// not moved, or its fork cancelled.
func (v *verification) checkReserved(ctx context.Context, service *postadjudication.Service, c *caseTrail) error {
	if c.Reserved == 0 {
		return nil
	}
	listed := false
	for _, r := range c.Runs {
		if r.State.Live() || r.Letter == background.LetterOpen {
			return nil
		}
		listed = listed || r.Letter == background.LetterPurged || r.State == background.Cancelled && len(r.Parents) > 0
	}
	for _, r := range c.receipts {
		listed = listed || r.p.LetterClosed && r.p.ReservationKept
	}
	if listed {
		page, err := service.As(c.Tenant, "").Cases.List(ctx, casestatus.Filter{Reserved: true, Transaction: c.Transaction}, "", 1)
		if err != nil {
			return err
		}
		if len(page.Cases) == 1 && page.Cases[0].Case == c.Case.Case && page.Cases[0].Reserved == c.Reserved && page.Cases[0].WaitsFor != "" {
			return nil
		}
	}
	v.HiddenReservations++
	v.fail("%s: %d is reserved, and neither a live run nor an open letter shows it", c.Transaction, c.Reserved)
	return nil
}

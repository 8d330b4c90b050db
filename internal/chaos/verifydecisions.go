package main

import (
	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// decision is what an adjudication orders.
type decision struct {
	transaction
	outcome      settlement.Outcome
	generation   int
	amount       int64
	adjudication string
}

func decisionOf(ad postadjudication.Adjudication) decision {
	return decision{
		transaction: transaction{ad.Tenant, ad.TransactionReceiptID}, outcome: ad.Outcome, generation: max(ad.Generation, 1),
		amount: ad.Amount.Minor, adjudication: ad.AdjudicationID,
	}
}

// checkDecisions reports accepted decisions that were not carried out: the escrow service's ledger
// has no effect of them, and there is no run of them, live or ended.
func (v *verification) checkDecisions(decisions map[decision]postadjudication.Reply, cases map[transaction]*caseTrail, effects []fakeescrow.Effect) {
	type ordered struct {
		transaction
		outcome    settlement.Outcome
		generation int
	}
	done := map[ordered]bool{}
	for _, e := range effects {
		done[ordered{transaction{e.Tenant, e.TransactionReceiptID}, e.Outcome, int(e.Generation)}] = true
	}
	for d, reply := range decisions {
		if done[ordered{d.transaction, d.outcome, d.generation}] || cases[d.transaction].hasRunFor(d) {
			continue
		}
		v.Lost++
		v.fail("%s of %d by generation %d of %s (%s) was answered %s, and left neither effect nor letter nor run",
			d.outcome, d.amount, d.generation, d.id, d.adjudication, reply)
	}
}

// hasRunFor reports whether a run was made for a decision.
func (c *caseTrail) hasRunFor(d decision) bool {
	if c == nil {
		return false
	}
	for _, r := range c.receipts {
		if r.Subtype == receipts.Submitted && r.p.Outcome == string(d.outcome) && r.p.Generation == d.generation && r.p.Amount == d.amount &&
			r.p.AdjudicationID == d.adjudication {
			return true
		}
	}
	return false
}

// checkCancelledDecisions reports decisions that people cancelled, and that were carried out after
// their sender submitted them again.
func (v *verification) checkCancelledDecisions(c *caseTrail) {
	type made struct {
		outcome    string
		generation int
	}
	of := map[background.RunID]made{}
	cancelled := map[made]string{}
	for _, r := range c.receipts {
		switch r.Subtype {
		case receipts.Submitted:
			d := made{r.p.Outcome, r.p.Generation}
			of[r.Run] = d
			if by := cancelled[d]; by != "" && r.p.ParentRun == (background.RunID{}) {
				v.Revived++
				v.fail("%s by generation %d of %s was cancelled by %s, and carried out all the same by run %s", d.outcome, d.generation, c.Transaction, by, r.Run)
			}
		case receipts.Cancelled:
			if r.p.Reason != caseEnded {
				cancelled[of[r.Run]] = r.Actor
			}
		}
	}
}

// caseEnded is the reason of a cancel that nobody asked for.
const caseEnded = "case_ended"

// checkCancelledRuns reports runs that Recourse cancelled by itself: a run is cancelled only when
// somebody asked for it, or when another payment ended its case.
func (v *verification) checkCancelledRuns(c *caseTrail) {
	for _, r := range c.receipts {
		switch {
		case r.Subtype != receipts.Cancelled:
		case r.p.Reason == caseEnded && !c.Progression.Ended() && c.Returned == 0: // a payment that came back opens the case again
			v.fail("run %s of %s was cancelled because its case had ended, and that is %s", r.Run, c.Transaction, c.Progression)
		case r.p.Reason != caseEnded && r.Actor != operatorActor && r.Actor != worker.Operator:
			v.fail("run %s of %s was cancelled by %s, and nobody asked for that", r.Run, c.Transaction, r.Actor)
		}
	}
}

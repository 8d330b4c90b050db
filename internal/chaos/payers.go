package main

import (
	"context"
	"net/http"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// makePayers gives each principal that pays its key.
func makePayers(ctx context.Context, a *testbed) (out []remote.Payer, err error) {
	for _, habit := range remote.Habits() {
		p := remote.Payer{Principal: "service:" + string(habit), Habit: habit}
		p.Token, _, err = a.operatorService.As(tenant, operatorActor).Keys.Create(ctx, postadjudication.NewKey{
			Principal: p.Principal, Roles: []postadjudication.AccessRole{access.Worker}, Queues: []string{remote.PayQueue}, Reason: operatorReason,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (j *remoteJobs) reports() []remote.Report {
	if j == nil {
		return nil
	}
	return j.ledger.Reports()
}

// statements returns what payers have reported of their own orders. A payment that got a reply under the worker's own name is
// on record.
func (j *remoteJobs) statements() (out []statement) {
	type held struct {
		order, worker string
		attempt       int
	}
	given := map[held]bool{}
	for _, t := range j.reports() {
		of := held{t.Order, t.Worker, t.Attempt}
		if given[of] = given[of] || t.Given; t.Given || t.OfOther {
			continue
		}
		known := t.Class == remote.Executed && t.Recorded() && given[of]
		out = append(out, statement{worker.Statement{Key: t.Key, Run: t.Order, Attempt: t.Attempt, Moved: t.Moved, Reference: t.Reference}, background.Class(t.Class), known})
	}
	return out
}

// checkReports checks that no principal's answer for an order of another one had an effect, that each such answer
// is on record as refused, and each denial of a payment as a contradiction.
func (v *verification) checkReports(all []remote.Report, cases map[transaction]*caseTrail) {
	type by struct{ run, actor string }
	refused, denied := map[by]bool{}, map[by]bool{}
	for _, c := range cases {
		for _, r := range c.receipts {
			who := by{r.Run.String(), r.Actor}
			refused[who] = refused[who] || r.Subtype == receipts.Refused && r.p.RefusedBy == string(refusal.GateNotTheHolder)
			denied[who] = denied[who] || r.Subtype == receipts.Contradicted && r.p.AttemptClass == remote.NotExecuted
		}
	}
	for _, t := range all {
		who := by{t.Order, t.Principal}
		if t.False && t.Status != 0 {
			v.Lies[t.Principal]++
		}
		switch {
		case t.Status == 0 || t.Status == http.StatusTooManyRequests:
		case !t.OfOther && t.Rule == string(refusal.GateNotTheHolder):
			v.fail("%s was refused as not the holder of order %s, attempt %d, which it was given", t.Principal, t.Order, t.Attempt)
		case t.OfOther && (t.Status != http.StatusConflict || t.Rule != string(refusal.GateNotTheHolder)):
			v.fail("%s answered for attempt %d of order %s, which another principal was given, and got %d %s", t.Principal, t.Attempt, t.Order, t.Status, t.Rule)
		case t.OfOther && !refused[who]:
			v.Unrecorded++
			v.fail("%s was refused as it answered for order %s, and no receipt says so", t.Principal, t.Order)
		case t.Denies && t.Class == remote.NotExecuted && !denied[who]:
			v.Unrecorded++
			v.fail("%s denied its payment of order %s, and no receipt says so", t.Principal, t.Order)
		}
	}
}

// inventedPayments returns as effects by how much the payments that a liar reported of, and that are on record, exceed what it
// paid: the word of the principal that holds an order counts. What an honest worker reported is compared with the ledger.
func inventedPayments(all []remote.Report, effects []fakeescrow.Effect, cases map[transaction]*caseTrail) (out []fakeescrow.Effect) {
	paid, invented := map[string]int64{}, map[string]remote.Report{}
	for _, e := range effects {
		paid[e.OperationKey] += e.Moved.Minor
	}
	for _, t := range all {
		if t.False && t.Class == remote.Executed && !t.OfOther && !t.Denies && t.Moved > paid[t.Key] {
			invented[t.Key] = t
		}
	}
	for at, c := range cases {
		for _, r := range c.receipts {
			t, lied := invented[r.p.OperationKey]
			if !lied || r.Subtype != receipts.Submitted || !c.states(r.Run, t) {
				continue
			}
			delete(invented, r.p.OperationKey)
			money := settlement.Money{Minor: r.p.Amount, Currency: r.p.Currency}
			out = append(out, fakeescrow.Effect{
				OperationKey: t.Key, Tenant: at.tenant, TransactionReceiptID: at.id, EscrowReference: c.Escrow, Outcome: settlement.Outcome(r.p.Outcome),
				Generation: int64(r.p.Generation), Asked: money, Moved: settlement.Money{Minor: t.Moved - paid[t.Key], Currency: r.p.Currency},
			})
		}
	}
	return out
}

// states reports whether a receipt has a payment that was reported.
func (c *caseTrail) states(run background.RunID, t remote.Report) bool {
	for _, r := range c.receipts {
		if r.Run == run && r.p.AttemptClass == remote.Executed && r.p.Moved == t.Moved && r.p.Reference == t.Reference {
			return true
		}
	}
	return false
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/settlement"
)

// returned is what people said came back of a transaction.
type returned struct {
	minor int64
	done  bool // the plan was seen done; else it may be recorded or not
}

const settledSQL = `SELECT c.subject, c.released + c.refunded, e.currency FROM recourse.cases c JOIN recourse.escrows e ON e.id = c.escrow_id
	WHERE c.tenant = $1 AND c.progression IN ('settled', 'refunded') AND c.returned = 0 ORDER BY c.id DESC LIMIT 1 OFFSET $2`

// returnOne records that a part of what one of the newest settled cases has paid came back, once for a case.
func returnOne(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
	var subject, currency string
	var paid int64
	err := a.db.QueryRowContext(ctx, settledSQL, tenant, rng.IntN(20)).Scan(&subject, &paid, &currency)
	t := transaction{tenant, subject}
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && !a.load.accepted.beginReturn(t):
		return "no settled case", nil
	case err != nil:
		return "", err
	}
	minor := 1 + rng.Int64N(paid)
	plans := a.operatorService.As(tenant, operatorActor).Bulk
	planned, err := plans.PlanReturns(ctx, bulk.ReturnsRequest{Reason: operatorReason, Returns: []bulk.ReturnedPayment{
		{Transaction: subject, Reference: "chaos " + subject, Amount: settlement.Money{Minor: minor, Currency: currency}},
	}})
	if err != nil || planned.Plan == nil {
		return subject, err
	}
	if _, err := plans.Run(withoutSecondPerson(ctx), planned.Plan.ID, planned.Plan.Hash); err != nil {
		return subject, err
	}
	if awaitPlan(ctx, plans, planned.Plan.ID) {
		a.load.accepted.endReturn(t, minor)
	}
	return fmt.Sprintf("%s: %d of %d", subject, minor, paid), nil
}

// awaitPlan waits until a plan has done all its items, and reports false if it has not after a while, as while Postgres is away.
func awaitPlan(ctx context.Context, plans bulk.Plans, id uuid.UUID) bool {
	for range 100 {
		if b, err := plans.Get(ctx, id); err == nil && b.State == bulk.Done {
			return b.Progress.Done == b.Items
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return false
		}
	}
	return false
}

// beginReturn reports whether no return of the transaction was tried before.
func (a *accepted) beginReturn(t transaction) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, tried := a.returns[t]; tried {
		return false
	}
	a.returns[t] = returned{}
	return true
}

func (a *accepted) endReturn(t transaction, minor int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.returns[t] = returned{minor, true}
}

// checkReturns reports cases of which another sum came back than people said.
func (v *verification) checkReturns(returns map[transaction]returned, cases map[transaction]*caseTrail) {
	for t, c := range cases {
		said, tried := returns[t]
		switch {
		case said.done && c.Returned != said.minor:
			v.WrongSums++
			v.fail("%s: people recorded that %d came back, the case has booked %d", t.id, said.minor, c.Returned)
		case !tried && c.Returned != 0:
			v.WrongSums++
			v.fail("%s: the case has booked that %d came back, and nobody said so", t.id, c.Returned)
		}
	}
}

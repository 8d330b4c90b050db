package bulk

import (
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// maxFreeCases is the maximum number of cases in a plan.
const maxFreeCases = 1_000

// FreeRequest selects the cases whose reservations are to be freed.
type FreeRequest struct {
	Filter    casestatus.Filter // selects among cases with a reservation
	All       bool              // all cases with a reservation: required with an empty filter, else refused
	Limit     int               // maximum number of freeable cases, the oldest first, at most 1,000; 0: all, but over 1,000 are refused
	Reason    string            // required
	Reference string            // to the evidence that nothing will be paid for them; required
	Request   string            // identifies the request that asks for the plan, so that it makes one plan only; empty: none

	tenant string
}

// PlanFree stores a plan to free the reservations of cases whose money nothing will move any
// more, such as those of dead letters and of their cancelled forks: a person decided not to
// carry out the adjudication. It changes nothing else. Run runs the plan. A case that it
// frees becomes review-needed, its open letter is closed as reconciled, and a higher generation
// may start a new run. A case is refused while it has a live run, unknown money, a call that
// may be in flight, or a held letter.
//
// With a limit, the plan holds the oldest cases that can be freed now and omits refused ones.
//
// Errors:
//   - *FieldError: invalid input; of filter also if it selects over 1,000 cases without a limit
//   - ErrNotFound: the named transaction has no case
//   - *RefusedError: the case of the named transaction has no reservation
//   - *NothingSelectedError: no case is selected
func (p Plans) PlanFree(ctx context.Context, q FreeRequest) (Plan, error) {
	q.tenant, q.Filter.Reserved = p.tenant, true
	selects := len(q.Filter.States) > 0 || q.Filter.Transaction != "" || q.Filter.WithoutLetter
	errs := []error{validate.Change(p.tenant, p.actor, q.Reason), validate.Text("reference", q.Reference, 255), q.Filter.Validate()}
	if selects == q.All {
		errs = append(errs, &refusal.FieldError{Field: "filter", Problem: "must select cases, or all must be set"})
	}
	if q.Limit < 0 || q.Limit > maxFreeCases {
		errs = append(errs, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxFreeCases)})
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	if before, made, err := p.s.madeFor(ctx, p.tenant, q.Request); made || err != nil {
		return before, err
	}
	if _, err := p.s.applier.Settlements.References.Stated(ctx, p.tenant, "reference", q.Reference); err != nil {
		return Plan{}, err
	}
	items, err := p.s.itemsToFree(ctx, q)
	if err == nil && len(items) == 0 && q.Filter.Transaction != "" {
		err = p.s.nothingToFree(ctx, q)
	}
	if err == nil && len(items) == 0 {
		err = &NothingSelectedError{}
	}
	if err != nil {
		return Plan{}, err
	}
	return p.s.storePlan(ctx, plans.Plan{MadeFor: q.Request, Tenant: p.tenant, Action: string(Free), Actor: p.actor, Reason: q.Reason},
		Spec{Cases: &q.Filter, All: q.All, Limit: int64(q.Limit), Reference: q.Reference}, items)
}

// nothingToFree returns why a named transaction has nothing to free: ErrNotFound if it has no
// case, a *RefusedError if the case has no reservation.
func (p *Planner) nothingToFree(ctx context.Context, q FreeRequest) error {
	seen, err := p.journal.Cases.SubjectSnapshot(ctx, q.tenant, journal.KindSettlement, q.Filter.Transaction)
	if err != nil {
		return err
	}
	if seen.Case.State.Reserved == 0 {
		return casework.RefusedBy(refusal.GateNothingReserved, seen)
	}
	return nil // it has another state than requested, or the limit omits it
}

// itemsToFree returns the items of a plan: each selected case with the gate that refuses it
// now, or, with a limit, the oldest cases that no gate refuses.
func (p *Planner) itemsToFree(ctx context.Context, q FreeRequest) (items []plans.Item, err error) {
	var after background.CaseID
	for {
		found, err := p.journal.Cases.List(ctx, q.tenant, q.Filter.JournalFilter(), after, maxFreeCases+1)
		if err != nil {
			return nil, err
		}
		if q.Limit == 0 && len(found) > maxFreeCases {
			return nil, &refusal.FieldError{Field: "filter", Problem: fmt.Sprintf("selects over %d cases: narrow it, or give a limit", maxFreeCases)}
		}
		if items, err = p.addFreeable(ctx, items, found, q.Limit); err != nil {
			return nil, err
		}
		if len(found) <= maxFreeCases || len(items) == q.Limit {
			return items, nil
		}
		after = found[len(found)-1].ID
	}
}

// addFreeable appends the items of cases in order. With a limit it omits cases that a gate
// refuses, and stops at the limit.
func (p *Planner) addFreeable(ctx context.Context, items []plans.Item, cases []journal.CaseRow, limit int) ([]plans.Item, error) {
	ids := make([]background.RunID, len(cases))
	for i := range cases {
		ids[i] = cases[i].ActiveRun
	}
	seen, err := p.journal.Letters.ByID(ctx, ids...)
	if err != nil {
		return nil, err
	}
	byRun := make(map[background.RunID]journal.LetterRow, len(seen))
	for _, f := range seen {
		byRun[f.Run.ID] = f
	}
	for _, id := range ids {
		f, readable := byRun[id]
		if !readable {
			continue
		}
		gate, err := p.applier.FreeGate(ctx, f)
		switch {
		case err != nil:
			return nil, err
		case limit > 0 && gate != "":
			continue
		}
		items = append(items, itemFor(int64(len(items)+1), f.Snapshot, gate))
		if len(items) == limit {
			break
		}
	}
	return items, nil
}

// freeReservation frees the reservation of an item's case. No call can start meanwhile: the
// change is written only if the case has not changed since it was planned.
func (w *planWork) freeReservation(ctx context.Context, i *plans.Item, guard casework.Guard) error {
	found, err := w.journal.Letters.ByID(ctx, i.Run)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Run.Tenant != w.plan.Tenant {
		return refusal.ErrNotFound
	}
	gate, err := w.applier.FreeGate(ctx, found[0])
	switch {
	case err != nil:
		return err
	case gate != "":
		return casework.RefusedBy(gate, found[0].Snapshot)
	}
	err = w.applier.ApplyAsRead(ctx, found[0], guard.Letter(casework.Freeing(w.plan.StartedBy, w.plan.Reason, w.spec.Reference, w.now())))
	if err == nil {
		w.applier.Engine.Wake(i.Run)
	}
	return err
}

package postadjudication

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// PlanFinding plans a finding that money of one run was moved, as Reconcile takes it, and
// changes nothing else: the plan runs by RunBulk, and does nothing if the case has moved
// meanwhile. The errors are those of Reconcile.
func (s *Service) PlanFinding(ctx context.Context, tenant string, id background.RunID, f Finding) (Bulk, error) {
	err := f.validate()
	if err == nil && f.Class != Executed {
		err = &FieldError{Field: "finding", Problem: "must be executed: any other takes no plan"}
	}
	if err != nil {
		return Bulk{}, err
	}
	return s.planFinding(ctx, tenant, id, f, lookupSource{})
}

// planFinding is PlanFinding of what a person found, or of what the escrow service that this
// person named answered to a lookup.
func (s *Service) planFinding(ctx context.Context, tenant string, id background.RunID, f Finding, by lookupSource) (Bulk, error) {
	seen, err := s.findingRun(ctx, tenant, id, f, by.class)
	if err != nil {
		return Bulk{}, err
	}
	found := &PlannedFinding{Class: f.Class, Moved: f.Moved, Reference: cleanText(f.Reference, maxReference), OtherAmount: f.OtherAmount, Transaction: seen.Case.Subject}
	if by.class != "" {
		found.Lookup, found.LookupURL, found.OtherAmount = true, by.url, f.Moved != seen.Case.State.Asked-seen.Case.State.Moved
	}
	return s.storePlan(ctx, postgres.BulkPlan{Tenant: tenant, Action: string(BulkFinding), Actor: f.Actor, Reason: f.Reason},
		BulkSpec{Finding: found},
		[]postgres.BulkItem{itemFor(1, seen, "")})
}

// storePlan stores a plan of items that were looked up one by one.
func (s *Service) storePlan(ctx context.Context, b postgres.BulkPlan, spec BulkSpec, items []postgres.BulkItem) (Bulk, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return Bulk{}, err
	}
	at := s.now()
	b.ID, b.Request, b.PlannedKey, b.Reason, b.Parallel, b.PlannedAt = newID(), string(text), callerOf(ctx).Key, cleanText(b.Reason, 1024), bulkParallel, at
	digest := newBulkDigest(b)
	for _, i := range items {
		digest.add(i.Run, i.Head.Seq, i.Head.Link, i.Amount, i.Currency)
	}
	b.Hash = digest.sum()
	if b, err = s.journal.CreateBulkPlanOf(ctx, b, items, at.Add(-BulkPlanRetention)); err != nil {
		return Bulk{}, err
	}
	return s.withCounts(ctx, b)
}

func itemFor(position int64, s postgres.Snapshot, gate Gate) postgres.BulkItem {
	return postgres.BulkItem{Position: position, Run: s.Run.ID, Case: s.Case.ID, Head: s.Case.Head, Amount: s.Case.State.Reserved, Currency: s.Case.Currency, Gate: string(gate)}
}

// recordFinding records the finding of a plan.
func (w *planWork) recordFinding(ctx context.Context, i *postgres.BulkItem, guard *planGuard) error {
	found := w.spec.Finding
	if found == nil {
		return &FieldError{Field: "finding", Problem: "is missing in the plan"}
	}
	f := Finding{Actor: w.plan.StartedBy, Reason: w.plan.Reason, Class: found.Class, Moved: found.Moved, Reference: found.Reference, OtherAmount: found.OtherAmount}
	var answered Class
	if found.Lookup {
		answered, guard.provenance.lookupURL = found.Class, found.LookupURL
	}
	_, err := w.reconcile(ctx, w.plan.Tenant, i.Run, f, answered, guard)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Gate == GateRunning {
		return errAttemptRunning
	}
	return err
}

// errAttemptRunning means that the run of an item is being called. The item stays pending, and is
// tried again once the attempt has ended.
var errAttemptRunning = errors.New("postadjudication: the run is being called")

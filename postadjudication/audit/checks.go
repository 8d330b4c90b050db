package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
)

// auditOrder checks the order of events: no number is missing or duplicate, and every receipt
// has exactly one position, after the earlier receipts of its case. As each dead-lettered
// receipt gives one run.dead_lettered event, each letter then has one. A committed receipt that
// waits for its number counts as placed, so that the check holds while others write; after
// DrainEvents none waits.
//
// Each tenant has its own numbers, from which its positions are made, and there is one order of
// all tenants. The database compares, per tenant in one snapshot: no list is kept in memory.
// The numbers of the order of all tenants are shared, so a missing number may belong to any
// tenant and is reported for each tenant that has receipts.
func (s *auditor) auditOrder(ctx context.Context, a *Report, tenants []string, all bool) error {
	for _, tenant := range tenants {
		err := s.rows.Each(ctx, trail.CheckOrder, Scope{Tenant: tenant}, func(d Discrepancy) {
			a.fail(InvariantOrder, breakSubject{tenant: tenant, caseID: d.Case}.withReceipt(d.Seq), "%s", d.Message)
		})
		if err != nil {
			return err
		}
		err = s.rows.Each(ctx, trail.CheckTenantGaps, Scope{Tenant: tenant}, func(d Discrepancy) {
			a.fail(InvariantOrder, breakSubject{tenant: tenant}, "%s of the tenant", gapText(d.From, d.To))
		})
		if err != nil {
			return err
		}
	}
	shared := ""
	if !all {
		if a.Receipts == 0 && a.OK() {
			return nil // an unknown tenant has no events
		}
		shared = "; all tenants share these numbers, so they may belong to another tenant"
	}
	err := s.rows.Each(ctx, trail.CheckGaps, Scope{}, func(d Discrepancy) {
		a.fail(InvariantOrder, breakSubject{}, "%s%s", gapText(d.From, d.To), shared)
	})
	if err != nil {
		return err
	}
	return s.addDiscrepancies(ctx, a, InvariantOrder, trail.CheckProjections, Scope{})
}

// gapText describes missing numbers or, if to < from, duplicate ones: then the next number is
// not above the last one.
func gapText(from, to int64) string {
	what := "missing in the order of events"
	if to < from {
		from, to, what = to+1, from-1, "given twice in the order of events"
	}
	if from == to {
		return fmt.Sprintf("number %d is %s", from, what)
	}
	return fmt.Sprintf("numbers %d to %d are %s", from, to, what)
}

// auditOrphans checks that the rows a tenant's rows refer to exist. The database does not
// check: the schema has no foreign keys, which would lock a row for every row that is written.
func (s *auditor) auditOrphans(ctx context.Context, a *Report, tenant string) error {
	return s.addDiscrepancies(ctx, a, InvariantAccounted, trail.CheckOrphans, Scope{Tenant: tenant})
}

// auditOrphanOperations checks that requests of operations have their cases. A request without
// a case has no known tenant, so the check runs only if all tenants are audited.
func (s *auditor) auditOrphanOperations(ctx context.Context, a *Report) error {
	return s.addDiscrepancies(ctx, a, InvariantAccounted, trail.CheckOperationKeys, Scope{})
}

// addDiscrepancies adds what a check finds as breaks, and as one break if a receipt can't be read,
// so that the check could not be made.
func (s *auditor) addDiscrepancies(ctx context.Context, a *Report, invariant string, check Check, of Scope) error {
	err := s.rows.Each(ctx, check, of, a.addFound(invariant, of.Tenant))
	if errors.Is(err, trail.ErrUnreadableReceipt) {
		a.fail(invariant, breakSubject{tenant: of.Tenant, caseID: of.Case}, "a comparison with the receipts of %s could not be made: %v", of.Tenant, err)
		return nil
	}
	return err
}

// addFound returns a callback that adds a Discrepancy as a break.
func (a *Report) addFound(invariant, tenant string) func(Discrepancy) {
	return func(f Discrepancy) {
		a.failDiffering(invariant, breakSubject{tenant: tenant, caseID: f.Case, run: f.Run}, f.Stored, f.Expected, "%s", f.Message)
	}
}

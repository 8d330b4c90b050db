package postadjudication

import (
	"context"
	"fmt"

	"github.com/recourse-dev/recourse/internal/postgres"
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
func (s *Service) auditOrder(ctx context.Context, a *Audit, tenants []string, all bool) error {
	for _, tenant := range tenants {
		err := s.journal.Audit.EachEventOrderError(ctx, tenant, func(at postgres.TrailPosition, what string) {
			a.fail(InvariantOrder, breakSubject{tenant: tenant, caseID: at.Case}.withReceipt(at.Seq), "%s", what)
		})
		if err != nil {
			return err
		}
		err = s.journal.Audit.EachTenantEventGap(ctx, tenant, func(from, to int64) {
			a.fail(InvariantOrder, breakSubject{tenant: tenant}, "%s of the tenant", gapText(from, to))
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
	err := s.journal.Audit.EachEventGap(ctx, func(from, to int64) {
		a.fail(InvariantOrder, breakSubject{}, "%s%s", gapText(from, to), shared)
	})
	if err != nil {
		return err
	}
	return s.journal.Audit.EachProjectionAhead(ctx, a.addFound(InvariantOrder, ""))
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
// check: a migration dropped its foreign keys.
func (s *Service) auditOrphans(ctx context.Context, a *Audit, tenant string) error {
	return s.journal.Audit.EachOrphan(ctx, tenant, a.addFound(InvariantAccounted, tenant))
}

// auditOrphanOperations checks that requests of operations have their cases. A request without
// a case has no known tenant, so the check runs only if all tenants are audited.
func (s *Service) auditOrphanOperations(ctx context.Context, a *Audit) error {
	return s.journal.Audit.EachOrphanOperation(ctx, a.addFound(InvariantAccounted, ""))
}

// addFound returns a callback that adds a Discrepancy as a break.
func (a *Audit) addFound(invariant, tenant string) func(postgres.Discrepancy) {
	return func(f postgres.Discrepancy) {
		a.failDiffering(invariant, breakSubject{tenant: tenant, caseID: f.Case, run: f.Run}, f.Stored, f.Expected, "%s", f.Message)
	}
}

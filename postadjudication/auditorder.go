package postadjudication

import (
	"context"
	"fmt"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// auditOrder checks the order of events: no number is missing or given twice, and
// every receipt has exactly one place, behind the earlier ones of its case. As each
// dead-lettered receipt gives one run.dead_lettered event, each letter then has
// one. A receipt that is committed and waits for its number counts as placed, so
// that the check holds while others write; after DrainEvents none waits.
//
// Each tenant has its own numbers, from which its positions are made, and so has the order of
// all. The database compares, each tenant as of one moment: no list is kept here. The numbers
// of the order of all are shared by all tenants. So what is missing may be any tenant's, and is told of each
// that has anything.
func (s *Service) auditOrder(ctx context.Context, a *Audit, tenants []string, all bool) error {
	for _, tenant := range tenants {
		err := s.journal.EachEventOrderError(ctx, tenant, func(at postgres.TrailPosition, what string) {
			a.fail(InvariantOrder, breakSubject{tenant: tenant, caseID: at.Case}.withReceipt(at.Seq), "%s", what)
		})
		if err != nil {
			return err
		}
		err = s.journal.EachTenantEventGap(ctx, tenant, func(from, to int64) {
			a.fail(InvariantOrder, breakSubject{tenant: tenant}, "%s of the tenant", gapText(from, to))
		})
		if err != nil {
			return err
		}
	}
	shared := ""
	if !all {
		if a.Receipts == 0 && a.OK() {
			return nil // of a tenant that is not there nothing can be missing
		}
		shared = "; numbers are shared by all tenants, so that these may be another's"
	}
	err := s.journal.EachEventGap(ctx, func(from, to int64) {
		a.fail(InvariantOrder, breakSubject{}, "%s%s", gapText(from, to), shared)
	})
	if err != nil {
		return err
	}
	return s.journal.EachProjectionAhead(ctx, a.addFound(InvariantOrder, ""))
}

// gapText tells of numbers that are missing, or of ones that are given twice: then those
// that should come next begin behind the end.
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

// auditOrphans checks that what the rows of a tenant refer to is there. The database does
// not: see the migration that dropped its foreign keys.
func (s *Service) auditOrphans(ctx context.Context, a *Audit, tenant string) error {
	return s.journal.EachOrphan(ctx, tenant, a.addFound(InvariantAccounted, tenant))
}

// auditOrphanOperations checks that the requests of operations have their cases. Without
// these nobody knows whose they are, so that it is done only when all tenants are audited.
func (s *Service) auditOrphanOperations(ctx context.Context, a *Audit) error {
	return s.journal.EachOrphanOperation(ctx, a.addFound(InvariantAccounted, ""))
}

// addFound gives what takes in things that the database found wrong.
func (a *Audit) addFound(invariant, tenant string) func(postgres.Discrepancy) {
	return func(f postgres.Discrepancy) {
		a.failDiffering(invariant, breakSubject{tenant: tenant, caseID: f.Case, run: f.Run}, f.Stored, f.Expected, "%s", f.Message)
	}
}

package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// auditOrder checks the order of events: no number is missing or given twice, and
// every receipt has exactly one place, behind the earlier ones of its case. As each
// dead-lettered receipt gives one run.dead_lettered event, each letter then has
// one. A receipt that is committed and waits for its number counts as placed, so
// that the check holds while others write; after DrainEvents none waits.
//
// The database compares, each tenant as of one moment: no list is kept here.
func (s *Service) auditOrder(ctx context.Context, a *Audit, tenants []string) error {
	err := s.journal.EachGap(ctx, func(at int64) {
		a.fail(InvariantOrder, site{}, "the order of events has a gap or an overlap before number %d", at)
	})
	if err == nil {
		err = s.journal.EachAhead(ctx, a.found(InvariantOrder, ""))
	}
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		err := s.journal.EachMisplaced(ctx, tenant, func(at postgres.Place, what string) {
			a.fail(InvariantOrder, site{tenant: tenant, kase: at.Case}.at(at.Seq), "%s", what)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

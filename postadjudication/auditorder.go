package postadjudication

import "context"

// auditOrder checks the order of events: no number is missing or given twice, and
// every receipt has exactly one place, behind the earlier ones of its case. As each
// dead-lettered receipt gives one run.dead_lettered event, each letter then has
// one. A receipt that is committed and waits for its number counts as placed, so
// that the check holds while others write; after DrainEvents none waits.
//
// The database compares, each tenant as of one moment: no list is kept here.
func (s *Service) auditOrder(ctx context.Context, a *Audit, tenants []string) error {
	gap, err := s.journal.Gap(ctx)
	if err != nil {
		return err
	}
	if gap != 0 {
		a.fail(InvariantLetters, "the order of events has a gap or an overlap before number %d", gap)
	}
	for _, tenant := range tenants {
		what, err := s.journal.Misplaced(ctx, tenant)
		if err != nil {
			return err
		}
		if what != "" {
			a.fail(InvariantLetters, "%s", what)
		}
	}
	return nil
}

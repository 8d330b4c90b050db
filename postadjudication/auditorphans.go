package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// auditOrphans checks that what the rows of a tenant refer to is there. The database does
// not: see the migration that dropped its foreign keys.
func (s *Service) auditOrphans(ctx context.Context, a *Audit, tenant string) error {
	found, err := s.journal.Orphan(ctx, tenant)
	a.orphan(found, " of "+tenant)
	return err
}

// auditOrphanOperations checks that the requests of operations have their cases. Without
// these nobody knows whose they are, so that it is done only when all tenants are audited.
func (s *Service) auditOrphanOperations(ctx context.Context, a *Audit) error {
	found, err := s.journal.OrphanOperation(ctx)
	a.orphan(found, "")
	return err
}

func (a *Audit) orphan(found *postgres.Orphan, whose string) {
	if found != nil {
		a.fail(InvariantAccounted, "%s%s refers to %s, which is not there", found.What, whose, found.Misses)
	}
}

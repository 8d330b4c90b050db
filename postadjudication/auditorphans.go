package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/internal/postgres"
)

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

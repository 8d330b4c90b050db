package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/receipts"
)

// auditOperations checks the cases of a tenant that have receipts but no run, such as
// those of brakes: there is no state to fold, but the chains must verify.
func (s *Service) auditOperations(ctx context.Context, a *Audit, tenant string) error {
	cases, err := s.journal.OperationsCases(ctx, tenant)
	if err != nil {
		return err
	}
	for _, id := range cases {
		stored, trail, _, err := s.journal.OperationsAtOnce(ctx, tenant, id)
		if err != nil {
			return err
		}
		a.operations(tenant, id, stored, trail)
	}
	return nil
}

// operations checks one case that has receipts but no run.
func (a *Audit) operations(tenant string, id receipts.CaseID, stored receipts.Head, trail []receipts.Receipt) {
	a.chain(site{tenant: tenant, kase: id}, stored, trail)
	a.Receipts += int64(len(trail))
}

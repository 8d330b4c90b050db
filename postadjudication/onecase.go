package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// CaseByID tells everything about a case of a tenant. ErrNotFound when the tenant has
// none such, or when it has no runs.
func (s *Service) CaseByID(ctx context.Context, tenant string, id background.CaseID) (CaseStatus, error) {
	if tenant == "" {
		return CaseStatus{}, ErrNotFound
	}
	all, err := s.journal.CaseRuns(ctx, tenant, id)
	if err != nil {
		return CaseStatus{}, err
	}
	if len(all) == 0 {
		return CaseStatus{}, ErrNotFound
	}
	return s.caseStatus(ctx, tenant, all)
}

// AuditCase reads the trail of one case of a tenant at one moment, and checks it
// against the stored state. ErrNotFound when the tenant has none such.
func (s *Service) AuditCase(ctx context.Context, tenant string, id background.CaseID) (*Audit, error) {
	if tenant == "" {
		return nil, ErrNotFound
	}
	runs, trail, err := s.journal.CaseAtOnce(ctx, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case len(runs) > 0:
		return auditCase(runs, trail), nil
	}
	stored, trail, found, err := s.journal.OperationsAtOnce(ctx, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, ErrNotFound
	}
	a := &Audit{Broken: map[string]string{}, Heads: map[receipts.CaseID]receipts.Head{}}
	a.operations(id, stored, trail)
	return a, nil
}

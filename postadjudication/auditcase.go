package postadjudication

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// CaseByID returns the status of a tenant's case. ErrNotFound if the tenant has no such case,
// or the case has no runs.
func (s *Service) CaseByID(ctx context.Context, tenant string, id background.CaseID) (CaseStatus, error) {
	if tenant == "" {
		return CaseStatus{}, ErrNotFound
	}
	all, err := s.journal.Cases.Runs(ctx, tenant, id)
	if err != nil {
		return CaseStatus{}, err
	}
	if len(all) == 0 {
		return CaseStatus{}, ErrNotFound
	}
	return s.caseStatus(ctx, tenant, all)
}

// AuditCase reads the trail of one case of a tenant in one transaction and checks it against
// the stored state: chain, fold, terms and digests, annotations of its letters, their entries
// in the list of letters, and the sums of its escrow. It does not check its positions in the
// order of events. ErrNotFound if the tenant has no such case.
func (s *Service) AuditCase(ctx context.Context, tenant string, id background.CaseID) (*Audit, error) {
	return s.auditSingleCase(ctx, s.maxRecoveries, tenant, id, nil)
}

func (s *Service) auditSingleCase(ctx context.Context, maxRecoveries int, tenant string, id background.CaseID, store Archive) (*Audit, error) {
	if tenant == "" {
		return nil, ErrNotFound
	}
	files := newArchiveCheck(store)
	runs, trail, err := s.journal.Cases.WithTrail(ctx, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case len(runs) > 0:
		a := auditCase(runs, trail, maxRecoveries)
		if store != nil {
			a.Archive = &files.summary
		}
		return a, errors.Join(s.auditRelated(ctx, a, tenant, runs[0].Case, trail), files.check(ctx, a, breakSubject{tenant: tenant, caseID: id}, trail))
	}
	o, found, err := s.journal.Operations.WithTrail(ctx, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, ErrNotFound
	}
	a := newAudit()
	if store != nil {
		a.Archive = &files.summary
	}
	return a, s.auditOperationLog(ctx, a, tenant, o)
}

// auditRelated checks annotations, list entries and the escrow of a case.
func (s *Service) auditRelated(ctx context.Context, a *Audit, tenant string, c postgres.Case, trail []receipts.Receipt) error {
	annotations := s.newAnnotationAudit(tenant)
	if err := annotations.add(ctx, a, trail); err != nil {
		return err
	}
	if err := errors.Join(annotations.compare(ctx, a), s.auditLetterList(ctx, a, tenant, c.ID)); err != nil || c.Escrow == 0 {
		return err
	}
	e, sum, err := s.journal.Escrows.WithCaseSum(ctx, tenant, c.Reference)
	if err != nil {
		return err
	}
	return s.auditEscrow(ctx, a, tenant, e, sum)
}

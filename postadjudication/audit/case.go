package audit

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
	"github.com/recourse-dev/recourse/receipts"
)

// Case reads the trail of one case of a tenant in one transaction and checks it against the
// stored state: chain, fold, terms and digests, annotations of its letters, their entries in the
// list of letters, and the sums of its escrow. It does not check its positions in the order of
// events. ErrNotFound if the tenant has no such case. Query.Tenants and Query.Case are ignored.
func Case(ctx context.Context, r Reader, tenant string, id receipts.CaseID, q Query) (*Report, error) {
	return newAuditor(r, q).auditSingleCase(ctx, tenant, id)
}

func (s *auditor) auditSingleCase(ctx context.Context, tenant string, id receipts.CaseID) (*Report, error) {
	if tenant == "" {
		return nil, ErrNotFound
	}
	if s.rows == nil {
		return s.auditSingleTrail(ctx, tenant, id)
	}
	c, rs, err := s.rows.Case(ctx, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case len(c.Runs) > 0:
		a := s.newReport()
		a.add(auditCase(&c, rs, s.maxRecoveries))
		return a, errors.Join(s.auditRelated(ctx, a, tenant, &c, rs), s.files.check(ctx, a, breakSubject{tenant: tenant, caseID: id}, rs))
	}
	o, found, err := s.rows.OperationLog(ctx, tenant, id)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, ErrNotFound
	}
	a := s.newReport()
	return a, s.auditOperationLog(ctx, a, tenant, o)
}

// singleTrailPage is how many receipts of a case are read at once.
const singleTrailPage = 2000

// auditSingleTrail checks the receipts of one case by themselves.
func (s *auditor) auditSingleTrail(ctx context.Context, tenant string, id receipts.CaseID) (*Report, error) {
	var rs []receipts.Receipt
	for {
		var after int64
		if n := len(rs); n > 0 {
			after = rs[n-1].Seq
		}
		page, err := s.receipts.Trail(ctx, tenant, id, after, singleTrailPage)
		if err != nil {
			return nil, err
		}
		if rs = append(rs, page...); len(page) < singleTrailPage {
			break
		}
	}
	if len(rs) == 0 {
		return nil, ErrNotFound
	}
	a, at := s.newReport(), breakSubject{tenant: tenant, caseID: id}
	a.auditTrail(at, rs)
	return a, s.files.check(ctx, a, at, rs)
}

// auditRelated checks annotations, list entries and the escrow of a case.
func (s *auditor) auditRelated(ctx context.Context, a *Report, tenant string, c *StoredCase, rs []receipts.Receipt) error {
	annotations := s.newAnnotationAudit(tenant)
	if err := annotations.add(ctx, a, rs); err != nil {
		return err
	}
	list := s.rows.Each(ctx, trail.CheckLetters, Scope{Tenant: tenant, Case: c.ID}, a.addFound(InvariantLetters, tenant))
	if err := errors.Join(annotations.compare(ctx, a), list); err != nil || c.Escrow == 0 {
		return err
	}
	e, sum, err := s.rows.Escrow(ctx, tenant, c.Reference)
	if err != nil {
		return err
	}
	return s.auditEscrow(ctx, a, tenant, e, sum)
}

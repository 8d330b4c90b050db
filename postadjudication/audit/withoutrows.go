package audit

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
)

// needRows are the invariants that compare receipts with rows, or with the order of events.
var needRows = []string{InvariantAccounted, InvariantBudgets, InvariantLetters, InvariantFold, InvariantEscrows, InvariantOrder}

// needRowsInPart are those of needRows that are checked in part without rows: InvariantFold, that each settlement and each
// webhook that a receipt states follows from the receipts before it, and InvariantBudgets, that no attempt was early.
var needRowsInPart = []string{InvariantBudgets, InvariantFold}

// auditTrails checks a tenant's receipts by themselves.
func (s *auditor) auditTrails(ctx context.Context, a *Report, tenant string) error {
	for rs, err := range groupByCase(s.receipts.Receipts(ctx, tenant)) {
		if err != nil {
			return err
		}
		at := breakSubject{tenant: tenant, caseID: rs[0].Case}
		a.auditTrail(at, rs)
		if err := s.files.check(ctx, a, at, rs); err != nil {
			return err
		}
		if a.Cases > 0 && a.Cases%progressEvery == 0 {
			s.progress("cases", a.Cases)
		}
	}
	return nil
}

// auditTrail checks the receipts of one case by themselves: its chain, that each receipt may
// follow those before it, and that stated settlements follow. Where the chain should end is not
// known: an end that was cut off shows only in saved heads.
func (a *Report) auditTrail(at breakSubject, rs []receipts.Receipt) {
	a.Receipts += int64(len(rs))
	if _, whole := a.verifyChain(at, rs); whole {
		a.Chains++
	}
	if rs[0].Run.IsZero() {
		a.foldWebhooks(at, rs)
		return // an operation log: it has no runs
	}
	a.Cases++
	history, ok := a.foldCase(at, rs)
	if !ok {
		return
	}
	a.Runs += len(history.Runs)
	if history.Settlement == nil {
		return // a plain task, or older receipts
	}
	if _, err := binding.FoldSettlement(rs); err != nil {
		a.fail(InvariantFold, at, "case %s: %v", at.caseID, err)
	}
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
	a, at := s.newCaseReport(), breakSubject{tenant: tenant, caseID: id}
	a.auditTrail(at, rs)
	return a, s.files.check(ctx, a, at, rs)
}

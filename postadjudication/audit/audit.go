package audit

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/recourse-dev/recourse/internal/archive"
	"github.com/recourse-dev/recourse/postadjudication/internal/trail"
	"github.com/recourse-dev/recourse/receipts"
)

// Query selects what to audit.
type Query struct {
	Tenants []string // empty: all tenants
	// Case restricts the audit to one case, as the function Case does; Tenants must then hold
	// its tenant only. Zero: all cases.
	Case receipts.CaseID
	// MaxRecoveries is how many workers a run may lose, as configured in the processes that
	// execute. 0: DefaultMaxRecoveries, which is 5; negative: no limit.
	MaxRecoveries int
	Archive       archive.Store // if set, the archive files that receipts name are compared with their digests
	// Progress is called after every 100 cases and at the beginning of each later part, on the goroutine
	// of the audit, with the part, the number of cases done and the number of all cases. May be nil. It is
	// not called for an audit of one case.
	Progress func(part string, done, of int)
}

// ErrNotFound means that the tenant has no such case.
var ErrNotFound = errors.New("audit: not found")

// auditor audits what a reader returns.
type auditor struct {
	receipts      ReceiptReader
	rows          RowReader // nil: there are receipts only
	maxRecoveries int       // as in Query
	files         *archiveCheck
	progress      func(part string, done int)
}

func newAuditor(r ReceiptReader, q Query) *auditor {
	rows, _ := r.(RowReader)
	return &auditor{receipts: r, rows: rows, maxRecoveries: q.MaxRecoveries, files: newArchiveCheck(q.Archive), progress: func(string, int) {}}
}

// newReport returns an empty report of what the auditor can check.
func (s *auditor) newReport() *Report {
	a := emptyReport()
	if s.files.store != nil {
		a.Archive = &s.files.summary
	}
	if s.rows == nil {
		a.NotChecked = slices.Clone(needRows)
	}
	return a
}

// newCaseReport is newReport for one case. The positions of its receipts in the order of events are
// not checked.
func (s *auditor) newCaseReport() *Report {
	a := s.newReport()
	if a.oneCase = true; s.rows != nil {
		a.NotChecked = []string{InvariantOrder}
	}
	return a
}

// Run checks the whole trail of the tenants of the query, or of all tenants, against the stored
// state. It reads case by case, and keeps the head of each. It may run while others write: a case that
// seems wrong is read again in one transaction before it is reported broken. The report that comes with
// an error has what was found until then; it is nil if the audit could not begin.
func Run(ctx context.Context, r ReceiptReader, q Query) (*Report, error) {
	s, tenants := newAuditor(r, q), q.Tenants
	if !q.Case.IsZero() {
		if len(tenants) != 1 {
			return nil, errors.New("audit: Query.Case needs its one tenant")
		}
		return s.auditSingleCase(ctx, tenants[0], q.Case)
	}
	a := s.newReport()
	tenants = slices.Compact(slices.Sorted(slices.Values(tenants)))
	if len(tenants) == 0 {
		var err error
		if tenants, err = r.Tenants(ctx); err != nil {
			return nil, err
		}
		if s.rows != nil {
			// An operation without a case has no known tenant.
			if err := s.addDiscrepancies(ctx, a, InvariantAccounted, trail.CheckOperationKeys, Scope{}); err != nil {
				return a, err
			}
		}
	}
	if err := s.reportProgress(ctx, q.Progress, tenants); err != nil {
		return a, err
	}
	for _, tenant := range tenants {
		if err := s.auditTenant(ctx, a, tenant); err != nil {
			return a, err
		}
	}
	if s.rows == nil {
		return a, nil
	}
	s.progress("the order of events", a.Cases)
	return a, s.auditOrder(ctx, a, tenants, len(q.Tenants) == 0)
}

// progressEvery is the number of cases between two calls of Query.Progress.
const progressEvery = 100

// reportProgress makes the auditor report progress. It counts the cases first.
func (s *auditor) reportProgress(ctx context.Context, progress func(string, int, int), tenants []string) error {
	if progress == nil {
		return nil
	}
	total, err := s.receipts.CountCases(ctx, tenants)
	s.progress = func(part string, done int) { progress(part, done, total) }
	return err
}

// auditTenant audits a tenant, as far as the reader has what it needs.
func (s *auditor) auditTenant(ctx context.Context, a *Report, tenant string) error {
	if s.rows == nil {
		return s.auditTrails(ctx, a, tenant)
	}
	return s.auditRows(ctx, a, tenant)
}

// auditRows compares a tenant's rows with its receipts. It reads the cases and the receipts side by
// side, both in the order of case ids.
func (s *auditor) auditRows(ctx context.Context, a *Report, tenant string) error {
	escrows, err := s.newEscrowAudit(ctx, tenant)
	if err != nil {
		return err
	}
	nextCase, stop := iter.Pull2(groupByCase(s.receipts.Receipts(ctx, tenant)))
	defer stop()
	annotations := s.newAnnotationAudit(tenant)
	rs, receiptsErr, ok := nextCase() // an error ends the audit once the case that was read before it is checked
	for c, caseErr := range s.rows.Cases(ctx, tenant) {
		if err := errors.Join(caseErr, receiptsErr); err != nil {
			return err
		}
		caseID := c.ID
		for ok && bytes.Compare(rs[0].Case[:], caseID[:]) < 0 {
			if err := s.auditReceiptsWithoutRuns(ctx, a, tenant, rs[0].Case); err != nil {
				return err
			}
			if rs, receiptsErr, ok = nextCase(); receiptsErr != nil {
				return receiptsErr
			}
		}
		var caseReceipts []receipts.Receipt
		if ok && rs[0].Case == caseID {
			caseReceipts = rs
			rs, receiptsErr, ok = nextCase()
		}
		found, audited, err := s.auditCaseRechecked(ctx, tenant, c, caseReceipts)
		if err != nil {
			return err
		}
		a.add(found)
		if a.Cases%progressEvery == 0 {
			s.progress("cases", a.Cases)
		}
		if err := errors.Join(annotations.add(ctx, a, caseReceipts), s.files.check(ctx, a, breakSubject{tenant: tenant, caseID: caseID}, caseReceipts)); err != nil {
			return err
		}
		escrows.add(&audited, found)
	}
	for ; ok && receiptsErr == nil; rs, receiptsErr, ok = nextCase() {
		if err := s.auditReceiptsWithoutRuns(ctx, a, tenant, rs[0].Case); err != nil {
			return err
		}
	}
	if receiptsErr != nil {
		return receiptsErr
	}
	s.progress("keys, policies and lists", a.Cases)
	if err := errors.Join(annotations.compare(ctx, a), s.checkTenant(ctx, a, tenant)); err != nil {
		return err
	}
	return escrows.compare(ctx, a)
}

// auditReceiptsWithoutRuns audits receipts of a case without runs. They are of operation logs, of a case stored
// since cases were listed, which is left to the next audit, or a break. If its row is of another tenant, trail.CheckOrphans finds its runs.
func (s *auditor) auditReceiptsWithoutRuns(ctx context.Context, a *Report, tenant string, caseID receipts.CaseID) error {
	c, rs, err := s.rows.Case(ctx, tenant, caseID)
	if err != nil || len(c.Runs) > 0 {
		return err
	}
	_, operations, err := s.rows.OperationLog(ctx, tenant, caseID)
	if err == nil && !operations { // an operation log has no runs; auditOperations checks it
		a.fail(InvariantChains, breakSubject{tenant: tenant, caseID: caseID}, "case %s: %d receipts, but the case is not stored", caseID, len(rs))
	}
	return err
}

// auditCaseRechecked audits a case. If it seems wrong, it is read again in one transaction and
// audited again, since others may write meanwhile.
func (s *auditor) auditCaseRechecked(ctx context.Context, tenant string, c StoredCase, rs []receipts.Receipt) (*Report, StoredCase, error) {
	if len(rs) > 0 {
		if found := auditCase(&c, rs, s.maxRecoveries); found.OK() {
			return found, c, nil
		}
	}
	c, rs, err := s.rows.Case(ctx, tenant, c.ID)
	switch {
	case err != nil:
		return nil, StoredCase{}, err
	case len(c.Runs) == 0:
		return nil, StoredCase{}, errCaseVanished
	}
	return auditCase(&c, rs, s.maxRecoveries), c, nil
}

var errCaseVanished = errors.New("audit: a case vanished while it was audited")

// groupByCase groups receipts that are ordered by case.
func groupByCase(rs iter.Seq2[receipts.Receipt, error]) iter.Seq2[[]receipts.Receipt, error] {
	return func(yield func([]receipts.Receipt, error) bool) {
		var group []receipts.Receipt
		for r, err := range rs {
			if err != nil {
				yield(nil, err)
				return
			}
			if len(group) > 0 && group[0].Case != r.Case {
				if !yield(group, nil) {
					return
				}
				group = nil
			}
			group = append(group, r)
		}
		if len(group) > 0 {
			yield(group, nil)
		}
	}
}

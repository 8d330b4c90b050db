package postadjudication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// The invariants that Audit checks. Each must hold after any fault. Their names appear in
// reports.
const (
	InvariantAccounted = "every accepted adjudication is accounted for"
	InvariantBudgets   = "budgets kept, no attempt before its time"
	InvariantLetters   = "every open letter has its one receipt and event and its case is dispute-ready"
	InvariantChains    = "every chain verifies"
	InvariantFold      = "stored state equals the fold of the receipts"
	InvariantEscrows   = "escrow sums equal the cases' sums"
	InvariantOrder     = "the order of events has no gap and no stranger"
)

// Invariants lists the names in the order of a report.
var Invariants = []string{InvariantAccounted, InvariantBudgets, InvariantLetters, InvariantChains, InvariantFold, InvariantEscrows, InvariantOrder}

// Audit is the result of checking the trail of one or all tenants.
type Audit struct {
	Cases         int               `json:"cases"`
	Runs          int               `json:"runs"`
	Receipts      int64             `json:"receipts"`
	Chains        int               `json:"chains_verified"`
	EarlyAttempts int               `json:"early_attempts"`
	Broken        map[string]string `json:"broken"`        // invariant -> first break of it
	Breaks        []Break           `json:"breaks"`        // at most MaxBreaks
	TotalBreaks   int               `json:"breaks_in_all"` // including those beyond MaxBreaks

	Archive *ArchiveAudit `json:"archive,omitempty"` // nil without AuditQuery.Archive

	// Heads holds the last receipt of each chain; for a broken chain, the last one before the
	// break.
	Heads    map[receipts.CaseID]receipts.Head `json:"-"`
	BrokenAt map[receipts.CaseID]int64         `json:"-"` // broken chains: the sequence of the first broken receipt

	tenants       map[receipts.CaseID]string // tenant of each of Heads
	reported      map[string]bool            // texts of Breaks that are reported once
	maxRecoveries int                        // as in AuditQuery
}

// AuditQuery selects what to audit.
type AuditQuery struct {
	Tenants []string // empty: all tenants
	// Case restricts the audit to one case, as AuditCase does; Tenants must then hold its
	// tenant only. Zero: all cases.
	Case receipts.CaseID
	// MaxRecoveries is how many workers a run may lose, as configured in the processes that
	// execute. 0: the configuration of this process; negative: no limit.
	MaxRecoveries int
	Archive       Archive // if set, the archive files that receipts name are compared with their digests
	// Progress is called now and then on the goroutine of the audit, with the current part and
	// the number of cases done. May be nil.
	Progress func(part string, done, of int)
}

// Audit checks the whole trail of the given tenants, or of all tenants if none is given,
// against the stored state. It reads case by case in bounded memory. It may run while others
// write: a case that seems wrong is read again in one transaction before it is reported broken.
func (s *Service) Audit(ctx context.Context, tenants ...string) (*Audit, error) {
	return s.AuditWith(ctx, AuditQuery{Tenants: tenants})
}

// AuditWith is Audit with options.
func (s *Service) AuditWith(ctx context.Context, q AuditQuery) (*Audit, error) {
	a, tenants := newAudit(), q.Tenants
	a.maxRecoveries = cmp.Or(q.MaxRecoveries, s.maxRecoveries)
	if !q.Case.IsZero() {
		if len(tenants) != 1 {
			return nil, errors.New("postadjudication: AuditQuery.Case needs its one tenant")
		}
		return s.auditSingleCase(ctx, a.maxRecoveries, tenants[0], q.Case, q.Archive)
	}
	if len(tenants) == 0 {
		var err error
		if tenants, err = s.journal.Cases.Tenants(ctx); err != nil {
			return nil, err
		}
		if err := s.auditOrphanOperations(ctx, a); err != nil {
			return nil, err
		}
	}
	files := newArchiveCheck(q.Archive)
	if q.Archive != nil {
		a.Archive = &files.summary
	}
	report, err := s.auditProgress(ctx, q.Progress, tenants)
	if err != nil {
		return a, err
	}
	for _, tenant := range tenants {
		if err := s.auditTenant(ctx, a, tenant, files, report); err != nil {
			return a, err
		}
	}
	report("the order of events", a.Cases)
	return a, s.auditOrder(ctx, a, tenants, len(q.Tenants) == 0)
}

// progressEvery is the number of cases between two calls of AuditQuery.Progress.
const progressEvery = 100

// auditProgress returns a function that reports progress. It counts the cases first.
func (s *Service) auditProgress(ctx context.Context, progress func(string, int, int), tenants []string) (func(part string, done int), error) {
	if progress == nil {
		return func(string, int) {}, nil
	}
	total, err := s.journal.Cases.Count(ctx, tenants)
	return func(part string, done int) { progress(part, done, total) }, err
}

func (s *Service) auditTenant(ctx context.Context, a *Audit, tenant string, files *archiveCheck, report func(string, int)) error {
	trail, stop := iter.Pull2(groupByCase(s.journal.Receipts.All(ctx, tenant)))
	defer stop()
	sums, annotations := map[string]int64{}, s.newAnnotationAudit(tenant)
	rs, err, ok := trail()
	for runs, caseErr := range s.journal.Cases.Each(ctx, tenant) {
		if err := errors.Join(caseErr, err); err != nil {
			return err
		}
		caseID := runs[0].Case.ID
		for ok && bytes.Compare(rs[0].Case[:], caseID[:]) < 0 {
			a.checkOrphanedReceipts(ctx, s, tenant, rs[0].Case)
			if rs, err, ok = trail(); err != nil {
				return err
			}
		}
		var caseReceipts []receipts.Receipt
		if ok && rs[0].Case == caseID {
			caseReceipts = rs
			rs, err, ok = trail()
		}
		found, last, err := s.auditCaseRechecked(ctx, a, tenant, runs, caseReceipts)
		if err != nil {
			return err
		}
		a.add(found)
		if a.Cases%progressEvery == 0 {
			report("cases", a.Cases)
		}
		if err := errors.Join(annotations.add(ctx, a, caseReceipts), files.check(ctx, a, breakSubject{tenant: tenant, caseID: caseID}, caseReceipts)); err != nil {
			return err
		}
		if last.Escrow != 0 {
			sums[last.Reference] += last.State.Reserved + last.State.Released + last.State.Refunded
		}
	}
	for ; ok && err == nil; rs, err, ok = trail() {
		a.checkOrphanedReceipts(ctx, s, tenant, rs[0].Case)
	}
	if err != nil {
		return err
	}
	report("keys, policies and lists", a.Cases)
	err = errors.Join(annotations.finish(ctx, a), s.auditOperations(ctx, a, tenant), s.auditPolicies(ctx, a, tenant), s.auditHandlers(ctx, a, tenant), s.auditLetterList(ctx, a, tenant, receipts.CaseID{}), s.auditKeys(ctx, a, tenant), s.auditPeople(ctx, a, tenant), s.auditOrphans(ctx, a, tenant))
	if err != nil {
		return err
	}
	return s.auditEscrows(ctx, a, tenant, sums)
}

// checkOrphanedReceipts reports receipts of a case that is not stored.
func (a *Audit) checkOrphanedReceipts(ctx context.Context, s *Service, tenant string, caseID receipts.CaseID) {
	runs, trail, err := s.journal.Cases.WithTrail(ctx, tenant, caseID)
	var operations bool
	if err == nil && len(runs) == 0 {
		_, operations, err = s.journal.Operations.WithTrail(ctx, tenant, caseID)
	}
	if operations {
		return // an operation log has no runs; auditOperations checks it
	}
	if err != nil || len(runs) == 0 {
		a.fail(InvariantChains, breakSubject{tenant: tenant, caseID: caseID}, "case %s: %d receipts, but the case is not stored (%v)", caseID, len(trail), err)
	}
}

// auditCaseRechecked audits a case. If it seems wrong, it is read again in one transaction and
// audited again, since others may write meanwhile.
func (s *Service) auditCaseRechecked(ctx context.Context, whole *Audit, tenant string, runs []postgres.Snapshot, rs []receipts.Receipt) (*Audit, postgres.Case, error) {
	if len(rs) > 0 {
		if found := auditCase(runs, rs, whole.maxRecoveries); found.OK() {
			return found, runs[0].Case, nil
		}
	}
	runs, rs, err := s.journal.Cases.WithTrail(ctx, tenant, runs[0].Case.ID)
	if err != nil || len(runs) == 0 {
		return nil, postgres.Case{}, errors.Join(err, errCaseVanished)
	}
	return auditCase(runs, rs, whole.maxRecoveries), runs[0].Case, nil
}

var errCaseVanished = errors.New("postadjudication: a case vanished while it was audited")

func (s *Service) auditEscrows(ctx context.Context, a *Audit, tenant string, sums map[string]int64) error {
	escrows, err := s.journal.Escrows.List(ctx, tenant)
	if err != nil {
		return err
	}
	for _, e := range escrows {
		if err := s.auditEscrow(ctx, a, tenant, e, sums[e.Reference]); err != nil {
			return err
		}
	}
	return nil
}

// auditEscrow compares the committed sum of an escrow with its cases, and with the sum it
// holds. A sum that seems wrong is read again in one transaction first.
func (s *Service) auditEscrow(ctx context.Context, a *Audit, tenant string, e postgres.Escrow, sum int64) (err error) {
	if e.Committed != sum {
		if e, sum, err = s.journal.Escrows.WithCaseSum(ctx, tenant, e.Reference); err != nil {
			return err
		}
	}
	if e.Committed != sum {
		a.failDiffering(InvariantEscrows, breakSubject{tenant: tenant}, strconv.FormatInt(e.Committed, 10), strconv.FormatInt(sum, 10), "escrow %s of %s: committed %d, its cases add up to %d", e.Reference, tenant, e.Committed, sum)
	}
	if folded := e.Committed - e.OpenDeltas; folded > e.Held+e.Breached {
		a.fail(InvariantEscrows, breakSubject{tenant: tenant}, "escrow %s of %s: committed %d of %d held", e.Reference, tenant, folded, e.Held)
	}
	return nil
}

// auditCase compares the stored runs of one case with its receipts.
func auditCase(runs []postgres.Snapshot, rs []receipts.Receipt, maxRecoveries int) *Audit {
	c := runs[0].Case
	a, at := newAudit(), breakSubject{tenant: c.Tenant, caseID: c.ID}
	a.maxRecoveries = maxRecoveries
	a.Cases, a.Runs, a.Receipts = 1, len(runs), int64(len(rs))
	a.auditChain(at, c.Head, rs)
	a.EarlyAttempts = earlyAttempts(rs)
	history, err := receipts.Fold(rs)
	if err != nil {
		var illegal *receipts.Illegal
		if errors.As(err, &illegal) {
			at = at.withReceipt(illegal.Seq)
		}
		a.fail(InvariantBudgets, at, "%v", err)
		return a
	}
	auditRuns(a, at, runs, history)
	auditBinding(a, at, runs, rs)
	if c.Kind == postgres.KindSettlement {
		auditSettlement(a, at, runs, rs, history)
	}
	return a
}

// auditChain verifies every receipt in the chain of a case, and that the chain ends at the
// stored head.
func (a *Audit) auditChain(at breakSubject, stored receipts.Head, rs []receipts.Receipt) {
	head, end, broken := receipts.Verifier{}.VerifyAll(at.caseID, rs)
	for _, b := range broken {
		a.failDiffering(InvariantChains, at.withReceipt(b.Seq), b.Stored, b.Expected, "%v", b)
	}
	if end != stored {
		a.failDiffering(InvariantChains, at, headText(stored), headText(end), "case %s: the trail ends at %d, the case says %d", at.caseID, end.Seq, stored.Seq)
	}
	switch {
	case len(broken) > 0:
		a.BrokenAt[at.caseID] = broken[0].Seq
	case end == stored:
		a.Chains++
	}
	a.Heads[at.caseID], a.tenants[at.caseID] = head, at.tenant
}

// earlyAttempts counts attempts that started before their run was due.
func earlyAttempts(rs []receipts.Receipt) (n int) {
	due := map[receipts.RunID]time.Time{}
	for _, r := range rs {
		switch r.Subtype {
		case receipts.RetryScheduled, receipts.AttemptInterrupted:
			if p, err := r.Payload(); err == nil {
				due[r.Run] = p.NextRetryAt
			}
		case receipts.AttemptStarted:
			if r.At.Before(due[r.Run]) {
				n++
			}
		}
	}
	return n
}

func auditSettlement(a *Audit, at breakSubject, runs []postgres.Snapshot, rs []receipts.Receipt, history receipts.History) {
	c := runs[0].Case
	folded, err := binding.FoldSettlement(rs)
	if first := runs[0].Run.FirstSentAt; !first.Equal(history.FirstSentAt) {
		a.failDiffering(InvariantFold, at, first.Format(time.RFC3339Nano), history.FirstSentAt.Format(time.RFC3339Nano), "case %s: first sent at %s under its operation key, the receipts say %s", c.ID, first, history.FirstSentAt)
	}
	if err != nil {
		a.fail(InvariantFold, at, "case %s: %v", c.ID, err)
		return
	}
	if folded.State != c.State {
		compareSettlement(c.State, folded.State).fail(a, at, "case "+c.ID.String())
	}
	for _, s := range runs {
		if s.Run.Letter == background.LetterOpen && c.State.Progression != settlement.DisputeReady && !c.State.Progression.Ended() {
			a.fail(InvariantLetters, at.withRun(s.Run.ID), "run %s is an open letter, its case is %q", s.Run.ID, c.State.Progression)
		}
	}
	activeRuns := 0
	for _, s := range runs {
		if s.Run.IsActive() {
			activeRuns++
		}
	}
	if activeRuns > 1 {
		a.fail(InvariantAccounted, at, "case %s has %d active runs", c.ID, activeRuns)
	}
	if activeRuns == 0 && !caseAtRest(runs) {
		a.fail(InvariantAccounted, at, "case %s is %q, but has no live run or open letter", c.ID, c.State.Progression)
	}
}

// caseAtRest reports whether a case may be without a live run or open letter: it is settled in
// full or in part, needs review, or its letter was purged.
func caseAtRest(runs []postgres.Snapshot) bool {
	switch p := runs[0].Case.State.Progression; p {
	case settlement.Settled, settlement.Refunded, settlement.PartiallySettled, settlement.ReviewNeeded:
		return true
	case settlement.DisputeReady:
		return runs[len(runs)-1].Run.Letter == background.LetterPurged
	}
	return false
}

// auditRuns compares each stored run with its receipts.
func auditRuns(a *Audit, at breakSubject, runs []postgres.Snapshot, h receipts.History) {
	if len(h.Runs) != len(runs) {
		a.failDiffering(InvariantAccounted, at, strconv.Itoa(len(runs)), strconv.Itoa(len(h.Runs)), "case %s: %d runs stored, the receipts say %d", h.Case, len(runs), len(h.Runs))
	}
	for _, s := range runs {
		r, recorded := s.Run, h.Runs[s.Run.ID]
		compareRun(r, recorded).fail(a, at.withRun(r.ID), "run "+r.ID.String())
		auditCalls(a, at.withRun(r.ID), r, recorded)
		if limit := r.Policy.Normalize().MaxRetryAttempts; r.BudgetSpent > limit {
			a.fail(InvariantBudgets, at.withRun(r.ID), "run %s spent %d attempts of %d", r.ID, r.BudgetSpent, limit)
		}
		if limit := a.recoveries(r); limit >= 0 && r.Recoveries > limit {
			a.fail(InvariantBudgets, at.withRun(r.ID), "run %s lost %d workers, the limit is %d", r.ID, r.Recoveries, limit)
		}
		deaths := 0
		for _, at := range recorded.Attempt {
			if at.EndedBy == receipts.DeadLettered {
				deaths++
			}
		}
		if deaths > 1 || (r.State == background.DeadLettered) == recorded.DeadAt.IsZero() {
			a.fail(InvariantLetters, at.withRun(r.ID), "run %s: state %s, %d deaths in its receipts", r.ID, r.State, deaths)
		}
	}
	if h.UnknownOpen != runs[0].Run.UnresolvedUnknowns {
		a.failDiffering(InvariantFold, at, strconv.Itoa(runs[0].Run.UnresolvedUnknowns), strconv.Itoa(h.UnknownOpen), "case %s: %d unknown attempts stored, the receipts say %d", h.Case, runs[0].Run.UnresolvedUnknowns, h.UnknownOpen)
	}
}

// DefaultMaxRecoveries is how many workers a run may lose before it becomes a dead letter,
// unless configured otherwise.
const DefaultMaxRecoveries = 5

// recoveries returns the limit of lost workers of a run; negative means no limit. Older
// versions also counted the loss that ended the run.
func (a *Audit) recoveries(r background.Run) int {
	switch {
	case a.maxRecoveries < 0:
		return -1
	case r.Reason == background.ReasonPoisonPill:
		return cmp.Or(a.maxRecoveries, DefaultMaxRecoveries) + 1
	}
	return cmp.Or(a.maxRecoveries, DefaultMaxRecoveries)
}

// auditCalls compares a run's stored outstanding calls with its receipts.
func auditCalls(a *Audit, at breakSubject, r background.Run, recorded receipts.RunHistory) {
	for _, attempt := range recorded.OutstandingCalls() {
		if !slices.Contains(r.OutstandingCalls, attempt) {
			a.fail(InvariantFold, at, "run %s: the call of attempt %d has not returned, but is not stored as outstanding", r.ID, attempt)
		}
	}
	for _, attempt := range r.OutstandingCalls {
		if !recorded.MayBeOutstanding(attempt) {
			a.fail(InvariantFold, at, "run %s: the call of attempt %d is stored as outstanding, the receipts say it is not", r.ID, attempt)
		}
	}
}

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

package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Case reads the trail of one case of a tenant in one transaction and checks it against the
// stored state: chain, fold, terms and digests, annotations of its letters, their entries in the list of
// letters, requests to cancel, handlers, the items of bulk plans, and the sums of its escrow. Its positions in the order of events are not checked,
// and Report.NotChecked says so. ErrNotFound if the tenant has no such case. Query.Tenants and
// Query.Case are ignored.
func Case(ctx context.Context, r ReceiptReader, tenant string, id receipts.CaseID, q Query) (*Report, error) {
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
		a := s.newCaseReport()
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
	a := s.newCaseReport()
	return a, s.auditOperationLog(ctx, a, tenant, o)
}

// auditRelated checks the annotations, the other rows and the escrow of a case.
func (s *auditor) auditRelated(ctx context.Context, a *Report, tenant string, c *StoredCase, rs []receipts.Receipt) error {
	annotations := s.newAnnotationAudit(tenant)
	if err := annotations.add(ctx, a, rs); err != nil {
		return err
	}
	err := annotations.compare(ctx, a)
	for _, check := range caseChecks {
		err = errors.Join(err, s.addDiscrepancies(ctx, a, check.invariant, check.Check, Scope{Tenant: tenant, Case: c.ID}))
	}
	if err != nil || c.Escrow == 0 {
		return err
	}
	return s.auditEscrowOf(ctx, a, tenant, c.Reference)
}

// auditCase checks chain, runs, columns and settlement of one case with its receipts.
func auditCase(c *StoredCase, rs []receipts.Receipt, maxRecoveries int) *Report {
	a, at := emptyReport(), breakSubject{tenant: c.Tenant, caseID: c.ID}
	a.Cases, a.Runs, a.Receipts = 1, len(c.Runs), int64(len(rs))
	a.settlementUnknown = true // until the fold succeeds
	a.auditChain(at, c.Head, rs)
	history, ok := a.foldCase(at, rs)
	if !ok {
		return a
	}
	a.settlementUnknown = false
	auditRuns(a, at, c, history, maxRecoveries)
	auditColumns(a, at, c, rs)
	for i := range c.Runs {
		if settles := c.Runs[i].OperationKey != [32]byte{}; settles != (c.Kind == stored.KindSettlement) { // the key is compared with the receipts
			a.fail(InvariantFold, at, "case %s: stored kind %s, and its run %s has an operation key: %t", c.ID, c.Kind, c.Runs[i].ID, settles)
		}
	}
	if c.Kind == stored.KindSettlement {
		auditSettlement(a, at, c, rs, history)
	}
	return a
}

// foldCase derives the history of a case from its receipts, and counts early attempts. If a receipt
// can't follow those before it, foldCase adds a break and returns false.
func (a *Report) foldCase(at breakSubject, rs []receipts.Receipt) (receipts.History, bool) {
	a.EarlyAttempts += earlyAttempts(rs)
	history, err := receipts.Fold(rs)
	if err != nil {
		var illegal *receipts.Illegal
		if errors.As(err, &illegal) {
			at = at.withReceipt(illegal.Seq)
		}
		invariant := InvariantFold
		if illegal != nil && illegal.Budget {
			invariant = InvariantBudgets
		}
		a.fail(invariant, at, "%v", err)
	}
	return history, err == nil
}

// auditChain verifies every receipt in the chain of a case, and that the chain ends at the
// stored head.
func (a *Report) auditChain(at breakSubject, storedHead receipts.Head, rs []receipts.Receipt) {
	end, whole := a.verifyChain(at, rs)
	if end != storedHead {
		a.failDiffering(InvariantChains, at, headText(storedHead), headText(end), "case %s: the trail ends at %d, the case says %d", at.caseID, end.Seq, storedHead.Seq)
	} else if whole {
		a.Chains++
	}
}

// verifyChain verifies every receipt in the chain of a case, and returns its end. whole is false
// if it is broken. It parses each body, once for this check and those after it.
func (a *Report) verifyChain(at breakSubject, rs []receipts.Receipt) (end receipts.Head, whole bool) {
	receipts.ParseEach(rs)
	// Without expected heads: saved heads are compared later, by CompareHeads.
	sound, end, broken := receipts.Verifier{}.VerifyAll(at.caseID, rs)
	for _, b := range broken {
		a.failDiffering(InvariantChains, at.withReceipt(b.Seq), b.Stored, b.Expected, "%v", b)
	}
	if len(broken) > 0 {
		a.BrokenAt[at.caseID] = broken[0].Seq
	}
	a.Heads[at.caseID], a.tenants[at.caseID] = sound, at.tenant
	return end, len(broken) == 0
}

// earlyAttempts counts attempts that started before their run was due. receipts.Fold refuses only the
// first receipt that is wrong; this counts all such attempts, for Report.EarlyAttempts.
func earlyAttempts(rs []receipts.Receipt) (n int) {
	due := map[receipts.RunID]time.Time{}
	for _, r := range rs {
		switch r.Subtype {
		case receipts.Submitted, receipts.RetryScheduled, receipts.AttemptInterrupted:
			if p, err := r.Payload(); err == nil {
				due[r.Run] = p.NextRetryAt
			}
		case receipts.Activated:
			due[r.Run] = r.At
		case receipts.AttemptStarted:
			if r.At.Before(due[r.Run]) {
				n++
			}
		}
	}
	return n
}

// auditSettlement compares the settlement of a case with what follows from its receipts. A case has at
// most one active run, and it has one unless it is at rest.
func auditSettlement(a *Report, at breakSubject, c *StoredCase, rs []receipts.Receipt, history receipts.History) {
	folded, err := binding.FoldSettlement(rs)
	if first := c.FirstSentAt; !first.Equal(history.FirstSentAt) {
		a.failDiffering(InvariantFold, at, first.Format(time.RFC3339Nano), history.FirstSentAt.Format(time.RFC3339Nano), "case %s: first sent at %s under its operation key, the receipts say %s", c.ID, valueOrNothing(timeText(first)), valueOrNothing(timeText(history.FirstSentAt)))
	}
	a.uncovered = folded.Uncovered
	if err != nil {
		a.settlementUnknown = true
		a.fail(InvariantFold, at, "case %s: %v", c.ID, err)
		return
	}
	if folded.State != c.State {
		compareSettlement(c.State, folded.State).fail(a, at, "case "+c.ID.String())
	}
	activeRuns := 0
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.IsActive() {
			activeRuns++
		}
		if r.Letter == receipts.LetterOpen && c.State.Progression != settlement.DisputeReady && !c.State.Progression.Ended() {
			a.fail(InvariantLetters, at.withRun(r.ID), "run %s is an open letter, its case is %q", r.ID, c.State.Progression)
		}
	}
	if activeRuns > 1 {
		a.fail(InvariantAccounted, at, "case %s has %d active runs", c.ID, activeRuns)
	}
	if activeRuns == 0 && !caseAtRest(c, history) {
		a.fail(InvariantAccounted, at, "case %s is %q, but has no live run or open letter", c.ID, c.State.Progression)
	}
}

// caseAtRest reports whether a case may be without a live run or open letter: it is settled in
// full or in part, needs review, a payment of it came back, or the letter of its newest run was purged. The
// receipts say which one that is: ids are made by clocks, which can be set.
func caseAtRest(c *StoredCase, history receipts.History) bool {
	switch c.State.Progression {
	case settlement.Settled, settlement.Refunded, settlement.PartiallySettled, settlement.ReviewNeeded:
		return true
	case settlement.DisputeReady:
		n := len(history.Order)
		return c.State.Returned > 0 || n > 0 && slices.ContainsFunc(c.Runs, func(r StoredRun) bool { return r.ID == history.Order[n-1] && r.Letter == receipts.LetterPurged })
	}
	return false
}

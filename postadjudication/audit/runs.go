package audit

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// auditCase compares the stored runs of one case with its receipts.
func auditCase(c *StoredCase, rs []receipts.Receipt, maxRecoveries int) *Report {
	a, at := Empty(), breakSubject{tenant: c.Tenant, caseID: c.ID}
	a.Cases, a.Runs, a.Receipts = 1, len(c.Runs), int64(len(rs))
	a.auditChain(at, c.Head, rs)
	history, at, ok := a.foldCase(at, rs)
	if !ok {
		return a
	}
	auditRuns(a, at, c, history, maxRecoveries)
	auditBinding(a, at, c, rs)
	if c.Kind == stored.KindSettlement {
		auditSettlement(a, at, c, rs, history)
	}
	return a
}

// foldCase derives the history of a case from its receipts, and counts early attempts. ok is
// false if the receipts have no history; that is a break, at the receipt that at then names.
func (a *Report) foldCase(at breakSubject, rs []receipts.Receipt) (_ receipts.History, _ breakSubject, ok bool) {
	a.EarlyAttempts += earlyAttempts(rs)
	history, err := receipts.Fold(rs)
	if err != nil {
		var illegal *receipts.Illegal
		if errors.As(err, &illegal) {
			at = at.withReceipt(illegal.Seq)
		}
		a.fail(InvariantBudgets, at, "%v", err)
	}
	return history, at, err == nil
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
// if it is broken.
func (a *Report) verifyChain(at breakSubject, rs []receipts.Receipt) (end receipts.Head, whole bool) {
	head, end, broken := receipts.Verifier{}.VerifyAll(at.caseID, rs)
	for _, b := range broken {
		a.failDiffering(InvariantChains, at.withReceipt(b.Seq), b.Stored, b.Expected, "%v", b)
	}
	if len(broken) > 0 {
		a.BrokenAt[at.caseID] = broken[0].Seq
	}
	a.Heads[at.caseID], a.tenants[at.caseID] = head, at.tenant
	return end, len(broken) == 0
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

func auditSettlement(a *Report, at breakSubject, c *StoredCase, rs []receipts.Receipt, history receipts.History) {
	folded, err := binding.FoldSettlement(rs)
	if first := c.FirstSentAt; !first.Equal(history.FirstSentAt) {
		a.failDiffering(InvariantFold, at, first.Format(time.RFC3339Nano), history.FirstSentAt.Format(time.RFC3339Nano), "case %s: first sent at %s under its operation key, the receipts say %s", c.ID, first, history.FirstSentAt)
	}
	if err != nil {
		a.fail(InvariantFold, at, "case %s: %v", c.ID, err)
		return
	}
	if folded.State != c.State {
		compareSettlement(c.State, folded.State).fail(a, at, "case "+c.ID.String())
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.Letter == receipts.LetterOpen && c.State.Progression != settlement.DisputeReady && !c.State.Progression.Ended() {
			a.fail(InvariantLetters, at.withRun(r.ID), "run %s is an open letter, its case is %q", r.ID, c.State.Progression)
		}
	}
	activeRuns := 0
	for i := range c.Runs {
		if c.Runs[i].IsActive() {
			activeRuns++
		}
	}
	if activeRuns > 1 {
		a.fail(InvariantAccounted, at, "case %s has %d active runs", c.ID, activeRuns)
	}
	if activeRuns == 0 && !caseAtRest(c) {
		a.fail(InvariantAccounted, at, "case %s is %q, but has no live run or open letter", c.ID, c.State.Progression)
	}
}

// caseAtRest reports whether a case may be without a live run or open letter: it is settled in
// full or in part, needs review, or its letter was purged.
func caseAtRest(c *StoredCase) bool {
	switch c.State.Progression {
	case settlement.Settled, settlement.Refunded, settlement.PartiallySettled, settlement.ReviewNeeded:
		return true
	case settlement.DisputeReady:
		return c.Runs[len(c.Runs)-1].Letter == receipts.LetterPurged
	}
	return false
}

// auditRuns compares each stored run with its receipts.
func auditRuns(a *Report, at breakSubject, c *StoredCase, h receipts.History, maxRecoveries int) {
	if len(h.Runs) != len(c.Runs) {
		a.failDiffering(InvariantAccounted, at, strconv.Itoa(len(c.Runs)), strconv.Itoa(len(h.Runs)), "case %s: %d runs stored, the receipts say %d", h.Case, len(c.Runs), len(h.Runs))
	}
	for i := range c.Runs {
		r := &c.Runs[i]
		recorded := h.Runs[r.ID]
		compareRun(r, recorded).fail(a, at.withRun(r.ID), "run "+r.ID.String())
		auditCalls(a, at.withRun(r.ID), r, recorded)
		// A policy that this program can't read is a difference, which compare reports.
		if policy, err := retrypolicy.Parse(r.Policy); err == nil && r.BudgetSpent > policy.Normalize().MaxRetryAttempts {
			a.fail(InvariantBudgets, at.withRun(r.ID), "run %s spent %d attempts of %d", r.ID, r.BudgetSpent, policy.Normalize().MaxRetryAttempts)
		}
		if limit := recoveries(r, maxRecoveries); limit >= 0 && r.Recoveries > limit {
			a.fail(InvariantBudgets, at.withRun(r.ID), "run %s lost %d workers, the limit is %d", r.ID, r.Recoveries, limit)
		}
		deaths := 0
		for _, at := range recorded.Attempt {
			if at.EndedBy == receipts.DeadLettered {
				deaths++
			}
		}
		if deaths > 1 || (r.State == receipts.StateDeadLettered) == recorded.DeadAt.IsZero() {
			a.fail(InvariantLetters, at.withRun(r.ID), "run %s: state %s, %d deaths in its receipts", r.ID, r.State, deaths)
		}
	}
	if h.UnknownOpen != c.UnknownOpen {
		a.failDiffering(InvariantFold, at, strconv.Itoa(c.UnknownOpen), strconv.Itoa(h.UnknownOpen), "case %s: %d unknown attempts stored, the receipts say %d", h.Case, c.UnknownOpen, h.UnknownOpen)
	}
}

// DefaultMaxRecoveries is how many workers a run may lose before it becomes a dead letter,
// unless configured otherwise.
const DefaultMaxRecoveries = 5

// reasonPoisonPill is the stored reason of the death of a run that lost too many workers.
const reasonPoisonPill = "poison_pill"

// recoveries returns the limit of lost workers of a run; negative means no limit. Older
// versions also counted the loss that ended the run.
func recoveries(r *StoredRun, most int) int {
	switch {
	case most < 0:
		return -1
	case r.Reason == reasonPoisonPill:
		return cmp.Or(most, DefaultMaxRecoveries) + 1
	}
	return cmp.Or(most, DefaultMaxRecoveries)
}

// auditCalls compares a run's stored outstanding calls with its receipts.
func auditCalls(a *Report, at breakSubject, r *StoredRun, recorded receipts.RunHistory) {
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

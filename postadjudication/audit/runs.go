package audit

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// compareRun compares the stored progress of a run with its receipts. That live and active follow from the state
// is also a constraint, which the owner of the table can drop.
func compareRun(row *StoredRun, recorded receipts.RunHistory) (d differences) {
	d.compare("state", row.State, recorded.State)
	d.compare("mark of being live", row.Live, row.IsLive())
	d.compare("mark of being active", row.Active, row.IsActive())
	d.compare("letter", row.Letter, recorded.Letter)
	d.compare("attempts", row.Attempts, recorded.AttemptCount)
	d.compare("attempts that spent budget", row.BudgetSpent, recorded.BudgetSpent)
	d.compare("lost workers", row.Recoveries, recorded.Recoveries)
	d.compare("attempts handed back", row.HandedBack, recorded.HandedBack)
	d.compare("class", row.Class, recorded.Class)
	if row.State == receipts.StateScheduled && !recorded.NextRetryAt.IsZero() {
		d.compareTimes("due time", row.DueAt, recorded.NextRetryAt)
	}
	d.compareTimes("time of death", row.DeadAt, recorded.DeadAt)
	waits := row.State == receipts.StatePending || row.State == receipts.StateScheduled
	d.compare("mark of being accepted", waits && row.Reason == receipts.ReasonAccepted, recorded.Accepted)
	return d
}

// auditRuns compares each stored run with its receipts.
func auditRuns(a *Report, at breakSubject, c *StoredCase, h receipts.History, maxRecoveries int) {
	if len(h.Runs) != len(c.Runs) {
		a.failDiffering(InvariantAccounted, at, strconv.Itoa(len(c.Runs)), strconv.Itoa(len(h.Runs)), "case %s: %d runs stored, the receipts say %d", c.ID, len(c.Runs), len(h.Runs))
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
		if died := !recorded.DeadAt.IsZero(); died != (r.State == receipts.StateDeadLettered) {
			a.fail(InvariantLetters, at.withRun(r.ID), "run %s: state %s, dead by its receipts: %t", r.ID, r.State, died)
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

package bulk

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// guardFor returns the guard of an item's changes: they are those of this plan, of the letter as
// it was planned.
func (w *planWork) guardFor(i *plans.Item) casework.Guard {
	by := provenanceOf(w.plan)
	if found := w.spec.Finding; found != nil && found.Lookup {
		by.LookupURL = found.LookupURL
	}
	return casework.Guard{Head: &i.Head, Stamp: func(p *receipts.Payload) {
		p.Bulk = w.plan.ID.String()
		by.Stamp(p)
	}}
}

// doneByPlan finds out who changed an item that is not as planned. If this plan did, it returns
// the run that the plan created, if any. If somebody else did, the error is ErrLetterChanged. If
// all receipts since are ones that don't change the item, it moves the item's guard to the last
// of them, and the error is errContended.
func (w *planWork) doneByPlan(ctx context.Context, i *plans.Item) (made background.RunID, err error) {
	for head := i.Head; ; {
		since, err := w.journal.Receipts.Trail(ctx, w.plan.Tenant, i.Case, journal.TrailCursor{Case: i.Case, Seq: head.Seq}, receiptsPerRead)
		if err != nil {
			return made, err
		}
		for _, r := range since {
			p, err := r.Payload()
			switch {
			case err != nil:
				return made, err
			case p.Bulk == w.plan.ID.String():
				return p.NewRun, nil
			case w.changesItem(i, &r, &p) || head.Next(r.Body) != (receipts.Head{Seq: r.Seq, Link: r.Link}):
				return made, casework.ErrLetterChanged
			}
			head = head.Next(r.Body)
		}
		if len(since) < receiptsPerRead {
			if head == i.Head {
				return made, casework.ErrLetterChanged
			}
			i.Head = head
			return made, errContended
		}
	}
}

// receiptsPerRead is how many receipts since planning are read at once.
const receiptsPerRead = 100

// changesItem reports whether a receipt makes a planned item stale. What came back came back, whatever became of the
// case since: the turn of the item decides whether that is more than was paid.
func (w *planWork) changesItem(i *plans.Item, r *receipts.Receipt, p *receipts.Payload) bool {
	return Action(w.plan.Action) != Return && changesItem(r.Subtype, p) && !w.concernsOtherRun(i, r, p)
}

// changesItem reports whether a receipt makes a planned item stale: it concerns the run, its
// state or letter, its marks or holds, or money. A refusal changes nothing, whoever caused it.
// Neither does an attempt of a waiting run after which it waits again with its money unknown:
// among waiting runs, plans hold only those whose money is unknown.
func changesItem(s receipts.Subtype, p *receipts.Payload) bool {
	switch s {
	case receipts.Refused, receipts.OutOfBandChangeDetected, receipts.RetentionEnding, receipts.AttemptStarted:
		return false
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
		return p.OutcomeClass != string(escrow.Unknown) || p.Lookup != ""
	}
	return true
}

// concernsOtherRun reports whether a receipt is only about attempts of a run other than the one
// of a finding. Neither such attempts nor that run's death change what was paid under the
// finding's operation key: the reservation stays, and the finding is recorded by the same rule
// whether the other run waits, runs or is a dead letter. Receipts of money, from an answer or a
// lookup, and receipts of a person's action make the plan stale.
func (w *planWork) concernsOtherRun(i *plans.Item, r *receipts.Receipt, p *receipts.Payload) bool {
	if Action(w.plan.Action) != Finding || r.Run == i.Run || p.Lookup != "" {
		return false
	}
	switch r.Subtype {
	case receipts.AttemptStarted, receipts.RetryScheduled, receipts.AttemptInterrupted:
		return true
	case receipts.DeadLettered:
		return p.ReasonCode != background.ReasonUnrecordable && p.ReasonCode != casework.ReasonPaidUnderOlderKey
	case receipts.AnsweredLate:
		return p.AttemptClass == string(escrow.NotExecuted)
	}
	return false
}

// outcomeOf returns the outcome for an error, or "" if the item must be retried.
func outcomeOf(err error) string {
	var refused *refusal.RefusedError
	var wrong *refusal.FieldError
	switch {
	case err == nil:
		return string(OutcomeDone)
	case errors.Is(err, casework.ErrLetterChanged):
		return string(OutcomePlanStale)
	case errors.As(err, &refused):
		return string(OutcomeRefused) + ":" + string(refused.Gate)
	case errors.As(err, &wrong), errors.Is(err, refusal.ErrNotFound), errors.Is(err, refusal.ErrNoExecutor), errors.Is(err, refusal.ErrTargetUnknown), errors.Is(err, refusal.ErrUnreadable), errors.Is(err, refusal.ErrUnrecordable), errors.Is(err, casework.ErrReceiptsDiffer),
		errors.Is(err, casework.ErrPanicked):
		return string(OutcomeFailed)
	}
	return ""
}

// setOutcome sets the item's outcome for an error, if there is one.
func setOutcome(i *plans.Item, err error) {
	if i.Outcome = outcomeOf(err); i.Outcome == string(OutcomeFailed) {
		i.Error = validate.Clean(err.Error(), 1024)
	}
}

// attemptsWithinReach refuses forks of a plan with more attempts than its planner and starter
// may give. The plan may come from an older version that did not check, or the policy of new
// runs may have been lowered since.
func (w *planWork) attemptsWithinReach(ctx context.Context, family string, p *retrypolicy.Policy, setsPolicies bool) error {
	if p == nil || setsPolicies {
		return nil
	}
	most := deadletter.MaxForkAttempts(w.policyOf(ctx, w.plan.Tenant, family))
	if p.Normalize().MaxRetryAttempts <= most {
		return nil
	}
	return &refusal.FieldError{Field: "policy.max_retry_attempts", Problem: fmt.Sprintf("must be at most %d: more needs a planner or starter who may set policies", most)}
}

// setsPolicies reports whether the key of the planner or of the starter may set policies.
// Access next to the database has no roles and may.
func (w *planWork) setsPolicies(ctx context.Context) (bool, error) {
	if w.spec.Policy == "" || w.plan.PlannedKey == "" || w.plan.StartedKey == "" {
		return true, nil
	}
	for _, tenant := range []string{w.plan.Tenant, journal.AllTenants} {
		keys, err := w.journal.Keys.List(ctx, tenant)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(keys, func(k access.Key) bool {
			return (k.Prefix == w.plan.PlannedKey || k.Prefix == w.plan.StartedKey) && access.May(k.Roles, access.Policy)
		}) {
			return true, nil
		}
	}
	return false, nil
}

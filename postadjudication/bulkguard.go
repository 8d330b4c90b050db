package postadjudication

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// errPlanStale means that the letter changed since it was planned.
var errPlanStale = errors.New("postadjudication: the letter changed since the plan was made")

// planGuard guards the changes of a plan and stamps its id on their receipts.
type planGuard struct {
	bulk       uuid.UUID      // zero: not part of a plan
	head       *receipts.Head // nil: any head
	provenance provenance
}

// guard wraps a decision so that it fails with errPlanStale if the case changed since planning,
// and stamps the plan on its receipts. A nil planGuard returns the decision unchanged.
func (a *planGuard) guard(decide postgres.Decision) postgres.Decision {
	if a == nil {
		return decide
	}
	return func(s *postgres.Snapshot) (postgres.Change, error) {
		if a.head != nil && s.Case.Head != *a.head {
			return postgres.Change{}, errPlanStale
		}
		ch, err := decide(s)
		for i := range ch.Drafts {
			a.stamp(&ch.Drafts[i].Payload)
		}
		return ch, err
	}
}

// stamp sets the plan and its provenance on a receipt.
func (a *planGuard) stamp(p *receipts.Payload) {
	if a.bulk != uuid.Nil {
		p.Bulk = a.bulk.String()
	}
	a.provenance.stamp(p)
}

// guardAnnotation is guard for decisions about annotations.
func (a *planGuard) guardAnnotation(decide annotationDecision) annotationDecision {
	return func(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
		return a.guard(func(*postgres.Snapshot) (postgres.Change, error) { return decide(f, transition) })(&f.Snapshot)
	}
}

// doneByPlan finds out who changed an item that is not as planned. If this plan did, it returns
// the run that the plan created, if any. If somebody else did, the error is errPlanStale. If
// all receipts since are ones that don't change the item, it moves the item's guard to the last
// of them, and the error is errContended.
func (w *planWork) doneByPlan(ctx context.Context, i *postgres.BulkItem) (made background.RunID, err error) {
	for head := i.Head; ; {
		since, err := w.journal.Receipts.Trail(ctx, w.plan.Tenant, i.Case, postgres.TrailPosition{Case: i.Case, Seq: head.Seq}, receiptsPerRead)
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
			case changesItem(r.Subtype, &p) && !w.concernsOtherRun(i, &r, &p) || head.Next(r.Body) != (receipts.Head{Seq: r.Seq, Link: r.Link}):
				return made, errPlanStale
			}
			head = head.Next(r.Body)
		}
		if len(since) < receiptsPerRead {
			if head == i.Head {
				return made, errPlanStale
			}
			i.Head = head
			return made, errContended
		}
	}
}

// receiptsPerRead is how many receipts since planning are read at once.
const receiptsPerRead = 100

// changesItem reports whether a receipt makes a planned item stale: it concerns the run, its
// state or letter, its marks or holds, or money. A refusal changes nothing, whoever caused it.
// Neither does an attempt of a waiting run after which it waits again with its money unknown:
// among waiting runs, plans hold only those whose money is unknown.
func changesItem(s receipts.Subtype, p *receipts.Payload) bool {
	switch s {
	case receipts.Refused, receipts.OutOfBandChangeDetected, receipts.RetentionEnding, receipts.AttemptStarted:
		return false
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
		return p.OutcomeClass != string(Unknown) || p.Lookup != ""
	}
	return true
}

// concernsOtherRun reports whether a receipt is only about attempts of a run other than the one
// of a finding. Neither such attempts nor that run's death change what was paid under the
// finding's operation key: the reservation stays, and the finding is recorded by the same rule
// whether the other run waits, runs or is a dead letter. Receipts of money, from an answer or a
// lookup, and receipts of a person's action make the plan stale.
func (w *planWork) concernsOtherRun(i *postgres.BulkItem, r *receipts.Receipt, p *receipts.Payload) bool {
	if BulkAction(w.plan.Action) != BulkFinding || r.Run == i.Run || p.Lookup != "" {
		return false
	}
	switch r.Subtype {
	case receipts.AttemptStarted, receipts.RetryScheduled, receipts.AttemptInterrupted:
		return true
	case receipts.DeadLettered:
		return p.ReasonCode != background.ReasonUnrecordable && p.ReasonCode != reasonPaidUnderOlderKey
	case receipts.AnsweredLate:
		return p.AttemptClass == string(NotExecuted)
	}
	return false
}

// outcomeOf returns the outcome for an error, or "" if the item must be retried.
func outcomeOf(err error) string {
	var refused *RefusedError
	var wrong *FieldError
	switch {
	case err == nil:
		return string(OutcomeDone)
	case errors.Is(err, errPlanStale):
		return string(OutcomePlanStale)
	case errors.As(err, &refused):
		return string(OutcomeRefused) + ":" + string(refused.Gate)
	case errors.As(err, &wrong), errors.Is(err, ErrNotFound), errors.Is(err, ErrNoExecutor), errors.Is(err, ErrTargetUnknown), errors.Is(err, ErrUnreadable), errors.Is(err, ErrUnrecordable):
		return string(OutcomeFailed)
	}
	return ""
}

// setOutcome sets the item's outcome for an error, if there is one.
func setOutcome(i *postgres.BulkItem, err error) {
	if i.Outcome = outcomeOf(err); i.Outcome == string(OutcomeFailed) {
		i.Error = cleanText(err.Error(), 1024)
	}
}

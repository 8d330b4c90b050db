package postadjudication

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// errPlanStale means that a letter is not as it was when the plan was made.
var errPlanStale = errors.New("postadjudication: the letter has moved since the plan was made")

// planGuard guards what is done for a plan, and lets its receipts name it.
type planGuard struct {
	bulk       uuid.UUID      // zero: of no plan
	head       *receipts.Head // nil: however the case is
	provenance provenance
}

// guard makes a decision that of the plan; without one it stays as it is.
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

// stamp lets a receipt name the plan, and who was behind it.
func (a *planGuard) stamp(p *receipts.Payload) {
	if a.bulk != uuid.Nil {
		p.Bulk = a.bulk.String()
	}
	a.provenance.stamp(p)
}

// guardAnnotation is bind for decisions about desks.
func (a *planGuard) guardAnnotation(decide annotationDecision) annotationDecision {
	return func(f postgres.LetterRow, transition background.TransitionID) (postgres.Change, error) {
		return a.guard(func(*postgres.Snapshot) (postgres.Change, error) { return decide(f, transition) })(&f.Snapshot)
	}
}

// doneByPlan tells who moved an item that is not as planned: errPlanStale when it was not
// this plan, else the run that it made. Receipts that decide nothing move no item: when there
// are only such, the item is guarded by the last of them from then on, and the error is errContended.
func (w *planWork) doneByPlan(ctx context.Context, i *postgres.BulkItem) (made background.RunID, err error) {
	for head := i.Head; ; {
		since, err := w.journal.Trail(ctx, w.plan.Tenant, i.Case, postgres.TrailPosition{Case: i.Case, Seq: head.Seq}, receiptsPerRead)
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

// receiptsPerRead is how many receipts since a plan was made are read at once.
const receiptsPerRead = 100

// changesItem reports whether a receipt tells of something that a plan of its case has to see: of
// the run, its state and letter, its marks and holds, or of money. A refusal changes nothing,
// whoever caused it; nor does an attempt of a run that waits before it and after it while its
// money is unknown, for only of such a run is anything planned.
func changesItem(s receipts.Subtype, p *receipts.Payload) bool {
	switch s {
	case receipts.Refused, receipts.OutOfBandChangeDetected, receipts.RetentionEnding, receipts.AttemptStarted:
		return false
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
		return p.OutcomeClass != string(Unknown) || p.Lookup != ""
	}
	return true
}

// concernsOtherRun reports whether a receipt tells only of attempts of another run than the one that a
// finding is about. Neither they nor that run's death change what was paid under the operation
// key that the finding is of: what is reserved stays so, and the finding is recorded by the same
// rule while the other run waits, runs, or is a dead letter. Receipts that tell what became of
// money, by an answer or by a lookup, and receipts of what a person did do make the plan stale.
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

// outcomeOf is the outcome that an error means; none when it must be tried again.
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

// setOutcome gives an item the outcome that an error means, if it means one.
func setOutcome(i *postgres.BulkItem, err error) {
	if i.Outcome = outcomeOf(err); i.Outcome == string(OutcomeFailed) {
		i.Error = cleanText(err.Error(), 1024)
	}
}

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

// asPlanned guards what is done for a plan, and lets its receipts name it.
type asPlanned struct {
	bulk  uuid.UUID      // zero: of no plan
	head  *receipts.Head // nil: however the case is
	marks marks
}

// bind makes a decision that of the plan; without one it stays as it is.
func (a *asPlanned) bind(decide postgres.Decide) postgres.Decide {
	if a == nil {
		return decide
	}
	return func(s *postgres.Snapshot) (postgres.Change, error) {
		if a.head != nil && s.Case.Head != *a.head {
			return postgres.Change{}, errPlanStale
		}
		ch, err := decide(s)
		for i := range ch.Drafts {
			a.mark(&ch.Drafts[i].Payload)
		}
		return ch, err
	}
}

// mark lets a receipt name the plan, and who was behind it.
func (a *asPlanned) mark(p *receipts.Payload) {
	if a.bulk != uuid.Nil {
		p.Bulk = a.bulk.String()
	}
	a.marks.on(p)
}

// file is bind for decisions about desks.
func (a *asPlanned) file(decide deskDecision) deskDecision {
	return func(f postgres.Filed, move background.MoveID) (postgres.Change, error) {
		return a.bind(func(*postgres.Snapshot) (postgres.Change, error) { return decide(f, move) })(&f.Snapshot)
	}
}

// whose tells who moved an item that is not as planned: errPlanStale when it was not
// this plan, else the run that it made.
func (w *bulkWork) whose(ctx context.Context, i *postgres.BulkItem) (made background.RunID, err error) {
	r, found, err := w.journal.ReceiptAt(ctx, w.plan.Tenant, postgres.Place{Case: i.Case, Seq: i.Head.Seq + 1})
	switch {
	case err != nil:
		return made, err
	case !found:
		return made, errPlanStale
	}
	p, err := r.Payload()
	if err == nil && p.Bulk != w.plan.ID.String() {
		err = errPlanStale
	}
	return p.NewRun, err
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
	case errors.As(err, &wrong), errors.Is(err, ErrNotFound), errors.Is(err, ErrNoExecutor), errors.Is(err, ErrUnreadable), errors.Is(err, ErrUnrecordable):
		return string(OutcomeFailed)
	}
	return ""
}

// ended gives an item the outcome that an error means, if it means one.
func ended(i *postgres.BulkItem, err error) {
	if i.Outcome = outcomeOf(err); i.Outcome == string(OutcomeFailed) {
		i.Error = clean(err.Error(), 1024)
	}
}

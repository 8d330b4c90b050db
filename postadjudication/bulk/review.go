package bulk

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// Review is what the person who starts a plan has to know of its items, as they are now. It covers the first MaxReviewed.
type Review struct {
	Causes  []Cause `json:"causes"`        // the most frequent first, at most 20
	Others  int64   `json:"more_causes"`   // number of causes that are left out
	Largest []Item  `json:"largest_items"` // the five with the largest amounts of each currency

	// Changed counts the items whose case changed since the plan was made, by the present state of their letter, such as
	// forked, or of their run. The plan leaves them as they are.
	Changed map[string]int64 `json:"changed"`
}

// Cause counts the items of a plan that have one cause: the signature that the analysis of dead letters groups by.
type Cause struct {
	Signature string          `json:"signature"`
	Items     int64           `json:"items"`
	Money     settlement.Sums `json:"money"` // reserved
}

// MaxReviewed is how many items of a plan a Review covers.
const MaxReviewed = plans.MaxReviewed

// maxCauses is how many causes a review names.
const maxCauses = 20

// reviewed returns a stored plan with its counts and its review.
func reviewed(ctx context.Context, p *Planner, b plans.Plan) (Plan, error) {
	out, err := p.withCounts(ctx, b)
	if err == nil {
		err = addReview(ctx, p, &out)
	}
	return out, err
}

// addReview adds the review to a plan that nobody has started.
func addReview(ctx context.Context, p *Planner, b *Plan) error {
	if b.State != Planned || b.Items == 0 {
		return nil
	}
	found, err := p.stored.Review(ctx, b.ID)
	if err != nil {
		return err
	}
	until := b.PlannedAt.Add(PlanRetention)
	b.KeptUntil = &until
	b.Review = &Review{Causes: []Cause{}, Largest: []Item{}, Changed: found.Changed}
	at := map[string]int{}
	for _, c := range found.Causes {
		n, known := at[c.Signature]
		if !known {
			if n = len(b.Review.Causes); n == maxCauses {
				at[c.Signature], b.Review.Others = -1, b.Review.Others+1
				continue
			}
			at[c.Signature] = n
			b.Review.Causes = append(b.Review.Causes, Cause{Signature: c.Signature, Money: settlement.Sums{}})
		}
		if n >= 0 {
			b.Review.Causes[n].Items += c.Items
			b.Review.Causes[n].Money.Add(c.Currency, c.Amount)
		}
	}
	now := p.now()
	for _, i := range found.Largest {
		b.Review.Largest = append(b.Review.Largest, itemOf(i, now))
	}
	return nil
}

// itemOf converts an item, with its age at a time.
func itemOf(i plans.Item, now time.Time) Item {
	out := Item{
		Position: i.Position, Run: i.Run, Subject: i.Subject, Escrow: i.Escrow, Adjudication: i.Adjudication, Cause: i.Signature, Amount: i.Amount, Currency: i.Currency,
		Planned: refusal.Gate(i.Gate), Outcome: OutcomePending, NewRun: i.NewRun, Error: i.Error,
	}
	if !i.DeadAt.IsZero() {
		out.DeadAt, out.Age = i.DeadAt, deadletter.Duration(max(0, now.Sub(i.DeadAt).Truncate(time.Second)))
	}
	if i.Outcome != "" {
		out.Outcome, out.Gate = splitOutcome(i.Outcome)
	}
	return out
}

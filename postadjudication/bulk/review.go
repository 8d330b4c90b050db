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
// Those whose case changed since the plan was made are counted in Changed only: the plan leaves them as they are.
type Review struct {
	Ready int64           `json:"ready"` // items that no gate refused when the plan was made
	Money settlement.Sums `json:"money"` // reserved for these

	Causes  []Cause `json:"causes"`        // the most frequent first, at most 20
	Others  int64   `json:"more_causes"`   // number of causes that are left out
	Largest []Item  `json:"largest_items"` // the five with the largest amounts of each currency

	// Differs has what differs from the rest of the items, by outcome, currency, cause, escrow and amount.
	Differs []Difference `json:"differs"`

	// Changed counts the items whose case changed since the plan was made, by the present state of their letter, such as
	// forked, or of their run.
	Changed      map[string]int64 `json:"changed"`
	ChangedItems []Item           `json:"changed_items"` // the five of these with the largest amounts
}

// Cause counts the items of a plan that have one cause: the signature that the analysis of dead letters groups by.
type Cause struct {
	Signature string          `json:"signature"`
	Items     int64           `json:"items"`
	Money     settlement.Sums `json:"money"` // reserved
}

// Difference is a group of items of a plan that differ from the rest. By outcome, currency, cause and escrow these are the
// items with another value than more than half of the items have; where no value has so many, nothing differs. By amount
// these are the items above ten times the median of the amounts of their currency.
type Difference struct {
	By       string            `json:"by" enum:"outcome,currency,cause,escrow,amount"`
	Usual    string            `json:"usual,omitempty"`  // what more than half of the items have; empty by amount
	Median   *settlement.Money `json:"median,omitempty"` // by amount only
	Items    int64             `json:"items"`
	Money    settlement.Sums   `json:"money"`    // reserved
	Examples []Item            `json:"examples"` // the five with the largest amounts
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
	b.Review = &Review{Money: settlement.Sums{}, Causes: []Cause{}, Largest: []Item{}, Differs: []Difference{}, Changed: found.Changed, ChangedItems: []Item{}}
	for _, c := range found.Ready {
		b.Review.Ready += c.Items
		b.Review.Money.Add(c.Currency, c.Amount)
	}
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
	for _, i := range found.ChangedItems {
		b.Review.ChangedItems = append(b.Review.ChangedItems, itemOf(i, now))
	}
	for _, d := range found.Differs {
		b.Review.Differs = append(b.Review.Differs, differenceOf(d, now))
	}
	return nil
}

// differenceOf converts a difference, with the age of its items at a time.
func differenceOf(d plans.Difference, now time.Time) Difference {
	out := Difference{By: d.By, Usual: d.Usual, Items: d.Items, Money: d.Money, Examples: make([]Item, len(d.Examples))}
	if d.By == plans.ByAmount {
		out.Median = &settlement.Money{Minor: d.Median, Currency: d.Currency}
	}
	for n, i := range d.Examples {
		out.Examples[n] = itemOf(i, now)
	}
	return out
}

// itemOf converts an item, with its age at a time.
func itemOf(i plans.Item, now time.Time) Item {
	out := Item{
		Position: i.Position, Run: i.Run, Subject: i.Subject, Escrow: i.Escrow, Adjudication: i.Adjudication, Cause: i.Signature, Amount: i.Amount, Currency: i.Currency,
		Planned: refusal.Gate(i.Gate), Outcome: OutcomePending, NewRun: i.NewRun, Error: i.Error, ChangedTo: i.ChangedTo,
	}
	if !i.DeadAt.IsZero() {
		out.DeadAt, out.Age = i.DeadAt, deadletter.Duration(max(0, now.Sub(i.DeadAt).Truncate(time.Second)))
	}
	if i.Outcome != "" {
		out.Outcome, out.Gate = splitOutcome(i.Outcome)
	}
	return out
}

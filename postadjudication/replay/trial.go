package replay

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// TrialLimit is the maximum number of letters that Try reads, the oldest first.
const TrialLimit = 10_000

// samples is how many of the ready letters Trial shows.
const samples = 10

// Trial counts what a rule would do now.
type Trial struct {
	Matched int64                  `json:"matched"` // open letters that the filter matches; exact
	Scanned int64                  `json:"scanned"` // how many of them were checked, the oldest first
	More    bool                   `json:"more"`    // the counts below do not cover all of them
	Ready   int64                  `json:"ready"`   // the rule would replay or mark them now
	Money   settlement.Sums        `json:"money"`   // reserved for the ready ones
	Refused map[refusal.Gate]int64 `json:"refused,omitempty"`
	Letters []deadletter.Letter    `json:"letters,omitempty"` // the first of the ready ones
}

// Try returns what a rule would do if it were set and enabled. It changes nothing. Earlier
// replays by a rule of the same name count.
func (o Rules) Try(ctx context.Context, rule Rule) (Trial, error) {
	out := Trial{Money: settlement.Sums{}, Refused: map[refusal.Gate]int64{}}
	if err := validate.KnownID("tenant", o.tenant, 128); err != nil {
		return out, err
	}
	if err := rule.Validate(); err != nil {
		return out, err
	}
	r, err := newActive(StoredRule{Rule: rule, Tenant: o.tenant})
	if err != nil {
		return out, err
	}
	if err := o.s.index.Search.CatchUp(ctx); err != nil {
		return out, err
	}
	at := o.s.now()
	filter := rule.Filter
	filter.Status = background.LetterOpen
	byStatus, err := o.s.index.Search.Count(ctx, o.tenant, o.s.index.JournalFilter(filter, at))
	if err != nil {
		return out, err
	}
	out.Matched = byStatus[string(background.LetterOpen)]
	var after search.Position
	for out.More = true; out.More && out.Scanned < TrialLimit; {
		var found []search.Letter
		if found, out.More, after, err = o.s.index.Search.Search(ctx, o.tenant, o.s.index.JournalFilter(filter, at), deadletter.Orders[deadletter.OldestFirst], after, 0, pageSize); err != nil {
			return out, err
		}
		letters, lineages, err := o.s.lettersForRule(ctx, &r, found)
		if err != nil {
			return out, err
		}
		listed := make(map[background.RunID]search.Letter, len(found))
		for _, l := range found {
			listed[l.Run.ID] = l
		}
		for _, f := range letters {
			out.Scanned++
			if gate := o.s.ruleGate(&r, f, lineages[f.Run.ID].replaysBy(r.Name), at); gate != "" {
				out.Refused[gate]++
				continue
			}
			out.Ready++
			out.Money.Add(f.Case.Currency, settlement.SumOf(f.Case.State.Reserved))
			if len(out.Letters) < samples {
				out.Letters = append(out.Letters, o.s.index.LetterOf(listed[f.Run.ID]))
			}
		}
	}
	return out, nil
}

package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// RuleTrialLimit is how many letters TryRule looks at, the oldest first.
const RuleTrialLimit = 10_000

// ruleSamples is how many of the letters that a rule would take are shown.
const ruleSamples = 10

// RuleTrial is what a rule would do now.
type RuleTrial struct {
	Matched int64            `json:"matched"` // open letters that the filter selects, exactly
	Scanned int64            `json:"looked"`  // how many of them were looked at, the oldest first
	More    bool             `json:"more"`    // there are others, which the counts below leave out
	Ready   int64            `json:"ready"`   // the rule would replay or mark them now
	Money   map[string]int64 `json:"money"`   // currency -> minor units that stay reserved for those
	Refused map[Gate]int64   `json:"refused,omitempty"`
	Letters []Letter         `json:"letters,omitempty"` // the first of those that are ready
}

// TryRule tells what a rule would do if it were set and enabled, and changes nothing.
// What rules of its name have replayed already counts.
func (s *Service) TryRule(ctx context.Context, tenant string, rule Rule) (RuleTrial, error) {
	out := RuleTrial{Money: map[string]int64{}, Refused: map[Gate]int64{}}
	if err := requireText("tenant", tenant, 128); err != nil {
		return out, err
	}
	if err := rule.Validate(); err != nil {
		return out, err
	}
	r, err := newActiveRule(StoredRule{Rule: rule, Tenant: tenant})
	if err != nil {
		return out, err
	}
	if err := s.journal.CatchUpLetters(ctx); err != nil {
		return out, err
	}
	at := s.now()
	filter := rule.Filter
	filter.Status = background.LetterOpen
	counts, err := s.journal.CountLetters(ctx, tenant, s.journalFilter(filter, at))
	if err != nil {
		return out, err
	}
	out.Matched = counts[string(background.LetterOpen)]
	var after postgres.LetterPosition
	for out.More = true; out.More && out.Scanned < RuleTrialLimit; {
		var found []postgres.FoundLetter
		if found, out.More, after, err = s.journal.Letters(ctx, tenant, s.journalFilter(filter, at), letterOrders[OldestFirst], after, rulePage); err != nil {
			return out, err
		}
		letters, lineages, err := s.lettersForRule(ctx, &r, found)
		if err != nil {
			return out, err
		}
		listed := make(map[background.RunID]postgres.FoundLetter, len(found))
		for _, l := range found {
			listed[l.Run.ID] = l
		}
		for _, f := range letters {
			out.Scanned++
			if gate := s.ruleGate(&r, f, lineages[f.Run.ID].replaysBy(r.Name), at); gate != "" {
				out.Refused[gate]++
				continue
			}
			out.Ready++
			if f.Case.Currency != "" {
				out.Money[f.Case.Currency] += f.Case.State.Reserved
			}
			if len(out.Letters) < ruleSamples {
				out.Letters = append(out.Letters, s.letterOf(listed[f.Run.ID]))
			}
		}
	}
	return out, nil
}

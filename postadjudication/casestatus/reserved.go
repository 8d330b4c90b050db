package casestatus

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// ReservedMoney is the money that a tenant's cases have reserved, by what stands for it. Each case is in one of
// OpenLetters, LiveRuns and WithoutLetter, which add up to All.
type ReservedMoney struct {
	All           ReservedSums `json:"all"`
	OpenLetters   ReservedSums `json:"open_letters"`   // cases with an open dead letter: at risk
	LiveRuns      ReservedSums `json:"live_runs"`      // cases with a live run
	WithoutLetter ReservedSums `json:"without_letter"` // cases with neither: no list of dead letters shows them, see Filter.WithoutLetter

	// WaitingFor has WithoutLetter by what the cases wait for, such as WaitsForPurgedLetter.
	WaitingFor map[string]ReservedSums `json:"without_letter_waiting_for"`
}

// ReservedSums counts cases, and adds up what they have reserved.
type ReservedSums struct {
	Cases int64           `json:"cases"`
	Money settlement.Sums `json:"money"` // by currency
}

func (r *ReservedSums) add(s *journal.CaseSum) {
	if r.Money == nil {
		r.Money = settlement.Sums{}
	}
	r.Cases += s.Cases
	r.Money.Add(s.Currency, s.Reserved)
}

// Reserved adds up the money that the cases of the tenant have reserved, all at one moment.
func (c Cases) Reserved(ctx context.Context) (ReservedMoney, error) {
	none := func() ReservedSums { return ReservedSums{Money: settlement.Sums{}} }
	out := ReservedMoney{All: none(), OpenLetters: none(), LiveRuns: none(), WithoutLetter: none(), WaitingFor: map[string]ReservedSums{}}
	if c.tenant == "" {
		return out, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	sums, err := c.s.Journal.Cases.Reserved(ctx, c.tenant)
	for i := range sums {
		s := &sums[i]
		out.All.add(s)
		switch {
		case s.Of.RunState.Live():
			out.LiveRuns.add(s)
		case s.Of.Letter == background.LetterOpen:
			out.OpenLetters.add(s)
		default:
			out.WithoutLetter.add(s)
			waits := waitsFor(&s.Of)
			part := out.WaitingFor[waits]
			part.add(s)
			out.WaitingFor[waits] = part
		}
	}
	return out, err
}

package postadjudication

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// Sums are amounts of money by currency, in minor units.
type Sums map[string]int64

// add adds an amount. What has no currency moves no money.
func (s Sums) add(currency string, minor int64) error {
	if currency == "" || minor == 0 {
		return nil
	}
	if s[currency] > math.MaxInt64-minor {
		return fmt.Errorf("postadjudication: all the %s of these letters is more than %d", currency, int64(math.MaxInt64))
	}
	s[currency] += minor
	return nil
}

// Share is the letters that have a value in common.
type Share struct {
	Value   string `json:"value"`
	Letters int64  `json:"letters"`
	AtRisk  Sums   `json:"at_risk"` // what stays reserved for those that are open
}

// sharesOf gives the letters by a value, the most frequent first.
func sharesOf(tallies []postgres.LetterTally, of func(*postgres.LetterTally) string) ([]Share, error) {
	at := map[string]int{}
	out := []Share{}
	for i := range tallies {
		t := &tallies[i]
		value := of(t)
		if _, known := at[value]; !known {
			at[value] = len(out)
			out = append(out, Share{Value: value, AtRisk: Sums{}})
		}
		share := &out[at[value]]
		share.Letters += t.Letters
		if err := share.AtRisk.add(t.Currency, t.AtRisk); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Value, b.Value)) })
	return out, nil
}

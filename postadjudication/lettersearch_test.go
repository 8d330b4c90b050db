package postadjudication_test

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// A paged search finds the same letters as a full listing filtered by hand, and reports how many
// it scanned.
func TestASearchScansEachLetterOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	lettersOfThreeCauses(r)
	ctx := context.Background()
	for _, c := range []struct {
		filter deadletter.Filter
		where  string
		found  int
		vague  int
	}{
		{where: `error.type == "http.refused"`, found: 4},
		{where: `at_risk.currency == "USD" || letter == "forked"`, found: 2},
		{where: `at_risk.minor >= 1000`, found: 4, vague: 1},
		{filter: deadletter.Filter{Status: background.LetterOpen}, where: `at_risk.minor >= 1000`, found: 4},
		{filter: deadletter.Filter{Currency: "USD"}, where: `true`, found: 1},
		{where: `false`}, {found: 6},
	} {
		all := r.Letters(c.filter)
		for _, q := range []deadletter.Search{{Limit: 100}, {Limit: 1}, {Limit: 100, Scan: 1}, {Limit: 2, Scan: 3, Sort: deadletter.HighestAmount}} {
			q.Filter, q.Where = c.filter, c.where
			seen, scanned, vague, answers := map[background.RunID]int{}, 0, 0, 0
			for {
				found, err := r.As("acme", "").DeadLetters.Search(ctx, q)
				if err != nil {
					t.Fatalf("%+v: %v", q, err)
				}
				if len(found.Letters) > q.Limit || q.Scan > 0 && found.Scanned > q.Scan || found.Complete != (found.Next == "") {
					t.Fatalf("%+v: %+v", q, found)
				}
				for _, l := range found.Letters {
					seen[l.Run]++
				}
				scanned, vague, answers = scanned+found.Scanned, vague+found.Undecided, answers+1
				if q.After = found.Next; found.Complete {
					break
				}
			}
			if len(seen) != c.found || scanned != len(all) || vague != c.vague || q.Scan == 1 && answers < len(all) {
				t.Errorf("%+v: %d letters, %d undecided, %d of %d scanned in %d pages", q, len(seen), vague, scanned, len(all), answers)
			}
		}
	}
}

func TestASearchThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	lettersOfThreeCauses(r)
	ctx := context.Background()
	first, err := r.As("acme", "").DeadLetters.Search(ctx, deadletter.Search{Where: "held == false", Limit: 1})
	if err != nil || first.Next == "" {
		t.Fatal(first, err)
	}
	for field, q := range map[string]deadletter.Search{
		"where": {Where: "held ==", Limit: 1}, "limit": {Where: "held"}, "scan": {Where: "held", Limit: 1, Scan: -1}, "sort": {Limit: 1, Sort: "x"},
		"after": {Where: "held == true", Limit: 1, After: first.Next}, "outcome": {Limit: 1, Filter: deadletter.Filter{Outcome: "x"}},
	} {
		var refused *refusal.FieldError
		if _, err := r.As("acme", "").DeadLetters.Search(ctx, q); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var refused *refusal.FieldError
	if _, err := r.As("", "").DeadLetters.Search(ctx, deadletter.Search{Limit: 1}); !errors.As(err, &refused) || refused.Field != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
	if found, err := r.As("other", "").DeadLetters.Search(ctx, deadletter.Search{Limit: 1}); err != nil || len(found.Letters) != 0 || !found.Complete {
		t.Errorf("another tenant: %+v, %v", found, err)
	}
}

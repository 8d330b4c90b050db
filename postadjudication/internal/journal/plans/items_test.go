package plans_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
)

// Items are found by their outcomes and in pages, in the order of the plan.
func TestItemsAreFoundByTheirOutcomes(t *testing.T) {
	t.Parallel()
	p, _, _ := start(t, 5)
	made := p.create(t, all())
	pending, err := p.PendingItems(t.Context(), made.ID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, outcome := range []string{"done", "gate:held", "failed", "gate:not_open"} {
		pending[i].Outcome = outcome
	}
	if err := p.RecordItems(t.Context(), made.ID, pending[:4]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		outcome string
		after   int64
		limit   int
		want    []int64
	}{
		{"", 0, 10, []int64{1, 2, 3, 4, 5}}, {"", 1, 2, []int64{2, 3}}, {"done", 0, 10, []int64{1}}, {"gate:", 0, 10, []int64{2, 4}},
		{"gate:", 2, 10, []int64{4}}, {"gate:held", 0, 10, []int64{2}}, {plans.NoOutcome, 0, 10, []int64{5}}, {"gate", 0, 10, nil},
	} {
		items, err := p.Items(t.Context(), made.ID, c.outcome, c.after, c.limit)
		var got []int64
		for _, item := range items {
			if got = append(got, item.Position); item.Subject != "case:"+item.Case.String() {
				t.Errorf("subject %q of case %s", item.Subject, item.Case)
			}
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q after %d: %v instead of %v, %v", c.outcome, c.after, got, c.want, err)
		}
	}
	var visited []int64
	if err := p.EachItem(t.Context(), made.ID, func(item *plans.Item) { visited = append(visited, item.Position) }); err != nil || !slices.Equal(visited, []int64{1, 2, 3, 4, 5}) {
		t.Errorf("visited %v, %v", visited, err)
	}
}

// Of many processes that write outcomes of the same items at once, each item has the outcome of one
// of them, none is failed that another process says is done, and the counts add up.
func TestOutcomesWrittenAtOnceAreCountedOnce(t *testing.T) {
	t.Parallel()
	const letters = 40
	p, _, _ := start(t, letters)
	made := p.create(t, all())
	items, err := p.PendingItems(t.Context(), made.ID, 0, letters)
	if err != nil || len(items) != letters {
		t.Fatalf("%d items, %v", len(items), err)
	}
	outcomes := []string{"done", "failed", "plan_stale", "failed"}
	var everyone sync.WaitGroup
	for w := range outcomes {
		everyone.Go(func() {
			for i := range items {
				n := (i + w*letters/len(outcomes)) % letters // each begins elsewhere
				mine := []plans.Item{items[n], items[(n+1)%letters]}
				for at := range mine {
					mine[at].Outcome, mine[at].Error = outcomes[w], fmt.Sprint(w)
				}
				if err := p.RecordItems(t.Context(), made.ID, mine); err != nil {
					t.Error(err)
				}
			}
		})
	}
	everyone.Wait()
	written := map[string]int64{}
	if err := p.EachItem(t.Context(), made.ID, func(item *plans.Item) {
		written[item.Outcome]++
		if item.Error == "" || outcomes[item.Error[0]-'0'] != item.Outcome {
			t.Errorf("%+v mixes the outcomes of two processes", item)
		}
	}); err != nil {
		t.Error(err)
	}
	if written["failed"] != 0 || written["done"]+written["plan_stale"] != letters {
		t.Errorf("%v", written)
	}
	counts, err := p.Counts(t.Context(), made.ID)
	if err != nil {
		t.Error(err)
	}
	for _, c := range counts {
		if c.ByOutcome && c.Items != written[c.Label] {
			t.Errorf("%d items are counted as %q, and %d are", c.Items, c.Label, written[c.Label])
		}
	}
}

// A process that works on a plan learns over its lock that the plan was cancelled. The item that it
// had begun is recorded, the rest stays without an outcome, and the plan is not completed.
func TestACancelledPlanKeepsWhatWasDone(t *testing.T) {
	t.Parallel()
	const letters, cancelAfter = 12, 5
	p, _, _ := start(t, letters)
	made := p.create(t, all())
	if _, err := p.Update(t.Context(), "acme", made.ID, to(plans.Planned, plans.Running)); err != nil {
		t.Fatal(err)
	}
	lock, err := p.Lock(t.Context(), made)
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer func() {
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	done := 0
	for {
		state, err := lock.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if state == plans.Cancelled {
			break
		}
		items, err := p.PendingItems(t.Context(), made.ID, 0, 1)
		if err != nil || len(items) != 1 || state != plans.Running {
			t.Fatalf("%+v of a plan that is %s, %v", items, state, err)
		}
		if done == cancelAfter { // another person cancels it while this item is in work
			if _, err := p.Update(t.Context(), "acme", made.ID, to(plans.Running, plans.Cancelled)); err != nil {
				t.Fatal(err)
			}
			if found, err := p.Find(t.Context(), "acme", made.ID); err != nil || found.OutcomesKnown {
				t.Errorf("the outcome of an item in work is unknown: %+v, %v", found, err)
			}
		}
		items[0].Outcome = "done"
		if err := p.RecordItems(t.Context(), made.ID, items); err != nil {
			t.Fatal(err)
		}
		done++
	}
	left, err := p.PendingItems(t.Context(), made.ID, 0, letters)
	if err != nil || done != cancelAfter+1 || len(left) != letters-done {
		t.Errorf("%d are done, %d left, %v", done, len(left), err)
	}
	if b, err := p.Update(t.Context(), "acme", made.ID, to(plans.Running, plans.Done)); err != nil || b.State != plans.Cancelled {
		t.Errorf("it is completed after it was cancelled: %+v, %v", b, err)
	}
	checkChanges(t, p, "none to planned", "planned to running", "running to cancelled")
}

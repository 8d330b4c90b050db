package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/settlement"
)

// sameItems compares items, but for their ages.
func sameItems(a, b []bulk.Item) bool {
	return slices.EqualFunc(a, b, func(x, y bulk.Item) bool {
		x.Age, y.Age = 0, 0
		return x == y
	})
}

// reviewInWords returns what a person sees of a plan: its causes, its largest items, and what changed.
func reviewInWords(r *rig.Rig, b bulk.Plan) string {
	r.T.Helper()
	if b.Review == nil || b.KeptUntil == nil || !b.KeptUntil.Equal(b.PlannedAt.Add(bulk.PlanRetention)) {
		r.T.Fatalf("the plan shows nothing of its items, or is kept until %v: %+v", b.KeptUntil, b.Review)
	}
	text := fmt.Sprintf("%d %s: ", b.Review.Ready, b.Review.Money)
	for _, c := range b.Review.Causes {
		text += fmt.Sprintf("%d %s %s; ", c.Items, c.Money, c.Signature)
	}
	for _, i := range b.Review.Largest {
		text += fmt.Sprintf("%s %s %s %d%s, ", i.Subject, i.Escrow, i.Adjudication, i.Amount, i.Currency)
	}
	text += fmt.Sprint(b.Review.Others, b.Review.Changed)
	for n, i := range b.Review.ChangedItems {
		text += map[bool]string{true: " ", false: ", "}[n == 0] + i.Subject + " " + i.ChangedTo
	}
	return text
}

// The person who is asked to run a plan sees what differs from the rest of it.
func TestAPlanShowsWhatDiffersFromTheRest(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	for n := range 7 {
		a := rig.Release(n + 1)
		a.EscrowReference, a.Amount, a.Held = "esc_all", rig.Euros(1000+int64(n)), rig.Euros(1_000_000)
		answer := rig.Refuses
		switch n {
		case 4:
			a.Amount = rig.Euros(10_020) // ten times the median
		case 5:
			a.Outcome, a.Amount, answer = settlement.Refund, rig.Euros(20_000), rig.RateLimits
		case 6:
			a.EscrowReference, a.Amount = "esc_7", settlement.Money{Minor: 90_000, Currency: "USD"}
			a.Held = a.Amount
		}
		r.Escrow.Answer(answer)
		r.MustSubmit(a)
		r.WaitNoneLive()
	}
	got := ""
	for _, d := range r.MustPlan(rig.AllLetters(bulk.Fork)).Review.Differs {
		got += fmt.Sprintf("%s %s %v: %d, %s:", d.By, d.Usual, d.Median, d.Items, d.Money)
		for _, i := range d.Examples {
			got += " " + i.Subject
		}
		got += "; "
	}
	const want = "outcome release <nil>: 1, 200.00 EUR: txr_6; currency EUR <nil>: 1, 900.00 USD: txr_7; " +
		"cause http.refused: account closed <nil>: 1, 200.00 EUR: txr_6; escrow esc_all <nil>: 1, 900.00 USD: txr_7; amount  10.02 EUR: 1, 200.00 EUR: txr_6; "
	if got != want {
		t.Errorf("%s", got)
	}
	same := bulk.Request{Action: bulk.Fork, Reason: "mended"}
	same.Filter.Escrow = "esc_7"
	if alone := r.MustPlan(same); len(alone.Review.Differs) != 0 {
		t.Errorf("a plan of one item: %+v", alone.Review)
	}
}

// The person who is asked to run a plan sees the causes of its items, the largest ones, and what changed since it was
// planned: in the plan, and in the refusal that names it.
func TestAPlanShowsWhatItsSecondPersonHasToKnow(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	for n, answer := range []func(escrow.Call) escrow.Answer{rig.Refuses, rig.Refuses, rig.Refuses, rig.Refuses, rig.Refuses, rig.RateLimits} {
		a := rig.Release(n + 1)
		a.Amount = rig.Euros(1000 - int64(n))
		r.Escrow.Answer(answer)
		r.MustSubmit(a)
		r.WaitNoneLive()
	}
	r.Escrow.Script(nil)
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	const before = "6 59.85 EUR: 5 49.90 EUR http.refused: account closed; 1 9.95 EUR http.rate_limited: slow down; " +
		"txr_1 esc_1 release 1000EUR, txr_2 esc_2 release 999EUR, txr_3 esc_3 release 998EUR, txr_4 esc_4 release 997EUR, txr_5 esc_5 release 996EUR, 0 map[]"
	const after = "4 39.86 EUR: 3 29.91 EUR http.refused: account closed; 1 9.95 EUR http.rate_limited: slow down; " +
		"txr_3 esc_3 release 998EUR, txr_4 esc_4 release 997EUR, txr_5 esc_5 release 996EUR, txr_6 esc_6 release 995EUR, 0 map[forked:1 open:1] txr_1 forked, txr_2 open"
	if got := reviewInWords(r, plan); got != before {
		t.Errorf("planned: %s", got)
	}
	items := r.BulkItems(plan.ID, "pending")
	for _, i := range items {
		if i.DeadAt.IsZero() || i.Age < 0 || i.Cause == "" || i.Escrow == "" || i.Adjudication != "release" {
			t.Errorf("%+v", i)
		}
	}
	operator := r.As("acme", "user:cem").DeadLetters
	if _, err := operator.Fork(ctx, items[0].Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	if _, err := operator.Hold(ctx, items[1].Run, "in court"); err != nil {
		t.Fatal(err)
	}
	now, err := r.As("acme", "").Bulk.Get(ctx, plan.ID)
	if got := reviewInWords(r, now); err != nil || got != after {
		t.Errorf("after a fork and a hold: %s, %v", got, err)
	}
	var second *bulk.SecondPersonError
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &second) || reviewInWords(r, second.Plan) != after {
		t.Errorf("the refusal: %v", err)
	}
	for n, want := range []string{"forked", "open", "", "", "", ""} {
		if item := r.BulkItems(plan.ID, "pending")[n]; item.ChangedTo != want {
			t.Errorf("item %d changed to %q, want %q", n+1, item.ChangedTo, want)
		}
	}
	if b := r.RunPlan(plan); b.Review != nil || b.KeptUntil != nil || b.Progress.Done != 4 || b.Progress.PlanStale != 2 {
		t.Errorf("%+v", b)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

package postadjudication_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/settlement"
)

// Amounts of up to MaxMinor are accepted: 1025 of them are more than an int64 holds.
func TestSumsOfAcceptedAmountsAreExactWhereverTheyAreShown(t *testing.T) {
	t.Parallel()
	const n = 1030
	ctx := context.Background()
	r := rig.New(t).StartWorkers()
	r.Escrow.Answer(rig.Refuses)
	for i := range n {
		a := rig.Release(i)
		a.Amount = settlement.Money{Minor: settlement.MaxMinor, Currency: "IRR"}
		a.Held = a.Amount
		r.MustSubmit(a)
	}
	r.WaitNoneLive()
	var want settlement.Sum
	for range n {
		want = want.Plus(settlement.SumOf(settlement.MaxMinor))
	}
	expect := func(what string, got settlement.Sum, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %s, not %s; %v", what, got, want, err)
		}
	}
	levels, err := r.Health().Levels(ctx)
	expect("levels", levels.AtRisk["IRR"], err)
	ada := r.As("acme", "user:ada")
	stats, err := ada.DeadLetters.Stats(ctx, deadletter.Filter{})
	expect("statistics", stats.AtRisk["IRR"], err)
	expect("a share of the statistics", stats.ByError[0].AtRisk["IRR"], nil)
	a, err := ada.DeadLetters.Analyze(ctx, report.Query{Filter: deadletter.Filter{MinAmount: new(int64(1))}})
	expect("an analysis of letters that are read", a.AtRisk["IRR"], err)
	groups, err := ada.DeadLetters.Groups(ctx, report.GroupQuery{Limit: 1})
	if len(groups.Groups) != 1 {
		t.Fatalf("%d groups, %v", len(groups.Groups), err)
	}
	expect("a group", groups.Groups[0].AtRisk["IRR"], err)
	cases, err := ada.Cases.List(ctx, casestatus.Filter{}, "", 1)
	expect("cases", cases.Money["IRR"].Reserved, err)
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	expect("a plan", plan.Money["IRR"], nil)
	if text, err := json.Marshal(plan.Money); err != nil || string(text) != `{"IRR":`+strconv.Quote(want.String())+`}` {
		t.Errorf("%s, %v", text, err)
	}
}

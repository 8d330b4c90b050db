package postadjudication_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// lettersOfThreeCauses creates six letters of three causes: four open refusals of different
// accounts, one of them in dollars; an exhausted run that was forked and settled; and one of
// unknown money.
func lettersOfThreeCauses(r *rig.Rig) (letters []postadjudication.Submitted) {
	r.T.Helper()
	closed := func(c escrow.Call) escrow.Answer {
		return escrow.Answer{Class: escrow.NotExecuted, Type: "http.refused", Code: "422", Message: fmt.Sprintf("account %s9 is closed", c.Run.String()[30:])}
	}
	for i := range 3 {
		letters = append(letters, r.DeadLetter(i, closed))
	}
	dollars := rig.Refund(3)
	dollars.Amount, dollars.Held = settlement.Money{Minor: 70, Currency: "USD"}, settlement.Money{Minor: 90, Currency: "USD"}
	r.Escrow.Answer(closed)
	letters = append(letters, r.MustSubmit(dollars))
	r.WaitNoneLive()
	letters = append(letters, r.DeadLetter(4, rig.RateLimits))
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letters[4].Run, rig.ForkRequest); err != nil {
		r.T.Fatal(err)
	}
	r.WaitNoneLive()
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	return append(letters, r.DeadLetter(5, rig.GivesNoAnswer))
}

func share(shares []report.Share, value string) report.Share {
	for _, s := range shares {
		if s.Value == value {
			return s
		}
	}
	return report.Share{}
}

func TestAnAnalysisTellsWhatLettersHaveInCommon(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letters := lettersOfThreeCauses(r)
	ctx := context.Background()
	a, err := r.As("acme", "").DeadLetters.Analyze(ctx, report.Query{Step: report.Hours, Steps: 2})
	if err != nil {
		t.Fatal(err)
	}
	if a.Letters != 6 || a.Open != 5 || a.AtRisk["EUR"] != settlement.SumOf(4000) || a.AtRisk["USD"] != settlement.SumOf(70) || len(a.AtRisk) != 2 || a.Groups != 3 || a.Attempts != 10.0/6 {
		t.Errorf("%+v", a)
	}
	for name, got := range map[string]struct {
		share   report.Share
		letters int64
		euros   int64
	}{
		"open": {share(a.ByStatus, "open"), 5, 4000}, "forked": {share(a.ByStatus, "forked"), 1, 0}, "family": {share(a.ByFamily, postadjudication.Family), 6, 4000},
		"refund": {share(a.ByOutcome, "refund"), 1, 0}, "final": {share(a.ByReason, "final"), 4, 3000}, "unknown": {share(a.ByClass, "unknown"), 1, 1000},
		"refused": {share(a.ByErrorType, "http.refused"), 4, 3000}, "dollars": {share(a.ByCurrency, "USD"), 1, 0}, "type": {share(a.ByType, postadjudication.Family), 6, 4000},
		"replayed": {share(a.ByReplayer, "user:ada"), 1, 0}, "review": {share(a.ByReview, "true"), 1, 1000}, "held": {share(a.ByHeld, "false"), 6, 4000},
	} {
		if got.share.Letters != got.letters || got.share.AtRisk["EUR"] != settlement.SumOf(got.euros) {
			t.Errorf("%s: %+v, want %d letters and %d", name, got.share, got.letters, got.euros)
		}
	}
	g := a.Largest[0]
	if g.Signature != "http.refused: account # is closed" || g.Letters != 4 || g.Open != 4 || g.AtRisk["EUR"] != settlement.SumOf(3000) || g.AtRisk["USD"] != settlement.SumOf(70) || g.Sample != letters[3].Run || !g.FirstSeen.Before(g.LastSeen) {
		t.Errorf("%+v", g)
	}
	if n := len(r.Letters(deadletter.Filter{Signature: g.Signature})); n != 4 {
		t.Errorf("its signature finds %d letters", n)
	}
	if len(a.Times) != 2 || a.Times[0].Letters+a.Times[1].Letters+a.Earlier != 6 || a.Trends[0].Letters != 6 || a.Trends[2].Letters != 6 || a.Trends[1].Before != 0 {
		t.Errorf("times %+v, earlier %d, trends %+v", a.Times, a.Earlier, a.Trends)
	}
	if a.Oldest == nil || a.Oldest.Run != letters[0].Run || a.Expiring != 0 {
		t.Errorf("oldest %+v, %d expire", a.Oldest, a.Expiring)
	}
	some, err := r.As("acme", "").DeadLetters.Analyze(ctx, report.Query{Filter: deadletter.Filter{Class: escrow.Unknown}})
	if err != nil || some.Letters != 1 || some.AtRisk["EUR"] != settlement.SumOf(1000) || len(some.Largest) != 1 || some.Oldest.Run != letters[5].Run || len(some.Times) != 30 {
		t.Errorf("letters of unknown outcome: %+v, %v", some, err)
	}
	if other, err := r.As("other", "").DeadLetters.Analyze(ctx, report.Query{}); err != nil || other.Letters != 0 || other.Oldest != nil || len(other.Largest) != 0 {
		t.Errorf("another tenant sees %+v, %v", other, err)
	}
}

func TestStatisticsCountLettersByStatus(t *testing.T) {
	t.Parallel()
	ahead := time.Duration(0)
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Simulated = true
		c.Now = func() time.Time { return time.Now().Add(ahead) }
	}).StartWorkers()
	letters := lettersOfThreeCauses(r)
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, letters[0].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Mark(ctx, letters[1].Run, deadletter.Mark{Reason: "mended", ReprocessEligible: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	s, err := r.As("acme", "").DeadLetters.Stats(ctx, deadletter.Filter{})
	if err != nil || s.Letters != 6 || s.Open != 5 || s.ByStatus["open"] != 5 || s.ByStatus["forked"] != 1 || s.AtRisk["EUR"] != settlement.SumOf(4000) || s.Held != 1 || s.Reprocess != 1 || s.Review != 1 ||
		s.DiedLastHour != 6 || s.DiedLastDay != 6 || s.Ages[0].Letters != 5 || share(s.ByClass, "unknown").Letters != 1 || share(s.ByError, "http.refused").Letters != 4 {
		t.Errorf("%+v, %v", s, err)
	}
	r.StopWorkers()
	ahead = 175 * day
	s, err = r.As("acme", "").DeadLetters.Stats(ctx, deadletter.Filter{})
	if err != nil || s.DiedLastDay != 0 || s.Ages[0].Letters != 0 || s.Ages[5].Letters != 5 || s.Ages[5].From != deadletter.Duration(90*day) || s.Expiring != 3 || s.Oldest == nil || s.Oldest.Run != letters[0].Run {
		t.Errorf("five days before their expiry: %+v, %v", s, err)
	}
	if s, err = r.As("acme", "").DeadLetters.Stats(ctx, deadletter.Filter{Status: background.LetterForked}); err != nil || s.Open != 0 || s.Letters != 1 || s.Ages[5].Letters != 0 || s.Oldest != nil {
		t.Errorf("forked letters: %+v, %v", s, err)
	}
}

func TestAnAnalysisOfWhatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	lettersOfThreeCauses(r)
	ctx := context.Background()
	another, err := r.As("acme", "").DeadLetters.Groups(ctx, report.GroupQuery{Limit: 1, Filter: deadletter.Filter{Class: escrow.NotExecuted}})
	if err != nil || another.Next == "" {
		t.Fatalf("%+v, %v", another, err)
	}
	_, cursorless := r.As("acme", "").DeadLetters.Groups(ctx, report.GroupQuery{Limit: 1, After: "AAAA"})
	_, foreign := r.As("acme", "").DeadLetters.Groups(ctx, report.GroupQuery{Limit: 1, After: another.Next})
	_, limit := r.As("acme", "").DeadLetters.Groups(ctx, report.GroupQuery{})
	_, sort := r.As("acme", "").DeadLetters.Groups(ctx, report.GroupQuery{Limit: 1, Sort: "funniest"})
	_, step := r.As("acme", "").DeadLetters.Analyze(ctx, report.Query{Step: "fortnight"})
	_, steps := r.As("acme", "").DeadLetters.Analyze(ctx, report.Query{Steps: 1001})
	_, class := r.As("acme", "").DeadLetters.Analyze(ctx, report.Query{Filter: deadletter.Filter{Class: "odd"}})
	_, tenant := r.As("", "").DeadLetters.Analyze(ctx, report.Query{})
	_, stats := r.As("", "").DeadLetters.Stats(ctx, deadletter.Filter{})
	for field, errs := range map[string][]error{"after": {cursorless, foreign}, "limit": {limit}, "sort": {sort}, "step": {step}, "steps": {steps}, "outcome_class": {class}, "tenant": {tenant, stats}} {
		for _, err := range errs {
			var refused *refusal.FieldError
			if !errors.As(err, &refused) || refused.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
}

func TestGroupsComeInPages(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	lettersOfThreeCauses(r)
	for _, sort := range append(report.GroupSorts, "") {
		seen := map[string]int64{}
		for q := (report.GroupQuery{Sort: sort, Limit: 1}); ; {
			page, err := r.As("acme", "").DeadLetters.Groups(context.Background(), q)
			if err != nil || len(page.Groups) != 1 || page.Total != 3 {
				t.Fatalf("%s: %+v, %v", sort, page, err)
			}
			seen[page.Groups[0].Signature] = page.Groups[0].Letters
			if q.After = page.Next; !page.More {
				break
			}
		}
		if len(seen) != 3 || seen["http.refused: account # is closed"] != 4 || seen["http.rate_limited: slow down"] != 1 {
			t.Errorf("%s: %v", sort, seen)
		}
	}
}

// checkMoneyWithoutLetter adds to a case that a finding left with 600 reserved one of each other kind, and checks that
// what is at risk, what live runs have reserved, and what is without a letter are together what all cases have reserved.
func checkMoneyWithoutLetter(r *rig.Rig) {
	r.T.Helper()
	ctx := context.Background()
	cancelledFork(r, 2)
	r.DeadLetters(3, 5, rig.Refuses)
	r.MustPurge(deadletter.Filter{Transaction: "txr_3"}, 1)
	if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "stop"); err != nil {
		r.T.Fatal(err)
	}
	r.MustSubmit(rig.Release(5)) // it waits
	stats, err := r.As("acme", "").DeadLetters.Stats(ctx, deadletter.Filter{})
	if err != nil {
		r.T.Fatal(err)
	}
	all, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{}, "", 10)
	if err != nil {
		r.T.Fatal(err)
	}
	got, money := stats.Reserved, func(sums casestatus.ReservedSums) string { return sums.Money.String() }
	kinds := fmt.Sprintf("%s, %s, %s, %s: %v", money(got.OpenLetters), money(got.LiveRuns), money(got.WithoutLetter), money(got.All), got.WaitingFor)
	if got.WithoutLetter.Cases != 3 || kinds != "10.00 EUR, 10.00 EUR, 26.00 EUR, 46.00 EUR: map[cancelled_fork:{1 10.00 EUR} purged_letter:{1 10.00 EUR} rest_of_payment:{1 6.00 EUR}]" || got.All.Money["EUR"] != all.Money["EUR"].Reserved || stats.AtRisk["EUR"] != got.OpenLetters.Money["EUR"] {
		r.T.Errorf("%s: all cases have reserved %v, and %v is at risk", kinds, all.Money["EUR"].Reserved, stats.AtRisk)
	}
	without, err := r.As("acme", "").Cases.List(ctx, casestatus.Filter{WithoutLetter: true}, "", 10)
	if err != nil || without.Total != 3 || without.Money["EUR"].Reserved != got.WithoutLetter.Money["EUR"] || without.Cases[2].Transaction != "txr_3" {
		r.T.Errorf("the list of cases without a letter: %+v, %v", without, err)
	}
	request := rig.FreeRequest("")
	request.Filter.WithoutLetter = true
	if plan := rig.MustPlanFree(r, request); plan.Items != 3 || plan.Ready != 3 || plan.Money["EUR"] != got.WithoutLetter.Money["EUR"] {
		r.T.Errorf("a plan to free what is without a letter: %+v", plan)
	}
	levels, err := r.Health().Levels(ctx)
	if err != nil || levels.WithoutLetter["EUR"] != got.WithoutLetter.Money["EUR"] || levels.AtRisk["EUR"] != stats.AtRisk["EUR"] {
		r.T.Errorf("measured: %v without a letter, %v at risk, %v", levels.WithoutLetter, levels.AtRisk, err)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "go"); err != nil {
		r.T.Fatal(err)
	}
	r.WaitNoneLive()
}

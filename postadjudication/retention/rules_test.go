package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

func TestAnAgeIsReadAsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"P180D": 180 * validate.Day, "PT36H": 36 * time.Hour, "P2W": 14 * validate.Day, "P1DT1H1M1S": validate.Day + time.Hour + time.Minute + time.Second,
		"P1Y": 365 * validate.Day, "P12M": 365 * validate.Day, "P200Y": 200 * 365 * validate.Day,
	} {
		if got, err := validate.ParseISODuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "180", "180D", "P", "PT", "P0D", "-P1D", "P-1D", "P1DT", "PP1D", "P1D2D", "P1.5D", "PT1D", "P1H", "p1d", " P1D", "P1D ", "P201Y", "P99999999999999999D", "P½D"} {
		if got, err := validate.ParseISODuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestTheRuleOfAQueueBeatsThatOfItsFamily(t *testing.T) {
	t.Parallel()
	all, err := newRuleSet([]Rule{
		{Family: "chores", Queue: "chores:1", MaxAge: "P1D"}, {Family: "chores", MaxAge: "P10D", MaxCount: 7}, {Family: "chores", Queue: "chores:0", MaxCount: 3},
	}, []string{casework.Family, "chores"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		family, queue string
		age           time.Duration
		count         int
	}{
		{"chores", "chores:1", validate.Day, 0}, {"chores", "chores:2", 10 * validate.Day, 7}, {"chores", "chores:0", 180 * validate.Day, 3},
		{casework.Family, casework.Family + ":0", 180 * validate.Day, 0}, {casework.Family, "chores:1", 180 * validate.Day, 0},
	} {
		if r := all.ruleFor(c.family, c.queue); r.maxAge != c.age || r.maxCount != c.count {
			t.Errorf("%s %s: %v, %d", c.family, c.queue, r.maxAge, r.maxCount)
		}
	}
	if got := strings.Join(all.ruleFor("chores", "").Except, " "); got != "chores:0 chores:1" {
		t.Errorf("the family's rule leaves out %q", got)
	}
	if n := len(all.all()); n != 4 {
		t.Errorf("%d rules", n)
	}
}

// Clients name the queues of their jobs, and may name one as another family does.
func TestQueuesOfTwoFamiliesWithOneNameHaveTheirOwnRules(t *testing.T) {
	t.Parallel()
	const queue = casework.Family + ":0"
	all, err := newRuleSet([]Rule{
		{Family: casework.Family, Queue: queue, MaxAge: "P300D"}, {Family: casework.JobFamily, Queue: queue, MaxAge: "P1D", MaxCount: 3},
	}, []string{casework.Family, casework.JobFamily})
	if err != nil {
		t.Fatal(err)
	}
	if r := all.ruleFor(casework.Family, queue); r.maxAge != 300*validate.Day || r.maxCount != 0 {
		t.Errorf("of settlements: %v, %d", r.maxAge, r.maxCount)
	}
	if r := all.ruleFor(casework.JobFamily, queue); r.maxAge != validate.Day || r.maxCount != 3 {
		t.Errorf("of jobs: %v, %d", r.maxAge, r.maxCount)
	}
	for _, family := range []string{casework.Family, casework.JobFamily} {
		if except := all.ruleFor(family, "").Except; len(except) != 1 || len(all.all()) != 4 {
			t.Errorf("the rule of %s leaves out %q; %d rules", family, except, len(all.all()))
		}
	}
}

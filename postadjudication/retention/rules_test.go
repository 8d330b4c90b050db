package retention

import (
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

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

package replay_test

import (
	"context"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

// A rule replays the letters of a known cause. It is tried first, then set; every process applies it at intervals.
func ExampleRules_Set() {
	svc, stop := rig.Example(rig.WithoutRuleLoop) // this program applies rules only where it says so
	defer stop()
	ctx := context.Background()
	rules := svc.As("acme", "user:ada").Rules
	letter := svc.DeadLetter(1, rig.Refuses)

	rule, err := replay.Parse([]byte(`{"name": "closed-accounts", "enabled": true, "filter": {"error_type": "http.refused"}, "delay": "0s", "max_replays": 1}`))
	if err != nil {
		panic(err)
	}
	trial, err := rules.Try(ctx, rule) // changes nothing
	fmt.Println(trial.Matched, trial.Ready, trial.Money, err)
	set, err := rules.Set(ctx, replay.Change{Rule: rule, Reason: "accounts open again by themselves"})
	fmt.Println(set.Version, err)

	report, err := svc.ApplyRules(ctx) // now, not after Config.RuleEvery
	fmt.Println(report.Replayed, err)
	svc.WaitSettled(1)
	status, err := svc.Status(ctx, "acme", letter.Run)
	fmt.Println(status.Letter, status.LastRule, err)

	rule.MaxReplays = 2
	if _, err := rules.Set(ctx, replay.Change{Rule: rule, Reason: "once is too little", IfVersion: &set.Version}); err != nil {
		panic(err)
	}
	all, err := rules.List(ctx)
	fmt.Println(len(all), all[0].Version, err)
	_, err = rules.Delete(ctx, replay.Removal{Name: rule.Name, Reason: "a person decides from now on"})
	fmt.Println(err)
	history, err := rules.History(ctx, rule.Name, 0, 10)
	for _, v := range history {
		fmt.Println(v.Version, v.Deleted, v.Actor, v.Reason)
	}
	fmt.Println(err)
	// Output:
	// 1 1 10.00 EUR <nil>
	// 1 <nil>
	// 1 <nil>
	// forked closed-accounts <nil>
	// 1 2 <nil>
	// <nil>
	// 1 false user:ada accounts open again by themselves
	// 2 false user:ada once is too little
	// 3 true user:ada a person decides from now on
	// <nil>
}

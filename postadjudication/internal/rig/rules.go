package rig

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

// ReplayRule returns a rule for letters that the escrow service refused.
func ReplayRule(most int) replay.Change {
	return replay.Change{Reason: "the bank is slow on mondays",
		Rule: replay.Rule{Name: "refused-later", Enabled: true, Filter: deadletter.Filter{ErrorType: "http.refused"}, Delay: "0s", MaxReplays: most}}
}

// MustSetRule sets a rule as user:ada.
func (r *Rig) MustSetRule(q replay.Change) replay.StoredRule {
	r.T.Helper()
	set, err := r.As("acme", "user:ada").Rules.Set(context.Background(), q)
	if err != nil {
		r.T.Fatal(err)
	}
	return set
}

// MustApplyRules runs one round of the rules.
func (r *Rig) MustApplyRules(want replay.Report) {
	r.T.Helper()
	want.Ran = true
	if got, err := r.ApplyRules(context.Background()); err != nil || got != want {
		r.T.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// WithoutRuleLoop keeps Run from applying rules, so that the test does.
func WithoutRuleLoop(c *postadjudication.Config) { c.RuleEvery = time.Hour }

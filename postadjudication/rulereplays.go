package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// RuleReplays are what rules did with a job: a run, with everything that it is a fork
// of, and its forks. What people forked is not in it.
type RuleReplays struct {
	ByRule         map[string]int `json:"replays_by_rule,omitempty"`
	LastReplayedAt *time.Time     `json:"last_replayed_at,omitempty"`
	LastRule       string         `json:"replay_rule,omitempty"` // that replayed it then
}

// Total is how often rules replayed the job.
func (r RuleReplays) Total() (n int) {
	for _, by := range r.ByRule {
		n += by
	}
	return n
}

// ruleReplays tells what rules did with the jobs of runs of a tenant.
func (s *Service) ruleReplays(ctx context.Context, tenant string, runs []background.RunID) (map[background.RunID]RuleReplays, error) {
	lineages, err := s.journal.LineageReplays(ctx, tenant, runs)
	out := make(map[background.RunID]RuleReplays, len(lineages))
	for id, lineage := range lineages {
		if len(lineage.ByRule) == 0 {
			continue
		}
		replays := RuleReplays{ByRule: map[string]int{}, LastReplayedAt: &lineage.ByRule[0].LastAt, LastRule: lineage.ByRule[0].Rule}
		for _, by := range lineage.ByRule {
			replays.ByRule[by.Rule] = by.Replays
		}
		out[id] = replays
	}
	return out, err
}

// addRuleReplays adds to letters what rules did with their jobs.
func (s *Service) addRuleReplays(ctx context.Context, tenant string, letters []Letter) error {
	var forked []background.RunID
	for i := range letters {
		if letters[i].Replays > 0 {
			forked = append(forked, letters[i].Run)
		}
	}
	byRules, err := s.ruleReplays(ctx, tenant, forked)
	for i := range letters {
		letters[i].RuleReplays = byRules[letters[i].Run]
	}
	return err
}

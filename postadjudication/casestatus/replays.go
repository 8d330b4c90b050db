package casestatus

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// RuleReplays counts the forks that replay rules made in the lineage of a run. Forks by people do
// not count.
type RuleReplays struct {
	ByRule         map[string]int `json:"replays_by_rule,omitempty"`
	LastReplayedAt *time.Time     `json:"last_replayed_at,omitempty"`
	LastRule       string         `json:"replay_rule,omitempty"` // the rule of that replay
}

// Total returns how often rules replayed the lineage.
func (r RuleReplays) Total() (n int) {
	for _, by := range r.ByRule {
		n += by
	}
	return n
}

// RuleReplays returns the replays by rules of the lineage of each run; runs without any are left out.
func (s *Reader) RuleReplays(ctx context.Context, tenant string, runs []background.RunID) (map[background.RunID]RuleReplays, error) {
	lineages, err := s.Journal.Rules.LineageReplays(ctx, tenant, runs)
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

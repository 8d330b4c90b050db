package cli

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/recourse-dev/recourse/postadjudication"
)

// sentRule is a rule as a server is told it: without its name, which is in the path.
func sentRule(r postadjudication.Rule) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	err = json.Unmarshal(text, &members)
	delete(members, "name")
	if r.Filter == (postadjudication.LetterFilter{}) {
		delete(members, "filter")
	}
	return members, err
}

func rulePath(name, verb string) string { return "/rules/" + url.PathEscape(name) + verb }

func (s *server) Rules(ctx context.Context) ([]postadjudication.StandingRule, error) {
	var out struct {
		Rules []postadjudication.StandingRule `json:"rules"`
	}
	err := s.get(ctx, "/rules", nil, &out)
	return out.Rules, err
}

// ruleOrder is the body of a request about a rule.
type ruleOrder struct {
	Rule      map[string]json.RawMessage `json:"rule,omitempty"`
	Reason    string                     `json:"reason,omitempty"`
	IfVersion *int64                     `json:"if_version,omitempty"`
}

func (s *server) SetRule(ctx context.Context, q postadjudication.RuleChange) (out postadjudication.StandingRule, err error) {
	rule, err := sentRule(q.Rule)
	if err != nil {
		return out, err
	}
	err = s.post(ctx, rulePath(q.Rule.Name, ""), ruleOrder{rule, q.Reason, q.IfVersion}, &out)
	return out, err
}

func (s *server) TryRule(ctx context.Context, r postadjudication.Rule) (out postadjudication.RuleTrial, err error) {
	rule, err := sentRule(r)
	if err != nil {
		return out, err
	}
	err = s.post(ctx, rulePath(r.Name, "/try"), ruleOrder{Rule: rule}, &out)
	return out, err
}

func (s *server) RuleHistory(ctx context.Context, name string, after int64, limit int) ([]postadjudication.RuleVersion, error) {
	var out struct {
		Versions []postadjudication.RuleVersion `json:"versions"`
	}
	err := s.get(ctx, rulePath(name, "/history"), versionsQuery(after, limit), &out)
	return out.Versions, err
}

func (s *server) DeleteRule(ctx context.Context, q postadjudication.RuleRemoval) (out postadjudication.StandingRule, err error) {
	err = s.post(ctx, rulePath(q.Name, "/delete"), ruleOrder{nil, q.Reason, q.IfVersion}, &out)
	return out, err
}

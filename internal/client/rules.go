package client

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

// Rules are the requests about automatic replay.
type Rules struct{ *connection }

// ruleMembers returns the JSON members of a rule without its name, which is in the path.
func ruleMembers(r replay.Rule) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	err = json.Unmarshal(text, &members)
	delete(members, "name")
	if r.Filter == (deadletter.Filter{}) {
		delete(members, "filter")
	}
	return members, err
}

func rulePath(name, verb string) string { return "/rules/" + url.PathEscape(name) + verb }

// List returns the rules of automatic replay.
func (r Rules) List(ctx context.Context) ([]replay.StoredRule, error) {
	var out struct {
		Rules []replay.StoredRule `json:"rules"`
	}
	err := r.get(ctx, "/rules", nil, &out)
	return out.Rules, err
}

// ruleBody is the body of a request about a rule.
type ruleBody struct {
	Rule      map[string]json.RawMessage `json:"rule,omitempty"`
	Reason    string                     `json:"reason,omitempty"`
	IfVersion *int64                     `json:"if_version,omitempty"`
}

// Set creates or replaces a rule.
func (r Rules) Set(ctx context.Context, q replay.Change) (out replay.StoredRule, err error) {
	rule, err := ruleMembers(q.Rule)
	if err != nil {
		return out, err
	}
	err = r.post(ctx, rulePath(q.Rule.Name, ""), ruleBody{rule, q.Reason, q.IfVersion}, &out)
	return out, err
}

// Try returns what a rule would do now.
func (r Rules) Try(ctx context.Context, rule replay.Rule) (out replay.Trial, err error) {
	sent, err := ruleMembers(rule)
	if err != nil {
		return out, err
	}
	err = r.post(ctx, rulePath(rule.Name, "/try"), ruleBody{Rule: sent}, &out)
	return out, err
}

// History returns the versions of a rule after version after.
func (r Rules) History(ctx context.Context, name string, after int64, limit int) ([]replay.Version, error) {
	var out struct {
		Versions []replay.Version `json:"versions"`
	}
	err := r.get(ctx, rulePath(name, "/history"), versionsQuery(after, limit), &out)
	return out.Versions, err
}

// Delete deletes a rule and returns its last version.
func (r Rules) Delete(ctx context.Context, q replay.Removal) (out replay.StoredRule, err error) {
	err = r.post(ctx, rulePath(q.Name, "/delete"), ruleBody{nil, q.Reason, q.IfVersion}, &out)
	return out, err
}

package ojs

import (
	"errors"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

// replayRule is a rule on the wire.
type replayRule struct {
	Name       string       `json:"name"`
	Filter     replayFilter `json:"filter"`
	Delay      string       `json:"delay"`
	MaxReplays int          `json:"max_replays"`
	Enabled    bool         `json:"enabled"`
}

type replayFilter struct {
	Queue     string `json:"queue,omitempty"`
	Type      string `json:"type,omitempty"`
	ErrorType string `json:"error_type,omitempty"`
	Since     string `json:"since,omitempty"`
	Until     string `json:"until,omitempty"`
}

func ruleOnWire(r replay.Rule) replayRule {
	out := replayRule{Name: r.Name, Filter: replayFilter{Queue: r.Filter.Queue, Type: r.Filter.JobType, ErrorType: r.Filter.ErrorType}, Delay: r.Delay, MaxReplays: r.MaxReplays, Enabled: r.Enabled}
	if d, err := deadletter.ParseDuration(r.Delay); err == nil {
		out.Delay = spec.FormatDuration(time.Duration(d))
	}
	if !r.Filter.From.IsZero() {
		out.Filter.Since = spec.FormatTime(r.Filter.From)
	}
	if !r.Filter.To.IsZero() {
		out.Filter.Until = spec.FormatTime(r.Filter.To)
	}
	return out
}

// rules answers GET /dead-letter/replay-rules. Rules of other families are not shown.
func (s *Server) rules(q request) (answer, error) {
	if err := spec.ParseNone(q.URL.Query()); err != nil {
		return answer{}, err
	}
	stored, err := s.service.As(q.caller.Tenant, "").Rules.List(q.Context())
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Rules []replayRule `json:"replay_rules"`
	}{[]replayRule{}}
	for _, r := range stored {
		if isOfJobs(r.Rule) {
			out.Rules = append(out.Rules, ruleOnWire(r.Rule))
		}
	}
	return answer{body: marshal(out)}, nil
}

// isOfJobs reports whether a rule replays jobs, and nothing else.
func isOfJobs(r replay.Rule) bool { return r.Filter.Family == jobs.Family && r.Mark == nil }

// setRule answers POST /dead-letter/replay-rules, which makes a rule, or replaces one of its name.
func (s *Server) setRule(q request) (answer, error) {
	rule, err := parsed(q, spec.ParseRule)
	if err != nil {
		return answer{}, err
	}
	rules := s.service.As(q.caller.Tenant, q.caller.Principal).Rules
	before, err := s.findRule(q, rule.Name)
	if err != nil && !errors.Is(err, refusal.ErrNotFound) {
		return answer{}, err
	}
	stored, err := rules.Set(q.Context(), replay.Change{IfVersion: &before.Version, Reason: reason("replay rule set"), Rule: replay.Rule{
		Name: rule.Name, Enabled: rule.Enabled, Filter: filterOf(rule.Filter).Letters(), Delay: spec.FormatDuration(rule.Delay), MaxReplays: rule.MaxReplays,
	}})
	if err != nil {
		return answer{}, ruleError(err)
	}
	status := http.StatusCreated
	if before.Version > 0 {
		status = http.StatusOK
	}
	return answer{status: status, body: marshal(map[string]any{"replay_rule": ruleOnWire(stored.Rule)})}, nil
}

// findRule returns a rule that replays jobs. One of the name that does anything else is in the way.
func (s *Server) findRule(q request, name string) (replay.StoredRule, error) {
	stored, err := s.service.As(q.caller.Tenant, "").Rules.List(q.Context())
	if err != nil {
		return replay.StoredRule{}, err
	}
	for _, r := range stored {
		if r.Name == name && !isOfJobs(r.Rule) {
			return replay.StoredRule{}, spec.Conflict("a rule of this name exists that is not for jobs: choose another name")
		}
		if r.Name == name {
			return r, nil
		}
	}
	return replay.StoredRule{}, refusal.ErrNotFound
}

// deleteRule answers DELETE /dead-letter/replay-rules/{rule}.
func (s *Server) deleteRule(q request) (answer, error) {
	name := q.PathValue("rule")
	before, err := s.findRule(q, name)
	if err == nil {
		_, err = s.service.As(q.caller.Tenant, q.caller.Principal).Rules.Delete(q.Context(), replay.Removal{Name: name, Reason: reason("replay rule deleted"), IfVersion: &before.Version})
	}
	if errors.Is(err, refusal.ErrNotFound) {
		return answer{}, spec.NotFound("replay_rule", "")
	}
	if err != nil {
		return answer{}, ruleError(err)
	}
	return answer{body: marshal(map[string]any{"deleted": true, "name": name})}, nil
}

// ruleError returns the refusal of a change of a rule.
func ruleError(err error) error {
	var version *replay.VersionError
	switch {
	case errors.As(err, &version):
		return spec.Conflict("another request changed the rule meanwhile")
	case errors.Is(err, replay.ErrTooMany):
		return spec.Conflict("the tenant has the maximum number of rules")
	}
	return err
}

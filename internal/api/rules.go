package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/replay"
)

// ruleAPI has the operations of replay rules.
type ruleAPI struct{ *API }

// RuleBody is a rule without its name.
type RuleBody struct {
	Enabled    bool            `json:"enabled"`
	Filter     json.RawMessage `json:"filter,omitempty" doc:"An object of the parameters of list-dead-letters; only open letters match"`
	All        bool            `json:"all,omitempty" doc:"All open letters; instead of a filter"`
	Delay      string          `json:"delay" minLength:"2" doc:"Time since death" example:"PT1H"`
	MaxReplays int             `json:"max_replays,omitempty" minimum:"1" maximum:"100" doc:"Maximum number of replays of a letter together with all letters it is a fork of; not with mark"`
	Policy     *PolicyBody     `json:"policy,omitempty" doc:"Another retry policy; absent: the letter's own"`
	Mark       *replay.Mark    `json:"mark,omitempty" doc:"Mark instead of replay"`
}

type ruleInput struct {
	Name string `path:"rule" minLength:"1" maxLength:"64"`
	Body struct {
		Rule      RuleBody `json:"rule" doc:"The whole rule: an absent member is not kept"`
		Reason    string   `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded with every replay"`
		IfVersion *int64   `json:"if_version,omitempty" minimum:"0" doc:"Refused unless this is the current version; 0: unless there is no such rule"`
	}
}

type ruleRemovalInput struct {
	Name string `path:"rule" minLength:"1" maxLength:"64"`
	Body struct {
		Reason    string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
		IfVersion *int64 `json:"if_version,omitempty" minimum:"1" doc:"Refused unless this is the current version"`
	}
}

type ruleTrialInput struct {
	Name string `path:"rule" minLength:"1" maxLength:"64"`
	Body struct {
		Rule RuleBody `json:"rule"`
	}
}

type rulesOutput struct {
	Body struct {
		Rules []replay.StoredRule `json:"rules"`
	}
}

type ruleOutput struct{ Body replay.StoredRule }

type ruleTrialOutput struct{ Body replay.Trial }

func (a ruleAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-rules", method: http.MethodGet, path: "/rules", action: access.Read, summary: "List the rules of automatic replay",
	}, a.rules)
	register(a.API, h, operation{
		id: "set-rule", method: http.MethodPost, path: "/rules/{rule}", action: access.Rules, summary: "Create or change a rule",
		description: "A rule replays only letters that are known to be not executed, and never a held one. 409 rule_version if if_version is not the current version, too_many_rules.",
	}, a.setRule)
	register(a.API, h, operation{
		id: "try-rule", method: http.MethodPost, path: "/rules/{rule}/try", action: access.Rules, repeatable: true, reads: true, summary: "Report what a rule would do now, without changes",
	}, a.tryRule)
	register(a.API, h, operation{
		id: "delete-rule", method: http.MethodPost, path: "/rules/{rule}/delete", action: access.Rules, summary: "Delete a rule",
		description: "Its replays stay counted. 409 rule_version if if_version is not the current version.",
	}, a.deleteRule)
	register(a.API, h, operation{
		id: "rule-history", method: http.MethodGet, path: "/rules/{rule}/history", action: access.Receipts, summary: "List the changes of a rule, from their receipts",
		description: "Oldest first. A rule that is deleted and created again continues its versions.",
	}, a.ruleHistory)
}

type ruleHistoryInput struct {
	Name  string `path:"rule" minLength:"1" maxLength:"64"`
	After int64  `query:"after" minimum:"0" default:"0" doc:"Only versions after this one"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type ruleHistoryOutput struct {
	Body struct {
		Versions []replay.Version `json:"versions"`
	}
}

func (a ruleAPI) ruleHistory(ctx context.Context, c door.Caller, in *ruleHistoryInput) (*ruleHistoryOutput, error) {
	found, err := a.service.As(c.Tenant, "").Rules.History(ctx, in.Name, in.After, in.Limit)
	out := &ruleHistoryOutput{}
	out.Body.Versions = append([]replay.Version{}, found...)
	return out, err
}

// rule parses a rule as strictly as the library does.
func (b RuleBody) rule(name string) (replay.Rule, error) {
	text, err := json.Marshal(struct {
		Name string `json:"name"`
		RuleBody
	}{name, b})
	if err != nil {
		return replay.Rule{}, err
	}
	if _, err := b.Policy.policy(); err != nil {
		return replay.Rule{}, err
	}
	return replay.Parse(text)
}

func (a ruleAPI) rules(ctx context.Context, c door.Caller, _ *noInput) (*rulesOutput, error) {
	found, err := a.service.As(c.Tenant, "").Rules.List(ctx)
	out := &rulesOutput{}
	out.Body.Rules = append([]replay.StoredRule{}, found...)
	return out, err
}

func (a ruleAPI) setRule(ctx context.Context, c door.Caller, in *ruleInput) (*ruleOutput, error) {
	rule, err := in.Body.Rule.rule(in.Name)
	if err != nil {
		return nil, err
	}
	now, err := a.service.As(c.Tenant, c.Principal).Rules.Set(ctx, replay.Change{Rule: rule, Reason: in.Body.Reason, IfVersion: in.Body.IfVersion})
	return &ruleOutput{now}, ruleProblem(err)
}

func (a ruleAPI) tryRule(ctx context.Context, c door.Caller, in *ruleTrialInput) (*ruleTrialOutput, error) {
	rule, err := in.Body.Rule.rule(in.Name)
	if err != nil {
		return nil, err
	}
	trial, err := a.service.As(c.Tenant, "").Rules.Try(ctx, rule)
	return &ruleTrialOutput{trial}, err
}

func (a ruleAPI) deleteRule(ctx context.Context, c door.Caller, in *ruleRemovalInput) (*ruleOutput, error) {
	was, err := a.service.As(c.Tenant, c.Principal).Rules.Delete(ctx, replay.Removal{Name: in.Name, Reason: in.Body.Reason, IfVersion: in.Body.IfVersion})
	return &ruleOutput{was}, ruleProblem(err)
}

// ruleProblem returns the problems that only rules have.
func ruleProblem(err error) error {
	var other *replay.VersionError
	switch {
	case errors.As(err, &other):
		return door.NewRefusal(http.StatusConflict, "rule_version", "the rule is at version %d", other.Current.Version)
	case errors.Is(err, replay.ErrTooMany):
		return door.NewRefusal(http.StatusConflict, "too_many_rules", "the tenant has the maximum number of rules")
	}
	return err
}

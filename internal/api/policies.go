package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// policyAPI has the operations of retry policies.
type policyAPI struct{ *API }

// PolicyBody is a retry policy. An absent member has its default.
type PolicyBody struct {
	MaxRetryAttempts int      `json:"max_retry_attempts,omitempty" minimum:"1" maximum:"10000" doc:"Maximum number of attempts, including the first" example:"3"`
	BaseDelay        string   `json:"base_delay,omitempty" minLength:"2" doc:"Delay after the first attempt" example:"25ms"`
	MaxDelay         string   `json:"max_delay,omitempty" minLength:"2" doc:"Maximum delay" example:"5m0s"`
	Backoff          string   `json:"backoff,omitempty" enum:"exponential,linear" doc:"How delays grow: linear adds base_delay after each attempt"`
	Coefficient      float64  `json:"coefficient,omitempty" minimum:"1" doc:"Of exponential delays: ratio of each delay to the previous one" example:"2"`
	Jitter           float64  `json:"jitter,omitempty" minimum:"0" maximum:"1" doc:"Fraction of a delay that is randomly added or subtracted at most"`
	NonRetryable     []string `json:"non_retryable,omitempty" maxItems:"100" doc:"Error types that are final; prefix.* matches every type with that prefix"`
	OnExhaustion     string   `json:"on_exhaustion,omitempty" enum:"dead_letter"`
}

// policy parses a policy as strictly as retrypolicy does; nil for none.
func (b *PolicyBody) policy() (*retrypolicy.Policy, error) {
	if b == nil {
		return nil, nil
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	p, err := retrypolicy.Parse(string(text))
	if err == nil {
		return &p, nil
	}
	refused := door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "the policy is invalid")
	var wrong *retrypolicy.FieldError
	if errors.As(err, &wrong) {
		return nil, refused.WithField("policy."+wrong.Field, wrong.Problem)
	}
	return nil, refused.WithField("policy", err.Error())
}

type policiesOutput struct {
	Body struct {
		Policies []postadjudication.FamilyPolicy `json:"policies"`
	}
}

type policyInput struct {
	Family string `path:"family" minLength:"1" maxLength:"32" example:"settlement"`
	Body   struct {
		Policy    PolicyBody `json:"policy" doc:"The whole policy: an absent member gets its default"`
		Reason    string     `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
		IfVersion *int64     `json:"if_version,omitempty" minimum:"0" doc:"Refused unless this is the current version"`
	}
}

type policyResetInput struct {
	Family string `path:"family" minLength:"1" maxLength:"32" example:"settlement"`
	Body   struct {
		Reason    string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
		IfVersion *int64 `json:"if_version,omitempty" minimum:"0" doc:"Refused unless this is the current version"`
	}
}

type policyOutput struct{ Body postadjudication.FamilyPolicy }

func (a policyAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-policies", method: http.MethodGet, path: "/policies", action: access.Read, summary: "List the retry policies of new runs",
	}, a.policies)
	register(a.API, h, operation{
		id: "set-policy", method: http.MethodPost, path: "/policies/{family}", action: access.Policy, summary: "Set the retry policy of new runs of a family",
		description: "Existing runs keep their policy. 409 policy_version if if_version is not the current version.",
	}, a.setPolicy)
	register(a.API, h, operation{
		id: "reset-policy", method: http.MethodPost, path: "/policies/{family}/reset", action: access.Policy, summary: "Reset the retry policy of new runs of a family to the configured one",
		description: "Writes a receipt and increments the version. Existing runs keep their policy. 409 policy_version if if_version is not the current version.",
	}, a.resetPolicy)
}

func (a policyAPI) policies(ctx context.Context, c door.Caller, _ *noInput) (*policiesOutput, error) {
	found, err := a.service.As(c.Tenant, "").Policies.List(ctx)
	out := &policiesOutput{}
	out.Body.Policies = append([]postadjudication.FamilyPolicy{}, found...)
	return out, err
}

func (a policyAPI) setPolicy(ctx context.Context, c door.Caller, in *policyInput) (*policyOutput, error) {
	policy, err := in.Body.Policy.policy()
	if err != nil {
		return nil, err
	}
	now, err := a.service.As(c.Tenant, c.Principal).Policies.Set(ctx, postadjudication.PolicyChange{
		Family: in.Family, Policy: *policy, Reason: in.Body.Reason, IfVersion: in.Body.IfVersion,
	})
	return policyResult(now, in.Family, err)
}

func (a policyAPI) resetPolicy(ctx context.Context, c door.Caller, in *policyResetInput) (*policyOutput, error) {
	now, err := a.service.As(c.Tenant, c.Principal).Policies.Reset(ctx, postadjudication.PolicyReset{
		Family: in.Family, Reason: in.Body.Reason, IfVersion: in.Body.IfVersion,
	})
	return policyResult(now, in.Family, err)
}

func policyResult(now postadjudication.FamilyPolicy, family string, err error) (*policyOutput, error) {
	var other *postadjudication.PolicyVersionError
	switch {
	case errors.As(err, &other):
		return nil, door.NewRefusal(http.StatusConflict, "policy_version", "the policy is at version %d", other.Current.Version)
	case errors.Is(err, background.ErrUnknownFamily):
		return nil, door.NewRefusal(http.StatusNotFound, "unknown_family", "there is no family %q", family)
	}
	return &policyOutput{now}, err
}

type policyHistoryInput struct {
	Family string `path:"family" minLength:"1" maxLength:"32" example:"settlement"`
	After  int64  `query:"after" minimum:"0" default:"0" doc:"Only versions after this one"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type policyHistoryOutput struct {
	Body struct {
		Versions []postadjudication.PolicyVersion `json:"versions"`
	}
}

func (a policyAPI) historyOperations(h huma.API) {
	register(a.API, h, operation{
		id: "policy-history", method: http.MethodGet, path: "/policies/{family}/history", action: access.Receipts, summary: "List the changes of a family's policy, from their receipts",
		description: "Oldest first. Empty if the policy was never changed.",
	}, func(ctx context.Context, c door.Caller, in *policyHistoryInput) (*policyHistoryOutput, error) {
		found, err := a.service.As(c.Tenant, "").Policies.History(ctx, in.Family, in.After, in.Limit)
		out := &policyHistoryOutput{}
		out.Body.Versions = append([]postadjudication.PolicyVersion{}, found...)
		return out, err
	})
}

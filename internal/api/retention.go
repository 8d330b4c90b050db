package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

type retentionOutput struct {
	Body struct {
		Retention []postadjudication.EffectiveRetention `json:"retention"`
	}
}

// retentionAPI has the handlers of retention rules and purges.
type retentionAPI struct{ *API }

func (a retentionAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "get-retention", method: http.MethodGet, path: "/retention", action: access.Read, summary: "Get how long dead letters are kept",
		description: "From this server's configuration. expires_at of a letter is when it may be purged.",
	}, func(ctx context.Context, c Caller, _ *noInput) (_ *retentionOutput, err error) {
		out := &retentionOutput{}
		out.Body.Retention, err = a.service.As(c.Tenant, "").DeadLetters.Retention(ctx)
		return out, err
	})
}

type purgePlanInput struct {
	Body struct {
		Filter json.RawMessage `json:"filter" doc:"An object of the parameters of list-dead-letters; must not be empty"`
	}
}

type purgeInput struct {
	Body struct {
		Filter  json.RawMessage `json:"filter" doc:"An object of the parameters of list-dead-letters; must not be empty"`
		Reason  string          `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipts"`
		Confirm string          `json:"confirm" minLength:"1" doc:"Number of letters that the plan counted, in digits; if the number has changed, nothing is done"`
	}
}

type clearPlanInput struct {
	Body struct {
		Family string `json:"family" minLength:"1" maxLength:"32"`
	}
}

type clearInput struct {
	Body struct {
		Family  string `json:"family" minLength:"1" maxLength:"32"`
		Reason  string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipts"`
		Confirm string `json:"confirm" minLength:"1" doc:"The name of the family, repeated"`
	}
}

type purgePlanOutput struct{ Body postadjudication.PurgePlan }

type purgeOutput struct{ Body postadjudication.Purged }

func (a retentionAPI) purgeOperations(h huma.API) {
	register(a.API, h, operation{
		id: "plan-purge", method: http.MethodPost, path: "/dead-letters/purge/plan", action: access.Purge, idempotent: true, summary: "Count what a purge would remove",
	}, a.planPurge)
	register(a.API, h, operation{
		id: "purge-dead-letters", method: http.MethodPost, path: "/dead-letters/purge", action: access.Purge, plannable: true, summary: "Purge the dead letters that a filter selects",
		description: "Held letters and letters with unknown money stay, as do cases, reservations and receipts. A purge may be unfinished when it is answered; the same request continues it. A purge of letters of settlements takes two people, unless the tenant requires only one: 202 second_person_required with a plan that another person has to run.",
	}, a.purge)
	register(a.API, h, operation{
		id: "plan-clear", method: http.MethodPost, path: "/dead-letters/clear/plan", action: access.Clear, idempotent: true, summary: "Count what a clear would remove",
	}, a.planClear)
	register(a.API, h, operation{
		id: "clear-dead-letters", method: http.MethodPost, path: "/dead-letters/clear", action: access.Clear, plannable: true, summary: "Clear a family: purge all its dead letters",
		description: "With the limits of a purge.",
	}, a.clear)
}

func (a retentionAPI) planPurge(ctx context.Context, c Caller, in *purgePlanInput) (*purgePlanOutput, error) {
	filter, err := deadletter.ParseFilter(in.Body.Filter)
	if err != nil {
		return nil, err
	}
	plan, err := a.service.As(c.Tenant, "").DeadLetters.PlanPurge(ctx, postadjudication.PurgeRequest{Filter: filter})
	return &purgePlanOutput{plan}, err
}

func (a retentionAPI) purge(ctx context.Context, c Caller, in *purgeInput) (*purgeOutput, error) {
	filter, err := deadletter.ParseFilter(in.Body.Filter)
	if err != nil {
		return nil, err
	}
	done, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Purge(ctx, postadjudication.PurgeRequest{Reason: in.Body.Reason, Filter: filter, Confirm: in.Body.Confirm})
	return &purgeOutput{done}, err
}

func (a retentionAPI) planClear(ctx context.Context, c Caller, in *clearPlanInput) (*purgePlanOutput, error) {
	plan, err := a.service.As(c.Tenant, "").DeadLetters.PlanClear(ctx, postadjudication.ClearRequest{Family: in.Body.Family})
	return &purgePlanOutput{plan}, err
}

func (a retentionAPI) clear(ctx context.Context, c Caller, in *clearInput) (*purgeOutput, error) {
	done, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Clear(ctx, postadjudication.ClearRequest{Reason: in.Body.Reason, Family: in.Body.Family, Confirm: in.Body.Confirm})
	return &purgeOutput{done}, err
}

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
)

// analysisAPI has the operations of groups and statistics of dead letters.
type analysisAPI struct{ *API }

type analysisInput struct {
	LetterFilter
	Step  string `query:"step" enum:"hour,day" default:"day" doc:"Width of a time step"`
	Steps int    `query:"steps" minimum:"1" maximum:"1000" default:"30" doc:"Number of time steps"`
}

type groupsInput struct {
	LetterFilter
	Sort  string `query:"sort" default:"largest" enum:"largest,newest,signature"`
	After string `query:"after" doc:"next of the previous page, with the same filter and sort"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type analysisOutput struct{ Body report.Analysis }

type groupsOutput struct{ Body report.GroupPage }

type statsOutput struct{ Body report.Stats }

type tenantStatsOutput struct {
	Body struct {
		Tenants []report.TenantStats `json:"tenants"`
	}
}

func (a analysisAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "analyze-dead-letters", method: http.MethodGet, path: "/dead-letters/analysis", action: access.List, summary: "Analyze what dead letters have in common",
		description: "Exact counts and money at risk by signature, type, reason, class, queue and time, of the letters that the parameters of list-dead-letters select.",
	}, a.analyze)
	register(a.API, h, operation{
		id: "list-dead-letter-groups", method: http.MethodGet, path: "/dead-letters/groups", action: access.List, summary: "List the causes of dead letters",
		description: "Letters with one signature are a group. sample_run_id is one letter of the group.",
	}, a.groups)
	register(a.API, h, operation{
		id: "get-dead-letter-stats", method: http.MethodGet, path: "/dead-letters/stats", action: access.List, summary: "Get the number, age and blocked money of dead letters",
	}, a.stats)
	register(a.API, h, operation{
		id: "get-dead-letter-stats-by-tenant", method: http.MethodGet, path: "/dead-letters/stats/by-tenant", action: access.Tenants, summary: "Get the number, age and blocked money of each tenant's dead letters",
		description: "With a key that has the role platform. In the order of the tenants' names. It leaves out the oldest letter, which is of one tenant.",
	}, a.statsByTenant)
}

func (a analysisAPI) analyze(ctx context.Context, c door.Caller, in *analysisInput) (*analysisOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	found, err := a.service.As(c.Tenant, "").DeadLetters.Analyze(ctx, report.Query{Filter: filter, Step: report.TimeStep(in.Step), Steps: in.Steps})
	return &analysisOutput{found}, err
}

func (a analysisAPI) groups(ctx context.Context, c door.Caller, in *groupsInput) (*groupsOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	page, err := a.service.As(c.Tenant, "").DeadLetters.Groups(ctx, report.GroupQuery{Filter: filter, Sort: report.GroupSort(in.Sort), After: in.After, Limit: in.Limit})
	return &groupsOutput{page}, err
}

func (a analysisAPI) stats(ctx context.Context, c door.Caller, in *countInput) (*statsOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	found, err := a.service.As(c.Tenant, "").DeadLetters.Stats(ctx, filter)
	return &statsOutput{found}, err
}

func (a analysisAPI) statsByTenant(ctx context.Context, _ door.Caller, in *countInput) (*tenantStatsOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	out := &tenantStatsOutput{}
	out.Body.Tenants, err = a.service.StatsByTenant(ctx, filter)
	return out, err
}

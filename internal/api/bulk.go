package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

type bulkPlanInput struct {
	Body struct {
		Action    string          `json:"action" enum:"fork,reconcile_by_lookup,purge,mark,hold,release"`
		Filter    json.RawMessage `json:"filter,omitempty" doc:"An object of the parameters of list-dead-letters; only open letters are meant"`
		Where     string          `json:"where,omitempty" minLength:"1" maxLength:"4096" doc:"A condition on a letter in CEL, by the names of its JSON: of those that the filter selects, only letters that meet it are meant" example:"amount.minor > 100000 && error.type.startsWith(\"Conn\")"`
		All       bool            `json:"all,omitempty" doc:"All open letters: in the place of a filter and a condition"`
		Reason    string          `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; it stands in the receipts"`
		Policy    *PolicyBody     `json:"policy,omitempty" doc:"Of forks: another retry policy; absent keeps the letters'"`
		Queue     string          `json:"queue,omitempty" minLength:"1" doc:"Of forks: another queue of the family; absent keeps the letters'"`
		Reprocess *bool           `json:"reprocess_eligible,omitempty" doc:"With mark"`
		Review    *bool           `json:"manual_review_required,omitempty" doc:"With mark"`
		Limit     int64           `json:"limit,omitempty" minimum:"1" doc:"At most so many letters, the oldest; absent: all"`
		Parallel  int             `json:"parallel,omitempty" minimum:"1" maximum:"64" doc:"Letters worked on at once; 10 when absent"`
		Throttle  int             `json:"throttle,omitempty" minimum:"1" maximum:"10000" doc:"Letters a second; as fast as it goes when absent"`
	}
}

type bulkInput struct {
	Bulk string `path:"bulk" format:"uuid"`
}

type bulkRunInput struct {
	Bulk string `path:"bulk" format:"uuid"`
	Body struct {
		Hash       string `json:"hash" minLength:"64" maxLength:"64" doc:"The plan's: it says that you have seen what is going to be done"`
		BreakGlass string `json:"break_glass,omitempty" minLength:"1" maxLength:"255" doc:"The incident for which one approver lets run alone what they planned; it raises an alarm"`
		Reason     string `json:"reason,omitempty" minLength:"1" maxLength:"1024" doc:"With break_glass: why nobody else could"`
	}
}

type bulkChangeInput struct {
	Bulk string `path:"bulk" format:"uuid"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; it stands in the receipt"`
	}
}

type bulksInput struct {
	After string `query:"after" doc:"next of the page before"`
}

type bulkItemsInput struct {
	Bulk    string `path:"bulk" format:"uuid"`
	Outcome string `query:"outcome" doc:"pending, done, refused, refused:<gate>, plan_stale or failed" example:"refused:reconcile_first"`
	After   string `query:"after" doc:"next of the page before"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type bulkOutput struct{ Body postadjudication.Bulk }

type bulkPlannedOutput struct {
	Location string `header:"Location"`
	Body     postadjudication.Bulk
}

type bulksOutput struct{ Body postadjudication.BulkPage }

type bulkItemsOutput struct {
	Body postadjudication.BulkItemPage
}

func (a *API) bulkOperations(h huma.API) {
	register(a, h, operation{
		id: "plan-bulk", method: http.MethodPost, path: "/bulk", action: access.BulkPlan, status: http.StatusCreated, summary: "Plan one thing for many dead letters",
		description: "Stores which letters are meant, each with its version and its money, and tells what would be refused now. Nothing is done before run-bulk. With where, scanned and undecided tell how many letters it was asked of, and of how many it could not be told; when not all could be looked at there is no plan, but 422 naming where. Where no letter is selected there is none either, and no receipt: 422 nothing_selected. It is refused as a search with a condition is while two of the tenant are worked on. " + forkAttemptsDoc,
	}, a.planBulk)
	register(a, h, operation{
		id: "list-bulk", method: http.MethodGet, path: "/bulk", action: access.List, summary: "List plans, the newest first",
	}, a.listBulk)
	register(a, h, operation{
		id: "get-bulk", method: http.MethodGet, path: "/bulk/{bulk}", action: access.List, summary: "Tell of a plan and how far it has got",
	}, a.getBulk)
	register(a, h, operation{
		id: "list-bulk-items", method: http.MethodGet, path: "/bulk/{bulk}/items", action: access.List, summary: "List the letters of a plan, and what became of each",
	}, a.bulkItems)
	register(a, h, operation{
		id: "run-bulk", method: http.MethodPost, path: "/bulk/{bulk}/run", action: access.BulkRun, summary: "Let a plan run",
		description: "It survives restarts and never acts twice on a letter; one that changed since the plan was made is left alone. 409 plan_stale when the hash is not the plan's, bulk_state when it was cancelled, second_person_required when it states or frees money, forks settlements or purges them, and the caller is the person who planned it, or a program.",
	}, a.runBulk)
	for _, change := range []struct {
		word, summary string
		action        access.Action
		do            func(context.Context, string, uuid.UUID, string, string) (postadjudication.Bulk, error)
	}{
		{"pause", "Let a running plan stop within a second", access.BulkStop, a.service.PauseBulk},
		{"resume", "Let a paused plan go on", access.BulkRun, a.service.ResumeBulk},
		{"cancel", "End a plan for good", access.BulkStop, a.service.CancelBulk},
	} {
		register(a, h, operation{
			id: change.word + "-bulk", method: http.MethodPost, path: "/bulk/{bulk}/" + change.word, action: change.action, summary: change.summary,
			description: "What was done stays done. 409 bulk_state when it can't be from where it stands.",
		}, func(ctx context.Context, c Caller, in *bulkChangeInput) (*bulkOutput, error) {
			id, err := parseBulkID(in.Bulk)
			if err != nil {
				return nil, err
			}
			b, err := change.do(ctx, c.Tenant, id, c.Principal, in.Body.Reason)
			return &bulkOutput{b}, bulkProblem(err)
		})
	}
}

func (a *API) planBulk(ctx context.Context, c Caller, in *bulkPlanInput) (*bulkPlannedOutput, error) {
	q := postadjudication.BulkRequest{
		Tenant: c.Tenant, Action: postadjudication.BulkAction(in.Body.Action), Where: in.Body.Where, All: in.Body.All, Actor: c.Principal, Reason: in.Body.Reason,
		Queue: in.Body.Queue, Reprocess: in.Body.Reprocess, Review: in.Body.Review, Limit: in.Body.Limit, Parallel: in.Body.Parallel, Throttle: in.Body.Throttle,
	}
	var err error
	if len(in.Body.Filter) > 0 {
		if q.Filter, err = postadjudication.ParseLetterFilter(in.Body.Filter); err != nil {
			return nil, err
		}
	}
	if q.Policy, err = in.Body.Policy.policy(); err != nil {
		return nil, err
	}
	if err := a.checkPlanAttempts(ctx, c, q.Filter.Family, q.Policy); err != nil {
		return nil, err
	}
	b, err := a.service.PlanBulk(ctx, q)
	return &bulkPlannedOutput{Location: Prefix + "/bulk/" + b.ID.String(), Body: b}, err
}

func (a *API) listBulk(ctx context.Context, c Caller, in *bulksInput) (*bulksOutput, error) {
	page, err := a.service.Bulks(ctx, c.Tenant, in.After)
	return &bulksOutput{page}, bulkProblem(err)
}

func (a *API) getBulk(ctx context.Context, c Caller, in *bulkInput) (*bulkOutput, error) {
	id, err := parseBulkID(in.Bulk)
	if err != nil {
		return nil, err
	}
	b, err := a.service.Bulk(ctx, c.Tenant, id)
	return &bulkOutput{b}, err
}

func (a *API) bulkItems(ctx context.Context, c Caller, in *bulkItemsInput) (*bulkItemsOutput, error) {
	id, err := parseBulkID(in.Bulk)
	if err != nil {
		return nil, err
	}
	page, err := a.service.BulkItems(ctx, c.Tenant, id, in.After, in.Limit, in.Outcome)
	return &bulkItemsOutput{page}, bulkProblem(err)
}

func (a *API) runBulk(ctx context.Context, c Caller, in *bulkRunInput) (*bulkOutput, error) {
	id, err := parseBulkID(in.Bulk)
	if err != nil {
		return nil, err
	}
	if in.Body.BreakGlass != "" {
		b, err := a.service.RunBulkBreakGlass(ctx, c.Tenant, id, in.Body.Hash, postadjudication.BreakGlass{Actor: c.Principal, Reason: in.Body.Reason, Incident: in.Body.BreakGlass})
		return &bulkOutput{b}, bulkProblem(err)
	}
	if in.Body.Reason != "" {
		return nil, newProblem(http.StatusUnprocessableEntity, "invalid", "the plan has its reason").withField("reason", "is given with break_glass only")
	}
	b, err := a.service.RunBulk(ctx, c.Tenant, id, in.Body.Hash, c.Principal)
	return &bulkOutput{b}, bulkProblem(err)
}

func parseBulkID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, newProblem(http.StatusUnprocessableEntity, "invalid", "the plan is named by its id").withField("bulk", "is no UUID")
	}
	return id, nil
}

// bulkProblem tells the refusals that only plans have, by the names of the parameters.
func bulkProblem(err error) error {
	var state *postadjudication.BulkStateError
	var field *postadjudication.FieldError
	switch {
	case errors.As(err, &state):
		return newProblem(http.StatusConflict, "bulk_state", "the plan is %s, and can't be %s", state.State, state.Requested)
	case errors.As(err, &field) && field.Field == "hash" && strings.HasPrefix(field.Problem, string(postadjudication.OutcomePlanStale)):
		return newProblem(http.StatusConflict, string(postadjudication.OutcomePlanStale), "the hash is not that of the plan as it is stored: make a new plan, and look at it").withField("hash", field.Problem)
	case errors.As(err, &field) && field.Field == "cursor":
		return &postadjudication.FieldError{Field: "after", Problem: field.Problem}
	}
	return err
}

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
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// bulkAPI has the operations of bulk plans.
type bulkAPI struct{ *API }

type bulkPlanInput struct {
	Body struct {
		Action    string          `json:"action" enum:"fork,reconcile_by_lookup,purge,mark,hold,release"`
		Filter    json.RawMessage `json:"filter,omitempty" doc:"An object of the parameters of list-dead-letters; only open letters match"`
		Where     string          `json:"where,omitempty" minLength:"1" maxLength:"4096" doc:"A CEL condition over the members of a letter's JSON: selects those letters of the filter that meet it" example:"amount.minor > 100000 && error.type.startsWith(\"Conn\")"`
		All       bool            `json:"all,omitempty" doc:"All open letters; instead of a filter and a condition"`
		Reason    string          `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipts"`
		Policy    *PolicyBody     `json:"policy,omitempty" doc:"For fork: another retry policy; absent: the letter's own"`
		Queue     string          `json:"queue,omitempty" minLength:"1" doc:"For fork: another queue of the family; absent: the letter's own"`
		Reprocess *bool           `json:"reprocess_eligible,omitempty" doc:"For mark"`
		Review    *bool           `json:"manual_review_required,omitempty" doc:"For mark"`
		Limit     int64           `json:"limit,omitempty" minimum:"1" doc:"Maximum number of letters, the oldest first; absent: all"`
		Parallel  int             `json:"parallel,omitempty" minimum:"1" maximum:"64" doc:"Letters processed at once; absent: 10"`
		Throttle  int             `json:"throttle,omitempty" minimum:"1" maximum:"10000" doc:"Letters per second; absent: no limit"`
	}
}

type bulkInput struct {
	Bulk string `path:"bulk" format:"uuid"`
}

type bulkRunInput struct {
	Bulk string `path:"bulk" format:"uuid"`
	Body struct {
		Hash       string `json:"hash" minLength:"64" maxLength:"64" doc:"The plan's hash: it confirms that you have seen what will be done"`
		BreakGlass string `json:"break_glass,omitempty" minLength:"1" maxLength:"255" doc:"The incident for which one approver runs their own plan alone; it raises an alarm"`
		Reason     string `json:"reason,omitempty" minLength:"1" maxLength:"1024" doc:"With break_glass: why nobody else could approve"`
	}
}

type bulkChangeInput struct {
	Bulk string `path:"bulk" format:"uuid"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type bulksInput struct {
	State string `query:"state" doc:"Only plans in this state" enum:"planned,running,paused,done,cancelled,refused"`
	Mine  bool   `query:"waiting_for_me" doc:"Only plans that nobody has started and that the caller may run"`
	After string `query:"after" doc:"next of the previous page"`
}

type bulkItemsInput struct {
	Bulk    string `path:"bulk" format:"uuid"`
	Outcome string `query:"outcome" doc:"pending, done, refused, refused:<gate>, plan_stale or failed" example:"refused:reconcile_first"`
	After   string `query:"after" doc:"next of the previous page"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type bulkOutput struct{ Body bulk.Plan }

type bulkPlannedOutput struct {
	Location string `header:"Location"`
	Body     bulk.Plan
}

type bulksOutput struct{ Body bulk.Page }

type bulkItemsOutput struct {
	Body bulk.ItemPage
}

func (a bulkAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "plan-bulk", method: http.MethodPost, path: "/bulk", action: access.BulkPlan, status: http.StatusCreated, summary: "Plan an action on many dead letters",
		description: "Stores the selected letters, each with its version and its money, and reports what would be refused now. Nothing is done before run-bulk. With where, scanned is the number of letters that the condition was evaluated on, and undecided the number where it had no result; if not all letters could be evaluated no plan is made: 422 naming where. If no letter is selected no plan and no receipt is made: 422 nothing_selected. 429 too_many_conditions while two searches, exports or plans with a condition of the tenant are running. " + forkAttemptsDoc,
	}, a.planBulk)
	register(a.API, h, operation{
		id: "list-bulk", method: http.MethodGet, path: "/bulk", action: access.List, summary: "List plans, the newest first",
	}, a.listBulk)
	register(a.API, h, operation{
		id: "get-bulk", method: http.MethodGet, path: "/bulk/{bulk}", action: access.List, summary: "Get a plan and its progress",
	}, a.getBulk)
	register(a.API, h, operation{
		id: "list-bulk-items", method: http.MethodGet, path: "/bulk/{bulk}/items", action: access.List, summary: "List the letters of a plan with the outcome of each",
	}, a.bulkItems)
	register(a.API, h, operation{
		id: "run-bulk", method: http.MethodPost, path: "/bulk/{bulk}/run", action: access.BulkRun, summary: "Run a plan",
		description: "It survives restarts and never acts twice on a letter. A letter that changed since planning is skipped. A purge leaves held letters and letters with unknown money, as it does cases, reservations and receipts; system:bulk pauses it, with the cause, when the archive takes no file for a minute. 409: plan_stale if the hash is not the plan's; bulk_state if the plan was cancelled; second_person_required if the plan states or frees money, or forks or purges settlements, and the caller planned it or is a program.",
	}, a.runBulk)
	for _, change := range []struct {
		word, summary string
		action        access.Action
		do            func(bulk.Plans, context.Context, uuid.UUID, string) (bulk.Plan, error)
	}{
		{"pause", "Pause a running plan within a second", access.BulkStop, bulk.Plans.Pause},
		{"resume", "Resume a paused plan", access.BulkRun, bulk.Plans.Resume},
		{"cancel", "Cancel a plan for good", access.BulkStop, bulk.Plans.Cancel},
		{"refuse", "Refuse a plan that nobody has started, as a person who may run it", access.BulkRun, bulk.Plans.Refuse},
	} {
		register(a.API, h, operation{
			id: change.word + "-bulk", method: http.MethodPost, path: "/bulk/{bulk}/" + change.word, action: change.action, summary: change.summary,
			description: "What was done stays done. 409 bulk_state if the plan's state does not allow it.",
		}, func(ctx context.Context, c door.Caller, in *bulkChangeInput) (*bulkOutput, error) {
			id, err := parseBulkID(in.Bulk)
			if err != nil {
				return nil, err
			}
			b, err := change.do(a.service.As(c.Tenant, c.Principal).Bulk, ctx, id, in.Body.Reason)
			return &bulkOutput{b}, bulkProblem(err)
		})
	}
}

func (a bulkAPI) planBulk(ctx context.Context, c door.Caller, in *bulkPlanInput) (*bulkPlannedOutput, error) {
	q := bulk.Request{
		Action: bulk.Action(in.Body.Action), Where: in.Body.Where, All: in.Body.All, Reason: in.Body.Reason, Request: door.RequestID(ctx),
		Queue: in.Body.Queue, Reprocess: in.Body.Reprocess, Review: in.Body.Review, Limit: in.Body.Limit, Parallel: in.Body.Parallel, Throttle: in.Body.Throttle,
	}
	var err error
	if len(in.Body.Filter) > 0 {
		if q.Filter, err = deadletter.ParseFilter(in.Body.Filter); err != nil {
			return nil, err
		}
	}
	if q.Policy, err = in.Body.Policy.policy(); err != nil {
		return nil, err
	}
	if err := a.checkPlanAttempts(ctx, c, q.Filter.Family, q.Policy); err != nil {
		return nil, err
	}
	b, err := a.service.As(c.Tenant, c.Principal).Bulk.Plan(ctx, q)
	return &bulkPlannedOutput{Location: Prefix + "/bulk/" + b.ID.String(), Body: b}, err
}

func (a bulkAPI) listBulk(ctx context.Context, c door.Caller, in *bulksInput) (*bulksOutput, error) {
	page, err := a.service.As(c.Tenant, c.Principal).Bulk.List(ctx, bulk.Filter{State: bulk.State(in.State), WaitingForMe: in.Mine}, in.After)
	return &bulksOutput{page}, bulkProblem(err)
}

func (a bulkAPI) getBulk(ctx context.Context, c door.Caller, in *bulkInput) (*bulkOutput, error) {
	id, err := parseBulkID(in.Bulk)
	if err != nil {
		return nil, err
	}
	b, err := a.service.As(c.Tenant, "").Bulk.Get(ctx, id)
	return &bulkOutput{b}, err
}

func (a bulkAPI) bulkItems(ctx context.Context, c door.Caller, in *bulkItemsInput) (*bulkItemsOutput, error) {
	id, err := parseBulkID(in.Bulk)
	if err != nil {
		return nil, err
	}
	page, err := a.service.As(c.Tenant, "").Bulk.Items(ctx, id, in.Outcome, in.After, in.Limit)
	return &bulkItemsOutput{page}, bulkProblem(err)
}

func (a bulkAPI) runBulk(ctx context.Context, c door.Caller, in *bulkRunInput) (*bulkOutput, error) {
	id, err := parseBulkID(in.Bulk)
	if err != nil {
		return nil, err
	}
	if in.Body.BreakGlass != "" {
		b, err := a.service.As(c.Tenant, c.Principal).Bulk.RunBreakGlass(ctx, id, in.Body.Hash, bulk.BreakGlass{Reason: in.Body.Reason, Incident: in.Body.BreakGlass})
		return &bulkOutput{b}, bulkProblem(err)
	}
	if in.Body.Reason != "" {
		return nil, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "the plan already has a reason").WithField("reason", "is given with break_glass only")
	}
	b, err := a.service.As(c.Tenant, c.Principal).Bulk.Run(ctx, id, in.Body.Hash)
	return &bulkOutput{b}, bulkProblem(err)
}

func parseBulkID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "a plan is named by its id").WithField("bulk", "is no UUID")
	}
	return id, nil
}

// bulkProblem returns the problems that only plans have, naming the parameters of the request.
func bulkProblem(err error) error {
	var state *bulk.StateError
	var field *refusal.FieldError
	switch {
	case errors.As(err, &state):
		return door.NewRefusal(http.StatusConflict, "bulk_state", "the plan is %s, and can't be %s", state.State, state.Requested)
	case errors.As(err, &field) && field.Field == "hash" && strings.HasPrefix(field.Problem, string(bulk.OutcomePlanStale)):
		return door.NewRefusal(http.StatusConflict, string(bulk.OutcomePlanStale), "the hash is not that of the stored plan: check it, or make a new plan and review it").WithField("hash", field.Problem)
	case errors.As(err, &field) && field.Field == "cursor":
		return &refusal.FieldError{Field: "after", Problem: field.Problem}
	}
	return err
}

// checkPlanAttempts refuses a plan of forks with more attempts than the caller may give them. A
// refusal leaves a receipt. If the plan names no single family, the strictest policy counts.
func (a *API) checkPlanAttempts(ctx context.Context, c door.Caller, family string, p *retrypolicy.Policy) error {
	if p == nil || access.May(c.Roles, access.Policy) {
		return nil
	}
	return a.checkAttempts(ctx, c, family, p, postadjudication.AccessRefusal{Action: string(access.BulkPlan)})
}

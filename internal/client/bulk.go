package client

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Bulk are the requests about plans for many dead letters.
type Bulk struct{ *connection }

func bulkPath(id uuid.UUID, verb string) string { return "/bulk/" + id.String() + verb }

// Plan stores a plan with the selected dead letters. It starts nothing.
func (b Bulk) Plan(ctx context.Context, q bulk.Request) (out bulk.Plan, err error) {
	body := struct {
		reasonBody
		Action    bulk.Action         `json:"action"`
		Filter    json.RawMessage     `json:"filter,omitempty"`
		Where     string              `json:"where,omitempty"`
		All       bool                `json:"all,omitempty"`
		Policy    *retrypolicy.Policy `json:"policy,omitempty"`
		Queue     string              `json:"queue,omitempty"`
		Reprocess *bool               `json:"reprocess_eligible,omitempty"`
		Review    *bool               `json:"manual_review_required,omitempty"`
		Limit     int64               `json:"limit,omitempty"`
		Parallel  int                 `json:"parallel,omitempty"`
		Throttle  int                 `json:"throttle,omitempty"`
	}{reasonBody{q.Reason}, q.Action, nil, q.Where, q.All, q.Policy, q.Queue, q.Reprocess, q.Review, q.Limit, q.Parallel, q.Throttle}
	if body.Filter, err = q.Filter.Encode(); err != nil {
		return out, err
	}
	err = b.post(ctx, "/bulk", body, &out)
	return out, err
}

// Run starts a plan. breakGlass lets one person run it alone for an incident; it may be nil.
func (b Bulk) Run(ctx context.Context, id uuid.UUID, hash string, breakGlass *bulk.BreakGlass) (out bulk.Plan, err error) {
	body := map[string]string{"hash": hash}
	if breakGlass != nil {
		body["break_glass"], body["reason"] = breakGlass.Incident, breakGlass.Reason
	}
	err = b.post(ctx, bulkPath(id, "/run"), body, &out)
	return out, err
}

// Pause pauses a running plan.
func (b Bulk) Pause(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error) {
	return b.change(ctx, id, "/pause", reason)
}

// Resume resumes a paused plan.
func (b Bulk) Resume(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error) {
	return b.change(ctx, id, "/resume", reason)
}

// Cancel cancels a plan for good.
func (b Bulk) Cancel(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error) {
	return b.change(ctx, id, "/cancel", reason)
}

// Refuse refuses a plan that nobody has started.
func (b Bulk) Refuse(ctx context.Context, id uuid.UUID, reason string) (bulk.Plan, error) {
	return b.change(ctx, id, "/refuse", reason)
}

func (b Bulk) change(ctx context.Context, id uuid.UUID, verb, reason string) (out bulk.Plan, err error) {
	err = b.post(ctx, bulkPath(id, verb), reasonBody{reason}, &out)
	return out, err
}

// Get returns a plan and its progress.
func (b Bulk) Get(ctx context.Context, id uuid.UUID) (out bulk.Plan, err error) {
	err = b.get(ctx, bulkPath(id, ""), nil, &out)
	return out, err
}

// List returns a page of the plans that f selects, the newest first.
func (b Bulk) List(ctx context.Context, f bulk.Filter, after string) (out bulk.Page, err error) {
	query := url.Values{}
	addGiven(query, "state", string(f.State))
	if f.WaitingForMe {
		query.Set("waiting_for_me", "true")
	}
	addGiven(query, "after", after)
	err = b.get(ctx, "/bulk", query, &out)
	return out, err
}

// Items returns a page of the letters of a plan, and what became of each.
func (b Bulk) Items(ctx context.Context, id uuid.UUID, outcome, after string, limit int) (out bulk.ItemPage, err error) {
	query := url.Values{}
	addPaging(query, limit, "", after)
	addGiven(query, "outcome", outcome)
	err = b.get(ctx, bulkPath(id, "/items"), query, &out)
	return out, err
}

package client

import (
	"context"
	"net/url"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/receipts"
)

// Cases are the requests about cases and their runs.
type Cases struct{ *connection }

// List returns a page of cases.
func (c Cases) List(ctx context.Context, f casestatus.Filter, after string, limit int) (out casestatus.Page, err error) {
	query := url.Values{}
	addPaging(query, limit, "", after)
	addGiven(query, "state", strings.Join(f.States, ","))
	addGiven(query, "transaction_receipt_id", f.Transaction)
	if f.Reserved {
		query.Set("reserved", "true")
	}
	err = c.get(ctx, "/cases", query, &out)
	return out, err
}

// Run returns the status of a run.
func (c Cases) Run(ctx context.Context, run receipts.RunID) (out casestatus.Status, err error) {
	err = c.get(ctx, "/runs/"+run.String(), nil, &out)
	return out, err
}

// PlanMove stores a plan that permits another target for the next generation of a case.
func (c Cases) PlanMove(ctx context.Context, q bulk.MoveRequest) (out bulk.Plan, err error) {
	err = c.post(ctx, "/cases/move", struct {
		reasonBody
		Transaction string `json:"transaction_receipt_id"`
		Target      string `json:"target"`
		Unserved    bool   `json:"unserved,omitempty"`
	}{reasonBody{q.Reason}, q.Transaction, q.Target, q.Unserved}, &out)
	return out, err
}

// PlanFree stores a plan that frees the reserved money of cases.
func (c Cases) PlanFree(ctx context.Context, q bulk.FreeRequest) (out bulk.Plan, err error) {
	err = c.post(ctx, "/cases/free", struct {
		reasonBody
		States      []string `json:"states,omitempty"`
		Transaction string   `json:"transaction_receipt_id,omitempty"`
		All         bool     `json:"all,omitempty"`
		Limit       int      `json:"limit,omitempty"`
		Reference   string   `json:"reference"`
	}{reasonBody{q.Reason}, q.Filter.States, q.Filter.Transaction, q.All, q.Limit, q.Reference}, &out)
	return out, err
}

// PlanReturns stores a plan that records payments that came back.
func (c Cases) PlanReturns(ctx context.Context, q bulk.ReturnsRequest) (out bulk.PlannedReturns, err error) {
	err = c.post(ctx, "/returns", struct {
		reasonBody
		Returns []bulk.ReturnedPayment `json:"returns"`
	}{reasonBody{q.Reason}, q.Returns}, &out)
	return out, err
}

package client

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
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
	addGiven(query, "ends_with", f.End)
	if f.Reserved {
		query.Set("reserved", "true")
	}
	if f.WithoutLetter {
		query.Set("without_letter", "true")
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
		NoLetter    bool     `json:"without_letter,omitempty"`
		All         bool     `json:"all,omitempty"`
		Limit       int      `json:"limit,omitempty"`
		Reference   string   `json:"reference"`
	}{reasonBody{q.Reason}, q.Filter.States, q.Filter.Transaction, q.Filter.WithoutLetter, q.All, q.Limit, q.Reference}, &out)
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

// Find returns the case of a transaction.
func (c Cases) Find(ctx context.Context, transaction string) (out casestatus.Case, err error) {
	err = c.get(ctx, "/transactions/"+url.PathEscape(transaction), nil, &out)
	return out, err
}

// ByID returns a case.
func (c Cases) ByID(ctx context.Context, id receipts.CaseID) (out casestatus.Case, err error) {
	err = c.get(ctx, "/cases/"+id.String(), nil, &out)
	return out, err
}

// Cancel cancels a run.
func (c Cases) Cancel(ctx context.Context, run receipts.RunID, reason string) (out casestatus.Status, err error) {
	err = c.post(ctx, "/runs/"+run.String()+"/cancel", reasonBody{reason}, &out)
	return out, err
}

// Receipts returns receipts of a case after sequence number after, and whether there may be more.
func (c Cases) Receipts(ctx context.Context, id receipts.CaseID, after int64, limit int) (found []receipts.Receipt, more bool, err error) {
	var out api.Trail
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	if err := c.get(ctx, "/cases/"+id.String()+"/receipts", query, &out); err != nil {
		return nil, false, err
	}
	found, err = c.receiptsOf(out.Receipts)
	return found, out.More, err
}

// FindReceipts returns a page of the tenant's receipts that a filter selects.
func (c Cases) FindReceipts(ctx context.Context, f postadjudication.ReceiptFilter, after int64, limit int) (found postadjudication.ReceiptsFound, err error) {
	var out api.ReceiptsFound
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
	addGiven(query, "actor", f.Actor)
	addGiven(query, "subtype", string(f.Subtype))
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			query.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	if err := c.get(ctx, "/receipts", query, &out); err != nil {
		return found, err
	}
	found = postadjudication.ReceiptsFound{Next: out.Next, Scanned: out.Scanned, Complete: out.Complete}
	found.Receipts, err = c.receiptsOf(out.Receipts)
	return found, err
}

func (c Cases) receiptsOf(answered []api.Receipt) (found []receipts.Receipt, err error) {
	found = make([]receipts.Receipt, len(answered))
	for i, r := range answered {
		if found[i], err = receiptOf(r); err != nil {
			return nil, fmt.Errorf("%s does not answer like a recourse server of this version: receipt %s: %w", c.base.Host, r.ID, err)
		}
	}
	return found, nil
}

// receiptOf returns a receipt as the journal has it.
func receiptOf(r api.Receipt) (out receipts.Receipt, err error) {
	out = receipts.Receipt{Case: r.Case, Seq: r.Sequence, Source: r.Source, Subtype: r.Subtype, Actor: r.Actor, At: r.At, Body: []byte(r.Body)}
	if r.Run != "" {
		if out.Run, err = receipts.ParseRunID(r.Run); err != nil {
			return out, err
		}
	}
	link, err := hex.DecodeString(r.Link)
	if err == nil && len(link) != len(out.Link) {
		err = fmt.Errorf("its link has %d bytes", len(link))
	}
	copy(out.Link[:], link)
	return out, err
}

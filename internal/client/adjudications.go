package client

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Adjudications are the requests that hand adjudications over.
type Adjudications struct{ *connection }

// Bounds of one request, within those of the server.
const (
	maxBatchItems = 500
	maxBatchBytes = 8 << 20
)

// SubmitBatch hands adjudications over, in requests of a bounded size. Like the Service's it returns an answer or an
// error for each. Those behind a request that failed have its error.
func (a Adjudications) SubmitBatch(ctx context.Context, all []postadjudication.Adjudication) ([]postadjudication.Submitted, []error) {
	answers, errs := make([]postadjudication.Submitted, len(all)), make([]error, len(all))
	for from := 0; from < len(all); {
		items, size := []json.RawMessage{}, 0
		for to := from; to < len(all) && len(items) < maxBatchItems; to++ {
			item, err := json.Marshal(bodyOf(all[to]))
			if size += len(item); len(items) > 0 && (err != nil || size > maxBatchBytes) {
				break
			}
			if err != nil {
				return answers, failed(errs, from, err)
			}
			items = append(items, item)
		}
		var out api.Items
		err := a.post(ctx, "/adjudications/batch", map[string]any{"adjudications": items}, &out)
		if err == nil && len(out.Results) != len(items) {
			err = errors.New("the server did not answer each adjudication")
		}
		if err != nil {
			return answers, failed(errs, from, err)
		}
		for i, item := range out.Results {
			answers[from+i], errs[from+i] = a.answer(item)
		}
		from += len(items)
	}
	return answers, errs
}

// failed sets the error of all adjudications from one on.
func failed(errs []error, from int, err error) []error {
	for i := from; i < len(errs); i++ {
		errs[i] = err
	}
	return errs
}

// bodyOf returns an adjudication as the server reads it. The server records the principal of the key as its actor.
func bodyOf(a postadjudication.Adjudication) api.Adjudication {
	return api.Adjudication{
		TransactionReceiptID: a.TransactionReceiptID, SubmissionReceiptID: a.SubmissionReceiptID, AdjudicationID: a.AdjudicationID, EscrowReference: a.EscrowReference,
		Tenant: a.Tenant, Outcome: string(a.Outcome), Generation: a.Generation,
		Amount: api.Sum{Minor: a.Amount.Minor, Currency: a.Amount.Currency}, Held: api.Sum{Minor: a.Held.Minor, Currency: a.Held.Currency}, Target: a.Target, Payload: a.Payload,
	}
}

// answer returns what became of an adjudication, or why it was not decided.
func (a Adjudications) answer(item api.Item) (postadjudication.Submitted, error) {
	p := item.Problem
	if item.Reply == "" && p != nil {
		refused := &ProblemError{Problem: *p, Host: a.base.Host}
		if len(p.Errors) > 0 {
			return postadjudication.Submitted{}, fieldErrors(refused)
		}
		return postadjudication.Submitted{}, a.wrapError(refused)
	}
	out := postadjudication.Submitted{Reply: item.Reply, State: item.State}
	if item.Run != nil {
		out.Run = *item.Run
	}
	if item.Case != nil {
		out.Case = *item.Case
	}
	if p != nil {
		out.Actor, out.Reason = p.CancelledBy, p.Reason
		if item.Run == nil && p.Run != nil {
			out.Run = *p.Run
		}
	}
	return out, nil
}

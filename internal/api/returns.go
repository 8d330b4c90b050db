package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/settlement"
)

// returnAPI has the operation of payments that came back.
type returnAPI struct{ *API }

// ReturnLine is a payment that came back, as a request names it.
type ReturnLine struct {
	Transaction string           `json:"transaction_receipt_id" minLength:"1" maxLength:"128" doc:"Whose payment came back"`
	Amount      settlement.Money `json:"amount" doc:"How much of it came back"`
	Reference   string           `json:"reference" minLength:"1" maxLength:"255" doc:"The bank's own reference of the return. It identifies the return: handed over again it is known"`
	ReturnedAt  *time.Time       `json:"returned_at,omitempty" doc:"When it came back, as the bank says"`
	Run         string           `json:"run_id,omitempty" format:"uuid" doc:"The run that made the payment; needed where several runs of the transaction have paid"`
}

type returnsInput struct {
	Body struct {
		Returns []ReturnLine `json:"returns" minItems:"1" maxItems:"1000"`
		Reason  string       `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipts"`
	}
}

type returnsOutput struct{ Body bulk.PlannedReturns }

func (a returnAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "plan-returns", method: http.MethodPost, path: "/returns", action: access.Reconcile, summary: "Plan to record payments that came back",
		description: "A bank or an escrow service returned payments, in full or in part, days after they settled. Another person runs the plan with run-bulk; where the tenant requires one person only, it is started at once. " +
			"Then the escrows have the sums again, the cases are dispute-ready, and higher generations may follow. A reference is recorded once: known lists those that are recorded. " +
			"refused lists those that can't be recorded: exceeds_paid, reference_used, or no case has the transaction. The plan is absent if none is new.",
	}, a.planReturns)
}

func (a returnAPI) planReturns(ctx context.Context, c door.Caller, in *returnsInput) (*returnsOutput, error) {
	q := bulk.ReturnsRequest{Reason: in.Body.Reason, Request: door.RequestID(ctx)}
	for _, r := range in.Body.Returns {
		line := bulk.ReturnedPayment{Transaction: r.Transaction, Amount: r.Amount, Reference: r.Reference}
		if r.ReturnedAt != nil {
			line.ReturnedAt = *r.ReturnedAt
		}
		if r.Run != "" {
			var err error
			if line.Run, err = parseRunID(r.Run); err != nil {
				return nil, err
			}
		}
		q.Returns = append(q.Returns, line)
	}
	planned, err := a.service.As(c.Tenant, c.Principal).Bulk.PlanReturns(ctx, q)
	return &returnsOutput{planned}, err
}

package casework

import (
	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/settlement"
)

// alteredRequest is the error for a request that differs from the submitted one.
type alteredRequest struct{ error }

// Is reports background.ErrRequestAltered, the error of a claim.
func (a alteredRequest) Is(target error) bool { return target == background.ErrRequestAltered }

// checkBinding returns nil if a run's operation key and request match its submitted receipt,
// else an alteredRequest. For a plain task it compares the payload.
func checkBinding(r *background.Run) error {
	stored := binding.Stored{Run: r.ID, Case: r.Case, Tenant: r.Tenant, Target: r.Target, OperationKey: r.Operation, Request: r.Payload, Queue: r.Queue, Remote: r.Remote}
	if err := binding.Check(&stored, r.Terms); err != nil {
		return alteredRequest{err}
	}
	return nil
}

// callOf returns the call of a run that is bound to its receipts. No other function makes a
// Call. The error is an alteredRequest.
func callOf(r background.Run, attempt int) (escrow.Call, error) {
	if err := checkBinding(&r); err != nil {
		return escrow.Call{}, err
	}
	// The terms state what the request asks for: the receipt's digest binds the request to them.
	t := r.Terms
	if t.OperationKey == [32]byte{} {
		return escrow.Call{}, alteredRequest{binding.Altered("no adjudication: its receipt submits a plain task")}
	}
	return escrow.Call{
		OperationKey: r.Operation, Request: r.Payload, Tenant: r.Tenant, Target: r.Target, Run: r.ID, Attempt: attempt,
		Outcome: settlement.Outcome(t.Outcome), Amount: settlement.Money{Minor: t.Amount, Currency: t.Currency}, Generation: t.Generation,
	}, nil
}

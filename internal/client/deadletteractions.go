package client

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// reasonBody is the body of a request with only a reason.
type reasonBody struct {
	Reason string `json:"reason"`
}

// Fork starts a new run of a dead letter.
func (d DeadLetters) Fork(ctx context.Context, run receipts.RunID, q deadletter.Fork) (out deadletter.Forked, err error) {
	err = d.post(ctx, letterPath(run, "fork"), struct {
		reasonBody
		Policy *retrypolicy.Policy `json:"policy,omitempty"`
		Queue  string              `json:"queue,omitempty"`
	}{reasonBody{q.Reason}, q.Policy, q.Queue}, &out)
	return out, err
}

// Retry forks the newest run of the lineage that a run belongs to.
func (d DeadLetters) Retry(ctx context.Context, run receipts.RunID, reason string) (out deadletter.Forked, err error) {
	err = d.post(ctx, letterPath(run, "retry"), reasonBody{reason}, &out)
	return out, err
}

// Reconcile records what a person found out about the money of a run.
func (d DeadLetters) Reconcile(ctx context.Context, run receipts.RunID, f deadletter.Finding) (out casestatus.Case, err error) {
	err = d.post(ctx, letterPath(run, "reconcile"), struct {
		reasonBody
		Finding   escrow.Class `json:"finding"`
		Moved     int64        `json:"moved,omitempty"`
		Currency  string       `json:"currency,omitempty"`
		Other     bool         `json:"other_amount,omitempty"`
		Known     bool         `json:"call_outstanding,omitempty"`
		Despite   bool         `json:"contradicts_record,omitempty"`
		Reference string       `json:"reference"`
	}{reasonBody{f.Reason}, f.Class, f.Moved, f.Currency, f.OtherAmount, f.CallOutstanding, f.ContradictsRecord, f.Reference}, &out)
	return out, err
}

// Lookup makes the server look the money of a run up at its escrow service.
func (d DeadLetters) Lookup(ctx context.Context, run receipts.RunID) (out casestatus.Case, err error) {
	err = d.post(ctx, letterPath(run, "reconcile"), map[string]bool{"lookup": true}, &out)
	return out, err
}

// Hold exempts a dead letter from retention and purges.
func (d DeadLetters) Hold(ctx context.Context, run receipts.RunID, reason string) (out deadletter.Annotations, err error) {
	err = d.post(ctx, letterPath(run, "hold"), reasonBody{reason}, &out)
	return out, err
}

// Release ends a hold.
func (d DeadLetters) Release(ctx context.Context, run receipts.RunID, reason string) (out deadletter.Annotations, err error) {
	err = d.post(ctx, letterPath(run, "release"), reasonBody{reason}, &out)
	return out, err
}

// Mark marks whether a dead letter is worth a fork, or needs review by a person.
func (d DeadLetters) Mark(ctx context.Context, run receipts.RunID, q deadletter.Mark) (out deadletter.Annotations, err error) {
	err = d.post(ctx, letterPath(run, "mark"), struct {
		reasonBody
		Reprocess *bool `json:"reprocess_eligible,omitempty"`
		Review    *bool `json:"manual_review_required,omitempty"`
	}{reasonBody{q.Reason}, q.ReprocessEligible, q.ManualReviewRequired}, &out)
	return out, err
}

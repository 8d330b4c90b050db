package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// letterAPI has the operations of dead letters.
type letterAPI struct{ *API }

type inspectOutput struct {
	Body deadletter.Inspection
}

type forkInput struct {
	Run  string `path:"run" format:"uuid"`
	Body struct {
		Reason string      `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
		Policy *PolicyBody `json:"policy,omitempty" doc:"Another retry policy; absent: the letter's own"`
		Queue  string      `json:"queue,omitempty" minLength:"1" doc:"Another queue of the family; absent: the letter's own"`
	}
}

type forkOutput struct {
	Location string `header:"Location"`
	Body     deadletter.Forked
}

type retryInput struct {
	Run  string `path:"run" format:"uuid"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type reconcileInput struct {
	Run  string `path:"run" format:"uuid"`
	Body struct {
		Lookup          bool   `json:"lookup,omitempty" doc:"Look the money up at the escrow service; excludes all other members"`
		Finding         string `json:"finding,omitempty" enum:"executed,not_executed"`
		Moved           int64  `json:"moved,omitempty" minimum:"1" doc:"Amount moved, in minor units; for executed"`
		Currency        string `json:"currency,omitempty" doc:"Currency of moved, such as EUR: refused if the case is in another. Absent: moved is in that of the case"`
		OtherAmount     bool   `json:"other_amount,omitempty" doc:"Confirms moved although it differs from the amount that was left; a finding can't be taken back"`
		CallOutstanding bool   `json:"call_outstanding,omitempty" doc:"Confirms not_executed although a call may be outstanding: it is known that the call will not be executed"`
		Contradicts     bool   `json:"contradicts_record,omitempty" doc:"Confirms the finding although an answer, a lookup or a finding on record says the opposite: it is known that the record is wrong"`
		Reason          string `json:"reason,omitempty" maxLength:"1024" doc:"How it was found"`
		Reference       string `json:"reference,omitempty" maxLength:"255" doc:"Where one can check it"`
	}
}

func (a letterAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-dead-letters", method: http.MethodGet, path: "/dead-letters", action: access.List, summary: "List dead letters",
		description: "A letter must match every given parameter. A parameter that is unknown, empty or invalid is refused.",
	}, a.listLetters)
	register(a.API, h, operation{
		id: "count-dead-letters", method: http.MethodGet, path: "/dead-letters/count", action: access.List, summary: "Count dead letters",
		description: "Exact. Takes the parameters of list-dead-letters.",
	}, a.countLetters)
	register(a.API, h, operation{
		id: "get-dead-letter", method: http.MethodGet, path: "/dead-letters/{run}", action: access.Read, summary: "Get everything about a dead letter",
		description: "Includes every attempt with its error, the whole case, and whether it can be forked now: can_fork, or refused_by. Receipts are included if the key may read them.",
	}, a.inspect)
	register(a.API, h, operation{
		id: "fork-dead-letter", method: http.MethodPost, path: "/dead-letters/{run}/fork", action: access.Fork, status: http.StatusCreated,
		summary: "Fork a dead letter: start a new run of it", description: "409 with the gate as code: not_a_letter, not_open, reconcile_first, case_ended, paid_under_older_key, request_altered, family_not_served, another_payer, unique_job_live. " + forkAttemptsDoc,
	}, a.fork)
	register(a.API, h, operation{
		id: "retry-job", method: http.MethodPost, path: "/dead-letters/{run}/retry", action: access.Fork, status: http.StatusCreated,
		summary: "Fork the newest run of a lineage, named by any of its runs", description: "The gates are those of fork-dead-letter.",
	}, a.retry)
	register(a.API, h, operation{
		id: "reconcile-dead-letter", method: http.MethodPost, path: "/dead-letters/{run}/reconcile", action: access.Reconcile, plannable: true,
		summary:     "Record whether a dead letter or a waiting run moved its money",
		description: "Give a finding with its reference, or {\"lookup\":true} to look it up at the escrow service, which counts as an open stream. A waiting run can be reconciled while its money is unknown. The finding executed takes two people, unless the tenant requires only one: 202 second_person_required with a plan that another person has to run. 409 with the gate as code: not_a_letter, running, not_open, not_a_settlement, reconcile_first, call_outstanding, contradicts_record.",
	}, a.reconcile)
}

func (a letterAPI) inspect(ctx context.Context, c door.Caller, in *runInput) (*inspectOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	found, err := a.service.As(c.Tenant, "").DeadLetters.Inspect(ctx, id)
	if !access.May(c.Roles, access.Receipts) {
		found.Receipts, found.ReceiptsAfter = []deadletter.InspectedReceipt{}, 0
	}
	return &inspectOutput{found}, err
}

func (a letterAPI) fork(ctx context.Context, c door.Caller, in *forkInput) (*forkOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	policy, err := in.Body.Policy.policy()
	if err != nil {
		return nil, err
	}
	if err := a.checkForkAttempts(ctx, c, id, policy); err != nil {
		return nil, err
	}
	f, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Fork(ctx, id, deadletter.Fork{Reason: in.Body.Reason, RequestID: door.RequestID(ctx), Policy: policy, Queue: in.Body.Queue})
	if err != nil {
		return nil, err
	}
	return forkAnswer(f), nil
}

func (a letterAPI) retry(ctx context.Context, c door.Caller, in *retryInput) (*forkOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	f, err := a.service.As(c.Tenant, c.Principal).DeadLetters.RetryForRequest(ctx, id, in.Body.Reason, door.RequestID(ctx))
	if err != nil {
		return nil, err
	}
	return forkAnswer(f), nil
}

// forkAnswer returns the new run with the run that it forks.
func forkAnswer(f deadletter.Forked) *forkOutput {
	return &forkOutput{Location: Prefix + "/runs/" + f.Run.String(), Body: f}
}

func (a letterAPI) reconcile(ctx context.Context, c door.Caller, in *reconcileInput) (*caseOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	b := in.Body
	if b.Lookup {
		if b.Finding != "" || b.Moved != 0 || b.Currency != "" || b.OtherAmount || b.CallOutstanding || b.Contradicts || b.Reason != "" || b.Reference != "" {
			return nil, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "give either lookup or a finding").WithField("lookup", "excludes finding, moved, currency, other_amount, call_outstanding, contradicts_record, reason and reference")
		}
		release, err := a.door.AcquireStream(c) // it waits for the escrow service, as a long poll waits for events
		if err != nil {
			return nil, err
		}
		defer release()
		status, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Lookup(ctx, id)
		return &caseOutput{status}, err
	}
	status, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Reconcile(ctx, id, deadletter.Finding{
		Reason: b.Reason, Class: escrow.Class(b.Finding), Moved: b.Moved, Currency: b.Currency, OtherAmount: b.OtherAmount, CallOutstanding: b.CallOutstanding, ContradictsRecord: b.Contradicts, Reference: b.Reference, RequestID: door.RequestID(ctx),
	})
	return &caseOutput{status}, err
}

var forkAttemptsDoc = fmt.Sprintf("403 beyond_reach if policy has more attempts than both the family's policy for new runs and %d, and the key may not set policies.", deadletter.ForkAttempts)

// checkForkAttempts refuses a fork with more attempts than the caller may give it. A refusal
// leaves a receipt. A retry of a job over /ojs is not limited so: its client may give it any number at
// enqueueing. Adjudications are retried there without changes.
func (a *API) checkForkAttempts(ctx context.Context, c door.Caller, run background.RunID, p *retrypolicy.Policy) error {
	if p == nil || access.May(c.Roles, access.Policy) {
		return nil
	}
	status, err := a.service.Status(ctx, c.Tenant, run)
	if errors.Is(err, refusal.ErrNotFound) {
		return nil // Fork returns this error itself
	}
	if err != nil {
		return err
	}
	return a.checkAttempts(ctx, c, status.Family, p, postadjudication.AccessRefusal{Action: string(access.Fork), Run: run})
}

func (a *API) checkAttempts(ctx context.Context, c door.Caller, family string, p *retrypolicy.Policy, record postadjudication.AccessRefusal) error {
	policies, err := a.service.As(c.Tenant, "").Policies.List(ctx)
	if err != nil {
		return err
	}
	limit := maxForkAttempts(policies, family)
	if p.Normalize().MaxRetryAttempts <= limit {
		return nil
	}
	record.Code = "beyond_reach"
	if err := a.door.RecordRefusal(ctx, c, record); err != nil {
		return err
	}
	refused := door.NewRefusal(http.StatusForbidden, "beyond_reach", "the access key may not give a fork so many attempts: a key that may set policies may").
		WithField("policy.max_retry_attempts", fmt.Sprintf("must be %d at most", limit))
	refused.Needs = access.Allowed(access.Policy)
	return refused
}

// maxForkAttempts returns how many attempts a fork of the family may have by the policies of
// a tenant: of a family without one, deadletter.ForkAttempts. With no family it takes the policy
// with the fewest attempts.
func maxForkAttempts(policies []postadjudication.FamilyPolicy, family string) int {
	fewest := 0
	for _, p := range policies {
		attempts := deadletter.MaxForkAttempts(p.Policy)
		if (family == "" || p.Family == family) && (fewest == 0 || attempts < fewest) {
			fewest = attempts
		}
	}
	return cmp.Or(fewest, deadletter.ForkAttempts)
}

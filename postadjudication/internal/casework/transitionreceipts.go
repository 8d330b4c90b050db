package casework

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/referencepolicy"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Maximum sizes of free texts in a receipt, in bytes.
const (
	maxType      = 64
	maxCode      = 64
	maxMessage   = 2 << 10
	maxStack     = 8 << 10
	maxDetails   = 4 << 10
	maxLookupURL = 1 << 10
)

// redactTransition redacts every free text of a transition, in place. All text of executors and handlers
// passes through it on its way into receipts, rows and events. The reference of a person's finding was checked when it was
// stated, and is kept as a second person approved it. The policy of references is read only for a reference that looks
// like a secret, or like another spelling. While it can't be read the transition can't be written.
func redactTransition(ctx context.Context, policy *referencepolicy.Store, tr *background.Transition) error {
	tr.Reason = validate.Clean(tr.Reason, maxMessage)
	if tr.Subtype != receipts.Reconciled || tr.Lookup != "" {
		kept, err := policy.Answered(ctx, tr.Run.Tenant, tr.Result.Reference)
		if err != nil {
			return referencepolicy.Unreadable(err)
		}
		tr.Result.Reference = kept
	}
	if f := tr.Result.Failure; f != nil {
		tr.Result.Failure = &background.Failure{
			Type: validate.Clean(f.Type, maxType), Code: validate.Clean(f.Code, maxCode), Message: validate.Clean(f.Message, maxMessage), Stack: validate.Clean(f.Stack, maxStack),
			Details: redactJSON(f.Details, maxDetails),
		}
		if *tr.Result.Failure == (background.Failure{}) { // else the receipt would have none, and the failure before would count
			tr.Result.Failure.Type = background.FailureUnspecified
		}
	}
	tr.Result.Output = KeptOutput(tr.Result.Output)
	return nil
}

// KeptOutput returns the form in which an output of an attempt is kept; nil for none.
func KeptOutput(output []byte) []byte {
	if len(output) == 0 {
		return nil
	}
	return []byte(redactJSON(string(output), background.MaxOutput))
}

// redactJSON returns a JSON document of a remote worker as it is kept: with a mark in place of each secret. One that is longer
// than limit, and one in which a name is a secret, is replaced as a whole.
func redactJSON(text string, limit int) string {
	if len(text) > limit {
		return `{"too_long":` + strconv.Itoa(len(text)) + `}`
	}
	if field, found := redact.Find(json.RawMessage(text)); found {
		document, ok := redact.Document(json.RawMessage(text))
		if text = string(document); !ok || len(text) > limit {
			return `{"redacted":` + string(receipts.AppendText(nil, field)) + `}`
		}
	}
	return text
}

// fillPayload fills the empty payload of the receipt of a transition: what happened, and the counts after it.
func fillPayload(p *receipts.Payload, tr *background.Transition, before, after *background.Run) {
	p.Attempt, p.BudgetSpent, p.Recoveries = before.Attempt, after.BudgetSpent, after.Recoveries
	p.OutcomeClass, p.UnknownOpen, p.Lookup = string(after.Class), after.UnknownOpen, string(tr.Lookup)
	p.Worker, p.TraceID, p.DurationUS = tr.Worker, tr.Trace, tr.Duration.Microseconds()
	ended := before.State == background.Running
	if ended || tr.Subtype == receipts.AnsweredLate {
		p.AttemptClass, p.Moved, p.Reference = string(tr.Result.Class), tr.Result.Moved, tr.Result.Reference
	}
	if f := tr.Result.Failure; f != nil {
		p.Error = receipts.Failure{Type: f.Type, Code: f.Code, Message: f.Message, Stack: f.Stack, Details: f.Details}
	}
	if ended {
		p.Call = callState(tr)
	}
	switch tr.Subtype {
	case receipts.AttemptStarted:
		p.Attempt, p.DispatchReference, p.KeyForgotten = after.Attempt, deliveredBy(after), tr.KeyForgotten
	case receipts.AnsweredLate:
		p.Attempt = tr.Run.Attempt
	case receipts.RetryScheduled:
		p.NextRetryAt, p.DispatchReference, p.ReasonCode = after.DueAt, deliveredBy(after), tr.Reason
	case receipts.AttemptInterrupted:
		p.NextRetryAt, p.HandedBack = after.DueAt, tr.HandedBack
	case receipts.AttemptSucceeded:
		if after.Output != nil {
			p.OutputDigest = binding.RequestDigest(after.Output)
		}
	case receipts.Discarded:
		p.Attempts, p.ReasonCode, p.Reason = after.Attempt, after.Reason, deathReason(after)
	case receipts.DeadLettered:
		p.Attempts, p.DeadLetteredAt, p.ReasonCode, p.Reason = after.Attempt, after.DeadAt, after.Reason, deathReason(after)
		p.DispatchReference = DispatchReference(after)
	case receipts.Cancelled:
		p.Reason = tr.Reason
		if p.Reason == "" {
			p.Reason = before.CancelReason
		}
	case receipts.Reconciled:
		p.Finding, p.Moved, p.Reference, p.Error = string(tr.Result.Class), tr.Result.Moved, tr.Result.Reference, receipts.Failure{}
		p.Reason, p.FindingReference, p.CallOutstanding = tr.Reason, tr.Result.Reference, tr.DespiteOutstandingCall
		p.ContradictsRecord = tr.DespiteRecord
		p.Ended = before.State.Waiting() && !after.State.Live()
	}
}

// callState returns whether the call of an attempt that ended without an answer is still out, for its receipt.
func callState(tr *background.Transition) string {
	f := tr.Result.Failure
	switch {
	case tr.LeavesCallOutstanding:
		return receipts.CallOut
	case f != nil && (f.Type == background.FailureTimeout || f.Type == background.FailureInterrupted):
		return receipts.CallOver
	}
	return ""
}

// deliveredBy returns the dispatch reference of a run that is delivered; a remote run is fetched.
func deliveredBy(r *background.Run) string {
	if r.Remote {
		return ""
	}
	return DispatchReference(r)
}

// DispatchReference returns the id of the asynq task that delivers the run now.
func DispatchReference(r *background.Run) string {
	return r.ID.String() + "." + strconv.Itoa(r.NotificationNumber)
}

func deathReason(r *background.Run) string {
	if r.Failure == nil || r.Failure.Message == "" {
		return r.Reason
	}
	return r.Failure.Message
}

func actorOf(tr *background.Transition) string {
	switch {
	case tr.Actor != "":
		return tr.Actor
	case tr.Subtype == receipts.Cancelled && tr.Run.CancelBy != "":
		return tr.Run.CancelBy
	}
	return "worker:" + tr.Worker
}

// excessReceipts returns the receipts of an overpayment, besides the transition's own.
func excessReceipts(tr *background.Transition, run background.RunID, attempt int, e settlement.Effect) []receipts.Draft {
	if e.Excess <= 0 {
		return nil
	}
	return []receipts.Draft{{Run: run, Subtype: receipts.ConservationBreach, Actor: actorOf(tr), At: tr.At,
		Payload: receipts.Payload{Attempt: attempt, Excess: e.Excess, Moved: tr.Result.Moved}}}
}

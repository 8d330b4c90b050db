package postadjudication

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// admission is an adjudication with everything its run needs, fixed before the journal is read.
// Its openingChange and decide are pure. The journal calls openingChange once, and decide again with each newer snapshot.
type admission struct {
	Adjudication
	run          background.RunID
	caseID       background.CaseID
	transition   background.TransitionID
	queue        string
	policy       retrypolicy.Policy
	request      []byte
	digest       [32]byte
	at           time.Time
	targets      casework.Targets
	movable      background.RunID // the newest run of the case whose next generation may name another target; zero: none
	permit       bulk.MovePermit  // by this plan; zero: the tenant's money requires one person
	refusalIfNew error            // refuses the adjudication if it is new: it is unsafe, or its target unknown; it may have been accepted before
}

// admit fixes the ids, the stored bytes, the policy and the time of a submission. It returns
// a *FieldError (joined, one per field) for malformed input.
func (s *submissions) admit(ctx context.Context, a Adjudication) (admission, error) {
	if a.Generation == 0 {
		a.Generation = 1
	}
	wrong, err := a.problemsInTurn(ctx)
	if err != nil {
		return admission{}, err
	}
	if err := wrong.takeReferences(ctx, s.applier.Settlements.References, a.Tenant); err != nil {
		return admission{}, err
	}
	if wrong.malformed() != nil {
		return admission{}, errors.Join(wrong.malformed(), wrong.unsafe())
	}
	refusalIfNew, err := wrong.unsafeIfNew(ctx, s.journal.Cases, journal.SubmittedIDs{Tenant: a.Tenant, Kind: journal.KindSettlement, Subject: a.TransactionReceiptID, Escrow: a.EscrowReference})
	if err != nil {
		return admission{}, err
	}
	if !s.applier.Settlements.Targets.Knows(a.target()) {
		refusalIfNew = errors.Join(refusalIfNew, unknownTargetError(s.applier.Settlements.Targets))
	}
	if err := s.applier.Engine.MeasureClock(ctx); err != nil {
		return admission{}, err
	}
	at := s.now()
	return admission{
		Adjudication: a,
		run:          background.RunID(casework.NewIDAt(at)),
		caseID:       background.CaseID(casework.NewIDAt(at)),
		transition:   casework.NewID(),
		queue:        s.queueOf(&a),
		policy:       s.policies.policyFor(ctx, a.Tenant, casework.Family, s.policies.base),
		request:      binding.CanonicalRequest(a.Instruction, wrong.canonical),
		digest:       a.contentDigest(wrong.canonical),
		at:           at,
		targets:      s.applier.Settlements.Targets,
		refusalIfNew: refusalIfNew,
	}, nil
}

// queueOf returns the queue of an adjudication: that of its remote target, or one of asynq.
func (s *submissions) queueOf(a *Adjudication) string {
	if queue, remote := escrow.RemoteQueue(a.Target); remote {
		return queue
	}
	return s.applier.Engine.Queue(casework.Family, a.RetryKey())
}

// submission returns what the journal writes of the adjudication.
func (a admission) submission() journal.Submission {
	return journal.Submission{
		Tenant: a.Tenant, Kind: journal.KindSettlement, Subject: a.TransactionReceiptID, Run: a.run, Open: a.openingChange, Decide: a.decide,
	}
}

// openingChange returns the change that opens a new case.
func (a admission) openingChange() (journal.Change, error) {
	state, _, err := settlement.Apply(settlement.State{}, a.event(settlement.Adjudicated))
	if err != nil {
		return journal.Change{}, err
	}
	newCase := journal.Case{
		ID: a.caseID, Tenant: a.Tenant, Kind: journal.KindSettlement, Subject: a.TransactionReceiptID, Reference: a.EscrowReference,
		Currency: a.Held.Currency, Held: a.Held.Minor, Submission: a.SubmissionReceiptID, Content: a.digest, State: state, ActiveRun: a.run,
	}
	run := a.newRun(a.caseID)
	return journal.Change{
		Transition: a.transition, After: &journal.Snapshot{Case: newCase, Run: run},
		OpeningEscrow: journal.OpeningEscrow{Reference: a.EscrowReference, Currency: a.Held.Currency, Held: a.Held.Minor},
		Drafts:        []receipts.Draft{a.submittedReceipt(run, newCase, false)},
	}, nil
}

// decide answers a submission to an existing case: it returns a reply error, or the change that
// starts a new generation.
func (a admission) decide(s *journal.Snapshot) (journal.Change, error) {
	if reply := a.reply(s); reply != Created {
		return journal.Change{}, replyError(reply)
	}
	return a.readjudicate(s)
}

// reply returns the reply to the adjudication where its case exists; Created if it starts a higher generation.
func (a admission) reply(s *journal.Snapshot) Reply {
	c := &s.Case
	switch {
	case a.Generation < c.State.Generation:
		return StaleGeneration // or Superseded: only the receipts show which
	case a.Generation == c.State.Generation && a.Outcome == c.State.Outcome && a.digest == c.Content:
		return replyToRepeat(s)
	case c.State.Progression.Ended():
		return CaseEnded
	case a.EscrowReference != c.Reference || a.Held.Minor != c.Held || a.Held.Currency != c.Currency:
		return EscrowMismatch
	case a.Generation > c.State.Generation:
		if reply := replyToHigher(s); reply != Created || a.movable == s.Run.ID || a.targets.SameService(a.target(), s.Run.Target) {
			return reply
		}
		return TargetChanged
	case a.Outcome != c.State.Outcome:
		return Conflicting
	}
	return RetryKeyMismatch
}

// replyToRepeat answers an adjudication that the case already has. It was accepted and stays
// accepted whatever happened since, and it is not executed a second time.
func replyToRepeat(s *journal.Snapshot) Reply {
	switch state, active := &s.Case.State, &s.Run; {
	case state.Moved > 0, state.Returned > 0 && active.Class == escrow.Executed:
		return AlreadyExecuted // also if the payment came back: the same decision would be paid under the same key
	case active.State.Live():
		return Deduplicated
	case active.State == background.DeadLettered && active.Letter != background.LetterReconciled && state.Progression != settlement.ReviewNeeded:
		return DeadLettered
	}
	return Cancelled // by a person, closed by a person's finding, or by freeing its reservation
}

// replyToHigher returns the reply to an adjudication of a higher generation, by what the active run of the
// case may still pay.
func replyToHigher(s *journal.Snapshot) Reply {
	switch casework.HigherGate(s) {
	case "":
		return Created
	case refusal.GateLive:
		return Conflicting
	}
	return ReconcileFirst
}

// readjudicate starts the run of a higher generation in an existing case. It supersedes an open
// dead letter of a lower generation.
func (a admission) readjudicate(s *journal.Snapshot) (journal.Change, error) {
	state, effect, err := settlement.Apply(s.Case.State, a.event(settlement.Readjudicated))
	if err != nil {
		return journal.Change{}, err
	}
	after := *s
	after.Case.State, after.Case.ActiveRun, after.Case.Content, after.Case.Submission, after.Case.Epoch = state, a.run, a.digest, a.SubmissionReceiptID, 0
	run := a.newRun(s.Case.ID)
	var drafts []receipts.Draft
	after.Run.LastTransition = a.transition
	if s.Run.Letter == background.LetterOpen {
		after.Run.Letter = background.LetterSuperseded
		drafts = append(drafts, receipts.Draft{Run: s.Run.ID, Subtype: receipts.Superseded, Actor: a.actor(), At: a.at,
			Payload: receipts.Payload{NewRun: a.run, Generation: a.Generation, Outcome: string(a.Outcome)}})
	}
	accepted := a.submittedReceipt(run, after.Case, true)
	accepted.Payload.Freed = max(0, -effect.Committed)
	if a.movable == s.Run.ID {
		accepted.Payload.Bulk, accepted.Payload.PlannedBy = a.permit.Plan, a.permit.PlannedBy
		if a.permit == (bulk.MovePermit{}) {
			accepted.Payload.People = 1
		}
	}
	return journal.Change{
		Transition: a.transition, Before: s, After: &after, NewRun: &run, Reserve: true,
		Drafts: append(drafts, accepted),
	}, nil
}

// event returns the event that the adjudication is for its case.
func (a admission) event(fact settlement.Fact) settlement.Event {
	return settlement.Event{Fact: fact, Outcome: a.Outcome, Generation: a.Generation, Amount: a.Amount.Minor}
}

// newRun returns the run of the adjudication in a case, as it is written.
func (a admission) newRun(caseID background.CaseID) background.Run {
	return background.Run{
		ID: a.run, Case: caseID, Tenant: a.Tenant, Family: casework.Family, RetryKey: a.RetryKey(), Queue: a.queue, Target: a.target(),
		Policy: a.policy, Payload: a.request, Operation: a.operationKey(), State: background.Pending,
		LastTransition: a.transition, DueAt: a.at, NotificationNumber: 1, Remote: escrow.IsRemote(a.Target),
	}
}

// submittedReceipt returns the receipt of the run. It states the terms that an audit compares the run with.
func (a admission) submittedReceipt(run background.Run, c journal.Case, readjudicated bool) receipts.Draft {
	return receipts.Draft{Run: run.ID, Subtype: receipts.Submitted, Actor: a.actor(), At: a.at, Payload: receipts.Payload{
		AdjudicationID: a.AdjudicationID, SubmissionReceiptID: a.SubmissionReceiptID, TransactionReceiptID: a.TransactionReceiptID,
		EscrowReference: a.EscrowReference, Outcome: string(a.Outcome), Generation: a.Generation, Amount: a.Amount.Minor,
		Held: a.Held.Minor, Currency: a.Amount.Currency, RetryKey: run.RetryKey, OperationKey: escrow.OperationKey(run.Operation).String(),
		Family: casework.Family, Queue: run.Queue, Target: run.Target, Policy: run.Policy.Encode(), ContentDigest: hex.EncodeToString(a.digest[:]), RequestDigest: binding.RequestDigest(a.request),
		Epoch: c.Epoch, Readjudicated: readjudicated, Remote: run.Remote, RequestID: a.Request, Settlement: binding.SettlementSnapshot(c.State),
	}}
}

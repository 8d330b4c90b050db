package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Finding is what a person, or the escrow service when asked, says of the money of
// an open dead letter, or of a run that waits.
type Finding struct {
	Actor     string // who found it; required
	Reason    string // how; required of a person
	Class     Class  // Executed or NotExecuted
	Moved     int64  // minor units; required when executed
	Reference string // where the finding can be checked; required of a person

	// OtherAmount says that Moved is meant though it is not what was left to be moved.
	// It is refused without: a finding can't be taken back.
	OtherAmount bool

	// CallOutstanding says that NotExecuted is meant though a call may still be on its way:
	// whoever found it knows that it will not be executed. It is refused without.
	CallOutstanding bool

	attempt int // of a lookup: the last one made when it was asked
}

// Reconcile records what became of the money of an open letter. Executed closes the
// letter as reconciled and settles the case by the amount moved; NotExecuted clears
// the unknown, so that the letter can be forked. Of a run that waits for its next attempt
// while money is unknown, whatever it waits for, Executed ends it as succeeded, and
// NotExecuted clears the unknown, so that it can be cancelled. Of a letter that was purged,
// forked, superseded, or closed without a payment, as by PlanFree, and of a cancelled run, a
// finding that it was executed after all is recorded too, and settles the case; what was closed
// stays so. A fork that waits is not called on top: it ends as succeeded where its operation
// key is the same, and else as a dead letter or cancelled; one that runs is not tried again.
// It is a *RefusedError otherwise, and a *FieldError when the finding makes no sense, of
// other_amount when it is of one and does not say so. That nothing was executed is refused by
// GateCallOutstanding while a call may still be on its way, unless the finding says that it
// knows.
//
// That it was executed takes two people, unless the tenant takes one: then it is planned, and
// the error is a *SecondPersonError with the plan, which somebody else lets run.
func (s *Service) Reconcile(ctx context.Context, tenant string, id background.RunID, f Finding) (_ CaseStatus, err error) {
	if err := f.validate(); err != nil {
		return CaseStatus{}, err
	}
	defer func() { err = s.recordGateRefusal(ctx, actionRequest{"reconcile", id, f.Actor, f.Reason}, err) }()
	if f.Class != Executed {
		return s.reconcile(ctx, tenant, id, f, "", nil)
	}
	return s.reconcileOrPlan(ctx, tenant, id, f, lookupSource{})
}

// reconcileOrPlan records that money was moved, or plans it where that takes two people.
func (s *Service) reconcileOrPlan(ctx context.Context, tenant string, id background.RunID, f Finding, by lookupSource) (CaseStatus, error) {
	people, err := s.requiredPeople(ctx, tenant)
	if err != nil {
		return CaseStatus{}, err
	}
	if people > 1 || access.IsProgram(f.Actor) {
		plan, err := s.planFinding(ctx, tenant, id, f, by)
		if err == nil {
			err = &SecondPersonError{Plan: plan}
		}
		return CaseStatus{}, err
	}
	return s.reconcile(ctx, tenant, id, f, by.class, &planGuard{provenance: provenance{people: people, lookupURL: by.url}})
}

// lookupSource is what an escrow service that a person named was asked: its answer, and its URL. The
// zero lookup is none.
type lookupSource struct {
	class Class
	url   string
}

// lookupURL returns the URL of the escrow service that an executor asks, without userinfo, query
// and fragment, which may hold secrets. It is empty where the executor states none, or none that
// can be read.
func lookupURL(executor Executor) string {
	at, ok := executor.(Addressed)
	if !ok {
		return ""
	}
	u, err := url.Parse(at.Address())
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return cleanText(u.String(), maxLookupURL)
}

// ReconcileCase is Reconcile for the run that a transaction is at: the one that waits, its
// open letter, or the last one, which was closed.
func (s *Service) ReconcileCase(ctx context.Context, tenant, transaction string, f Finding) (CaseStatus, error) {
	seen, err := s.journal.SubjectSnapshot(ctx, tenant, postgres.KindSettlement, transaction)
	if err != nil {
		return CaseStatus{}, err
	}
	return s.Reconcile(ctx, tenant, seen.Run.ID, f)
}

// ReconcileByLookup asks the escrow service what became of the operation key of an open
// letter, or of a run that waits while money is unknown, and records its answer. It changes nothing when the answer is that
// it can't tell, or when a call of the run is still out that could pay after all;
// then it is a *RefusedError of GateReconcileFirst.
//
// Where the actor is self-declared, as beside the database, the escrow service is the one that
// the same person named: its answer that money was moved is worth their word, and takes two
// people as in Reconcile. The plan and the receipt name its URL, where the executor is Addressed.
func (s *Service) ReconcileByLookup(ctx context.Context, tenant string, id background.RunID, actor string) (_ CaseStatus, err error) {
	if err := requireIdentifier("actor", actor, 128); err != nil {
		return CaseStatus{}, err
	}
	defer func() { err = s.recordGateRefusal(ctx, actionRequest{"lookup", id, actor, ""}, err) }()
	found, asked, err := s.lookupFinding(ctx, tenant, id, actor)
	if err != nil {
		return CaseStatus{}, err
	}
	var by lookupSource
	if callerOf(ctx).SelfDeclared {
		by = asked
	}
	if found.Class != Executed || !callerOf(ctx).SelfDeclared {
		return s.reconcile(ctx, tenant, id, found, found.Class, &planGuard{provenance: provenance{lookupURL: by.url}})
	}
	found.Reason = "the escrow service that " + actor + " named was asked"
	return s.reconcileOrPlan(ctx, tenant, id, found, by)
}

// reconcileByLookup asks the escrow service of this process for a plan.
func (s *Service) reconcileByLookup(ctx context.Context, tenant string, id background.RunID, actor string, guard *planGuard) (CaseStatus, error) {
	found, _, err := s.lookupFinding(ctx, tenant, id, actor)
	if err != nil {
		return CaseStatus{}, err
	}
	return s.reconcile(ctx, tenant, id, found, found.Class, guard)
}

// lookupFinding asks the escrow service of a run about it, where a lookup can be of the run, and
// returns what was asked with the answer. It is a *RefusedError when the answer decides nothing.
func (s *Service) lookupFinding(ctx context.Context, tenant string, id background.RunID, actor string) (Finding, lookupSource, error) {
	if s.settlements.executor == nil {
		return Finding{}, lookupSource{}, ErrNoExecutor
	}
	seen, err := s.ownRun(ctx, tenant, id)
	if err != nil {
		return Finding{}, lookupSource{}, err
	}
	executor := s.settlements.executorOf(seen.Run.Target)
	if executor == nil {
		return Finding{}, lookupSource{}, ErrTargetUnknown
	}
	if gate := reconcileGate(seen); gate != "" {
		return Finding{}, lookupSource{}, refusedBy(gate, seen)
	}
	if err := checkBinding(&seen.Run); err != nil {
		refusal := refusedBy(GateRequestAltered, seen)
		refusal.Because = err.Error()
		return Finding{}, lookupSource{}, refusal
	}
	found := s.lookUpWithTimeout(ctx, seen.Run, false)
	if found.Class == Unknown {
		refusal := refusedBy(GateReconcileFirst, seen)
		refusal.Because = lookupUnclear(found)
		return Finding{}, lookupSource{}, refusal
	}
	return Finding{Actor: actor, Class: found.Class, Moved: found.Moved, Reference: found.Reference, attempt: seen.Run.Attempt}, lookupSource{found.Class, lookupURL(executor)}, nil
}

// lookupUnclear tells why a lookup decides nothing.
func lookupUnclear(found background.Result) string {
	return "the lookup could not tell: " + redact.Text(found.Failure.Message)
}

func (f Finding) validate() error {
	switch {
	case f.Class != Executed && f.Class != NotExecuted:
		return &FieldError{Field: "finding", Problem: "must be executed or not_executed"}
	case f.Class == Executed && (f.Moved < 1 || f.Moved > settlement.MaxMinor):
		return &FieldError{Field: "moved", Problem: "must be what was moved, in minor units"}
	case f.Class == NotExecuted && f.Moved != 0:
		return &FieldError{Field: "moved", Problem: "must be absent when nothing was executed"}
	case f.Class == Executed && f.CallOutstanding:
		return &FieldError{Field: "call_outstanding", Problem: "must be absent when something was executed"}
	}
	if err := requireIdentifier("actor", f.Actor, 128); err != nil {
		return err
	}
	if err := requireText("reason", f.Reason, 1024); err != nil {
		return err
	}
	return requireIdentifier("reference", f.Reference, 255)
}

// checkAmount refuses a payment of another amount than is left to be moved, unless that is
// meant: of a decision that a higher generation has replaced, all that it asked for. When
// nothing is left, or the run is known to be paid, the finding is of what is known already.
func (f Finding) checkAmount(seen *postgres.Snapshot) error {
	s := &seen.Case.State
	left := s.Asked - s.Moved
	if t := seen.Run.Terms; t != nil && t.Generation < s.Generation {
		left = t.Amount
	}
	if f.Class != Executed || f.Moved == left || f.OtherAmount || left == 0 || seen.Run.Class == Executed {
		return nil
	}
	return &FieldError{Field: "other_amount", Problem: fmt.Sprintf("must be true where %d was moved and %d was left to be moved", f.Moved, left)}
}

func (s *Service) reconcile(ctx context.Context, tenant string, id background.RunID, f Finding, answered Class, guard *planGuard) (CaseStatus, error) {
	seen, err := s.findingRun(ctx, tenant, id, f, answered)
	if err != nil {
		return CaseStatus{}, err
	}
	m := background.Transition{
		ID: newID(), Run: seen.Run, Event: receipts.Reconciled, At: s.now(), Actor: f.Actor, Reason: f.Reason, Lookup: answered, CallOutstanding: f.CallOutstanding,
		Result: background.Result{Class: f.Class, Moved: f.Moved, Reference: f.Reference},
	}
	if _, err := s.settlements.record(ctx, m, guard); errors.Is(err, background.ErrConflict) {
		return CaseStatus{}, s.explainLostGuard(ctx, id, err)
	} else if err != nil {
		return CaseStatus{}, err
	}
	s.manager.Wake(id)
	return s.Case(ctx, tenant, seen.Case.Subject)
}

// findingRun reads the run that a finding or a lookup is about, and refuses one that it can't be
// about.
func (s *Service) findingRun(ctx context.Context, tenant string, id background.RunID, f Finding, answered Class) (postgres.Snapshot, error) {
	seen, err := s.ownRun(ctx, tenant, id)
	switch gate := reconcileGate(seen); {
	case err != nil:
		return seen, err
	case gate != "" && !(f.Class == Executed && closedUnpaid(seen)):
		return seen, refusedBy(gate, seen)
	case answered == NotExecuted && seen.Run.Attempt != f.attempt:
		refusal := refusedBy(GateReconcileFirst, seen)
		refusal.Because = "another call was made while the lookup was asked, of which it says nothing"
		return seen, refusal
	case answered != "":
		return seen, nil
	case seen.Run.Letter == background.LetterForked:
		if err := s.refuseIfPaidByFork(ctx, seen); err != nil {
			return seen, err
		}
	}
	if err := f.checkAmount(&seen); err != nil {
		return seen, err
	}
	return seen, s.checkNoCallPending(ctx, seen, f)
}

// refuseIfPaidByFork refuses a finding of a forked letter whose operation key is known to be paid, as by
// its fork: a payment counts once per key, so that the finding would change nothing.
func (s *Service) refuseIfPaidByFork(ctx context.Context, seen postgres.Snapshot) error {
	runs, err := s.settlements.readCaseRuns(ctx, seen.Run)
	if err != nil || !runs.paidUnder(seen.Run.Operation) {
		return err
	}
	refusal := refusedBy(GateNotOpen, seen)
	refusal.Because = "the payment under its operation key is on record"
	return refusal
}

// checkNoCallPending refuses a finding that nothing was executed while a call may still be on its way,
// unless the finding says that it knows. No call begins meanwhile unnoticed: the move expects
// the attempt that was seen.
func (s *Service) checkNoCallPending(ctx context.Context, seen postgres.Snapshot, f Finding) error {
	if f.Class != NotExecuted || f.CallOutstanding {
		return nil
	}
	why, err := s.settlements.mayStillPay(ctx, seen.Run)
	if err != nil || why == "" {
		return err
	}
	refusal := refusedBy(GateCallOutstanding, seen)
	refusal.Because = why
	return refusal
}

// explainLostGuard tells what became of a letter that was open a moment ago.
func (s *Service) explainLostGuard(ctx context.Context, id background.RunID, lost error) error {
	now, err := s.journal.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	if gate := reconcileGate(now); gate != "" {
		return refusedBy(gate, now)
	}
	return lost
}

// moneyUnknown reports whether it is not known what became of the money of a run. A plain
// task has none: of it an unknown outcome is a failure.
func moneyUnknown(s postgres.Snapshot) bool {
	return s.Case.Kind == postgres.KindSettlement && (s.Run.Class == Unknown || s.Run.UnresolvedUnknowns > 0)
}

// reconcileGate is the gate of a finding and of a lookup: it takes an open letter, or a run
// that waits for an attempt while money is unknown. What is found says nothing of a call
// made later: the move expects the attempt that was seen.
func reconcileGate(s postgres.Snapshot) Gate {
	switch {
	case s.Case.Kind == postgres.KindSettlement && s.Run.State == background.Running:
		return GateRunning
	case s.Run.State.Waiting() && moneyUnknown(s):
		return ""
	}
	return openLetterGate(s)
}

// openLetterGate is the gate of whatever needs an open letter of a settlement.
func openLetterGate(s postgres.Snapshot) Gate {
	switch {
	case s.Case.Kind != postgres.KindSettlement:
		return GateNotSettlement
	case s.Run.State != background.DeadLettered:
		return GateNotALetter
	case s.Run.Letter != background.LetterOpen:
		return GateNotOpen
	}
	return ""
}

// closedUnpaid reports whether a settlement's run was closed though no money of it is known to
// have moved.
func closedUnpaid(s postgres.Snapshot) bool {
	return s.Case.Kind == postgres.KindSettlement && s.Run.ClosedUnpaid()
}

func refusedBy(g Gate, s postgres.Snapshot) *RefusedError {
	return &RefusedError{Gate: g, Run: s.Run.ID, Letter: s.Run.Letter, ActiveRun: s.Case.ActiveRun}
}

package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Finding states what became of the money of an open dead letter, or of a waiting run. It
// comes from a person, or from a lookup at the escrow service.
type Finding struct {
	Reason    string       // how; required of a person
	Class     escrow.Class // Executed or NotExecuted
	Moved     int64        // minor units; required if Executed, else 0
	Reference string       // where the finding can be checked; required of a person

	// OtherAmount confirms a Moved that differs from the amount left to move. Such a finding
	// is refused without it, since a finding can't be taken back.
	OtherAmount bool

	// CallOutstanding confirms NotExecuted while a call may still be in flight: the person
	// knows that the call will not be executed. Such a finding is refused without it.
	CallOutstanding bool

	actor   string // who found it
	attempt int    // of a lookup: the run's last attempt when the escrow service was asked
}

// Reconcile records what became of the money of a run. The finding and its effects are one
// commit. What it accepts:
//
//   - an open letter: Executed closes it as reconciled and settles the case by Moved;
//     NotExecuted clears the unknown outcome, so that the letter can be forked.
//   - a waiting run with an unknown outcome: Executed ends it as succeeded; NotExecuted clears
//     the unknown outcome, so that the run can be cancelled.
//   - a letter that was purged, forked, superseded, or closed without a payment (as by
//     PlanFree), and a cancelled run: Executed only. It settles the case; the run or letter
//     stays closed.
//
// If Executed is found while a fork waits, the fork is not called: it ends as succeeded if it
// has the same operation key, else as a dead letter or cancelled. A fork that is running gets
// no further attempt.
//
// Errors:
//
//   - *FieldError: invalid input. Field is other_amount if Moved differs from the amount left
//     and OtherAmount is false.
//   - *RefusedError: a gate refuses. The gate is GateCallOutstanding if NotExecuted is found
//     while a call may still be in flight and CallOutstanding is false.
//   - *SecondPersonError: Executed takes two people, unless the tenant requires only one. The
//     finding is stored as a plan, and another person must start it.
//   - ErrNotFound: the tenant has no such run.
func (l Letters) Reconcile(ctx context.Context, id background.RunID, f Finding) (_ CaseStatus, err error) {
	f.actor = l.actor
	if err := f.validate(); err != nil {
		return CaseStatus{}, err
	}
	defer func() { err = l.s.recordGateRefusal(ctx, actionRequest{"reconcile", id, l.actor, f.Reason}, err) }()
	if f.Class != escrow.Executed {
		return l.s.reconcile(ctx, l.tenant, id, f, "", guard{})
	}
	return l.s.reconcileOrPlan(ctx, l.tenant, id, f, lookupSource{})
}

// reconcileOrPlan records an executed finding, or plans it where that takes two people.
func (s *Service) reconcileOrPlan(ctx context.Context, tenant string, id background.RunID, f Finding, by lookupSource) (CaseStatus, error) {
	people, err := s.requiredPeople(ctx, tenant)
	if err != nil {
		return CaseStatus{}, err
	}
	if people > 1 || access.IsProgram(f.actor) {
		plan, err := s.planFinding(ctx, tenant, id, f, by)
		if err == nil {
			err = &SecondPersonError{Plan: plan}
		}
		return CaseStatus{}, err
	}
	return s.reconcile(ctx, tenant, id, f, by.class, guard{stamp: provenance{people: people, lookupURL: by.url}.stamp})
}

// lookupSource describes a lookup at an escrow service that a person named: the class of its
// answer, and its URL. The zero value means that there was no lookup.
type lookupSource struct {
	class escrow.Class
	url   string
}

// lookupURL returns the URL of an executor's escrow service without userinfo, query and
// fragment, which may hold secrets. It returns "" if the executor has no Address or one that
// can't be parsed.
func lookupURL(executor escrow.Executor) string {
	at, ok := executor.(escrow.Addressed)
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

// ReconcileCase is Reconcile for the current run of a transaction: the waiting run, the run
// of its open letter, or the last one, which is closed.
func (l Letters) ReconcileCase(ctx context.Context, transaction string, f Finding) (CaseStatus, error) {
	seen, err := l.s.journal.Cases.SubjectSnapshot(ctx, l.tenant, journal.KindSettlement, transaction)
	if err != nil {
		return CaseStatus{}, err
	}
	return l.Reconcile(ctx, seen.Run.ID, f)
}

// Lookup asks the escrow service what became of the operation key of an open
// letter, or of a waiting run with an unknown outcome, and records the answer. If the answer
// is unclear, or an outstanding call of the run could still pay, it changes nothing and
// returns a *RefusedError of GateReconcileFirst. Its other errors are those of Reconcile,
// and ErrNoExecutor, and ErrTargetUnknown if this process does not call the run's target.
//
// A self-declared actor (one with direct access to the database) names the escrow service as
// well. An answer that money moved is then worth no more than the actor's statement, and takes
// two people as in Reconcile. Plan and receipt name the URL if the executor is Addressed.
func (l Letters) Lookup(ctx context.Context, id background.RunID) (_ CaseStatus, err error) {
	if err := requireIdentifier("actor", l.actor, 128); err != nil {
		return CaseStatus{}, err
	}
	defer func() { err = l.s.recordGateRefusal(ctx, actionRequest{"lookup", id, l.actor, ""}, err) }()
	found, asked, err := l.s.lookupFinding(ctx, l.tenant, id, l.actor)
	if err != nil {
		return CaseStatus{}, err
	}
	var by lookupSource
	if callerOf(ctx).SelfDeclared {
		by = asked
	}
	if found.Class != escrow.Executed || !callerOf(ctx).SelfDeclared {
		return l.s.reconcile(ctx, l.tenant, id, found, found.Class, guard{stamp: provenance{lookupURL: by.url}.stamp})
	}
	found.Reason = "the escrow service that " + l.actor + " named was asked"
	return l.s.reconcileOrPlan(ctx, l.tenant, id, found, by)
}

// reconcileByLookup runs a planned lookup at the escrow service of this process.
func (s *Service) reconcileByLookup(ctx context.Context, tenant string, id background.RunID, actor string, by guard) (CaseStatus, error) {
	found, _, err := s.lookupFinding(ctx, tenant, id, actor)
	if err != nil {
		return CaseStatus{}, err
	}
	return s.reconcile(ctx, tenant, id, found, found.Class, by)
}

// lookupFinding asks the escrow service about a run and returns the answer as a finding, with
// its source. It returns a *RefusedError if the run can't be looked up or the answer is unclear.
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
	if found.Class == escrow.Unknown {
		refusal := refusedBy(GateReconcileFirst, seen)
		refusal.Because = lookupUnclear(found)
		return Finding{}, lookupSource{}, refusal
	}
	return Finding{actor: actor, Class: found.Class, Moved: found.Moved, Reference: found.Reference, attempt: seen.Run.Attempt}, lookupSource{found.Class, lookupURL(executor)}, nil
}

// lookupUnclear explains why a lookup decides nothing.
func lookupUnclear(found background.Result) string {
	return "the lookup gave no clear answer: " + redact.Text(found.Failure.Message)
}

func (f Finding) validate() error {
	switch {
	case f.Class != escrow.Executed && f.Class != escrow.NotExecuted:
		return &FieldError{Field: "finding", Problem: "must be executed or not_executed"}
	case f.Class == escrow.Executed && (f.Moved < 1 || f.Moved > settlement.MaxMinor):
		return &FieldError{Field: "moved", Problem: "must be what was moved, in minor units"}
	case f.Class == escrow.NotExecuted && f.Moved != 0:
		return &FieldError{Field: "moved", Problem: "must be absent when nothing was executed"}
	case f.Class == escrow.Executed && f.CallOutstanding:
		return &FieldError{Field: "call_outstanding", Problem: "must be absent when something was executed"}
	}
	if err := requireIdentifier("actor", f.actor, 128); err != nil {
		return err
	}
	if err := requireText("reason", f.Reason, 1024); err != nil {
		return err
	}
	return requireIdentifier("reference", f.Reference, 255)
}

// checkAmount refuses a payment that differs from the amount left to move, unless OtherAmount
// is set. For a decision that a higher generation replaced, the amount left is all that it
// asked for. If nothing is left, or the run is known to be paid, any amount passes: the
// finding states what is already recorded.
func (f Finding) checkAmount(seen *journal.Snapshot) error {
	s := &seen.Case.State
	left := s.Asked - s.Moved
	if t := seen.Run.Terms; t != nil && t.Generation < s.Generation {
		left = t.Amount
	}
	if f.Class != escrow.Executed || f.Moved == left || f.OtherAmount || left == 0 || seen.Run.Class == escrow.Executed {
		return nil
	}
	return &FieldError{Field: "other_amount", Problem: fmt.Sprintf("must be true if %d was moved and %d was left to move", f.Moved, left)}
}

func (s *Service) reconcile(ctx context.Context, tenant string, id background.RunID, f Finding, answered escrow.Class, by guard) (CaseStatus, error) {
	seen, err := s.findingRun(ctx, tenant, id, f, answered)
	if err != nil {
		return CaseStatus{}, err
	}
	m := background.Transition{
		ID: newID(), Run: seen.Run, Event: receipts.Reconciled, At: s.now(), Actor: f.actor, Reason: f.Reason, Lookup: answered, CallOutstanding: f.CallOutstanding,
		Result: background.Result{Class: f.Class, Moved: f.Moved, Reference: f.Reference},
	}
	if _, err := s.settlements.record(ctx, m, by); errors.Is(err, background.ErrConflict) {
		return CaseStatus{}, s.explainLostGuard(ctx, id, err)
	} else if err != nil {
		return CaseStatus{}, err
	}
	s.manager.Wake(id)
	return s.Case(ctx, tenant, seen.Case.Subject)
}

// findingRun reads the run of a finding or lookup, and refuses a run that accepts neither.
func (s *Service) findingRun(ctx context.Context, tenant string, id background.RunID, f Finding, answered escrow.Class) (journal.Snapshot, error) {
	seen, err := s.ownRun(ctx, tenant, id)
	switch gate := reconcileGate(seen); {
	case err != nil:
		return seen, err
	case gate != "" && !(f.Class == escrow.Executed && closedUnpaid(seen)):
		return seen, refusedBy(gate, seen)
	case answered == escrow.NotExecuted && seen.Run.Attempt != f.attempt:
		refusal := refusedBy(GateReconcileFirst, seen)
		refusal.Because = "another call was made during the lookup, and the answer does not cover it"
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

// refuseIfPaidByFork refuses a finding for a forked letter whose operation key is already paid, as by
// its fork. A payment counts once per key, so the finding would change nothing.
func (s *Service) refuseIfPaidByFork(ctx context.Context, seen journal.Snapshot) error {
	runs, err := s.settlements.readCaseRuns(ctx, seen.Run)
	if err != nil || !runs.paidUnder(seen.Run.Operation) {
		return err
	}
	refusal := refusedBy(GateNotOpen, seen)
	refusal.Because = "the payment under its operation key is on record"
	return refusal
}

// checkNoCallPending refuses NotExecuted while a call may still be in flight, unless the finding
// confirms it with CallOutstanding. A call that begins meanwhile makes the transition fail: it
// expects the attempt that was read.
func (s *Service) checkNoCallPending(ctx context.Context, seen journal.Snapshot, f Finding) error {
	if f.Class != escrow.NotExecuted || f.CallOutstanding {
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

// explainLostGuard returns why a letter that was open a moment ago can't be reconciled any more.
func (s *Service) explainLostGuard(ctx context.Context, id background.RunID, lost error) error {
	now, err := s.journal.Cases.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	if gate := reconcileGate(now); gate != "" {
		return refusedBy(gate, now)
	}
	return lost
}

// moneyUnknown reports whether it is unknown what became of a run's money. A plain task moves
// no money: its unknown outcome is a failure.
func moneyUnknown(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && (s.Run.Class == escrow.Unknown || s.Run.UnresolvedUnknowns > 0)
}

// reconcileGate is the gate of findings and lookups: it accepts an open letter, or a run that
// waits for an attempt with an unknown outcome. A finding does not cover a call made later,
// so the transition expects the attempt that was read.
func reconcileGate(s journal.Snapshot) Gate {
	switch {
	case s.Case.Kind == journal.KindSettlement && s.Run.State == background.Running:
		return GateRunning
	case s.Run.State.Waiting() && moneyUnknown(s):
		return ""
	}
	return openLetterGate(s)
}

// openLetterGate is the gate of every action that needs an open letter of a settlement.
func openLetterGate(s journal.Snapshot) Gate {
	switch {
	case s.Case.Kind != journal.KindSettlement:
		return GateNotSettlement
	case s.Run.State != background.DeadLettered:
		return GateNotALetter
	case s.Run.Letter != background.LetterOpen:
		return GateNotOpen
	}
	return ""
}

// closedUnpaid reports whether a settlement's run was closed while no payment of it is
// recorded.
func closedUnpaid(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && s.Run.ClosedUnpaid()
}

func refusedBy(g Gate, s journal.Snapshot) *RefusedError {
	return &RefusedError{Gate: g, Run: s.Run.ID, Letter: s.Run.Letter, ActiveRun: s.Case.ActiveRun}
}

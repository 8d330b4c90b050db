package deadletter

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

// Finding states what became of the money of an open dead letter, or of a waiting run.
type Finding = casework.Finding

// Reconcile records what became of the money of a run. The finding and its effects are one
// commit. What it accepts:
//
//   - an open letter: Executed closes it as reconciled and settles the case by Moved;
//     NotExecuted clears the unknown outcome, so that the letter can be forked.
//   - a waiting run with an unknown outcome: Executed ends it as succeeded; NotExecuted clears
//     the unknown outcome, so that the run can be cancelled.
//   - a letter that was purged, forked, superseded, or closed without a payment (as by
//     freeing its reservation), and a cancelled run: Executed only. It settles the case; the run or letter
//     stays closed.
//
// If Executed is found while a fork waits, the fork is not called: it ends as succeeded if it
// has the same operation key, else as a dead letter or cancelled. A fork that is running gets
// no further attempt.
//
// Errors:
//
//   - *refusal.FieldError: invalid input. Field is other_amount if Moved differs from the amount left
//     and OtherAmount is false.
//   - *refusal.RefusedError: a gate refuses. The gate is refusal.GateCallOutstanding if NotExecuted is found
//     while a call may still be in flight and CallOutstanding is false. It is refusal.GateContradictsRecord
//     if an answer, a lookup or a finding on record says the opposite and ContradictsRecord is false; Because
//     then says what is on record.
//   - the error of Propose: Executed takes two people, unless the tenant requires only one. The
//     finding is stored as a plan, and another person must start it.
//   - refusal.ErrNotFound: the tenant has no such run.
func (l Letters) Reconcile(ctx context.Context, id background.RunID, f casework.Finding) (_ casestatus.Case, err error) {
	if err := f.Validate(l.actor); err != nil {
		return casestatus.Case{}, err
	}
	defer func() {
		err = l.s.Applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "reconcile", Run: id, Actor: l.actor, Reason: f.Reason}, err)
	}()
	if f.Class != escrow.Executed {
		return l.reconcileStated(ctx, id, f, casework.Guard{})
	}
	return l.reconcileOrPlan(ctx, id, f, casework.LookupSource{})
}

// reconcile records a finding and returns the case after it.
func (l Letters) reconcile(ctx context.Context, id background.RunID, f casework.Finding, asked casework.LookupSource, by casework.Guard) (casestatus.Case, error) {
	transaction, err := l.s.Applier.Reconcile(ctx, l.tenant, id, l.actor, f, asked, by)
	if err != nil {
		return casestatus.Case{}, err
	}
	return l.s.Statuses.Case(ctx, l.tenant, transaction)
}

// reconcileOrPlan records an executed finding, or plans it where that takes two people.
func (l Letters) reconcileOrPlan(ctx context.Context, id background.RunID, f casework.Finding, asked casework.LookupSource) (casestatus.Case, error) {
	people, err := l.s.Applier.RequiredPeople(ctx, l.tenant)
	if err != nil {
		return casestatus.Case{}, err
	}
	if people > 1 || access.IsProgram(l.actor) {
		return casestatus.Case{}, l.s.Propose(ctx, l.tenant, l.actor, id, f, asked)
	}
	stamped := casework.Guard{Stamp: casework.Provenance{People: people, LookupURL: asked.URL}.Stamp}
	if asked.Class == "" {
		return l.reconcileStated(ctx, id, f, stamped)
	}
	return l.reconcile(ctx, id, f, asked, stamped)
}

// reconcileStated records a finding of a person, whose reference may be one of a bank.
func (l Letters) reconcileStated(ctx context.Context, id background.RunID, f casework.Finding, by casework.Guard) (_ casestatus.Case, err error) {
	if f.Reference, err = l.s.Settlements.References.Stated(ctx, l.tenant, "reference", f.Reference); err != nil {
		return casestatus.Case{}, err
	}
	return l.reconcile(ctx, id, f, casework.LookupSource{}, by)
}

// ReconcileCase is Reconcile for the current run of a transaction: the waiting run, the run
// of its open letter, or the last one, which is closed.
func (l Letters) ReconcileCase(ctx context.Context, transaction string, f casework.Finding) (casestatus.Case, error) {
	seen, err := l.s.Journal.Cases.SubjectSnapshot(ctx, l.tenant, journal.KindSettlement, transaction)
	if err != nil {
		return casestatus.Case{}, err
	}
	return l.Reconcile(ctx, seen.Run.ID, f)
}

// Lookup asks the escrow service what became of the operation key of an open
// letter, or of a waiting run with an unknown outcome, and records the answer. If the answer
// is unclear, or an outstanding call of the run could still pay, it changes nothing and
// returns a *refusal.RefusedError of refusal.GateReconcileFirst. Its other errors are those of Reconcile,
// and ErrNoExecutor, and ErrTargetUnknown if this process does not call the run's target.
//
// A self-declared actor (one with direct access to the database) names the escrow service as
// well. An answer that money moved is then worth no more than the actor's statement, and takes
// two people as in Reconcile. Plan and receipt name the URL if the executor is Addressed.
func (l Letters) Lookup(ctx context.Context, id background.RunID) (_ casestatus.Case, err error) {
	if err := validate.Identifier("actor", l.actor, 128); err != nil {
		return casestatus.Case{}, err
	}
	defer func() {
		err = l.s.Applier.Refusals.RecordGateRefusal(ctx, casework.ActionRequest{Action: "lookup", Run: id, Actor: l.actor, Reason: ""}, err)
	}()
	found, asked, err := l.s.Applier.LookupFinding(ctx, l.tenant, id)
	if err != nil {
		return casestatus.Case{}, err
	}
	declared := casework.CallerOf(ctx).SelfDeclared
	if !declared {
		asked.URL = "" // the escrow service is the one that this process is configured for
	}
	if found.Class != escrow.Executed || !declared {
		return l.reconcile(ctx, id, found, asked, casework.Guard{Stamp: casework.Provenance{LookupURL: asked.URL}.Stamp})
	}
	found.Reason = "the escrow service that " + l.actor + " named was asked"
	return l.reconcileOrPlan(ctx, id, found, asked)
}

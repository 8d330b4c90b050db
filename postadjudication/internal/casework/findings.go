package casework

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Finding states what became of the money of an open dead letter, or of a waiting run. It
// comes from a person, or from a lookup at the escrow service.
type Finding struct {
	Reason    string       // how; required of a person
	Class     escrow.Class // Executed or NotExecuted
	Moved     int64        // minor units; required if Executed, else 0
	Currency  string       // of Moved, compared with that of the case; empty: not compared
	Reference string       // where the finding can be checked; required of a person

	// OtherAmount confirms a Moved that differs from the amount left to move. Such a finding
	// is refused without it, since a finding can't be taken back.
	OtherAmount bool

	// CallOutstanding confirms NotExecuted while a call may still be in flight: the person
	// knows that the call will not be executed. Such a finding is refused without it.
	CallOutstanding bool

	// ContradictsRecord confirms a Class that contradicts what is on record under the operation key: an answer or a
	// lookup of the escrow service, or an earlier finding. Such a finding is refused without it.
	ContradictsRecord bool

	// RequestID identifies the request that gives the finding. It plans the finding once, even if it is sent
	// again. Empty: none.
	RequestID string
}

// Validate returns what is wrong with a finding of an actor, but for a secret in its reference: see
// referencepolicy.Store.Stated.
func (f Finding) Validate(actor string) error {
	switch {
	case f.Class != escrow.Executed && f.Class != escrow.NotExecuted:
		return &refusal.FieldError{Field: "finding", Problem: "must be executed or not_executed"}
	case f.Class == escrow.Executed && (f.Moved < 1 || f.Moved > settlement.MaxMinor):
		return &refusal.FieldError{Field: "moved", Problem: fmt.Sprintf("must be the sum that was moved: at least 1 minor unit of its currency, and at most %d", int64(settlement.MaxMinor))}
	case f.Class == escrow.NotExecuted && f.Moved != 0:
		return &refusal.FieldError{Field: "moved", Problem: "must be absent when nothing was executed"}
	case f.Class == escrow.NotExecuted && f.Currency != "":
		return &refusal.FieldError{Field: "currency", Problem: "must be absent when nothing was executed"}
	case f.Class == escrow.Executed && f.CallOutstanding:
		return &refusal.FieldError{Field: "call_outstanding", Problem: "must be absent when something was executed"}
	}
	if err := validate.Identifier("actor", actor, 128); err != nil {
		return err
	}
	if err := validate.Text("reason", f.Reason, 1024); err != nil {
		return err
	}
	return validate.Text("reference", f.Reference, validate.MaxReference)
}

// leftToMove returns what the decision of a run has left to move; all that it asked for if a higher generation replaced it.
func leftToMove(seen *journal.Snapshot) int64 {
	s := &seen.Case.State
	if t := seen.Run.Terms; t != nil && t.Generation < s.Generation {
		return t.Amount
	}
	return s.Asked - s.Moved
}

// IsOtherAmount reports whether the finding states another payment than was left to move. If nothing is left, or the run is
// known to be paid, it states what is already recorded.
func (f Finding) IsOtherAmount(seen *journal.Snapshot) bool {
	left := leftToMove(seen)
	return f.Class == escrow.Executed && f.Moved != left && left != 0 && seen.Run.Class != escrow.Executed
}

// checkAmount refuses a payment in another currency than that of the case, and another amount unless OtherAmount is set.
func (f Finding) checkAmount(seen *journal.Snapshot) error {
	if f.Currency != "" && f.Currency != seen.Case.Currency {
		return &refusal.FieldError{Field: "currency", Problem: "must be " + seen.Case.Currency + ", that of the case"}
	}
	left := leftToMove(seen)
	if f.OtherAmount || !f.IsOtherAmount(seen) {
		return nil
	}
	return &refusal.FieldError{Field: "other_amount", Problem: fmt.Sprintf("must be true if %d was moved and %d was left to move", f.Moved, left)}
}

// LookupSource describes a lookup at an escrow service: the class of its answer, the run's last
// attempt when the service was asked, and the URL of a service that a person named. The zero value
// means that there was no lookup.
type LookupSource struct {
	Class   escrow.Class
	Attempt int
	URL     string
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
	return validate.Clean(u.String(), maxLookupURL)
}

// ReconcileByLookup runs a planned lookup at the escrow service of this process.
func (c *Applier) ReconcileByLookup(ctx context.Context, tenant string, id background.RunID, actor string, guard Guard) error {
	found, asked, err := c.LookupFinding(ctx, tenant, id)
	if err != nil {
		return err
	}
	_, err = c.Reconcile(ctx, tenant, id, actor, found, asked, guard)
	return err
}

// LookupFinding asks the escrow service about a run and returns the answer as a finding, with
// its source. It returns a *refusal.RefusedError if the run can't be looked up or the answer is unclear.
func (c *Applier) LookupFinding(ctx context.Context, tenant string, id background.RunID) (Finding, LookupSource, error) {
	if c.Settlements.Executor == nil {
		return Finding{}, LookupSource{}, refusal.ErrNoExecutor
	}
	seen, err := c.OwnRun(ctx, tenant, id)
	if err != nil {
		return Finding{}, LookupSource{}, err
	}
	executor := c.Settlements.ExecutorOf(seen.Run.Target)
	if executor == nil {
		return Finding{}, LookupSource{}, refusal.ErrTargetUnknown
	}
	if gate := ReconcileGate(seen); gate != "" {
		return Finding{}, LookupSource{}, RefusedBy(gate, seen)
	}
	if err := checkBinding(&seen.Run); err != nil {
		return Finding{}, LookupSource{}, refusedBecause(refusal.GateRequestAltered, seen, err.Error())
	}
	found := c.lookUpWithTimeout(ctx, seen.Run, false)
	if found.Class == escrow.Unknown {
		return Finding{}, LookupSource{}, refusedBecause(refusal.GateReconcileFirst, seen, lookupUnclear(found))
	}
	if found.Class == escrow.NotExecuted {
		was, err := c.Journal.Lookups.Find(ctx, tenant, id)
		switch {
		case err != nil:
			return Finding{}, LookupSource{}, err
		case was.Answer == escrow.Executed:
			return Finding{}, LookupSource{}, refusedBecause(refusal.GateReconcileFirst, seen, "nothing was executed, this answer says, but "+lookupOnRecord(&was, seen.Case.Currency)+": record a finding")
		case wasAccepted(&seen.Run, &was):
			return Finding{}, LookupSource{}, refusedBecause(refusal.GateReconcileFirst, seen, "nothing was executed, this answer says, but the one before said that the call is accepted: it is asked for again")
		}
	}
	reference, err := c.Settlements.References.Answered(ctx, tenant, found.Reference)
	if err != nil {
		return Finding{}, LookupSource{}, err
	}
	return Finding{Class: found.Class, Moved: found.Moved, Reference: reference}, LookupSource{found.Class, seen.Run.Attempt, lookupURL(executor)}, nil
}

// lookupUnclear explains why a lookup decides nothing, and what to do.
func lookupUnclear(found background.Result) string {
	unclear := "the lookup decided nothing: " + strings.Join(slices.DeleteFunc([]string{found.Failure.Type, redact.Text(found.Failure.Code), redact.Text(found.Failure.Message)}, func(part string) bool { return part == "" }), ": ")
	switch found.Failure.Type {
	case lookupPremature, lookupForgotten: // the message says what to do
		return unclear
	case lookupUnsupported:
		return unclear + ": record a finding"
	}
	return unclear + ": look up again later, or record a finding"
}

// Reconcile records a finding of an actor, or of a lookup, and returns the transaction of its
// case.
func (c *Applier) Reconcile(ctx context.Context, tenant string, id background.RunID, actor string, f Finding, asked LookupSource, guard Guard) (transaction string, err error) {
	seen, contradicted, err := c.FindingRun(ctx, tenant, id, f, asked)
	if err != nil {
		return "", err
	}
	tr := background.Transition{
		ID: NewID(), Run: seen.Run, Subtype: receipts.Reconciled, At: c.Now(), Actor: actor, Reason: f.Reason, Lookup: asked.Class, DespiteOutstandingCall: f.CallOutstanding, DespiteRecord: contradicted != "",
		Result: background.Result{Class: f.Class, Moved: f.Moved, Reference: f.Reference},
	}
	if _, err := c.Settlements.record(ctx, &tr, guard); errors.Is(err, background.ErrConflict) {
		return "", c.explainLostGuard(ctx, id, err)
	} else if err != nil {
		return "", err
	}
	c.Engine.Wake(id)
	return seen.Case.Subject, nil
}

// FindingRun reads the run of a finding or lookup, and refuses a run that accepts neither. It also returns what on
// record a person's finding contradicts, for people; empty if nothing does.
func (c *Applier) FindingRun(ctx context.Context, tenant string, id background.RunID, f Finding, asked LookupSource) (seen journal.Snapshot, contradicted string, err error) {
	seen, err = c.OwnRun(ctx, tenant, id)
	switch gate := findingGate(f, seen); {
	case err != nil:
		return seen, "", err
	case gate != "":
		return seen, "", RefusedBy(gate, seen)
	case asked.Class == escrow.NotExecuted && seen.Run.Attempt != asked.Attempt:
		return seen, "", refusedBecause(refusal.GateReconcileFirst, seen, "another call was made during the lookup, and the answer does not cover it")
	case asked.Class != "":
		return seen, "", nil
	case seen.Run.Letter == background.LetterForked:
		if err := c.refuseIfPaidByFork(ctx, seen, f); err != nil {
			return seen, "", err
		}
	}
	if err := f.checkAmount(&seen); err != nil {
		return seen, "", err
	}
	if err := c.checkNoCallPending(ctx, seen, f); err != nil {
		return seen, "", err
	}
	contradicted, err = RecordAgainst(ctx, c, seen, f.Class)
	if err == nil && contradicted != "" && !f.ContradictsRecord {
		err = refusedBecause(refusal.GateContradictsRecord, seen, contradicted)
	}
	return seen, contradicted, err
}

// refuseIfPaidByFork refuses a finding for a forked letter of just what is on record under its operation key, as
// by its fork. A payment counts once per key, so the finding would change nothing.
func (c *Applier) refuseIfPaidByFork(ctx context.Context, seen journal.Snapshot, f Finding) error {
	runs, err := c.Settlements.readCaseRuns(ctx, seen.Run)
	if err != nil || runs.recordedUnder(seen.Run.Operation, 0).Paid != f.Moved {
		return err
	}
	return refusedBecause(refusal.GateNotOpen, seen, "the payment under its operation key is on record")
}

// checkNoCallPending refuses NotExecuted while a call may still be in flight, unless the finding
// confirms it with CallOutstanding. A call that begins meanwhile makes the transition fail: it
// expects the attempt that was read.
func (c *Applier) checkNoCallPending(ctx context.Context, seen journal.Snapshot, f Finding) error {
	if f.Class != escrow.NotExecuted || f.CallOutstanding {
		return nil
	}
	why, err := c.Settlements.mayStillPay(ctx, seen.Run)
	if err != nil || why == "" {
		return err
	}
	return refusedBecause(refusal.GateCallOutstanding, seen, why)
}

// explainLostGuard returns why a letter that was open a moment ago can't be reconciled any more.
func (c *Applier) explainLostGuard(ctx context.Context, id background.RunID, lost error) error {
	now, err := c.Journal.Cases.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	if gate := ReconcileGate(now); gate != "" {
		return RefusedBy(gate, now)
	}
	return lost
}

// findingGate is ReconcileGate of a finding, which may state a payment of a run that has ended.
func findingGate(f Finding, s journal.Snapshot) refusal.Gate {
	if f.Class == escrow.Executed && closed(s) {
		return ""
	}
	return ReconcileGate(s)
}

// ReconcileGate is the gate of findings and lookups: it accepts an open letter, or a run that
// waits for an attempt with an unknown outcome. A finding does not cover a call made later,
// so the transition expects the attempt that was read.
func ReconcileGate(s journal.Snapshot) refusal.Gate {
	switch {
	case s.Case.Kind == journal.KindSettlement && s.Run.State == background.Running:
		return refusal.GateRunning
	case s.Run.State.Waiting() && moneyUnknown(s):
		return ""
	}
	return SettlementLetterGate(s)
}

// SettlementLetterGate is the gate of every action that needs an open letter of a settlement.
func SettlementLetterGate(s journal.Snapshot) refusal.Gate {
	if s.Case.Kind != journal.KindSettlement {
		return refusal.GateNotSettlement
	}
	return OpenGate(s)
}

// closed reports whether a settlement's run has ended and a payment of it can still be found: it was closed while no
// payment of it is recorded, or it paid, and may have paid more.
func closed(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && (s.Run.ClosedUnpaid() || s.Run.ClosedPaid())
}

package casework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/referencepolicy"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// SettlementFamily is the family of settlements. Its handler calls the escrow service; Record
// changes settlement, escrow and evidence in the commit that changes the run.
type SettlementFamily struct {
	Journal        *journal.Journal
	Executor       escrow.Executor // of escrow.DefaultTarget and its aliases; nil: nothing is executed
	Targets        Targets
	Remote         RemoteWorkers // of remote targets
	CallTimeLimit  time.Duration
	Now            func() time.Time
	ClockSetBack   func() time.Time // background.Manager.ClockSetBack
	ClockUnchanged func() time.Time // background.Manager.ClockUnchangedSince
	LetterHandlers *LetterHandlers
	References     *referencepolicy.Store
	Served         *ServedFamilies
	// OnExcess is called after each commit that pays excess minor units beyond the adjudication. It must not be nil.
	OnExcess func(of *journal.Case, run background.RunID, excess int64)

	CallBound       time.Duration // maximum age of a claim when its call is sent
	LostAfter       time.Duration // how long a process may claim without a heartbeat
	DefaultInFlight time.Duration // how long a call may be in flight, unless its executor states it
	Lookups         LookupRule    // with its defaults
}

// Name implements background.Family.
func (f *SettlementFamily) Name() string { return Family }

// TimeLimit returns the time limit of one call of an escrow service.
func (f *SettlementFamily) TimeLimit() time.Duration { return f.CallTimeLimit }

// Handle calls the escrow service once. It calls nothing if the attempt can't check its claim's age.
func (f *SettlementFamily) Handle(ctx context.Context, a background.Attempt) background.Result {
	if a.Fresh == nil {
		return background.Result{Class: escrow.NotExecuted, Retry: true, Failure: &background.Failure{Type: background.FailureStaleClaim, Message: "the age of the claim is unknown"}}
	}
	call, err := callOf(a.Run, a.Number)
	if err != nil {
		return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: background.ReasonRequestAltered, Message: err.Error()}}
	}
	call.Fresh, call.NotAfter = a.Fresh, a.NotAfter
	executor := f.ExecutorOf(call.Target)
	if executor == nil { // unreachable through claims: a run of an unknown target is not claimed
		return background.Result{Class: escrow.NotExecuted, Retry: true, Failure: &background.Failure{Type: failureTargetUnknown, Message: "this process does not call the escrow service"}}
	}
	return awaitingEnd(f, &a.Run, resultOf(executor.Execute(ctx, call), call.Amount.Minor))
}

// maxBelievableMoved bounds the amount that an executor may report beyond what it was asked to
// move. An overpayment is a fact, but sums must stay exact whatever the executor answers.
const maxBelievableMoved = settlement.MaxMinor / 1024

// IsBelievable reports whether an executor may have moved a sum when it was asked for another. Less is
// a partial payment, and somewhat more an overpayment.
func IsBelievable(moved, asked int64) bool {
	return moved >= 1 && moved <= max(asked, maxBelievableMoved)
}

// resultOf turns an executor's answer into a result. An unknown class, or Executed without a
// plausible amount, counts as an unknown outcome.
func resultOf(a escrow.Answer, asked int64) background.Result {
	r := background.Result{Class: a.Class, Retry: a.Retry, RetryAfter: a.RetryAfter, Reference: a.Reference, Accepted: a.Accepted && a.Class == escrow.Unknown}
	switch {
	case a.Class == escrow.Executed && IsBelievable(a.Moved, asked):
		r.Moved = a.Moved
		return r
	case a.Class == escrow.Executed:
		a.Type, a.Message = "executor.unreadable", fmt.Sprintf("the executor answered executed without a sum from 1 to %d minor units: no other is taken for its word", max(asked, maxBelievableMoved))
		r.Class, r.Retry = escrow.Unknown, true
	case a.Class != escrow.NotExecuted && a.Class != escrow.Unknown:
		r.Class, r.Retry = escrow.Unknown, true
	}
	switch {
	case a.Type != "":
	case r.Accepted:
		a.Type = failureAccepted
	default:
		a.Type = "executor.unspecified"
	}
	if r.Accepted && a.Message == "" {
		a.Message = "the escrow service has accepted the call and not ended it"
	}
	r.Failure = &background.Failure{Type: a.Type, Code: a.Code, Message: a.Message}
	return r
}

// Record commits a transition of a run with its case, escrow and receipts. It has no guard: only plans and
// lookups narrow their decisions.
func (f *SettlementFamily) Record(ctx context.Context, tr background.Transition) (background.Run, error) {
	return f.record(ctx, &tr, Guard{})
}

func (f *SettlementFamily) record(ctx context.Context, tr *background.Transition, guard Guard) (background.Run, error) {
	if err := redactTransition(ctx, f.References, tr); err != nil {
		return background.Run{}, err
	}
	if tr.Subtype == receipts.OutOfBandChangeDetected {
		return recordTampering(ctx, f.Journal, tr)
	}
	// The runs of the case are read only when a decision asks for them: it then returns errCaseRunsStale, also
	// if the head has moved since, and is made again.
	var runs *caseRuns
	for {
		after, excess, err := f.LetterHandlers.applyWithLetterHandler(ctx, f.Journal, tr, guard.wrap(func(s *journal.Snapshot) (ch journal.Change, err error) {
			if tr.Subtype == receipts.AnsweredLate || tr.Subtype == receipts.Reconciled && (s.Run.ClosedUnpaid() || s.Run.ClosedPaid()) {
				ch, err = lateChangeOf(tr, s, runs)
			} else {
				ch, err = f.changeOf(tr, s, runs)
			}
			return ch, unrecordableUnlessKnown(err)
		}))
		if err == nil && excess > 0 {
			f.OnExcess(&after.Case, after.Run.ID, excess)
		}
		if err == nil && tr.Subtype == receipts.AttemptStarted && after.Run.State == background.DeadLettered {
			err = background.ErrDeadLettered // see onPaidUnderOlderKey
		}
		if !errors.Is(err, errCaseRunsStale) {
			return after.Run, err
		}
		if runs, err = f.readCaseRuns(ctx, tr.Run); err != nil {
			return after.Run, err
		}
	}
}

// unrecordableUnlessKnown marks an unexpected error of a decision as ErrUnrecordable: it is
// about the values of the transition, so that a retry would not help.
func unrecordableUnlessKnown(err error) error {
	if err == nil || background.WriteOutcomeKnown(err) || errors.Is(err, errCaseRunsStale) {
		return err
	}
	return fmt.Errorf("%w: %w", background.ErrUnrecordable, err)
}

// changeOf returns the change that a transition makes to a case.
func (f *SettlementFamily) changeOf(given *background.Transition, s *journal.Snapshot, runs *caseRuns) (journal.Change, error) {
	unknownBeside, err := runs.unknownBeside(s)
	if err != nil {
		return journal.Change{}, err
	}
	tr := *given // it may be decided again
	onPaidUnderOlderKey(&tr, s, unknownBeside)
	if tr.Subtype == receipts.AttemptStarted && s.Run.State.Waiting() {
		if err := checkBinding(&s.Run); err != nil {
			return journal.Change{}, err
		}
		if f.ExecutorOf(s.Run.Target) == nil {
			return journal.Change{}, background.ErrTargetUnknown
		}
	}
	if err := onExecuted(&tr, s, runs); err != nil {
		return journal.Change{}, err
	}
	onEndedCase(&tr, s)
	capRetry(f, &tr, &s.Run)
	after := &journal.Snapshot{Case: s.Case, Run: s.Run}
	run := &after.Run
	if err := tr.Apply(run); err != nil { // before checkKeyLifetime: a run paused by a circuit breaker must not die of its key
		return journal.Change{}, err
	}
	if unknownBeside && !coversCase(&tr) {
		run.UnknownOpen = max(run.UnknownOpen, 1)
	}
	if tr.Subtype == receipts.AttemptStarted {
		if err := f.checkKeyLifetime(&s.Run, tr.At); err != nil {
			return journal.Change{}, err
		}
		if isAskedFirst(f, &s.Run) {
			return journal.Change{}, background.ErrReconcileFirst
		}
	}
	state, effect, recorded, err := applySettlement(&tr, s, runs)
	if err != nil {
		return journal.Change{}, err
	}
	drafts := []receipts.Draft{{Run: run.ID, Subtype: tr.Subtype, Actor: actorOf(&tr), At: tr.At}}
	p := &drafts[0].Payload
	fillPayload(p, &tr, &s.Run, run)
	if tr.Result.Moved > recorded.Paid {
		p.Recorded = recorded.Paid
	}
	if closesLetter(&tr, s, run) {
		if state, effect, err = settlement.Apply(state, settlement.Event{Fact: settlement.Closed, KeepReserved: true}); err != nil {
			return journal.Change{}, err
		}
		run.Letter, p.LetterClosed = background.LetterReconciled, true
	}
	p.ReservationKept = keepsReservation(&tr, s) || p.LetterClosed && state.Reserved > 0
	// The run ended, and the case had ended before.
	p.CaseUnmoved = s.Case.State.Progression.Ended() && s.Run.State.Live() && !run.State.Live()
	after.Case.State = state
	p.Outcome = string(state.Outcome)
	if state != s.Case.State {
		p.Settlement = binding.SettlementSnapshot(state)
	}
	drafts = append(drafts, excessReceipts(&tr, run.ID, run.Attempt, effect)...)
	drafts = append(drafts, contradictionReceipts(&tr, &s.Run, recorded)...)
	ch := journal.Change{Transition: tr.ID, Before: s, After: after, Drafts: drafts}
	if tr.Subtype == receipts.Reconciled && run.State.Waiting() && run.CancelRequested {
		return f.cancelAsRequested(&tr, ch, runs)
	}
	return ch, nil
}

// cancelAsRequested adds to a change that found a waiting run not executed the cancel of the run,
// which somebody asked for while it was not known whether it had paid: another attempt could pay.
func (f *SettlementFamily) cancelAsRequested(tr *background.Transition, ch journal.Change, runs *caseRuns) (journal.Change, error) {
	run := ch.After.Run
	cancel := background.Transition{ID: tr.ID, Run: run, Subtype: receipts.Cancelled, At: tr.At, Worker: tr.Worker, Actor: run.CancelBy}
	cancelled, err := f.changeOf(&cancel, ch.After, runs)
	if err != nil {
		return ch, err
	}
	ch.After, ch.Drafts = cancelled.After, append(ch.Drafts, cancelled.Drafts...)
	return ch, nil
}

// onExecuted ends a run whose payment became known while it ran, whatever this attempt
// returned. For a fork the payment may be its parent's: both have one operation key, which is
// executed once.
func onExecuted(tr *background.Transition, s *journal.Snapshot, runs *caseRuns) error {
	switch tr.Subtype {
	case receipts.RetryScheduled, receipts.AttemptInterrupted, receipts.DeadLettered, receipts.Cancelled:
	default:
		return nil
	}
	paid := s.Run.Class == escrow.Executed
	if !paid && !s.Run.Parent.IsZero() && s.Case.State.Moved > 0 {
		recorded, err := runs.recorded(s, 0)
		if err != nil {
			return err
		}
		paid = recorded.Paid > 0
	}
	if paid && s.Run.State == background.Running {
		tr.Subtype, tr.Lookup, tr.Charge, tr.NextRetryAt, tr.Reason = receipts.AttemptSucceeded, escrow.Executed, background.ChargeNothing, time.Time{}, ""
	}
	return nil
}

// onEndedCase ends a run whose case was ended by another payment while it ran: it gets no
// further attempt. If one of its own attempts may have paid as well, it becomes a dead letter
// for a person.
func onEndedCase(tr *background.Transition, s *journal.Snapshot) {
	if !s.Case.State.Progression.Ended() || tr.Subtype != receipts.RetryScheduled && tr.Subtype != receipts.AttemptInterrupted {
		return
	}
	tr.NextRetryAt, tr.Reason = time.Time{}, ReasonCaseEnded
	if tr.Subtype = receipts.Cancelled; tr.Result.Class == escrow.Unknown || s.Run.Class == escrow.Unknown {
		tr.Subtype = receipts.DeadLettered
	}
}

// onPaidUnderOlderKey ends a run whose reservation was consumed by a payment under another key while it
// ran: another attempt could pay a second time. So does one whose sum can't be recorded, also if the run is to
// be cancelled, or dies of something else: the outcome of that payment is unknown, and no lookup of the run's own
// key resolves it. The payment itself ends a waiting run, but earlier versions left it waiting: then its claim
// ends it.
func onPaidUnderOlderKey(tr *background.Transition, s *journal.Snapshot, unknown bool) {
	if !s.Case.State.Underfunded() && !unknown {
		return
	}
	switch {
	case tr.Subtype == receipts.AttemptStarted:
		if !s.Run.State.Waiting() {
			return // another process executes it: the claim is refused
		}
		tr.Run = s.Run // a claim carries no run read from the journal
	case tr.Subtype == receipts.RetryScheduled, tr.Subtype == receipts.AttemptInterrupted:
	case (tr.Subtype == receipts.Cancelled || tr.Subtype == receipts.DeadLettered) && unknown && s.Run.State == background.Running:
	default:
		return
	}
	if unknown {
		tr.Lookup = ""
	}
	tr.Subtype, tr.NextRetryAt, tr.Reason = receipts.DeadLettered, time.Time{}, ReasonPaidUnderOlderKey
}

// coversCase reports whether a transition says what became of the money under all operation keys of the case: a
// person's finding that nothing was executed does. The answer of an escrow service covers one key.
func coversCase(tr *background.Transition) bool {
	return tr.Subtype == receipts.Reconciled && tr.Result.Class == escrow.NotExecuted && tr.Lookup == ""
}

// closesLetter reports whether a NotExecuted finding closes an open letter: one that can't be
// forked because of a payment under an older key. A lookup does not close it: a person has to
// state that no more than that payment will come.
func closesLetter(tr *background.Transition, s *journal.Snapshot, after *background.Run) bool {
	return tr.Subtype == receipts.Reconciled && tr.Result.Class == escrow.NotExecuted && tr.Lookup == "" &&
		after.Letter == background.LetterOpen && s.Case.State.Underfunded() && s.Case.State.Progression == settlement.DisputeReady
}

// keepsReservation reports whether a transition cancels a fork, which leaves reserved what its
// dead letter kept reserved. Otherwise one person could free by a fork and a cancel what takes
// two people to free.
func keepsReservation(tr *background.Transition, s *journal.Snapshot) bool {
	return tr.Subtype == receipts.Cancelled && !s.Run.Parent.IsZero() && s.Case.State.Reserved > 0
}

// Reason codes of runs that were ended by the payment of another run.
const (
	ReasonCaseEnded         = "case_ended"
	ReasonPaidUnderOlderKey = string(refusal.GatePaidUnderOlderKey)
)

// applySettlement returns the settlement after a transition of the case's active run. The fact that it
// applies has the name of the transition, as settlement.DeadLettered of receipts.DeadLettered; a payment
// is settlement.Executed. A transition that is no fact of the settlement leaves it as it is. Of a payment it
// returns what was on record under the operation key before.
func applySettlement(tr *background.Transition, s *journal.Snapshot, runs *caseRuns) (_ settlement.State, _ settlement.Effect, recorded binding.Payment, err error) {
	e, ok := binding.SettlementEvent(tr.Subtype, tr.Result.Class == escrow.Executed, tr.Result.Moved)
	if !ok {
		return s.Case.State, settlement.Effect{}, recorded, nil
	}
	e.KeepReserved = keepsReservation(tr, s)
	if e.Fact == settlement.Executed {
		if e.Outcome = s.Case.State.Outcome; s.Case.State.Moved > 0 || !s.Run.Parent.IsZero() || s.Run.Class == escrow.Executed {
			recorded, err = runs.recorded(s, e.Paid)
			e.Recorded = recorded.Paid
		}
		if err == nil {
			e.OlderPaid, err = runs.olderPaidAt(s)
		}
		if err != nil {
			return s.Case.State, settlement.Effect{}, recorded, err
		}
	}
	state, effect, err := settlement.Apply(s.Case.State, e)
	var refused *settlement.Refused
	if errors.As(err, &refused) {
		return state, effect, recorded, background.ErrConflict
	}
	return state, effect, recorded, err
}

// Family is the name of the settlement family.
const Family = "settlement"

// moneyUnknown reports whether it is unknown what became of a run's money. A plain task moves
// no money: its unknown outcome is a failure.
func moneyUnknown(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && (s.Run.Class == escrow.Unknown || s.Run.UnknownOpen > 0)
}

package postadjudication

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// family is the settlement family: its handler calls the escrow service, its
// record keeps settlement, escrow and evidence in step with the run.
type family struct {
	journal  *postgres.Journal
	executor Executor // of DefaultTarget and its other names; nil: nothing is executed
	targets  targets
	limit    time.Duration
	now      func() time.Time
	handlers *handlers
	escrows  *escrowKeeper
	served   *servedFamilies

	callBound time.Duration // how old a claim may be when its call is sent
	assumed   time.Duration // for how long a call may be on its way, where no executor states it
}

func (f *family) Name() string             { return Family }
func (f *family) TimeLimit() time.Duration { return f.limit }

// Handle calls the escrow service once, for an attempt that can tell whether it may.
func (f *family) Handle(ctx context.Context, a background.Attempt) background.Result {
	if a.Fresh == nil {
		return background.Result{Class: NotExecuted, Retry: true, Failure: &background.Failure{Type: background.FailureStale, Message: "nobody tells how old the claim is"}}
	}
	call, err := callOf(a.Run, a.Number)
	if err != nil {
		return background.Result{Class: NotExecuted, Failure: &background.Failure{Type: background.ReasonRequestAltered, Message: err.Error()}}
	}
	call.Fresh, call.NotAfter = a.Fresh, a.NotAfter
	executor := f.executorOf(call.Target)
	if executor == nil { // none is claimed that is not called
		return background.Result{Class: NotExecuted, Retry: true, Failure: &background.Failure{Type: failureTargetUnknown, Message: "this process does not call the escrow service"}}
	}
	return resultOf(executor.Execute(ctx, call), call.Amount.Minor)
}

// callOut reports whether a call under a run's operation key may pay yet that another run
// of the case made, as what it is a fork of, and that has not come back. That of a process
// which is gone never does: it is out for as long as it can be on its way. Calls of the run
// itself are the engine's to know of.
func (f *family) callOut(ctx context.Context, r background.Run) (bool, error) {
	all, err := f.journal.Siblings(ctx, r.Tenant, r.Case)
	if err != nil || !slices.ContainsFunc(all, func(s postgres.Snapshot) bool {
		return s.Run.ID != r.ID && s.Run.Operation == r.Operation && s.Run.CallIsOut()
	}) {
		return false, err
	}
	q, err := f.inquiry(ctx, r)
	return q.outstanding || q.onItsWay() > 0, err
}

// believable is what an executor may say it moved beyond what it was asked to: an
// overpayment is a fact, but sums must stay exact whatever is answered.
const believable = settlement.MaxMinor / 1024

// resultOf takes an executor at its word only as far as the word makes sense: a
// class that is none, or a success that moved nothing, is an unknown outcome.
func resultOf(a Answer, asked int64) background.Result {
	r := background.Result{Class: a.Class, Retry: a.Retry, RetryAfter: a.RetryAfter, Reference: a.Reference}
	switch {
	case a.Class == Executed && a.Moved >= 1 && a.Moved <= max(asked, believable):
		r.Moved = a.Moved
		return r
	case a.Class == Executed:
		a.Type, a.Message = "executor.unreadable", "the executor answered executed without a readable amount"
		r.Class, r.Retry = Unknown, true
	case a.Class != NotExecuted && a.Class != Unknown:
		r.Class, r.Retry = Unknown, true
	}
	if a.Type == "" {
		a.Type = "executor.unspecified"
	}
	r.Failure = &background.Failure{Type: a.Type, Code: a.Code, Message: a.Message}
	return r
}

// Record commits a move of a run with its case, escrow and receipts.
func (f *family) Record(ctx context.Context, m background.Move) (background.Run, error) {
	return f.record(ctx, m, nil)
}

func (f *family) record(ctx context.Context, m background.Move, as *asPlanned) (background.Run, error) {
	m = redacted(m)
	if m.Fact == receipts.OutOfBandChangeDetected {
		return recordNotice(ctx, f.journal, m)
	}
	var around *siblings
	var excess int64
	for {
		s, err := f.handlers.apply(ctx, f.journal, m, as.bind(func(s *postgres.Snapshot) (ch postgres.Change, err error) {
			if m.Fact == receipts.AnsweredLate || m.Fact == receipts.Reconciled && s.Run.ClosedUnpaid() {
				ch, err = decideLate(m, s, around)
			} else {
				ch, err = f.decide(m, s, around)
			}
			excess = excessIn(&ch)
			return ch, answer(err)
		}))
		if err == nil && excess > 0 {
			f.escrows.excess(&s.Case, s.Run.ID, excess)
		}
		if err == nil && m.Fact == receipts.AttemptStarted && s.Run.State == background.DeadLettered {
			err = background.ErrDead // see onUndercut
		}
		if !errors.Is(err, errSiblings) {
			return s.Run, err
		}
		if around, err = f.siblingsOf(ctx, m.Run); err != nil {
			return s.Run, err
		}
	}
}

// decide gives the change that a move makes of a case as it is.
func (f *family) decide(m background.Move, s *postgres.Snapshot, around *siblings) (postgres.Change, error) {
	onUndercut(&m, s)
	if m.Fact == receipts.AttemptStarted && s.Run.State.Waiting() {
		if err := bound(&s.Run); err != nil {
			return postgres.Change{}, err
		}
		if f.executorOf(s.Run.Target) == nil {
			return postgres.Change{}, background.ErrTargetUnknown
		}
	}
	if err := onExecuted(&m, s, around); err != nil {
		return postgres.Change{}, err
	}
	onEndedCase(&m, s)
	run, err := m.Apply(s.Run) // asks the breaker: what is paused does not die of its key meanwhile
	if err != nil {
		return postgres.Change{}, err
	}
	if m.Fact == receipts.AttemptStarted {
		if err := f.keyAllows(&s.Run, m.At); err != nil {
			return postgres.Change{}, err
		}
	}
	state, effect, err := settle(&m, s, around)
	if err != nil {
		return postgres.Change{}, err
	}
	p := evidence(&m, &s.Run, &run)
	if closesLetter(&m, s, &run) {
		if state, effect, err = settlement.Apply(state, settlement.Event{Fact: settlement.Closed, Kept: true}); err != nil {
			return postgres.Change{}, err
		}
		run.Letter, p.LetterClosed = background.LetterReconciled, true
	}
	p.ReservationKept = keepsReservation(&m, s) || p.LetterClosed && state.Reserved > 0
	p.CaseUnmoved = s.Case.State.Progression.Ended() && s.Run.State.Live() && !run.State.Live()
	after := &postgres.Snapshot{Case: s.Case, Run: run}
	after.Case.State = state
	p.Outcome = string(state.Adjudication)
	if state != s.Case.State {
		p.Settlement = snapshotOf(state)
	}
	drafts := []receipts.Draft{{Run: run.ID, Subtype: m.Fact, Actor: actorOf(&m), At: m.At, Payload: p}}
	drafts = append(drafts, moneyDrafts(&m, run.ID, run.Attempt, effect)...)
	return postgres.Change{Move: m.ID, Before: s, After: after, Drafts: drafts}, nil
}

// onExecuted ends a run whose payment was learned while it ran: whatever this attempt
// told, there is nothing left to do. Of a fork it may be what it is a fork of that was
// told: they have one key, which is executed once.
func onExecuted(m *background.Move, s *postgres.Snapshot, around *siblings) (err error) {
	switch m.Fact {
	case receipts.RetryScheduled, receipts.AttemptInterrupted, receipts.DeadLettered, receipts.Cancelled:
	default:
		return nil
	}
	paid := s.Run.Class == Executed
	if !paid && !s.Run.Parent.IsZero() && s.Case.State.Moved > 0 {
		if paid, err = around.paid(s); err != nil {
			return err
		}
	}
	if paid && s.Run.State == background.Running {
		m.Fact, m.Lookup, m.Spend, m.NextRetryAt, m.Reason = receipts.AttemptSucceeded, Executed, background.SpendNothing, time.Time{}, ""
	}
	return nil
}

// onEndedCase ends a run whose case was ended by another payment while it ran: it
// must not wait for one more attempt. When its own attempt may have paid as well, a
// person has to look at it.
func onEndedCase(m *background.Move, s *postgres.Snapshot) {
	if !s.Case.State.Progression.Ended() || m.Fact != receipts.RetryScheduled && m.Fact != receipts.AttemptInterrupted {
		return
	}
	m.NextRetryAt, m.Reason = time.Time{}, reasonCaseEnded
	if m.Fact = receipts.Cancelled; m.Result.Class == Unknown || s.Run.Class == Unknown {
		m.Fact = receipts.DeadLettered
	}
}

// onUndercut ends a run whose reservation was taken by a payment under another key
// while it ran: one more attempt could pay a second time. One that waits is ended by
// the payment itself, but versions before left it waiting: then its claim ends it.
func onUndercut(m *background.Move, s *postgres.Snapshot) {
	if !s.Case.State.Undercut() {
		return
	}
	switch m.Fact {
	case receipts.AttemptStarted:
		m.Run = s.Run // a claim is made without having read the run
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
	default:
		return
	}
	m.Fact, m.NextRetryAt, m.Reason = receipts.DeadLettered, time.Time{}, reasonPaidOlder
}

// closesLetter reports whether a finding closes an open letter though nothing was
// executed: one that can't be forked has nothing else to wait for. A lookup only
// clears it, for it is a person who has to say that the payment under the older key
// is all there will be.
func closesLetter(m *background.Move, s *postgres.Snapshot, after *background.Run) bool {
	return m.Fact == receipts.Reconciled && m.Result.Class == NotExecuted && m.Lookup == "" &&
		after.Letter == background.LetterOpen && s.Case.State.Undercut() && s.Case.State.Progression == settlement.DisputeReady
}

// keepsReservation reports whether a move cancels a fork, and so leaves reserved what its dead
// letter kept so. Else one person could free by a fork and a cancel what takes two to free.
func keepsReservation(m *background.Move, s *postgres.Snapshot) bool {
	return m.Fact == receipts.Cancelled && !s.Run.Parent.IsZero() && s.Case.State.Reserved > 0
}

// Reason codes of runs that others' payments ended.
const (
	reasonCaseEnded = "case_ended"
	reasonPaidOlder = string(GatePaidOlder)
)

// keyAllows guards the call after an unknown one: past the key's lifetime the escrow
// service would take a repetition for a new order, and pay twice. A clock that stands a
// little before the first call is waited for; one that stands far before it can't tell.
func (f *family) keyAllows(r *background.Run, at time.Time) error {
	switch {
	case r.UnknownOpen == 0 || r.FirstSentAt.IsZero() || !r.State.Waiting() || f.executorOf(r.Target).KeyLifetime() == Forever:
		return nil
	case f.over(r, at):
		return background.ErrKeyExpired
	case at.Before(r.FirstSentAt):
		return background.ErrBeforeFirstCall
	}
	return nil
}

// over reports whether the run's operation key may not outlive a call made now. A
// clock that stands before the first call by more than two clocks may be apart can't
// tell, so it may be.
func (f *family) over(r *background.Run, at time.Time) bool {
	life := f.executorOf(r.Target).KeyLifetime()
	return life != Forever && (r.FirstSentAt.Sub(at) > 2*background.ClockBound || !at.Before(r.FirstSentAt.Add(f.untilForgotten(life)-f.limit)))
}

// settle is the settlement after a move of the run that holds the case.
func settle(m *background.Move, s *postgres.Snapshot, around *siblings) (settlement.State, settlement.Effect, error) {
	e, ok := factOf(m)
	if !ok {
		return s.Case.State, settlement.Effect{}, nil
	}
	e.Kept = keepsReservation(m, s)
	if e.Fact == settlement.Executed {
		var err error
		if e.Outcome = s.Case.State.Adjudication; s.Case.State.Moved > 0 || !s.Run.Parent.IsZero() {
			e.Repeated, err = around.paid(s)
		} else {
			e.Repeated = s.Run.Class == Executed
		}
		if err == nil {
			e.Older, err = around.paidOlder(s)
		}
		if err != nil {
			return s.Case.State, settlement.Effect{}, err
		}
	}
	state, effect, err := settlement.Apply(s.Case.State, e)
	var refused *settlement.Refused
	if errors.As(err, &refused) {
		return state, effect, background.ErrLostGuard
	}
	return state, effect, err
}

func factOf(m *background.Move) (settlement.Event, bool) {
	switch m.Fact {
	case receipts.AttemptStarted:
		return settlement.Event{Fact: settlement.AttemptStarted}, true
	case receipts.RetryScheduled:
		return settlement.Event{Fact: settlement.RetryScheduled}, true
	case receipts.AttemptInterrupted:
		return settlement.Event{Fact: settlement.AttemptInterrupted}, true
	case receipts.DeadLettered:
		return settlement.Event{Fact: settlement.DeadLettered}, true
	case receipts.Cancelled:
		return settlement.Event{Fact: settlement.Cancelled}, true
	case receipts.AttemptSucceeded:
		return settlement.Event{Fact: settlement.Executed, Paid: m.Result.Moved}, true
	case receipts.Reconciled, receipts.AnsweredLate:
		if m.Result.Class == Executed {
			return settlement.Event{Fact: settlement.Executed, Paid: m.Result.Moved}, true
		}
		return settlement.Event{Fact: settlement.Reconciled}, m.Fact == receipts.Reconciled
	}
	return settlement.Event{}, false
}

package postadjudication

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// keyMargin is taken off the lifetime of an operation key: a call that is let
// through must reach the escrow service while it still knows the key.
const keyMargin = 5 * time.Second

// family is the settlement family: its handler calls the escrow service, its
// record keeps settlement, escrow and evidence in step with the run.
type family struct {
	journal  *postgres.Journal
	executor Executor
	limit    time.Duration
	now      func() time.Time
	handlers *handlers
}

func (f *family) Name() string             { return Family }
func (f *family) TimeLimit() time.Duration { return f.limit }

// Handle calls the escrow service once.
func (f *family) Handle(ctx context.Context, a background.Attempt) background.Result {
	if why := f.stale(a); why != "" {
		return background.Result{Class: NotExecuted, Retry: true, Failure: &background.Failure{Type: "claim.stale", Message: why}}
	}
	call, err := callOf(a.Run, a.Number)
	if err != nil {
		return background.Result{Class: NotExecuted, Failure: &background.Failure{Type: "request.unreadable", Message: err.Error()}}
	}
	return resultOf(f.executor.Execute(ctx, call), call.Amount.Minor)
}

// staleClaim is how old a claim may be when its call is made: as much as keyMargin
// allows for.
const staleClaim = keyMargin

// stale tells why a claim may no longer be called on, though it was right when it
// was made: its answer, or this process, stood still since. Others may have called
// under the operation key meanwhile, and the key's lifetime may be over.
func (f *family) stale(a background.Attempt) string {
	now := f.now()
	switch {
	case f.executor.KeyLifetime() == Forever:
		return ""
	case now.Sub(a.StartedAt) > staleClaim:
		return "the claim is too old to call on"
	case a.Run.UnknownOpen > 0 && f.over(&a.Run, now):
		return "the operation key may have expired since the claim"
	}
	return ""
}

// Lookup asks the escrow service what became of the run's operation key.
func (f *family) Lookup(ctx context.Context, r background.Run) background.Result {
	asker, ok := f.executor.(Lookuper)
	if !ok {
		return background.Result{Class: Unknown, Failure: &background.Failure{Type: "lookup.unsupported", Message: "the executor has no lookup"}}
	}
	call, err := callOf(r, r.Attempt)
	if err != nil {
		return background.Result{Class: Unknown, Failure: &background.Failure{Type: "request.unreadable", Message: err.Error()}}
	}
	call.SentAgo = f.sentAgo(ctx, r)
	found := resultOf(asker.Lookup(ctx, call), call.Amount.Minor)
	if found.Class != NotExecuted {
		return found
	}
	switch out, err := f.callOut(ctx, r); {
	case err != nil:
		return background.Result{Class: Unknown, Failure: &background.Failure{Type: "lookup.unsure", Message: err.Error()}}
	case out:
		return background.Result{Class: Unknown, Failure: &background.Failure{Type: "lookup.premature", Message: "a call of another run under the operation key has not come back"}}
	}
	return found
}

// sentAgo is for how long nothing was sent in a run's case: the call of an
// attempt that was started may have been sent until its time limit. 0 when that can't
// be read.
func (f *family) sentAgo(ctx context.Context, r background.Run) time.Duration {
	last, err := f.journal.LastAttempted(ctx, r.Tenant, r.Case)
	if err != nil {
		return 0
	}
	return max(0, f.now().Sub(last)-f.limit)
}

// callOut reports whether a call under a run's operation key has not come back that
// another run of the case made, as what it is a fork of: it may pay yet, whatever a
// lookup says now. Calls of the run itself are the engine's to know of.
func (f *family) callOut(ctx context.Context, r background.Run) (bool, error) {
	all, err := f.journal.CaseRuns(ctx, r.Tenant, r.Case)
	return slices.ContainsFunc(all, func(s postgres.Snapshot) bool {
		return s.Run.ID != r.ID && s.Run.Operation == r.Operation && s.Run.Unheard != 0
	}), err
}

func callOf(r background.Run, attempt int) (Call, error) {
	var request struct {
		Amount  settlement.Money   `json:"amount"`
		Outcome settlement.Outcome `json:"outcome"`
	}
	if err := json.Unmarshal(r.Payload, &request); err != nil {
		return Call{}, err
	}
	return Call{
		OperationKey: r.Operation, Request: r.Payload, Tenant: r.Tenant, Target: r.Target, Run: r.ID, Attempt: attempt,
		Outcome: request.Outcome, Amount: request.Amount,
	}, nil
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
	for {
		s, err := f.handlers.apply(ctx, f.journal, m, as.bind(func(s *postgres.Snapshot) (postgres.Change, error) {
			if m.Fact == receipts.AnsweredLate || m.Fact == receipts.Reconciled && s.Run.Letter == background.LetterPurged {
				return decideLate(m, s, around)
			}
			return f.decide(m, s, around)
		}))
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
	if m.Fact == receipts.AttemptStarted && f.keyMayBeOver(&s.Run, m.At) {
		return postgres.Change{}, background.ErrKeyExpired
	}
	onExecuted(&m, s)
	onEndedCase(&m, s)
	run, err := m.Apply(s.Run)
	if err != nil {
		return postgres.Change{}, err
	}
	state, effect, err := settle(&m, s, around)
	if err != nil {
		return postgres.Change{}, err
	}
	after := &postgres.Snapshot{Case: s.Case, Run: run}
	after.Case.State = state
	p := evidence(&m, &s.Run, &run)
	p.Outcome = string(state.Adjudication)
	if state != s.Case.State {
		p.Settlement = snapshotOf(state)
	}
	drafts := []receipts.Draft{{Run: run.ID, Subtype: m.Fact, Actor: actorOf(&m), At: m.At, Payload: p}}
	drafts = append(drafts, moneyDrafts(&m, run.ID, run.Attempt, effect)...)
	return postgres.Change{Move: m.ID, Before: s, After: after, Commits: effect.Committed, Drafts: drafts}, nil
}

// onExecuted ends a run whose payment was learned while it ran: whatever this attempt
// told, there is nothing left to do.
func onExecuted(m *background.Move, s *postgres.Snapshot) {
	if s.Run.Class != Executed || s.Run.State != background.Running {
		return
	}
	switch m.Fact {
	case receipts.RetryScheduled, receipts.AttemptInterrupted, receipts.DeadLettered, receipts.Cancelled:
		m.Fact, m.Lookup, m.Spend, m.NextRetryAt, m.Reason = receipts.AttemptSucceeded, Executed, background.SpendNothing, time.Time{}, ""
	}
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

const reasonCaseEnded = "case_ended"

// keyMayBeOver guards the call after an unknown one: past the key's lifetime the
// escrow service would take a repetition for a new order, and pay twice.
func (f *family) keyMayBeOver(r *background.Run, at time.Time) bool {
	return r.UnknownOpen > 0 && !r.FirstSentAt.IsZero() && r.State.Waiting() && f.over(r, at)
}

// over reports whether the run's operation key may not outlive a call made now. A
// clock that stands before the first call can't tell, so it may be.
func (f *family) over(r *background.Run, at time.Time) bool {
	life := f.executor.KeyLifetime()
	return life != Forever && (at.Before(r.FirstSentAt) || !at.Before(r.FirstSentAt.Add(life-min(keyMargin, life/4)-f.limit)))
}

// settle is the settlement after a move of the run that holds the case.
func settle(m *background.Move, s *postgres.Snapshot, around *siblings) (settlement.State, settlement.Effect, error) {
	e, ok := factOf(m)
	if !ok {
		return s.Case.State, settlement.Effect{}, nil
	}
	if e.Fact == settlement.Executed {
		var err error
		if e.Outcome = s.Case.State.Adjudication; s.Case.State.Moved > 0 || !s.Run.Parent.IsZero() {
			e.Repeated, err = around.paid(s)
		} else {
			e.Repeated = s.Run.Class == Executed
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

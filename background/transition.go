package background

import (
	"fmt"

	"github.com/recourse-dev/recourse/receipts"
)

// Apply gives the run after the move, or the reason why the move is not for the
// run as it is now. It is pure: the journal calls it on the newest state of the
// run, and guards its statement with what it was called with.
//
//	pending ──claim──▶ running ──▶ succeeded
//	   ▲                 │ │ └───▶ dead_lettered (letter open)
//	   └── scheduled ◀───┘ └─────▶ cancelled
//
// Errors: ErrNotDue, ErrDead, ErrBraked, ErrCallsOut, ErrReconcileFirst, ErrLostGuard.
func (m Move) Apply(now Run) (Run, error) {
	switch m.Fact {
	case receipts.AttemptStarted:
		return m.claim(now)
	case receipts.AnsweredLate:
		return m.hear(now)
	case receipts.OutOfBandChangeDetected:
		return now, nil // a fact about a task in Redis; nor is it the run's last move
	case receipts.Reconciled:
		return m.reconcile(now)
	case receipts.Cancelled:
		if now.State.Waiting() && m.Run.State.Waiting() {
			return m.cancelWaiting(now)
		}
	case receipts.DeadLettered:
		if now.State.Waiting() && m.Run.State.Waiting() {
			if now.Attempt != m.Run.Attempt || now.Class != m.Run.Class {
				return now, ErrLostGuard // tried again or cleared since: it may yet succeed
			}
			return m.end(now)
		}
	}
	if now.State != Running || now.Attempt != m.Run.Attempt || now.Token != m.Run.Token || now.CancelAsked != m.Run.CancelAsked {
		return now, ErrLostGuard
	}
	return m.end(now)
}

func (m Move) claim(now Run) (Run, error) {
	switch {
	case now.State == DeadLettered:
		return now, ErrDead
	case !now.State.Waiting():
		return now, ErrLostGuard
	case m.Bars != nil && m.Bars(now):
		return now, ErrBraked
	case now.DueAt.After(m.At):
		return now, ErrNotDue
	case len(now.OutstandingCalls) >= MaxOutstandingCalls:
		return now, ErrCallsOut
	}
	now.State, now.Attempt, now.Token, now.Session, now.LastMove = Running, now.Attempt+1, m.Token, m.Session, m.ID
	if now.FirstSentAt.IsZero() {
		now.FirstSentAt = m.At
	}
	return now, nil
}

// hear takes the answer of an attempt that had ended without it. One that is not awaited
// is refused with ErrLostGuard if it tells nothing new; that it paid is a fact, whoever
// awaits it.
func (m Move) hear(now Run) (Run, error) {
	back, awaited := now.withCallBack(m.Run.Attempt)
	if news := m.Result.Class == Executed || m.Reason == ReasonUnrecordable; !awaited && (!news || now.Class == Executed) {
		return now, ErrLostGuard
	}
	return m.learn(back), nil
}

func (m Move) cancelWaiting(now Run) (Run, error) {
	if now.MovesMoney() && (now.Class == Unknown || now.UnknownOpen > 0) {
		return now, ErrReconcileFirst
	}
	now.State, now.LastMove = Cancelled, m.ID
	return now, nil
}

func (m Move) reconcile(now Run) (Run, error) {
	late := now.ClosedUnpaid() && m.Result.Class == Executed // a fact about money, whenever it is found
	if !now.State.Waiting() && now.Letter != LetterOpen && !late || now.Attempt != m.Run.Attempt {
		return now, ErrLostGuard // what was found says nothing of a call made since
	}
	now = m.learn(now)
	if m.Result.Class != Executed {
		return now, nil
	}
	switch {
	case now.Letter == LetterOpen:
		now.Letter = LetterReconciled
	case now.State.Waiting():
		now.State = Succeeded
	} // what was closed stays so
	return now, nil
}

// ClosedUnpaid reports whether a run was closed by people or by retention though no money of it
// is known to have moved: it was cancelled, or its letter was purged, forked, superseded, or closed
// without a payment. That it was executed after all can be found out later.
func (r *Run) ClosedUnpaid() bool {
	return r.Letter == LetterPurged || r.Class != Executed && (r.Letter == LetterReconciled || r.Letter == LetterForked || r.Letter == LetterSuperseded || r.State == Cancelled)
}

// learn takes what is known of the money into the run and the case. All attempts of
// a run use one operation key: once it is known to be executed it stays so, whatever
// a later call tells. A refusal that comes late clears nothing: it speaks of its own
// call, and others may have been made since.
func (m Move) learn(now Run) Run {
	now.LastMove = m.ID
	switch class := m.Result.Class; {
	case now.Class == Executed:
	case class == Executed || m.Lookup == Executed:
		now.Class, now.UnknownOpen = Executed, 0
	case m.Lookup == NotExecuted || m.Fact == receipts.Reconciled && class == NotExecuted:
		now.Class, now.UnknownOpen, now.OutstandingCalls = NotExecuted, 0, nil // nothing can be on its way any more
	case class == Unknown && (m.Fact != receipts.AnsweredLate || m.Reason == ReasonUnrecordable):
		now.Class, now.UnknownOpen = Unknown, now.UnknownOpen+1
	case class == NotExecuted && now.Class != Unknown && m.Fact != receipts.AnsweredLate:
		if now.Class = NotExecuted; now.MovesMoney() && now.UnknownOpen > 0 {
			now.Class = Unknown // of another run of the case
		}
	}
	return now
}

func (m Move) end(now Run) (Run, error) {
	now = m.learn(now)
	switch m.Spend {
	case SpendAttempt:
		now.BudgetSpent++
	case SpendRecovery:
		now.Recoveries++
	}
	if m.CallGoesOn {
		now = now.withCallOut(now.Attempt)
	}
	if m.Result.Failure != nil {
		now.Failure = m.Result.Failure
	}
	switch m.Fact {
	case receipts.AttemptSucceeded:
		now.State = Succeeded
	case receipts.RetryScheduled, receipts.AttemptInterrupted:
		now.State, now.DueAt = Scheduled, m.NextRetryAt
	case receipts.DeadLettered:
		now.State, now.Letter, now.DeadAt, now.Reason = DeadLettered, LetterOpen, m.At, m.Reason
	case receipts.Cancelled:
		now.State = Cancelled
	default:
		return now, fmt.Errorf("background: %q does not end an attempt", m.Fact)
	}
	return now, nil
}

package background

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// callOutcome is what became of one call of a handler or a lookup.
type callOutcome struct {
	result      Result
	took        time.Duration
	interrupted bool          // cut short by the end of a shutdown's grace, or with its session
	trace       string        // id of the trace that the call is part of
	lateAnswer  <-chan Result // not nil when the call goes on; its answer comes here
	onAnswered  func()        // with late: to be called once it has answered
	probe       bool          // an open circuit breaker let it through: a failure is not the run's
}

// callWithin calls fn until it answers, its time limit is reached, or the grace of a
// shutdown is over, whichever is first. The call gets a goroutine of its own, so
// that one that ignores its context holds up nobody. Panics become results.
func (m *Manager) callWithin(callCtx context.Context, limit time.Duration, fn func(context.Context) Result) callOutcome {
	ctx, cancel := context.WithTimeout(callCtx, limit)
	answers := make(chan Result, 1)
	began := time.Now()
	m.workers.do(func() {
		defer cancel()
		answers <- recoverPanic(ctx, fn)
	})
	done := callOutcome{lateAnswer: answers}
	select {
	case done.result = <-answers:
		done.lateAnswer = nil
	case <-m.graceOver:
		done.interrupted = true
		done.result = unknownResult(FailureInterrupted, "the process shut down before the call answered")
		cancel()
		done.awaitAfterCancel(answers)
	case <-ctx.Done():
		select {
		case done.result = <-answers: // it answered at the very limit
			done.lateAnswer = nil
		default:
			done.result = unknownResult(FailureTimeout, fmt.Sprintf("no answer within %s", limit))
			done.awaitAfterCancel(answers)
		}
	}
	if callCtx.Err() != nil {
		done.markInterrupted()
	}
	done.took = time.Since(began)
	return done
}

// markInterrupted takes a call that was cancelled with its session for interrupted, unless it
// paid or was refused for good. Of a panic the failure is kept.
func (c *callOutcome) markInterrupted() {
	switch r := &c.result; {
	case r.Class == Executed || r.Class == NotExecuted && !r.Retry:
		return
	case r.Class == Unknown && r.Failure.Type != FailurePanic:
		c.result = unknownResult(FailureInterrupted, "the process could not show that it lives")
	}
	c.interrupted = true
}

// cancelGrace is what a call is given to return once its context has ended. One that
// honours its context is over then, and nothing of it is still on the way.
const cancelGrace = 50 * time.Millisecond

// awaitAfterCancel lets a call come back whose context has ended. What it then proves counts, as
// that nothing was sent; that it gave up proves nothing.
func (c *callOutcome) awaitAfterCancel(answers <-chan Result) {
	timer := time.NewTimer(cancelGrace)
	defer timer.Stop()
	select {
	case res := <-answers:
		if c.lateAnswer = nil; res.Class == Executed || res.Unsent {
			c.result, c.interrupted = res, res.Unsent
		}
	case <-timer.C:
	}
}

// recoverPanic calls fn and turns a panic into a result that nothing is known of.
func recoverPanic(ctx context.Context, fn func(context.Context) Result) (res Result) {
	defer func() {
		if p := recover(); p != nil {
			res = unknownResult(FailurePanic, fmt.Sprint(p))
			res.Failure.Stack = string(debug.Stack())
		}
	}()
	return normalizeResult(fn(ctx))
}

func unknownResult(failure, message string) Result {
	return Result{Class: Unknown, Retry: true, Failure: &Failure{Type: failure, Message: message}}
}

// callHandler calls the handler for a run whose claim is on record, in the slot that was
// taken for it, and gives that back.
func (m *Manager) callHandler(callCtx context.Context, f Family, run Run, claim claimRecord) callOutcome {
	defer m.slots.holdDuringCall()()
	select { // the claim was in doubt until now; nothing is called
	case <-m.graceOver:
		return notCalled("the process shut down before the call")
	case <-callCtx.Done():
		return notCalled("the process could not show that it lives before the call")
	default:
	}
	m.running.Add(1)
	defer m.running.Add(-1)
	callCtx, endSpan := m.tracing.attempt(callCtx, run)
	done := m.callWithin(callCtx, f.TimeLimit(), func(ctx context.Context) Result {
		failpoint.Hit(failpoint.CallBefore, failpoint.Executor)
		fresh := freshness{m: m, ctx: ctx, claim: claim}
		if err := fresh.check(); err != nil {
			return unsentResult(err.Error())
		}
		res := f.Handle(ctx, Attempt{Run: run, Number: run.Attempt, StartedAt: claim.at, Fresh: fresh.checkBeforeSend, NotAfter: m.notAfter(f, claim)})
		failpoint.Hit(failpoint.CallAfter, failpoint.Executor)
		return fresh.adjustResult(res)
	})
	if done.result.Unsent {
		done.interrupted = true
	} else if done.lateAnswer == nil && !done.interrupted {
		m.claimBackoff.onFreshClaim(claim.sent)
	}
	done.trace = endSpan(done)
	if done.lateAnswer != nil {
		done.onAnswered = m.trackAbandoned(run)
	}
	m.breakers.recordAttempt(run, done)
	return done
}

// notAfter is when nobody waits for the call of a claim any more.
func (m *Manager) notAfter(f Family, claim claimRecord) time.Time {
	return claim.at.Add(MaxClaimAge(m.cfg.LostAfter) + f.TimeLimit())
}

// notCalled is an attempt that was claimed and ended before its call.
func notCalled(why string) callOutcome {
	res := unknownResult(FailureInterrupted, why)
	res.Class = NotExecuted
	return callOutcome{result: res, interrupted: true}
}

// trackAbandoned counts a call that has outlived its attempt, until answered is called.
func (m *Manager) trackAbandoned(run Run) (answered func()) {
	m.abandoned.Add(1)
	forgetHanging := m.breakers.trackHanging(m.breakerTarget(run))
	return func() {
		m.abandoned.Add(-1)
		forgetHanging()
	}
}

// awaitLateAnswer records the answer of a call whose attempt has ended without it. The
// run is the one of that attempt.
func (m *Manager) awaitLateAnswer(f Family, run Run, lateAnswer <-chan Result, answered func()) {
	m.work.Go(func() {
		defer answered()
		var res Result
		select {
		case res = <-lateAnswer:
		case <-m.baseCtx.Done():
			return
		}
		tr := m.newTransition(receipts.AnsweredLate, run)
		tr.Result = res
		after, err := m.recordOutcome(f, tr)
		if errors.Is(err, ErrConflict) {
			return // told before
		}
		if err == nil {
			after, err = m.reconcileExecuted(f, after, res)
		}
		if err != nil {
			m.log.Error("a late answer was not recorded", zap.Stringer("run", run.ID), zap.Int("attempt", run.Attempt),
				zap.String("class", string(res.Class)), zap.Error(err))
			return
		}
		if !after.State.Live() {
			m.Wake(run.ID)
		}
	})
}

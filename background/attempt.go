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

// callOutcome is the outcome of one handler call or lookup.
type callOutcome struct {
	result      Result
	took        time.Duration
	interrupted bool          // cut short by the end of the grace, or with its session
	trace       string        // id of the call's trace
	lateAnswer  <-chan Result // set when the call still runs; receives its result
	onAnswered  func()        // set with lateAnswer; to be called after the answer
	probe       bool          // a probe of an open breaker: a failure is not the run's
}

// callWithin calls fn and returns when it answers, its time limit is reached, or the grace of a
// shutdown ends, whichever is first. The call has its own goroutine, so that one that ignores
// its context blocks nobody. A panic becomes a result.
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
		case done.result = <-answers: // it answered just at the limit
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

// markInterrupted marks a call as interrupted that was cancelled with its session, unless it
// paid or was refused for good. The failure of a panic is kept.
func (c *callOutcome) markInterrupted() {
	switch r := &c.result; {
	case r.Class == Executed || r.Class == NotExecuted && !r.Retry:
		return
	case r.Class == Unknown && r.Failure.Type != FailurePanic:
		c.result = unknownResult(FailureInterrupted, "the process could not send heartbeats")
	}
	c.interrupted = true
}

// cancelGrace is how long a call may take to return after its context ended. One that honours
// its context has returned by then, and nothing of it is outstanding.
const cancelGrace = 50 * time.Millisecond

// awaitAfterCancel waits cancelGrace for a call whose context has ended. A result that proves
// something counts: that it paid, or that nothing was sent. Any other proves nothing.
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

// recoverPanic calls fn and turns a panic into an unknown result.
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

// callHandler calls the handler of a claimed run in the slot acquired for it, and releases the
// slot.
func (m *Manager) callHandler(callCtx context.Context, f Family, run Run, claim claimRecord) callOutcome {
	defer m.slots.holdDuringCall()()
	select { // the claim may have taken long to commit
	case <-m.graceOver:
		return notCalled("the process shut down before the call")
	case <-callCtx.Done():
		return notCalled("the process could not send heartbeats before the call")
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

// notAfter returns the time after which nobody waits for the call of a claim.
func (m *Manager) notAfter(f Family, claim claimRecord) time.Time {
	return claim.at.Add(MaxClaimAge(m.cfg.LostAfter) + f.TimeLimit())
}

// notCalled returns the outcome of a claimed attempt that ended before its call.
func notCalled(why string) callOutcome {
	res := unknownResult(FailureInterrupted, why)
	res.Class = NotExecuted
	return callOutcome{result: res, interrupted: true}
}

// trackAbandoned counts a call that has outlived its attempt, until answered is called.
func (m *Manager) trackAbandoned(run Run) (answered func()) {
	m.abandoned.Add(1)
	forgetHanging := m.breakers.trackHanging(m.targets.breakerScope(run))
	return func() {
		m.abandoned.Add(-1)
		forgetHanging()
	}
}

// awaitLateAnswer records the answer of a call whose attempt ended without it, with the run of
// that attempt.
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
			return // recorded before
		}
		if err == nil {
			after, err = m.reconcileExecuted(f, after, res)
		}
		if err != nil {
			m.log.Error("late answer was not recorded", zap.Stringer("run", run.ID), zap.Int("attempt", run.Attempt),
				zap.String("class", string(res.Class)), zap.Error(err))
			return
		}
		if !after.State.Live() {
			m.Wake(run.ID)
		}
	})
}

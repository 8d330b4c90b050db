package background

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

// callOutcome is the outcome of one handler call or lookup.
type callOutcome struct {
	result      Result
	took        time.Duration
	interrupted bool          // cut short by the end of the grace, or with its session
	trace       string        // id of the call's trace
	lateAnswer  <-chan Result // set when the call still runs; receives its result
	onAnswered  func()        // set with lateAnswer; to be called after the answer
	uncharged   bool          // the failure of a probe that does not charge the run's budget; only breakerLeader.runClaimed sets it
}

// handlerCaller calls handlers and lookups, within their limits.
type handlerCaller struct {
	workers      *workerPool
	slots        *slots
	breakers     *breakerRegistry
	targets      *targetSet
	tracing      tracing
	claimBackoff *claimBackoff
	clocks       func() instant
	lostAfter    time.Duration   // Config.LostAfter
	baseCtx      context.Context // of lookups; ends at Close
	graceOver    <-chan struct{} // closed: attempts in flight are interrupted

	running     atomic.Int64 // handler calls
	outstanding atomic.Int64 // outstanding calls of this process
}

// callWithin calls fn and returns when it answers, its time limit is reached, or the grace of a
// shutdown ends, whichever is first. The call has its own goroutine, so that one that ignores
// its context blocks nobody. A panic becomes a result.
func (c *handlerCaller) callWithin(callCtx context.Context, limit time.Duration, fn func(context.Context) Result) callOutcome {
	ctx, cancel := context.WithTimeout(callCtx, limit)
	answers := make(chan Result, 1)
	began := time.Now()
	c.workers.do(func() {
		defer cancel()
		answers <- recoverPanic(ctx, fn)
	})
	done := callOutcome{lateAnswer: answers}
	select {
	case done.result = <-answers:
		done.lateAnswer = nil
	case <-c.graceOver:
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
func (c *handlerCaller) callHandler(callCtx context.Context, f Family, run *Run, claim claimRecord) callOutcome {
	defer c.slots.holdDuringCall()()
	select { // the claim may have taken long to commit
	case <-c.graceOver:
		return notCalled("the process shut down before the call")
	case <-callCtx.Done():
		return notCalled("the process could not send heartbeats before the call")
	default:
	}
	c.running.Add(1)
	defer c.running.Add(-1)
	callCtx, endSpan := c.tracing.attempt(callCtx, run)
	attempt := Attempt{Run: *run, Number: run.Attempt, StartedAt: claim.at, NotAfter: c.notAfter(f, claim)}
	done := c.callWithin(callCtx, f.TimeLimit(), func(ctx context.Context) Result {
		failpoint.Hit(failpoint.CallBefore, failpoint.Executor)
		fresh := freshness{caller: c, ctx: ctx, claim: claim}
		if err := fresh.check(); err != nil {
			return unsentResult(err.Error())
		}
		attempt.Fresh = fresh.checkBeforeSend
		res := f.Handle(ctx, attempt)
		failpoint.Hit(failpoint.CallAfter, failpoint.Executor)
		return fresh.adjustResult(res)
	})
	if done.result.Unsent {
		done.interrupted = true
	} else if done.lateAnswer == nil && !done.interrupted {
		c.claimBackoff.onFreshClaim(claim.sent)
	}
	done.trace = endSpan(done)
	if done.lateAnswer != nil {
		done.onAnswered = c.trackOutstanding(run)
	}
	c.breakers.recordAttempt(run, &done)
	return done
}

// notAfter returns the time after which nobody waits for the call of a claim.
func (c *handlerCaller) notAfter(f Family, claim claimRecord) time.Time {
	return claim.at.Add(MaxClaimAge(c.lostAfter) + f.TimeLimit())
}

// notCalled returns the outcome of a claimed attempt that ended before its call.
func notCalled(why string) callOutcome {
	res := unknownResult(FailureInterrupted, why)
	res.Class = NotExecuted
	return callOutcome{result: res, interrupted: true}
}

// trackOutstanding counts an outstanding call, until answered is called.
func (c *handlerCaller) trackOutstanding(run *Run) (answered func()) {
	c.outstanding.Add(1)
	forget := c.breakers.trackOutstanding(c.targets.breakerScope(run))
	return func() {
		c.outstanding.Add(-1)
		forget()
	}
}

// lookup looks up the outcome of a run. The result is unknown when no answer comes in time, and NotExecuted
// only if the family takes it for proof.
func (c *handlerCaller) lookup(f Family, run Run) (result Result, interrupted bool) {
	done := c.callWithin(c.baseCtx, f.TimeLimit(), func(ctx context.Context) Result { return f.Lookup(ctx, run) })
	return done.result, done.interrupted
}

// ErrStaleClaim is the error of Attempt.Fresh.
var ErrStaleClaim = errors.New("background: the claim is stale, the call may not be made")

// FailureStaleClaim is the failure of an attempt whose claim became stale before its request
// was sent.
const FailureStaleClaim = "claim.stale"

// MaxClaimAge is the maximum age of a claim when the last byte of its request is sent. The
// claim locks the row of its session, so it proves that the process was alive when the claim
// was sent. Within the rest of lostAfter nobody declares the process lost and has its runs
// executed or decided elsewhere. Every other bound on late calls is derived from it.
func MaxClaimAge(lostAfter time.Duration) time.Duration { return lostAfter / 5 }

// freshness reports whether the call of one attempt may still be sent. Only its first check
// counts for the result: the refusal of a second request of the same call says nothing about
// the first.
type freshness struct {
	caller     *handlerCaller
	ctx        context.Context // of the attempt
	claim      claimRecord
	firstCheck atomic.Int32
}

const (
	unchecked int32 = iota
	granted
	denied
)

// checkBeforeSend implements Attempt.Fresh.
func (f *freshness) checkBeforeSend() error {
	failpoint.Hit(failpoint.CallLastByte, failpoint.Executor)
	err := f.check()
	if err != nil {
		f.firstCheck.CompareAndSwap(unchecked, denied)
	} else {
		f.firstCheck.CompareAndSwap(unchecked, granted)
	}
	return err
}

func (f *freshness) check() error {
	if f.ctx.Err() != nil {
		return fmt.Errorf("%w: the attempt has ended", ErrStaleClaim)
	}
	age := f.claim.sent.until(f.caller.clocks())
	if bound := MaxClaimAge(f.caller.lostAfter); age >= bound {
		f.caller.claimBackoff.onStaleClaim()
		return fmt.Errorf("%w: it was sent %s ago, the maximum is %s", ErrStaleClaim, age.Round(time.Millisecond), bound)
	}
	return nil
}

// adjustResult returns the handler's result. If the handler was refused before its request was
// sent and reports NotExecuted, the result is unsent instead: it is no answer of the called
// service.
func (f *freshness) adjustResult(res Result) Result {
	if res.Class == NotExecuted && f.firstCheck.Load() == denied {
		return unsentResult("the claim was too old before the request was sent")
	}
	res.Unsent = false
	return res
}

// unsentResult returns the result of a call whose request was not sent completely.
func unsentResult(why string) Result {
	return Result{Class: NotExecuted, Retry: true, Unsent: true, Failure: &Failure{Type: FailureStaleClaim, Message: why}}
}

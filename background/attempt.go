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

// call is what became of one call of a handler or a lookup.
type call struct {
	result      Result
	took        time.Duration
	interrupted bool          // cut short by the end of a shutdown's grace, or with its session
	trace       string        // id of the trace that the call is part of
	late        <-chan Result // not nil when the call goes on; its answer comes here
	answered    func()        // with late: to be called once it has answered
	probe       bool          // an open circuit breaker let it through: a failure is not the run's
}

// bounded calls fn until it answers, its time limit is reached, or the grace of a
// shutdown is over, whichever is first. The call gets a goroutine of its own, so
// that one that ignores its context holds up nobody. Panics become results.
func (m *Manager) bounded(calls context.Context, limit time.Duration, fn func(context.Context) Result) call {
	ctx, cancel := context.WithTimeout(calls, limit)
	answers := make(chan Result, 1)
	began := time.Now()
	m.crew.do(func() {
		defer cancel()
		answers <- guarded(ctx, fn)
	})
	done := call{late: answers}
	select {
	case done.result = <-answers:
		done.late = nil
	case <-m.graceOver:
		done.interrupted = true
		done.result = unknown(FailureInterrupted, "the process shut down before the call answered")
		cancel()
		done.await(answers)
	case <-ctx.Done():
		select {
		case done.result = <-answers: // it answered at the very limit
			done.late = nil
		default:
			done.result = unknown(FailureTimeout, fmt.Sprintf("no answer within %s", limit))
			done.await(answers)
		}
	}
	if calls.Err() != nil {
		done.giveUp()
	}
	done.took = time.Since(began)
	return done
}

// giveUp takes a call that was cancelled with its session for interrupted, unless it
// paid or was refused for good. Of a panic the failure is kept.
func (c *call) giveUp() {
	switch r := &c.result; {
	case r.Class == Executed || r.Class == NotExecuted && !r.Retry:
		return
	case r.Class == Unknown && r.Failure.Type != FailurePanic:
		c.result = unknown(FailureInterrupted, "the process could not show that it lives")
	}
	c.interrupted = true
}

// comeBack is what a call is given to return once its context has ended. One that
// honours its context is over then, and nothing of it is still on the way.
const comeBack = 50 * time.Millisecond

// await lets a call come back whose context has ended. What it then proves counts, as
// that nothing was sent; that it gave up proves nothing.
func (c *call) await(answers <-chan Result) {
	timer := time.NewTimer(comeBack)
	defer timer.Stop()
	select {
	case res := <-answers:
		if c.late = nil; res.Class == Executed || res.Unsent {
			c.result, c.interrupted = res, res.Unsent
		}
	case <-timer.C:
	}
}

// guarded calls fn and turns a panic into a result that nothing is known of.
func guarded(ctx context.Context, fn func(context.Context) Result) (res Result) {
	defer func() {
		if p := recover(); p != nil {
			res = unknown(FailurePanic, fmt.Sprint(p))
			res.Failure.Stack = string(debug.Stack())
		}
	}()
	return normal(fn(ctx))
}

func unknown(failure, message string) Result {
	return Result{Class: Unknown, Retry: true, Failure: &Failure{Type: failure, Message: message}}
}

// attempt calls the handler for a run whose claim is on record, in the slot that was
// taken for it, and gives that back.
func (m *Manager) attempt(calls context.Context, f Family, run Run, claim claimed) call {
	defer m.slots.during()()
	select { // the claim was in doubt until now; nothing is called
	case <-m.graceOver:
		return uncalled("the process shut down before the call")
	case <-calls.Done():
		return uncalled("the process could not show that it lives before the call")
	default:
	}
	m.running.Add(1)
	defer m.running.Add(-1)
	calls, ended := m.tracing.attempt(calls, run)
	done := m.bounded(calls, f.TimeLimit(), func(ctx context.Context) Result {
		failpoint.Hit(failpoint.CallBefore, failpoint.Executor)
		fresh := freshness{m: m, ctx: ctx, claim: claim}
		if err := fresh.check(); err != nil {
			return unsent(err.Error())
		}
		res := f.Handle(ctx, Attempt{Run: run, Number: run.Attempt, StartedAt: claim.at, Fresh: fresh.ask, NotAfter: m.notAfter(f, claim)})
		failpoint.Hit(failpoint.CallAfter, failpoint.Executor)
		return fresh.judge(res)
	})
	if done.result.Unsent {
		done.interrupted = true
	} else if done.late == nil && !done.interrupted {
		m.pausing.fresh(claim.sent)
	}
	done.trace = ended(done)
	if done.late != nil {
		done.answered = m.abandon(run)
	}
	m.breakers.note(run, done)
	return done
}

// notAfter is when nobody waits for the call of a claim any more.
func (m *Manager) notAfter(f Family, claim claimed) time.Time {
	return claim.at.Add(CallBound(m.cfg.LostAfter) + f.TimeLimit())
}

// uncalled is an attempt that was claimed and ended before its call.
func uncalled(why string) call {
	res := unknown(FailureInterrupted, why)
	res.Class = NotExecuted
	return call{result: res, interrupted: true}
}

// abandon counts a call that has outlived its attempt, until answered is called.
func (m *Manager) abandon(run Run) (answered func()) {
	m.abandoned.Add(1)
	forget := m.breakers.hang(m.endpoint(run))
	return func() {
		m.abandoned.Add(-1)
		forget()
	}
}

// awaitLate records the answer of a call whose attempt has ended without it. The
// run is the one of that attempt.
func (m *Manager) awaitLate(f Family, run Run, late <-chan Result, answered func()) {
	m.work.Go(func() {
		defer answered()
		var res Result
		select {
		case res = <-late:
		case <-m.life.Done():
			return
		}
		mv := m.move(receipts.AnsweredLate, run)
		mv.Result = res
		after, err := m.record(f, mv)
		if errors.Is(err, ErrLostGuard) {
			return // told before
		}
		if err == nil {
			after, err = m.settleKnown(f, after, res)
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

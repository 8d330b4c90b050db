package background

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// runProbe makes one attempt of a run that is let through, and takes in what it says.
func (l *breakerLeader) runProbe(ctx context.Context, p probeCandidate, t *probeCall) {
	result, after := l.attemptProbe(p, t)
	l.mu.Lock()
	l.policy.finish(time.Now(), t, result)
	l.mu.Unlock()
	l.markClaimed(p.run.ID)
	l.m.inFlight.release(p.run.ID)
	switch {
	case after.Letter == LetterOpen:
		if err := l.m.Notify(l.m.baseCtx, after); err != nil { // its delivery becomes the archived task
			l.m.log.Warn("a dead letter has no archived task", zap.Stringer("run", after.ID), zap.Error(err))
		}
	case after.State.Waiting() && !l.m.breakers.blocks(after):
		if err := l.m.sweeper.resend(ctx, []Run{after}); err != nil && ctx.Err() == nil {
			l.m.log.Warn("a run has no notification, the sweeper will make one", zap.Stringer("run", after.ID), zap.Error(err))
		}
	}
}

// markClaimed takes a run off the list of those that may be claimed.
func (l *breakerLeader) markClaimed(id RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unclaimed, id)
}

// deferRun keeps a run that could not be claimed, such as one of which too many calls are
// out, from standing in the way of others.
func (l *breakerLeader) deferRun(id RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deferredUntil[id] = time.Now().Add(time.Second)
}

// attemptProbe claims a run behind its breaker and makes one attempt.
func (l *breakerLeader) attemptProbe(p probeCandidate, t *probeCall) (result probeResult, after Run) {
	m := l.m
	if _, err := m.breakers.recordPaused(m.baseCtx, p.run); err != nil {
		m.log.Warn("a tenant's trail does not say yet that its runs are paused", zap.String("tenant", p.run.Tenant), zap.Error(err))
	}
	d := &delivery{m: m, family: l.family, run: p.run, notificationNumber: p.run.NotificationNumber, inFlight: p.inFlight, claimTimeout: make(chan struct{}), probe: true}
	for {
		if m.admit() != nil {
			return probeInconclusive, d.run
		}
		claim, err := d.claim()
		if err == nil {
			l.markClaimed(p.run.ID)
			return l.runClaimed(d, claim, t)
		}
		m.slots.release()
		switch {
		case errors.Is(err, ErrUnrecordable):
			m.log.Warn("a run that a circuit breaker let through can't be claimed", zap.Stringer("run", d.run.ID), zap.Error(d.deadLetterUnrecordable(err)))
		case errors.Is(err, ErrRequestAltered):
			_, deadLetterErr := d.deadLetterAltered(err)
			m.log.Warn("a run that a circuit breaker let through is not to be called", zap.Stringer("run", d.run.ID), zap.Error(deadLetterErr))
		}
		if !errors.Is(err, ErrKeyExpired) {
			l.deferRun(p.run.ID)
			return probeInconclusive, d.run
		}
		retry, result := l.lookupExpiredKey(d, t)
		if !retry {
			l.deferRun(p.run.ID)
			return result, d.run
		}
	}
}

// lookupExpiredKey asks about a run that can't be called again, whatever the target does, because its
// operation key may have expired. It reports true when the run may be claimed after that.
// What can't be answered while the target is away is left as it is.
func (l *breakerLeader) lookupExpiredKey(d *delivery, t *probeCall) (retry bool, result probeResult) {
	if t.kind == kindFallback && !t.alwaysCharges {
		switch lookup, wasInterrupted := l.m.lookup(l.family, d.run); {
		case wasInterrupted:
			return false, probeInconclusive
		case lookup.Class != Unknown:
			return false, probeAnswered
		case lookup.Retry:
			return false, probeFailed
		}
	}
	retry, _ = d.lookupBeforeClaim()
	if !retry && (d.run.Class == Executed || d.run.State.Waiting() && d.run.Class == NotExecuted) {
		return false, probeAnswered
	}
	return retry, probeInconclusive
}

// runClaimed makes the attempt that was claimed and records its end.
func (l *breakerLeader) runClaimed(d *delivery, claim claimRecord, t *probeCall) (result probeResult, after Run) {
	if t.kind == kindNewCase {
		l.mu.Lock()
		l.asked++
		l.mu.Unlock()
	}
	slow := time.AfterFunc(slowCall, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.policy.release(t)
	})
	done := l.m.callHandler(d.callCtx, l.family, d.run, claim)
	slow.Stop()
	if countsAsFailure(done.result) {
		l.mu.Lock()
		done.probe = !l.policy.chargesBudget(time.Now(), t, d.run.BudgetSpent+1 >= d.run.Policy.Normalize().MaxRetryAttempts)
		l.mu.Unlock()
	}
	after, err := l.m.finish(l.family, d.run, done)
	if done.lateAnswer != nil {
		l.m.awaitLateAnswer(l.family, d.run, done.lateAnswer, done.onAnswered)
	}
	switch {
	case err != nil || done.interrupted:
		return probeInconclusive, after
	case countsAsFailure(done.result):
		return probeFailed, after
	}
	return probeAnswered, after
}

// probeDelayMax bounds the wait of a run between two probes that it stands in for.
const probeDelayMax = 30 * time.Second

// probeEnding is how an attempt ends that was a probe: as any other, but a failure of the
// target is not the run's. The run waits as long as an attempt of its number would.
func probeEnding(run Run, res Result, lookup *Result, now time.Time) (end ending, needsLookup bool) {
	run.Policy = run.Policy.Normalize()
	delay := min(run.Policy.DelayForAttempt(run.Attempt), probeDelayMax).Round(time.Microsecond) + time.Microsecond
	run.Policy.MaxRetryAttempts++ // so that it is not the budget that ends the run
	end, needsLookup = decide(run, res, lookup, now)
	if end.event == receipts.RetryScheduled {
		end.charge, end.reason = ChargeNothing, ReasonProbe
		if at := now.Add(delay); at.After(end.next) {
			end.next = at
		}
	}
	return end, needsLookup
}

package background

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// call makes one attempt of a run that is let through, and takes in what it says.
func (l *leader) call(ctx context.Context, p chosen, t *ticket) {
	v, after := l.attempt(p, t)
	l.mu.Lock()
	l.probing.ended(time.Now(), t, v)
	l.mu.Unlock()
	l.claimed(p.run.ID)
	l.m.engaged.leave(p.run.ID)
	switch {
	case after.Letter == LetterOpen:
		if err := l.m.Bell(l.m.life, after); err != nil { // its delivery becomes the archived task
			l.m.log.Warn("a dead letter has no archived task", zap.Stringer("run", after.ID), zap.Error(err))
		}
	case after.State.Waiting() && !l.m.breakers.bars(after):
		if err := l.m.sweep.ring(ctx, []Run{after}); err != nil && ctx.Err() == nil {
			l.m.log.Warn("a run has no notification, the sweeper will make one", zap.Stringer("run", after.ID), zap.Error(err))
		}
	}
}

// claimed takes a run off the list of those that may be claimed.
func (l *leader) claimed(id RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.out, id)
}

// unclaimed keeps a run that could not be claimed, such as one of which too many calls are
// out, from standing in the way of others.
func (l *leader) unclaimed(id RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.later[id] = time.Now().Add(time.Second)
}

// attempt claims a run behind its breaker and makes one attempt.
func (l *leader) attempt(p chosen, t *ticket) (v verdict, after Run) {
	m := l.m
	if _, err := m.breakers.tell(m.life, p.run); err != nil {
		m.log.Warn("a tenant's trail does not say yet that its runs are paused", zap.String("tenant", p.run.Tenant), zap.Error(err))
	}
	d := &delivery{m: m, family: l.f, run: p.run, bell: p.run.Bell, own: p.own, doubt: make(chan struct{}), probing: true}
	for {
		if m.admit() != nil {
			return saysNothing, d.run
		}
		claim, err := d.claim()
		if err == nil {
			l.claimed(p.run.ID)
			return l.made(d, claim, t)
		}
		m.slots.release()
		switch {
		case errors.Is(err, ErrUnrecordable):
			m.log.Warn("a run that a circuit breaker let through can't be claimed", zap.Stringer("run", d.run.ID), zap.Error(d.bury(err)))
		case errors.Is(err, ErrRequestAltered):
			_, told := d.condemn(err)
			m.log.Warn("a run that a circuit breaker let through is not to be called", zap.Stringer("run", d.run.ID), zap.Error(told))
		}
		if !errors.Is(err, ErrKeyExpired) {
			l.unclaimed(p.run.ID)
			return saysNothing, d.run
		}
		again, v := l.ask(d, t)
		if !again {
			l.unclaimed(p.run.ID)
			return v, d.run
		}
	}
}

// ask asks about a run that can't be called again, whatever the target does, because its
// operation key may have expired. It reports true when the run may be claimed after that.
// What can't be answered while the target is away is left as it is.
func (l *leader) ask(d *delivery, t *ticket) (again bool, v verdict) {
	if t.lane == laneRest && !t.budget {
		switch looked, cut := l.m.lookup(l.f, d.run); {
		case cut:
			return false, saysNothing
		case looked.Class != Unknown:
			return false, saysWorks
		case looked.Retry:
			return false, saysFails
		}
	}
	again, _ = d.inquire()
	if !again && (d.run.Class == Executed || d.run.State.Waiting() && d.run.Class == NotExecuted) {
		return false, saysWorks
	}
	return again, saysNothing
}

// made makes the attempt that was claimed and records its end.
func (l *leader) made(d *delivery, claim claimed, t *ticket) (v verdict, after Run) {
	if t.lane == laneNew {
		l.mu.Lock()
		l.asked++
		l.mu.Unlock()
	}
	slow := time.AfterFunc(slowCall, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.probing.leave(t)
	})
	done := l.m.attempt(d.calls, l.f, d.run, claim)
	slow.Stop()
	if failing(done.result) {
		l.mu.Lock()
		done.probe = !l.probing.spends(time.Now(), t, d.run.BudgetSpent+1 >= d.run.Policy.Normalize().MaxRetryAttempts)
		l.mu.Unlock()
	}
	after, err := l.m.finish(l.f, d.run, done)
	if done.late != nil {
		l.m.awaitLate(l.f, d.run, done.late, done.answered)
	}
	switch {
	case err != nil || done.interrupted:
		return saysNothing, after
	case failing(done.result):
		return saysFails, after
	}
	return saysWorks, after
}

// probeDelayMax bounds the wait of a run between two probes that it stands in for.
const probeDelayMax = 30 * time.Second

// probed is how an attempt ends that was a probe: as any other, but a failure of the
// target is not the run's. The run waits as long as an attempt of its number would.
func probed(run Run, res Result, looked *Result, now time.Time) (end ending, ask bool) {
	run.Policy = run.Policy.Normalize()
	delay := min(run.Policy.DelayForAttempt(run.Attempt), probeDelayMax).Round(time.Microsecond) + time.Microsecond
	run.Policy.MaxRetryAttempts++ // so that it is not the budget that ends the run
	end, ask = decide(run, res, looked, now)
	if end.fact == receipts.RetryScheduled {
		end.spend, end.reason = SpendNothing, ReasonProbe
		if at := now.Add(delay); at.After(end.next) {
			end.next = at
		}
	}
	return end, ask
}

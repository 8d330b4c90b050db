package background

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/receipts"
)

// breakerLeader leads one opening of a breaker. It starts probes, as probePolicy says, of
// paused runs whose targets this process calls. While runs that only other processes call would
// tell more of the service, it pauses its own probes, so that one of those processes takes
// over.
type breakerLeader struct {
	m      *Manager
	family Family
	target circuit.Scope
	probes sync.WaitGroup

	mu             sync.Mutex
	policy         *probePolicy
	unclaimed      map[RunID]struct{}  // probes that are neither claimed nor given up yet
	deferredUntil  map[RunID]time.Time // runs that could not be claimed: no probe before this time
	newCasesProbed int64               // new cases claimed since the breaker opened

	// Used by the goroutine of run only:
	breaker     circuit.Breaker
	cursor      Cursor // the last fallback probe
	renewedAt   time.Time
	countedAt   time.Time
	paused      int
	called      int       // those of paused whose target this process calls
	leavesSince time.Time // since when the lead is to be left to another process; zero: it is not
}

func newBreakerLeader(m *Manager, f Family, b circuit.Breaker) *breakerLeader {
	chance := rand.New(rand.NewPCG(rand.Uint64(), uint64(b.Version)))
	now := time.Now()
	policy := newProbePolicy(m.cfg.Breaker, m.cfg.Slots, chance, now)
	if !b.FewSince.IsZero() {
		policy.fewSince = now.Add(-max(0, m.now().Sub(b.FewSince)))
	}
	return &breakerLeader{m: m, family: f, target: b.Scope, breaker: b, unclaimed: map[RunID]struct{}{}, deferredUntil: map[RunID]time.Time{}, newCasesProbed: b.NewCasesProbed,
		policy: policy, renewedAt: now}
}

// run leads until the breaker is closed, another process changes it, or ctx ends.
func (l *breakerLeader) run(ctx context.Context) error {
	for {
		done, err := l.step(ctx)
		if done || err != nil {
			return err
		}
		l.mu.Lock()
		pause := l.policy.pause(time.Now())
		l.mu.Unlock()
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

// step starts the probes that are allowed now. done reports that this process no longer leads.
func (l *breakerLeader) step(ctx context.Context) (done bool, err error) {
	if l.m.claimGate.mayNotLead() || l.replaced() {
		return true, nil
	}
	now := time.Now()
	if now.Sub(l.countedAt) >= l.m.cfg.Breaker.LeaderTimeout/countsPerTimeout {
		if l.paused, l.called, err = l.m.cfg.Store.CountPausedRuns(ctx, l.target, l.m.cfg.Targets[l.target.Family], maxPausedCounted); err != nil {
			return false, err
		}
		l.countedAt = now
	}
	newest, err := l.pausedRuns(ctx, PausedQuery{NeverClaimed: true, NewestFirst: true}, l.newCaseLimit(now)+len(l.unclaimedIDs()))
	if err != nil {
		return false, err
	}
	silent, err := l.leaves(ctx, len(newest) > 0)
	if err != nil {
		return false, err
	}
	left := l.called
	if silent {
		left = l.paused // another process may probe these
	}
	l.mu.Lock()
	recovered, works, relapsed := l.policy.recovered(now, len(newest) > 0, left), l.policy.targetWorks(now), l.policy.relapsed(now)
	l.mu.Unlock()
	switch {
	case recovered:
		return true, l.close(ctx)
	case works && l.breaker.State == circuit.Open:
		return l.setState(circuit.HalfOpen, circuit.CauseAnswered, "a probe was answered")
	case relapsed && l.breaker.State == circuit.HalfOpen:
		return l.setState(circuit.Open, circuit.CauseRelapsed, "probes fail again, and none is answered")
	}
	if l.yields(now, silent) {
		return false, nil
	}
	picks, err := l.chooseProbes(ctx, now, newest)
	if err != nil {
		return false, err
	}
	return l.startProbes(ctx, now, picks, silent)
}

// replaced reports whether another process has changed the breaker, as last read by this
// process.
func (l *breakerLeader) replaced() bool {
	now, open := (*l.m.breakers.current.Load())[l.target]
	return open && now.Version > l.breaker.Version
}

// leaves reports whether the lead is to be left to another process, which calls targets that
// this one does not: new cases wait for it and none for this one, or nothing waits for this
// one. fresh reports that a new case waits for this process.
func (l *breakerLeader) leaves(ctx context.Context, fresh bool) (bool, error) {
	if fresh || l.m.cfg.Targets[l.target.Family] == nil {
		return false, nil
	}
	for _, look := range []struct {
		q      PausedQuery
		leaves bool
	}{{PausedQuery{NeverClaimed: true, NewestFirst: true, Others: true}, true}, {PausedQuery{}, false}, {PausedQuery{Others: true}, true}} {
		if found, err := l.pausedRuns(ctx, look.q, 1); err != nil || len(found) > 0 {
			return look.leaves, err
		}
	}
	return false, nil
}

// yields reports whether this process probes nothing now, because the lead is to be left: each
// probe would renew the lead. It yields for two times LeaderTimeout, in which any other process
// takes the lead, and then probes its own runs as long, because there may be no other process.
func (l *breakerLeader) yields(now time.Time, leaves bool) bool {
	if !leaves {
		l.leavesSince = time.Time{}
		return false
	}
	if l.leavesSince.IsZero() {
		l.leavesSince = now
	}
	half := 2 * l.m.cfg.Breaker.LeaderTimeout
	return now.Sub(l.leavesSince)%(2*half) < half
}

// newCaseLimit returns how many new cases may be probed, but at least one, to learn whether any
// waits.
func (l *breakerLeader) newCaseLimit(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.policy.newCasesAllowed(now))
}

// unclaimedIDs returns the probes that the journal may still list as paused.
func (l *breakerLeader) unclaimedIDs() []RunID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]RunID, 0, len(l.unclaimed))
	for id := range l.unclaimed {
		ids = append(ids, id)
	}
	return ids
}

// pausedRuns lists paused runs of the targets that this process calls, or of others with
// q.Others. It leaves out runs in flight in this process, and those that could not be claimed a
// moment ago.
func (l *breakerLeader) pausedRuns(ctx context.Context, q PausedQuery, limit int) ([]Run, error) {
	l.mu.Lock()
	now := time.Now()
	maps.DeleteFunc(l.deferredUntil, func(_ RunID, at time.Time) bool { return !now.Before(at) })
	deferred := maps.Clone(l.deferredUntil)
	l.mu.Unlock()
	q.Scope, q.Called, q.Due, q.Limit = l.target, l.m.cfg.Targets[l.target.Family], l.m.now(), limit+len(deferred)
	found, err := l.m.cfg.Store.PausedRuns(ctx, q)
	return slices.DeleteFunc(found, func(r Run) bool {
		_, waits := deferred[r.ID]
		return waits || l.m.inFlight.has(r.ID)
	}), err
}

// probeCandidate is a run that is to be probed.
type probeCandidate struct {
	run      Run
	kind     probeKind
	inFlight *inFlightRun
}

// chooseProbes selects the runs to probe now and marks them as in flight.
func (l *breakerLeader) chooseProbes(ctx context.Context, now time.Time, newest []Run) ([]probeCandidate, error) {
	l.mu.Lock()
	newCases, retried := l.policy.newCasesAllowed(now), l.policy.retriedAllowed(now)
	fallback := len(newest) == 0 && l.policy.fallbackDue(now, l.called)
	l.mu.Unlock()
	var picks []probeCandidate
	take := func(r Run, by probeKind) bool {
		inFlight, first := l.m.inFlight.acquire(r.ID, r.NotificationNumber)
		if first {
			picks = append(picks, probeCandidate{r, by, inFlight})
		}
		return first
	}
	for ; newCases > 0 && len(newest) > 0; newCases-- {
		next := newest[0]
		if from, anywhere := l.pick(); anywhere {
			found, err := l.pausedRuns(ctx, PausedQuery{NeverClaimed: true, StartFraction: from}, 1)
			if err != nil {
				return picks, err
			}
			if len(found) > 0 {
				next = found[0]
			}
		}
		take(next, kindNewCase)
		newest = slices.DeleteFunc(newest, func(r Run) bool { return r.ID == next.ID })
	}
	if retried > 0 {
		found, err := l.pausedRuns(ctx, PausedQuery{}, retried+len(l.unclaimedIDs()))
		if err != nil {
			return picks, err
		}
		for _, r := range found[:min(retried, len(found))] {
			take(r, kindRetried)
		}
	}
	if fallback {
		for _, from := range []Cursor{l.cursor, {}} {
			found, err := l.pausedRuns(ctx, PausedQuery{After: from}, 1)
			if err != nil {
				return picks, err
			}
			if len(found) > 0 && take(found[0], kindFallback) {
				l.cursor = Cursor{DueAt: found[0].DueAt, ID: found[0].ID}
				break
			}
		}
	}
	return picks, nil
}

func (l *breakerLeader) pick() (from float64, anywhere bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy.pick()
}

// startProbes records the selected probes in the breaker and starts them. When another process
// has changed the breaker, it starts none and done is true. When silent, it does not renew the
// lead unless it starts a probe.
func (l *breakerLeader) startProbes(ctx context.Context, now time.Time, picks []probeCandidate, silent bool) (done bool, err error) {
	if len(picks) == 0 && (silent || now.Sub(l.renewedAt) < l.m.cfg.Breaker.LeaderTimeout/renewalsPerTimeout) {
		return false, nil
	}
	next := l.breaker
	next.Version++
	next.Probes, next.Paused = l.unclaimedIDs(), l.paused
	for _, p := range picks {
		next.Probes = append(next.Probes, p.run.ID)
	}
	l.mu.Lock()
	next.NewCasesProbed, next.FewSince = l.newCasesProbed, time.Time{}
	if since := l.policy.fewSince; !since.IsZero() {
		next.FewSince = l.m.now().Add(-now.Sub(since))
	}
	l.mu.Unlock()
	led, err := l.m.cfg.Store.RecordProbes(ctx, next)
	if err != nil || !led {
		for _, p := range picks {
			l.m.inFlight.release(p.run.ID)
		}
		return !led && err == nil, err
	}
	l.breaker, l.renewedAt = next, now
	l.m.breakers.apply(next)
	for _, p := range picks {
		l.mu.Lock()
		t := l.policy.start(now, p.kind)
		l.unclaimed[p.run.ID] = struct{}{}
		l.mu.Unlock()
		l.probes.Go(func() { l.runProbe(ctx, p, t) })
	}
	return false, nil
}

// setState changes the breaker between open and half-open. This process keeps the lead.
func (l *breakerLeader) setState(to circuit.State, cause, why string) (done bool, err error) {
	version := l.breaker.Version
	now, changed, err := l.m.breakers.update(l.target, func(now circuit.Breaker) (circuit.Breaker, bool) {
		if now.Version != version || !now.Blocks() {
			return now, false
		}
		next := now.Next(to, l.m.breakers.actor(), cause, why, l.m.now())
		next.Probes, next.NewCasesProbed = now.Probes, now.NewCasesProbed
		return next, true
	})
	l.breaker = now
	return !changed, err
}

// close closes the breaker and notifies for the paused runs, oldest first.
func (l *breakerLeader) close(ctx context.Context) error {
	version := l.breaker.Version
	_, changed, err := l.m.breakers.update(l.target, func(now circuit.Breaker) (circuit.Breaker, bool) {
		if now.Version != version {
			return now, false
		}
		return now.Close(l.m.breakers.actor(), circuit.CauseRecovered, "probes were answered", l.m.now())
	})
	if err != nil || !changed {
		return err
	}
	for cursor := (Cursor{}); ; {
		rest, err := l.m.cfg.Store.DueRuns(ctx, cursor, l.m.now(), sweepPage)
		if err != nil || len(rest) == 0 {
			return err
		}
		last := rest[len(rest)-1]
		cursor = Cursor{DueAt: last.DueAt, ID: last.ID}
		own := slices.DeleteFunc(rest, func(r Run) bool {
			return l.m.targets.breakerScope(&r) != l.target || !r.State.Waiting() || l.m.inFlight.has(r.ID)
		})
		if err := l.m.sweeper.resend(ctx, own); err != nil {
			return err
		}
	}
}

// runProbe makes one attempt of a probe and applies the result to the policy.
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
			l.m.log.Warn("notification of a dead letter failed, it has no archived task", zap.Stringer("run", after.ID), zap.Error(err))
		}
	case after.State.Waiting() && !l.m.breakers.blocks(after):
		if err := l.m.sweeper.resend(ctx, []Run{after}); err != nil && ctx.Err() == nil {
			l.m.log.Warn("notification of a run failed, the sweeper resends it", zap.Stringer("run", after.ID), zap.Error(err))
		}
	}
}

// markClaimed removes a run from the probes that may still be claimed.
func (l *breakerLeader) markClaimed(id RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unclaimed, id)
}

// deferRun excludes a run that could not be claimed, such as one with too many outstanding
// calls, for a second, so that it does not displace others.
func (l *breakerLeader) deferRun(id RunID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deferredUntil[id] = time.Now().Add(time.Second)
}

// attemptProbe claims a paused run and makes one attempt.
func (l *breakerLeader) attemptProbe(p probeCandidate, t *probeCall) (result probeResult, after Run) {
	m := l.m
	if _, err := m.breakers.recordPaused(m.baseCtx, &p.run); err != nil {
		m.log.Warn("pause is not recorded in the tenant's trail yet", zap.String("tenant", p.run.Tenant), zap.Error(err))
	}
	d := &delivery{m: m, family: l.family, run: p.run, notificationNumber: p.run.NotificationNumber, inFlight: p.inFlight, claimTimeout: make(chan struct{}), probe: true}
	for {
		if m.claimGate.acquireSlot() != nil {
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
			_, deadLetterErr := d.deadLetterUnrecordable(err)
			m.log.Warn("probe run cannot be claimed", zap.Stringer("run", p.run.ID), zap.Error(deadLetterErr))
		case errors.Is(err, ErrRequestAltered):
			_, deadLetterErr := d.deadLetterAltered(err)
			m.log.Warn("probe run was altered", zap.Stringer("run", p.run.ID), zap.Error(deadLetterErr))
		}
		if !errors.Is(err, ErrKeyExpired) && !errors.Is(err, ErrReconcileFirst) {
			l.deferRun(p.run.ID)
			return probeInconclusive, d.run
		}
		claimAgain, result := l.lookupExpiredKey(d, t)
		if !claimAgain {
			l.deferRun(p.run.ID)
			return result, d.run
		}
	}
}

// lookupExpiredKey looks up a run that cannot be called again because its operation key may
// have expired. It returns true when the run may be claimed after that. The lookup of a fallback
// probe whose failures are not charged only tests the target: it is not recorded, unless it fails
// finally.
func (l *breakerLeader) lookupExpiredKey(d *delivery, t *probeCall) (claimAgain bool, result probeResult) {
	if t.kind == kindFallback && !t.alwaysCharges {
		switch lookup, wasInterrupted := l.m.caller.lookup(l.family, d.run); {
		case wasInterrupted:
			return false, probeInconclusive
		case lookup.Class != Unknown || lookup.Accepted:
			return false, probeAnswered
		case lookup.Retry:
			return false, probeFailed
		}
	}
	claimAgain, _ = d.lookupBeforeClaim()
	if !claimAgain && (d.run.Class == Executed || d.run.State.Waiting() && d.run.Class == NotExecuted) {
		return false, probeAnswered
	}
	return claimAgain, probeInconclusive
}

// runClaimed makes the claimed attempt and records its end.
func (l *breakerLeader) runClaimed(d *delivery, claim claimRecord, t *probeCall) (result probeResult, after Run) {
	if t.kind == kindNewCase {
		l.mu.Lock()
		l.newCasesProbed++
		l.mu.Unlock()
	}
	slow := time.AfterFunc(slowCall, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.policy.release(t)
	})
	done := l.m.caller.callHandler(d.callCtx, l.family, &d.run, claim)
	slow.Stop()
	if countsAsFailure(done.result) {
		l.mu.Lock()
		done.uncharged = !l.policy.chargesBudget(time.Now(), t, d.run.BudgetSpent+1 >= d.run.Policy.Normalize().MaxRetryAttempts)
		l.mu.Unlock()
	}
	after, err := l.m.recorder.finish(l.family, &d.run, &done)
	if done.lateAnswer != nil {
		l.m.recorder.awaitLateAnswer(l.family, d.run, done.lateAnswer, done.onAnswered)
	}
	switch {
	case err != nil || done.interrupted:
		return probeInconclusive, after
	case countsAsFailure(done.result):
		return probeFailed, after
	}
	return probeAnswered, after
}

// probeDelayMax bounds the delay between two probes of one run.
const probeDelayMax = 30 * time.Second

// probeEnding returns how the attempt of a probe ends: as any other, but a failure of the
// target does not charge the run's budget. The run waits as long as after an ordinary attempt
// of that number.
func probeEnding(run *Run, res *Result, lookup *Result, now time.Time) (end ending, needsLookup bool) {
	probed := *run
	probed.Policy = probed.Policy.Normalize()
	delay := min(probed.Policy.DelayForAttempt(probed.Attempt), probeDelayMax).Round(time.Microsecond) + time.Microsecond
	probed.Policy.MaxRetryAttempts++ // so that the budget does not end the run
	end, needsLookup = decide(&probed, res, lookup, now)
	if end.subtype == receipts.RetryScheduled && end.reason != receipts.ReasonAccepted {
		end.charge, end.reason = ChargeNothing, ReasonProbe
		if at := now.Add(delay); at.After(end.next) {
			end.next = at
		}
	}
	return end, needsLookup
}

package background

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// breakerLeader leads one opening of a breaker: it lets paused runs through as probing says, of those
// whose targets this process calls. While there are others that tell more of the service, it
// lets the time pass after which another process takes its place: that one may call them.
type breakerLeader struct {
	m      *Manager
	family Family
	target Target
	probes sync.WaitGroup

	mu            sync.Mutex
	policy        *probePolicy
	unclaimed     map[RunID]struct{}  // let through and not claimed or given up yet
	deferredUntil map[RunID]time.Time // could not be claimed: not to be let through before
	asked         int64               // new cases claimed since the breaker opened

	// Of the leading goroutine alone:
	breaker   Breaker
	cursor    Cursor // the last run that probed for want of a new case
	renewedAt time.Time
	countedAt time.Time
	paused    int
	called    int // of these: that name what this process calls
}

func newBreakerLeader(m *Manager, f Family, b Breaker) *breakerLeader {
	chance := rand.New(rand.NewPCG(rand.Uint64(), uint64(b.Version)))
	return &breakerLeader{m: m, family: f, target: b.Target, breaker: b, unclaimed: map[RunID]struct{}{}, deferredUntil: map[RunID]time.Time{}, asked: b.NewCasesProbed,
		policy: newProbePolicy(m.cfg.Breaker, m.cfg.Slots, chance, time.Now()), renewedAt: time.Now()}
}

// run leads until the breaker is closed, somebody else moves it, or ctx ends.
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

// step lets through what may be now. done reports that this process leads no more.
func (l *breakerLeader) step(ctx context.Context) (done bool, err error) {
	if l.m.mayNotLead() || l.replaced() {
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
		left = l.paused // others may find out what becomes of these
	}
	l.mu.Lock()
	recovered, works, relapsed := l.policy.recovered(now, len(newest) > 0, left), l.policy.targetWorks(now), l.policy.relapsed(now)
	l.mu.Unlock()
	switch {
	case recovered:
		return true, l.close(ctx)
	case works && l.breaker.State == BreakerOpen:
		return l.setState(BreakerHalfOpen, CauseAnswered, "a probe was answered")
	case relapsed && l.breaker.State == BreakerHalfOpen:
		return l.setState(BreakerOpen, CauseRelapsed, "probes fail again, and none is answered")
	}
	picks, err := l.chooseProbes(ctx, now, newest)
	if err != nil {
		return false, err
	}
	return l.startProbes(ctx, now, picks, silent)
}

// replaced reports whether somebody else has changed the breaker, as far as this process knows.
func (l *breakerLeader) replaced() bool {
	now, open := (*l.m.breakers.current.Load())[l.target]
	return open && now.Version > l.breaker.Version
}

// leaves reports whether the lead is to be left to another process, which calls what this one
// does not: new cases for it wait and none for this one, or nothing waits for this one. fresh
// says that a new case does.
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

// newCaseLimit is how many new cases may be let through, and at least one: so that it is
// known whether any waits.
func (l *breakerLeader) newCaseLimit(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.policy.newCasesAllowed(now))
}

// unclaimedIDs are the runs that were let through and that the journal may still list.
func (l *breakerLeader) unclaimedIDs() []RunID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]RunID, 0, len(l.unclaimed))
	for id := range l.unclaimed {
		ids = append(ids, id)
	}
	return ids
}

// pausedRuns lists paused runs of the target that name what this process calls, or others than that,
// and that are not at hand in this process, nor could not be claimed a moment ago.
func (l *breakerLeader) pausedRuns(ctx context.Context, q PausedQuery, limit int) ([]Run, error) {
	l.mu.Lock()
	now := time.Now()
	maps.DeleteFunc(l.deferredUntil, func(_ RunID, at time.Time) bool { return !now.Before(at) })
	deferred := maps.Clone(l.deferredUntil)
	l.mu.Unlock()
	q.Target, q.Called, q.Due, q.Limit = l.target, l.m.cfg.Targets[l.target.Family], l.m.now(), limit+len(deferred)
	found, err := l.m.cfg.Store.PausedRuns(ctx, q)
	return slices.DeleteFunc(found, func(r Run) bool {
		_, waits := deferred[r.ID]
		return waits || l.m.inFlight.has(r.ID)
	}), err
}

// probeCandidate is a run that is to be let through.
type probeCandidate struct {
	run      Run
	kind     probeKind
	inFlight *inFlightRun
}

// chooseProbes engages the runs that are to be let through now.
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

// startProbes writes down which runs are let through, and lets them. Nothing is claimed when
// somebody else has moved the breaker: then somebody else leads. When silent, it shows nothing
// unless something is let through.
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
	next.NewCasesProbed = l.asked
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

// setState moves the breaker between open and half-open. It stays led.
func (l *breakerLeader) setState(to BreakerState, cause, why string) (done bool, err error) {
	version := l.breaker.Version
	now, changed, err := l.m.breakers.update(l.target, func(now Breaker) (Breaker, bool) {
		if now.Version != version || !now.Blocks() {
			return now, false
		}
		next := now.next(to, l.m.breakers.actor(), cause, why, l.m.now())
		next.Probes, next.NewCasesProbed = now.Probes, now.NewCasesProbed
		return next, true
	})
	l.breaker = now
	return !changed, err
}

// close closes the breaker and notifies what was paused, oldest first.
func (l *breakerLeader) close(ctx context.Context) error {
	version := l.breaker.Version
	_, changed, err := l.m.breakers.update(l.target, func(now Breaker) (Breaker, bool) {
		if now.Version != version {
			return now, false
		}
		return now.Close(l.m.breakers.actor(), CauseRecovered, "probes were answered", l.m.now())
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
			return l.m.breakerTarget(r) != l.target || !r.State.Waiting() || l.m.inFlight.has(r.ID)
		})
		if err := l.m.sweeper.resend(ctx, own); err != nil {
			return err
		}
	}
}

package background

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// breakerReadMaxAge is for how long what was read of the breakers is enough to pause a run on.
const breakerReadMaxAge = 100 * time.Millisecond

// breakerRegistry is what this process knows of all circuit breakers, and what its own attempts
// tell of their targets. The journal's claim is guarded by the breakers themselves; what
// is known here spares it the question, wakes who waits, and opens.
type breakerRegistry struct {
	m                *Manager
	current          atomic.Pointer[map[Target]Breaker] // those not closed; never changed, only replaced
	pausedDeliveries atomic.Uint64                      // deliveries that were let go of

	mu            sync.Mutex
	windows       map[Target]*failureWindow
	hanging       map[Target]hangingCalls
	pendingOpens  map[Target]struct{}     // opened here, and not written yet
	pausedRecords map[Target]pausedRecord // tenants whose trails have the receipt of an opening
	changedAt     map[Target]time.Time    // when a breaker was last seen to open, close or be open
	readAt        time.Time               // when what is known began to be read
	changes       int                     // of this process; what was read before one is stale
	opened        chan struct{}           // closed when more is barred than before

	readMu   sync.Mutex // held by who reads
	recordMu sync.Mutex // held by who tells a tenant
}

// pausedRecord is what one opening's tenants were told.
type pausedRecord struct {
	openings int64
	tenants  map[string]struct{}
}

func newBreakerRegistry(m *Manager) *breakerRegistry {
	b := &breakerRegistry{
		m: m, windows: map[Target]*failureWindow{}, hanging: map[Target]hangingCalls{}, pendingOpens: map[Target]struct{}{},
		pausedRecords: map[Target]pausedRecord{}, changedAt: map[Target]time.Time{}, opened: make(chan struct{}),
	}
	b.current.Store(&map[Target]Breaker{})
	return b
}

// blocks reports whether a run may not be claimed, as far as this process knows.
func (b *breakerRegistry) blocks(r Run) bool {
	known := *b.current.Load()
	if len(known) == 0 {
		return false
	}
	own, all := b.m.breakerTargets(r)
	return known[own].Blocks() || known[all].Blocks()
}

// confirmBlocked reports whether a run that was refused for its breaker is to be paused. What
// this process knows may be old: another may have closed it, or have opened it.
func (b *breakerRegistry) confirmBlocked(r Run) bool {
	maxAge := breakerReadMaxAge
	if !b.blocks(r) {
		maxAge = 0 // the journal refused, and knows better
	}
	if err := b.refresh(b.m.baseCtx, maxAge); err != nil {
		b.m.log.Warn("the circuit breakers can't be read", zap.Error(err))
		return true // the sweeper finds the run
	}
	return b.blocks(r)
}

// blocksFresh reports whether a run is to be paused, though it was not its breaker that it was
// refused for.
func (b *breakerRegistry) blocksFresh(r Run) bool {
	if err := b.refresh(b.m.baseCtx, breakerReadMaxAge); err != nil {
		b.m.log.Warn("the circuit breakers can't be read", zap.Error(err))
	}
	return b.blocks(r)
}

// pausedRecently reports whether a run may have been without a notification for its
// breaker's sake in the last sweeps: also where another process opened and closed the
// breaker between two looks of this one, and where that can't be read.
func (b *breakerRegistry) pausedRecently(r Run) bool {
	if b.confirmBlocked(r) {
		return true
	}
	own, all := b.m.breakerTargets(r)
	within := 10 * max(b.m.cfg.SweepEvery, b.m.cfg.Breaker.LeaderTimeout)
	b.mu.Lock()
	recent := time.Now().Add(-within)
	recently := b.changedAt[own].After(recent) || b.changedAt[all].After(recent)
	b.mu.Unlock()
	if recently {
		return true
	}
	last, err := b.m.cfg.Store.BreakerChangedAt(b.m.baseCtx, own)
	if err != nil {
		b.m.log.Warn("the circuit breakers can't be read", zap.Error(err))
		return true
	}
	return last.After(b.m.now().Add(-within))
}

// refresh reads the breakers unless that was done within the time given.
func (b *breakerRegistry) refresh(ctx context.Context, maxAge time.Duration) error {
	b.readMu.Lock()
	defer b.readMu.Unlock()
	for {
		b.mu.Lock()
		began, changes := time.Now(), b.changes
		fresh := began.Sub(b.readAt) < maxAge
		b.mu.Unlock()
		if fresh {
			return nil
		}
		found, err := b.m.cfg.Store.Breakers(ctx)
		if err != nil {
			return fmt.Errorf("background: read the circuit breakers: %w", err)
		}
		if b.applyRead(found, began, changes) {
			return nil
		}
	}
}

// applyRead takes in what was read, unless this process has moved a breaker since.
func (b *breakerRegistry) applyRead(found []Breaker, began time.Time, changes int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if changes != b.changes {
		return false
	}
	next := make(map[Target]Breaker, len(found))
	for _, f := range found {
		next[f.Target] = f
	}
	for t := range b.pendingOpens { // not written yet, unless another process was first
		if now := next[t]; !now.Blocks() {
			next[t] = Breaker{Target: t, State: BreakerOpen, Version: now.Version}
		}
	}
	b.readAt = began
	b.publish(next)
	return true
}

// apply notes a breaker that this process has moved, or found moved.
func (b *breakerRegistry) apply(now Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes++
	delete(b.pendingOpens, now.Target)
	next := maps.Clone(*b.current.Load())
	if next[now.Target] = now; !now.Blocks() {
		delete(next, now.Target)
	}
	b.publish(next)
}

// publish makes known what is next. Attempts from before a breaker moved say nothing of
// the target any more, and what a closing one paused is looked for at once. The caller
// holds the lock.
func (b *breakerRegistry) publish(next map[Target]Breaker) {
	was, opens, closes := *b.current.Load(), false, false
	at := time.Now()
	for t, n := range next {
		b.changedAt[t] = at
		if !was[t].Blocks() {
			b.resetStatistics(t)
			opens = opens || n.Blocks()
		}
	}
	for t := range was {
		if _, still := next[t]; !still {
			b.resetStatistics(t)
			b.changedAt[t], closes = at, true
		}
	}
	b.current.Store(&next)
	if opens {
		close(b.opened)
		b.opened = make(chan struct{})
	}
	if closes {
		b.m.sweeper.requestFullScan()
	}
}

// resetStatistics forgets what attempts from before a breaker moved say of its target. The caller
// holds the lock.
func (b *breakerRegistry) resetStatistics(t Target) {
	delete(b.windows, t)
	if calls, known := b.hanging[t]; known {
		b.hanging[t] = calls.breakerChanged()
	}
}

// nextOpening is closed when the next breaker opens.
func (b *breakerRegistry) nextOpening() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// recordAttempt takes in how an attempt of a run ended, after it, and opens the breaker if that
// calls for it. Attempts that were cut short tell nothing, nor do those that an open
// breaker let through: they are their leader's.
func (b *breakerRegistry) recordAttempt(r Run, done callOutcome) {
	if b.m.cfg.Breaker.Disabled || done.interrupted {
		return
	}
	t, now := b.m.breakerTarget(r), time.Now()
	b.mu.Lock()
	calls := b.hanging[t]
	if !countsAsFailure(done.result) {
		calls.lastAnswer = now
		b.hanging[t] = calls
	}
	if (*b.current.Load())[t].Blocks() {
		b.mu.Unlock()
		return
	}
	w := b.windows[t]
	if w == nil {
		w = &failureWindow{rule: b.m.cfg.Breaker}
		b.windows[t] = w
	}
	why := w.note(now, outcomeOf(r, done.result))
	b.mu.Unlock()
	switch {
	case done.lateAnswer != nil && calls.shouldOpen(b.m.cfg.Breaker.MaxAbandoned, now.Add(-done.took)):
		b.open(t, CauseHanging, fmt.Sprintf("%d calls have outlived their time limit and not answered", calls.sinceChange))
	case why != "":
		b.open(t, CauseFailing, why)
	}
}

// outcomeOf is what the end of an attempt says of the target; the run is as it was
// claimed.
func outcomeOf(r Run, res Result) outcome {
	return outcome{caseID: r.Case, first: r.Attempt == 1, failed: countsAsFailure(res), last: lastAttempt(r)}
}

// lastAttempt reports whether no more than one attempt of a run is left once the one
// that it was claimed for has failed.
func lastAttempt(r Run) bool { return r.BudgetSpent+2 >= r.Policy.Normalize().MaxRetryAttempts }

// trackHanging counts a call of a target that has outlived its attempt. Call answered once it has.
func (b *breakerRegistry) trackHanging(t Target) (answered func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls, changes := b.hanging[t].add()
	b.hanging[t] = calls
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hanging[t] = b.hanging[t].remove(changes)
	}
}

// expire forgets what says nothing any more.
func (b *breakerRegistry) expire(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t, w := range b.windows {
		if w.idle(now) {
			delete(b.windows, t)
		}
	}
	for t, calls := range b.hanging {
		if calls.empty() && now.Sub(calls.lastAnswer) > time.Hour {
			delete(b.hanging, t)
		}
	}
	for t, at := range b.changedAt {
		if now.Sub(at) > time.Hour {
			delete(b.changedAt, t)
		}
	}
}

// open opens a breaker in this process at once, and writes it until it is written. Who
// writes it leads it.
func (b *breakerRegistry) open(t Target, cause, reason string) {
	b.mu.Lock()
	was := (*b.current.Load())[t]
	if was.Blocks() {
		b.mu.Unlock()
		return
	}
	b.pendingOpens[t] = struct{}{}
	next := maps.Clone(*b.current.Load())
	next[t] = Breaker{Target: t, State: BreakerOpen, Version: was.Version}
	b.publish(next)
	b.mu.Unlock()
	b.m.log.Warn("a circuit breaker opens", zap.String("target", t.Name), zap.String("family", t.Family), zap.String("cause", cause), zap.String("why", reason))
	b.m.work.Go(func() {
		now, changed, err := b.update(t, func(now Breaker) (Breaker, bool) {
			if now.Blocks() {
				return now, false // somebody else was first
			}
			return now.Open(false, b.actor(), cause, reason, b.m.now())
		})
		if err != nil {
			b.m.log.Error("that a circuit breaker opened was not recorded", zap.String("target", t.Name), zap.Error(err))
			return
		}
		if changed {
			b.m.breakerLoop.requestLead(now)
		}
	})
}

func (b *breakerRegistry) actor() string { return "breaker:" + b.m.cfg.Worker }

// update moves a breaker, again and again until the journal answers. Only Close ends
// it sooner, with errClosed.
func (b *breakerRegistry) update(t Target, decide func(Breaker) (Breaker, bool)) (now Breaker, changed bool, err error) {
	for pause := writePauseMin; ; pause = min(2*pause, writePauseMax) {
		now, changed, err := b.m.UpdateBreaker(b.m.baseCtx, t, decide)
		if err == nil {
			return now, changed, nil
		}
		if !sleep(b.m.baseCtx, pause) {
			return now, false, errors.Join(errClosed, err)
		}
	}
}

// recordPaused leaves the receipt that a breaker over all tenants pauses runs of a tenant, once
// an opening. Of the many that are paused at one time, one tells and the others wait. It
// reports false while the opening is not written, so that there is nothing to tell yet.
func (b *breakerRegistry) recordPaused(ctx context.Context, r Run) (recorded bool, err error) {
	_, all := b.m.breakerTargets(r)
	now, ok := (*b.current.Load())[all]
	switch {
	case !ok: // it is the tenant's own
		return true, nil
	case now.Openings == 0:
		return false, nil
	case b.isPausedRecorded(all, now.Openings, r.Tenant):
		return true, nil
	}
	b.recordMu.Lock()
	defer b.recordMu.Unlock()
	if b.isPausedRecorded(all, now.Openings, r.Tenant) {
		return true, nil
	}
	if err := b.m.cfg.Store.RecordPaused(ctx, r.Tenant, all, b.m.now()); err != nil {
		return false, fmt.Errorf("background: tell tenant %q of a circuit breaker: %w", r.Tenant, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pausedRecords[all].openings != now.Openings {
		b.pausedRecords[all] = pausedRecord{now.Openings, map[string]struct{}{}}
	}
	b.pausedRecords[all].tenants[r.Tenant] = struct{}{}
	return true, nil
}

func (b *breakerRegistry) isPausedRecorded(all Target, openings int64, tenant string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	record := b.pausedRecords[all]
	_, done := record.tenants[tenant]
	return done && record.openings == openings
}

// UpdateBreaker moves the circuit breaker of a target for a person, and makes it known in
// this process at once. It returns the breaker as it is now; decide is the store's.
func (m *Manager) UpdateBreaker(ctx context.Context, t Target, decide func(Breaker) (Breaker, bool)) (now Breaker, changed bool, err error) {
	if now, changed, err = m.cfg.Store.UpdateBreaker(ctx, t, decide); err != nil {
		return now, changed, err
	}
	m.breakers.apply(now)
	if changed && m.cfg.OnBreakerChange != nil {
		m.cfg.OnBreakerChange(now)
	}
	return now, changed, nil
}

// StalledBreaker is an open circuit breaker behind which runs wait, and no new case has
// come for so long that could show whether the target works.
type StalledBreaker struct {
	Breaker
	StalledFor time.Duration // as long as this process has seen it, at least
}

// Breakers are the circuit breakers that are not closed, and those of them that are
// stalled, as this process knows.
func (m *Manager) Breakers() (open []Breaker, stalled []StalledBreaker) {
	for _, b := range *m.breakers.current.Load() {
		open = append(open, b)
	}
	return open, m.breakerLoop.stalledBreakers()
}

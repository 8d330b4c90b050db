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

	"github.com/recourse-dev/recourse/background/circuit"
)

// breakerReadMaxAge is the maximum age of the breakers as read, to pause a run because of them.
const breakerReadMaxAge = 100 * time.Millisecond

// breakerRegistry holds the circuit breakers as last read, and the statistics of this process's
// attempts by target. The journal guards each claim by the breakers itself; the copy here saves
// claims that would be refused, wakes waiting deliveries, and opens breakers.
type breakerRegistry struct {
	m                *Manager
	current          atomic.Pointer[map[circuit.Scope]circuit.Breaker] // those not closed; replaced, never changed
	pausedDeliveries atomic.Uint64                                     // deliveries acknowledged because of a breaker

	mu            sync.Mutex
	windows       map[circuit.Scope]*failureWindow
	hanging       map[circuit.Scope]hangingCalls
	pendingOpens  map[circuit.Scope]struct{}     // opened in this process and not written yet
	pausedRecords map[circuit.Scope]pausedRecord // tenants whose trails record the pause
	changedAt     map[circuit.Scope]time.Time    // when a breaker was last seen to open, to close or open
	readAt        time.Time                      // when the last read began
	changes       int                            // changes by this process; an older read is stale
	opened        chan struct{}                  // closed when a breaker opens

	readMu   sync.Mutex // serialises reads
	recordMu sync.Mutex // serialises RecordPaused
}

// pausedRecord is the tenants whose trails record the pause of one opening.
type pausedRecord struct {
	openings int64
	tenants  map[string]struct{}
}

func newBreakerRegistry(m *Manager) *breakerRegistry {
	b := &breakerRegistry{
		m: m, windows: map[circuit.Scope]*failureWindow{}, hanging: map[circuit.Scope]hangingCalls{}, pendingOpens: map[circuit.Scope]struct{}{},
		pausedRecords: map[circuit.Scope]pausedRecord{}, changedAt: map[circuit.Scope]time.Time{}, opened: make(chan struct{}),
	}
	b.current.Store(&map[circuit.Scope]circuit.Breaker{})
	return b
}

// blocks reports whether a breaker blocks a run, as last read.
func (b *breakerRegistry) blocks(r Run) bool {
	known := *b.current.Load()
	if len(known) == 0 {
		return false
	}
	own, all := b.m.targets.breakerScopes(&r)
	return known[own].Blocks() || known[all].Blocks()
}

// confirmBlocked reports whether a run whose claim was refused because of a breaker is to be
// paused. It reads the breakers again, because another process may have opened or closed one.
func (b *breakerRegistry) confirmBlocked(r *Run) bool {
	maxAge := breakerReadMaxAge
	if !b.blocks(*r) {
		maxAge = 0 // the journal refused the claim, so the copy here is stale
	}
	if err := b.refresh(b.m.baseCtx, maxAge); err != nil {
		b.m.log.Warn("circuit breakers cannot be read", zap.Error(err))
		return true // the sweeper notifies for the run
	}
	return b.blocks(*r)
}

// blocksFresh reports whether a run is to be paused whose claim was refused for another reason.
func (b *breakerRegistry) blocksFresh(r *Run) bool {
	if err := b.refresh(b.m.baseCtx, breakerReadMaxAge); err != nil {
		b.m.log.Warn("circuit breakers cannot be read", zap.Error(err))
	}
	return b.blocks(*r)
}

// pausedRecently reports whether a run may have been without notification during the last
// sweeps because it was paused. It covers breakers that another process opened and closed
// between two reads of this one. If the journal cannot be read it returns true.
func (b *breakerRegistry) pausedRecently(r *Run) bool {
	if b.confirmBlocked(r) {
		return true
	}
	own, all := b.m.targets.breakerScopes(r)
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
		b.m.log.Warn("circuit breakers cannot be read", zap.Error(err))
		return true
	}
	return last.After(b.m.now().Add(-within))
}

// refresh reads the breakers unless the last read is younger than maxAge, or began after the call.
func (b *breakerRegistry) refresh(ctx context.Context, maxAge time.Duration) error {
	asked := time.Now()
	b.readMu.Lock()
	defer b.readMu.Unlock()
	for {
		b.mu.Lock()
		began, changes := time.Now(), b.changes
		fresh := began.Sub(b.readAt) < maxAge || b.readAt.After(asked) // another caller read meanwhile
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

// applyRead applies breakers as read, and returns false if this process has changed one since
// the read began.
func (b *breakerRegistry) applyRead(found []circuit.Breaker, began time.Time, changes int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if changes != b.changes {
		return false
	}
	next := make(map[circuit.Scope]circuit.Breaker, len(found))
	for _, f := range found {
		next[f.Scope] = f
	}
	for t := range b.pendingOpens { // not written yet, unless another process opened it first
		if now := next[t]; !now.Blocks() {
			next[t] = circuit.Breaker{Scope: t, State: circuit.Open, Version: now.Version}
		}
	}
	b.readAt = began
	b.publish(next)
	return true
}

// apply applies a breaker that this process changed or read again.
func (b *breakerRegistry) apply(now circuit.Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes++
	delete(b.pendingOpens, now.Scope)
	next := maps.Clone(*b.current.Load())
	if next[now.Scope] = now; !now.Blocks() {
		delete(next, now.Scope)
	}
	b.publish(next)
}

// publish replaces the current breakers. It drops the statistics of targets whose breaker
// changed: older attempts no longer apply. When a breaker closes it requests a full scan for
// the runs that it paused. The caller holds the lock.
func (b *breakerRegistry) publish(next map[circuit.Scope]circuit.Breaker) {
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
			b.windows[t] = &failureWindow{rule: b.m.cfg.Breaker, closedAt: at}
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

// resetStatistics drops what attempts before the breaker's change say of its target. The caller
// holds the lock.
func (b *breakerRegistry) resetStatistics(t circuit.Scope) {
	delete(b.windows, t)
	if calls, known := b.hanging[t]; known {
		b.hanging[t] = calls.breakerChanged()
	}
}

// nextOpening returns a channel that is closed when the next breaker opens.
func (b *breakerRegistry) nextOpening() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// recordAttempt adds the end of an attempt to the statistics, and opens the breaker if the rule
// says so. Interrupted attempts do not count. Nor do attempts while the breaker is open: its
// leader counts them.
func (b *breakerRegistry) recordAttempt(r *Run, done *callOutcome) {
	if b.m.cfg.Breaker.Disabled || done.interrupted {
		return
	}
	t, now := b.m.targets.breakerScope(r), time.Now()
	b.mu.Lock()
	calls := b.hanging[t]
	if !countsAsFailure(done.result) {
		calls.lastAnswer = now
		b.hanging[t] = calls
	}
	if (*b.current.Load())[t].Blocks() || done.result.Accepted { // accepted: neither success nor failure
		b.mu.Unlock()
		return
	}
	w := b.windows[t]
	if w == nil {
		w = &failureWindow{rule: b.m.cfg.Breaker}
		b.windows[t] = w
	}
	why := w.note(now, outcomeOf(r, now.Add(-done.took), &done.result))
	b.mu.Unlock()
	switch {
	case done.lateAnswer != nil && calls.shouldOpen(b.m.cfg.Breaker.MaxAbandoned, now.Add(-done.took)):
		b.open(t, circuit.CauseHanging, fmt.Sprintf("%d calls outlived their time limit and are not answered", calls.sinceChange))
	case why != "":
		b.open(t, circuit.CauseFailing, why)
	}
}

// outcomeOf returns what the end of an attempt says of the target. The run is as it was
// claimed.
func outcomeOf(r *Run, began time.Time, res *Result) outcome {
	return outcome{caseID: r.Case, began: began, first: r.Attempt == 1, failed: countsAsFailure(*res), last: lastAttempt(r)}
}

// lastAttempt reports whether a run has at most one attempt left after the claimed one fails.
func lastAttempt(r *Run) bool { return r.BudgetSpent+2 >= r.Policy.Normalize().MaxRetryAttempts }

// trackOutstanding counts an outstanding call of a target, until answered is called.
func (b *breakerRegistry) trackOutstanding(t circuit.Scope) (answered func()) {
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

// expire drops statistics that no longer matter.
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

// open opens a breaker in this process at once, and writes it, retrying until the journal
// answers. The process that writes it leads it.
func (b *breakerRegistry) open(t circuit.Scope, cause, reason string) {
	b.mu.Lock()
	was := (*b.current.Load())[t]
	if was.Blocks() {
		b.mu.Unlock()
		return
	}
	b.pendingOpens[t] = struct{}{}
	next := maps.Clone(*b.current.Load())
	next[t] = circuit.Breaker{Scope: t, State: circuit.Open, Version: was.Version}
	b.publish(next)
	b.mu.Unlock()
	b.m.log.Warn("circuit breaker opens", zap.String("target", t.Name), zap.String("family", t.Family), zap.String("cause", cause), zap.String("why", reason))
	b.m.work.Go(func() {
		now, changed, err := b.update(t, func(now circuit.Breaker) (circuit.Breaker, bool) {
			if now.Blocks() {
				return now, false // another process was first
			}
			return now.Open(false, b.actor(), cause, reason, b.m.now())
		})
		if err != nil {
			b.m.log.Error("opening of a circuit breaker was not recorded", zap.String("target", t.Name), zap.Error(err))
			return
		}
		if changed {
			b.m.breakerLoop.requestLead(now)
		}
	})
}

func (b *breakerRegistry) actor() string { return "breaker:" + b.m.cfg.Worker }

// update changes a breaker and retries until the journal answers. Only Close ends it sooner,
// with errClosed.
func (b *breakerRegistry) update(t circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (now circuit.Breaker, changed bool, err error) {
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

// recordPaused writes the receipt that a breaker over all tenants pauses a tenant's runs, once
// per opening. Concurrent callers wait for the one that writes it. It returns false while the
// opening itself is not written.
func (b *breakerRegistry) recordPaused(ctx context.Context, r *Run) (recorded bool, err error) {
	_, all := b.m.targets.breakerScopes(r)
	now, ok := (*b.current.Load())[all]
	switch {
	case !ok: // the tenant's own breaker
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
		return false, fmt.Errorf("background: record the pause in the trail of tenant %q: %w", r.Tenant, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pausedRecords[all].openings != now.Openings {
		b.pausedRecords[all] = pausedRecord{now.Openings, map[string]struct{}{}}
	}
	b.pausedRecords[all].tenants[r.Tenant] = struct{}{}
	return true, nil
}

func (b *breakerRegistry) isPausedRecorded(all circuit.Scope, openings int64, tenant string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	record := b.pausedRecords[all]
	_, done := record.tenants[tenant]
	return done && record.openings == openings
}

// UpdateBreaker changes the circuit breaker of a target for a person, and applies it to this
// process at once. It returns the breaker as it is now. decide is passed to
// BreakerStore.UpdateBreaker.
func (m *Manager) UpdateBreaker(ctx context.Context, t circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (now circuit.Breaker, changed bool, err error) {
	if now, changed, err = m.cfg.Store.UpdateBreaker(ctx, t, decide); err != nil {
		return now, changed, err
	}
	m.breakers.apply(now)
	if changed && m.cfg.OnBreakerChange != nil {
		m.cfg.OnBreakerChange(now)
	}
	return now, changed, nil
}

// StalledBreaker is an open circuit breaker that pauses runs and had no new case to probe for
// circuit.Rule.StalledAfter.
type StalledBreaker struct {
	circuit.Breaker
	StalledFor time.Duration // lower bound: as long as this process has observed it
}

// Breakers returns the circuit breakers that are not closed, and the stalled ones among them,
// as last read by this process.
func (m *Manager) Breakers() (open []circuit.Breaker, stalled []StalledBreaker) {
	for _, b := range *m.breakers.current.Load() {
		open = append(open, b)
	}
	return open, m.breakerLoop.stalledBreakers()
}

// BreakerOpen reports whether an open or half-open breaker applies to a run, as last read by
// this process.
func (m *Manager) BreakerOpen(r Run) bool {
	known := *m.breakers.current.Load()
	own, all := m.targets.breakerScopes(&r)
	_, ownBlocks := known[own]
	_, allBlocks := known[all]
	return ownBlocks || allBlocks
}

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

// freshFor is for how long what was read of the breakers is enough to pause a run on.
const freshFor = 100 * time.Millisecond

// breakers is what this process knows of all circuit breakers, and what its own attempts
// tell of their targets. The journal's claim is guarded by the breakers themselves; what
// is known here spares it the question, wakes who waits, and opens.
type breakers struct {
	m      *Manager
	known  atomic.Pointer[map[Target]Breaker] // those not closed; never changed, only replaced
	paused atomic.Uint64                      // deliveries that were let go of

	mu      sync.Mutex
	windows map[Target]*failureWindow
	hanging map[Target]hanging
	opening map[Target]struct{}  // opened here, and not written yet
	told    map[Target]toldOf    // tenants whose trails have the receipt of an opening
	moved   map[Target]time.Time // when a breaker was last seen to open, close or be open
	learned time.Time            // when what is known began to be read
	moves   int                  // of this process; what was read before one is stale
	changed chan struct{}        // closed when more is barred than before

	reading sync.Mutex // held by who reads
	telling sync.Mutex // held by who tells a tenant
}

// toldOf is what one opening's tenants were told.
type toldOf struct {
	opening int64
	tenants map[string]struct{}
}

func newBreakers(m *Manager) *breakers {
	b := &breakers{
		m: m, windows: map[Target]*failureWindow{}, hanging: map[Target]hanging{}, opening: map[Target]struct{}{},
		told: map[Target]toldOf{}, moved: map[Target]time.Time{}, changed: make(chan struct{}),
	}
	b.known.Store(&map[Target]Breaker{})
	return b
}

// bars reports whether a run may not be claimed, as far as this process knows.
func (b *breakers) bars(r Run) bool {
	known := *b.known.Load()
	if len(known) == 0 {
		return false
	}
	own, all := b.m.targets(r)
	return known[own].Bars() || known[all].Bars()
}

// confirm reports whether a run that was refused for its breaker is to be paused. What
// this process knows may be old: another may have closed it, or have opened it.
func (b *breakers) confirm(r Run) bool {
	within := freshFor
	if !b.bars(r) {
		within = 0 // the journal refused, and knows better
	}
	if err := b.refresh(b.m.life, within); err != nil {
		b.m.log.Warn("the circuit breakers can't be read", zap.Error(err))
		return true // the sweeper finds the run
	}
	return b.bars(r)
}

// pauses reports whether a run is to be paused, though it was not its breaker that it was
// refused for.
func (b *breakers) pauses(r Run) bool {
	if err := b.refresh(b.m.life, freshFor); err != nil {
		b.m.log.Warn("the circuit breakers can't be read", zap.Error(err))
	}
	return b.bars(r)
}

// pausedLately reports whether a run may have been without a notification for its
// breaker's sake in the last sweeps: also where another process opened and closed the
// breaker between two looks of this one, and where that can't be read.
func (b *breakers) pausedLately(r Run) bool {
	if b.confirm(r) {
		return true
	}
	own, all := b.m.targets(r)
	within := 10 * max(b.m.cfg.SweepEvery, b.m.cfg.Breaker.Lead)
	b.mu.Lock()
	recent := time.Now().Add(-within)
	moved := b.moved[own].After(recent) || b.moved[all].After(recent)
	b.mu.Unlock()
	if moved {
		return true
	}
	last, err := b.m.cfg.Ledger.BreakerMovedAt(b.m.life, own)
	if err != nil {
		b.m.log.Warn("the circuit breakers can't be read", zap.Error(err))
		return true
	}
	return last.After(b.m.now().Add(-within))
}

// refresh reads the breakers unless that was done within the time given.
func (b *breakers) refresh(ctx context.Context, within time.Duration) error {
	b.reading.Lock()
	defer b.reading.Unlock()
	for {
		b.mu.Lock()
		began, moves := time.Now(), b.moves
		fresh := began.Sub(b.learned) < within
		b.mu.Unlock()
		if fresh {
			return nil
		}
		found, err := b.m.cfg.Ledger.Breakers(ctx)
		if err != nil {
			return fmt.Errorf("background: read the circuit breakers: %w", err)
		}
		if b.learn(found, began, moves) {
			return nil
		}
	}
}

// learn takes in what was read, unless this process has moved a breaker since.
func (b *breakers) learn(found []Breaker, began time.Time, moves int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if moves != b.moves {
		return false
	}
	next := make(map[Target]Breaker, len(found))
	for _, f := range found {
		next[f.Target] = f
	}
	for t := range b.opening { // not written yet, unless another process was first
		if now := next[t]; !now.Bars() {
			next[t] = Breaker{Target: t, State: BreakerOpen, Version: now.Version}
		}
	}
	b.learned = began
	b.publish(next)
	return true
}

// took notes a breaker that this process has moved, or found moved.
func (b *breakers) took(now Breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moves++
	delete(b.opening, now.Target)
	next := maps.Clone(*b.known.Load())
	if next[now.Target] = now; !now.Bars() {
		delete(next, now.Target)
	}
	b.publish(next)
}

// publish makes known what is next. Attempts from before a breaker moved say nothing of
// the target any more, and what a closing one paused is looked for at once. The caller
// holds the lock.
func (b *breakers) publish(next map[Target]Breaker) {
	was, bars, frees := *b.known.Load(), false, false
	at := time.Now()
	for t, n := range next {
		b.moved[t] = at
		if !was[t].Bars() {
			b.startOver(t)
			bars = bars || n.Bars()
		}
	}
	for t := range was {
		if _, still := next[t]; !still {
			b.startOver(t)
			b.moved[t], frees = at, true
		}
	}
	b.known.Store(&next)
	if bars {
		close(b.changed)
		b.changed = make(chan struct{})
	}
	if frees {
		b.m.sweep.hurry()
	}
}

// startOver forgets what attempts from before a breaker moved say of its target. The caller
// holds the lock.
func (b *breakers) startOver(t Target) {
	delete(b.windows, t)
	if hangs, known := b.hanging[t]; known {
		b.hanging[t] = hangs.moved()
	}
}

// closing is closed when the next breaker opens.
func (b *breakers) closing() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// note takes in how an attempt of a run ended, after it, and opens the breaker if that
// calls for it. Attempts that were cut short tell nothing, nor do those that an open
// breaker let through: they are their leader's.
func (b *breakers) note(r Run, done call) {
	if b.m.cfg.Breaker.Off || done.interrupted {
		return
	}
	t, now := b.m.endpoint(r), time.Now()
	b.mu.Lock()
	hangs := b.hanging[t]
	if !failing(done.result) {
		hangs.answered = now
		b.hanging[t] = hangs
	}
	if (*b.known.Load())[t].Bars() {
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
	case done.late != nil && hangs.opens(b.m.cfg.Breaker.Abandoned, now.Add(-done.took)):
		b.open(t, CauseHanging, fmt.Sprintf("%d calls have outlived their time limit and not answered", hangs.since))
	case why != "":
		b.open(t, CauseFailing, why)
	}
}

// outcomeOf is what the end of an attempt says of the target; the run is as it was
// claimed.
func outcomeOf(r Run, res Result) outcome {
	return outcome{kase: r.Case, first: r.Attempt == 1, failed: failing(res), last: lastAttempt(r)}
}

// lastAttempt reports whether no more than one attempt of a run is left once the one
// that it was claimed for has failed.
func lastAttempt(r Run) bool { return r.BudgetSpent+2 >= r.Policy.Normalize().MaxRetryAttempts }

// hang counts a call of a target that has outlived its attempt. Call answered once it has.
func (b *breakers) hang(t Target) (answered func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hangs, moves := b.hanging[t].hang()
	b.hanging[t] = hangs
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hanging[t] = b.hanging[t].answer(moves)
	}
}

// tidy forgets what says nothing any more.
func (b *breakers) tidy(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t, w := range b.windows {
		if w.idle(now) {
			delete(b.windows, t)
		}
	}
	for t, hangs := range b.hanging {
		if hangs.none() && now.Sub(hangs.answered) > time.Hour {
			delete(b.hanging, t)
		}
	}
	for t, at := range b.moved {
		if now.Sub(at) > time.Hour {
			delete(b.moved, t)
		}
	}
}

// open opens a breaker in this process at once, and writes it until it is written. Who
// writes it leads it.
func (b *breakers) open(t Target, cause, reason string) {
	b.mu.Lock()
	was := (*b.known.Load())[t]
	if was.Bars() {
		b.mu.Unlock()
		return
	}
	b.opening[t] = struct{}{}
	next := maps.Clone(*b.known.Load())
	next[t] = Breaker{Target: t, State: BreakerOpen, Version: was.Version}
	b.publish(next)
	b.mu.Unlock()
	b.m.log.Warn("a circuit breaker opens", zap.String("target", t.Name), zap.String("family", t.Family), zap.String("cause", cause), zap.String("why", reason))
	b.m.work.Go(func() {
		now, moved, err := b.insist(t, func(now Breaker) (Breaker, bool) {
			if now.Bars() {
				return now, false // somebody else was first
			}
			return now.Open(false, b.actor(), cause, reason, b.m.now())
		})
		if err != nil {
			b.m.log.Error("that a circuit breaker opened was not recorded", zap.String("target", t.Name), zap.Error(err))
			return
		}
		if moved {
			b.m.breakerLoop.lead(now)
		}
	})
}

func (b *breakers) actor() string { return "breaker:" + b.m.cfg.Worker }

// insist moves a breaker, again and again until the journal answers. Only Close ends
// it sooner, with errClosed.
func (b *breakers) insist(t Target, decide func(Breaker) (Breaker, bool)) (now Breaker, moved bool, err error) {
	for pause := writePauseMin; ; pause = min(2*pause, writePauseMax) {
		now, moved, err := b.m.MoveBreaker(b.m.life, t, decide)
		if err == nil {
			return now, moved, nil
		}
		if !sleep(b.m.life, pause) {
			return now, false, errors.Join(errClosed, err)
		}
	}
}

// tell leaves the receipt that a breaker over all tenants pauses runs of a tenant, once
// an opening. Of the many that are paused at one time, one tells and the others wait. It
// reports false while the opening is not written, so that there is nothing to tell yet.
func (b *breakers) tell(ctx context.Context, r Run) (told bool, err error) {
	_, all := b.m.targets(r)
	now, ok := (*b.known.Load())[all]
	switch {
	case !ok: // it is the tenant's own
		return true, nil
	case now.Opening == 0:
		return false, nil
	case b.wasTold(all, now.Opening, r.Tenant):
		return true, nil
	}
	b.telling.Lock()
	defer b.telling.Unlock()
	if b.wasTold(all, now.Opening, r.Tenant) {
		return true, nil
	}
	if err := b.m.cfg.Ledger.TellPaused(ctx, r.Tenant, all, b.m.now()); err != nil {
		return false, fmt.Errorf("background: tell tenant %q of a circuit breaker: %w", r.Tenant, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told[all].opening != now.Opening {
		b.told[all] = toldOf{now.Opening, map[string]struct{}{}}
	}
	b.told[all].tenants[r.Tenant] = struct{}{}
	return true, nil
}

func (b *breakers) wasTold(all Target, opening int64, tenant string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told[all]
	_, done := told.tenants[tenant]
	return done && told.opening == opening
}

// MoveBreaker moves the circuit breaker of a target for a person, and makes it known in
// this process at once. It returns the breaker as it is now; decide is the store's.
func (m *Manager) MoveBreaker(ctx context.Context, t Target, decide func(Breaker) (Breaker, bool)) (now Breaker, moved bool, err error) {
	if now, moved, err = m.cfg.Ledger.MoveBreaker(ctx, t, decide); err != nil {
		return now, moved, err
	}
	m.breakers.took(now)
	if moved && m.cfg.OnBreaker != nil {
		m.cfg.OnBreaker(now)
	}
	return now, moved, nil
}

// StalledBreaker is an open circuit breaker behind which runs wait, and no new case has
// come for so long that could show whether the target works.
type StalledBreaker struct {
	Breaker
	For time.Duration // as long as this process has seen it, at least
}

// Breakers are the circuit breakers that are not closed, and those of them that are
// stalled, as this process knows.
func (m *Manager) Breakers() (open []Breaker, stalled []StalledBreaker) {
	for _, b := range *m.breakers.known.Load() {
		open = append(open, b)
	}
	return open, m.breakerLoop.stalledNow()
}

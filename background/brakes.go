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

// freshFor is for how long what was read of the brakes is enough to park a run on.
const freshFor = 100 * time.Millisecond

// brakes is what this process knows of all brakes, and what its own attempts tell of
// their targets. The journal's claim is guarded by the brakes themselves; what is
// known here spares it the question, wakes who waits, and pulls.
type brakes struct {
	m      *Manager
	known  atomic.Pointer[map[Target]Brake] // those not released; never changed, only replaced
	parked atomic.Uint64                    // deliveries that were let go of

	mu      sync.Mutex
	gauges  map[Target]*gauge
	hanging map[Target]int      // calls that outlived their attempts
	pulling map[Target]struct{} // pulled here, and not written yet
	learned time.Time           // when what is known began to be read
	moves   int                 // of this process; what was read before one is stale
	changed chan struct{}       // closed when more is barred than before

	reading sync.Mutex // held by who reads
}

func newBrakes(m *Manager) *brakes {
	b := &brakes{
		m: m, gauges: map[Target]*gauge{}, hanging: map[Target]int{}, pulling: map[Target]struct{}{}, changed: make(chan struct{}),
	}
	b.known.Store(&map[Target]Brake{})
	return b
}

// bars reports whether a run may not be claimed, as far as this process knows.
func (b *brakes) bars(r Run) bool {
	known := *b.known.Load()
	if len(known) == 0 {
		return false
	}
	brake, ok := known[r.target()]
	return ok && brake.Bars(r)
}

// confirm reports whether a run that was refused for its brake is to be parked. What
// this process knows may be old: another may have let the run go, or have pulled.
func (b *brakes) confirm(r Run) bool {
	within := freshFor
	if !b.bars(r) {
		within = 0 // the journal refused, and knows better
	}
	if err := b.refresh(b.m.life, within); err != nil {
		b.m.log.Warn("the brakes can't be read", zap.Error(err))
		return true // the sweeper finds the run
	}
	return b.bars(r)
}

// refresh reads the brakes unless that was done within the time given.
func (b *brakes) refresh(ctx context.Context, within time.Duration) error {
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
		found, err := b.m.cfg.Ledger.Brakes(ctx)
		if err != nil {
			return fmt.Errorf("background: read the brakes: %w", err)
		}
		if b.learn(found, began, moves) {
			return nil
		}
	}
}

// learn takes in what was read, unless this process has moved a brake since.
func (b *brakes) learn(found []Brake, began time.Time, moves int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if moves != b.moves {
		return false
	}
	next := make(map[Target]Brake, len(found))
	for _, f := range found {
		next[f.Target] = f
	}
	for t := range b.pulling {
		next[t] = Brake{Target: t, State: BrakePulled, Version: next[t].Version}
	}
	b.learned = began
	b.publish(next)
	return true
}

// took notes a brake that this process has moved, or found moved.
func (b *brakes) took(now Brake) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moves++
	delete(b.pulling, now.Target)
	next := maps.Clone(*b.known.Load())
	if next[now.Target] = now; now.State == BrakeReleased {
		delete(next, now.Target)
	}
	b.publish(next)
}

// publish makes known what is next. Attempts from before a brake moved say nothing
// of the target any more. The caller holds the lock.
func (b *brakes) publish(next map[Target]Brake) {
	was, closes := *b.known.Load(), false
	for t, n := range next {
		if was[t].State != n.State {
			delete(b.gauges, t)
			closes = closes || n.State == BrakePulled
		}
	}
	for t := range was {
		if _, still := next[t]; !still {
			delete(b.gauges, t)
		}
	}
	b.known.Store(&next)
	if closes {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// closing is closed when the next brake is pulled.
func (b *brakes) closing() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// note takes in how an attempt of a run ended and pulls the brake if that calls for
// it. Attempts that this process cut short tell nothing.
func (b *brakes) note(r Run, done call) {
	if b.m.cfg.Brake.Off || done.interrupted {
		return
	}
	t := r.target()
	b.mu.Lock()
	g := b.gauges[t]
	if g == nil {
		g = &gauge{rule: b.m.cfg.Brake}
		b.gauges[t] = g
	}
	pull := g.note(ended{at: b.m.cfg.Now(), kase: r.Case, failed: failing(done.result)})
	failed, all, hanging := g.failed, len(g.seen), b.hanging[t]
	b.mu.Unlock()
	switch rule := b.m.cfg.Brake; {
	case done.late != nil && hanging > rule.Abandoned:
		b.pull(t, CauseHanging, fmt.Sprintf("%d calls have outlived their time limit and not answered", hanging))
	case pull:
		b.pull(t, CauseFailing, fmt.Sprintf("%d of the last %d attempts within %s failed or were not answered", failed, all, rule.Window))
	}
}

// hang counts calls of a target that have outlived their attempts.
func (b *brakes) hang(t Target, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hanging[t] += by; b.hanging[t] <= 0 {
		delete(b.hanging, t)
	}
}

// tidy forgets targets that nothing was heard of within the window.
func (b *brakes) tidy(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t, g := range b.gauges {
		if g.forget(now.Add(-b.m.cfg.Brake.Window)); len(g.seen) == 0 {
			delete(b.gauges, t)
		}
	}
}

// pull closes the brake in this process at once, and writes it until it is written.
func (b *brakes) pull(t Target, cause, reason string) {
	b.mu.Lock()
	was := (*b.known.Load())[t]
	if was.State == BrakePulled {
		b.mu.Unlock()
		return
	}
	b.pulling[t] = struct{}{}
	next := maps.Clone(*b.known.Load())
	next[t] = Brake{Target: t, State: BrakePulled, Version: was.Version}
	b.publish(next)
	b.mu.Unlock()
	b.m.log.Warn("the brake is pulled", zap.String("tenant", t.Tenant), zap.String("target", t.Name), zap.String("cause", cause), zap.String("why", reason))
	b.m.work.Go(func() {
		err := b.insist(t, func(now Brake) (Brake, bool) { return now.Pull(false, b.actor(), cause, reason, b.m.now()) })
		if err != nil {
			b.m.log.Error("the brake's pull was not recorded", zap.String("target", t.Name), zap.Error(err))
		}
	})
}

func (b *brakes) actor() string { return "brake:" + b.m.cfg.Worker }

// insist moves a brake, again and again until the journal answers. Only Close ends
// it sooner, with errClosed.
func (b *brakes) insist(t Target, decide func(Brake) (Brake, bool)) error {
	for pause := writePauseMin; ; pause = min(2*pause, writePauseMax) {
		now, moved, err := b.m.cfg.Ledger.MoveBrake(b.m.life, t, decide)
		if err == nil {
			b.took(now)
			if moved && b.m.cfg.OnBrake != nil {
				b.m.cfg.OnBrake(now)
			}
			return nil
		}
		if !sleep(b.m.life, pause) {
			return errors.Join(errClosed, err)
		}
	}
}

// MoveBrake moves the brake of a target for a person, and makes it known in this
// process at once. It returns the brake as it is now; decide is the ledger's.
func (m *Manager) MoveBrake(ctx context.Context, t Target, decide func(Brake) (Brake, bool)) (now Brake, moved bool, err error) {
	if now, moved, err = m.cfg.Ledger.MoveBrake(ctx, t, decide); err != nil {
		return now, moved, err
	}
	m.brakes.took(now)
	if moved && m.cfg.OnBrake != nil {
		m.cfg.OnBrake(now)
	}
	return now, moved, nil
}

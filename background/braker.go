package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

const (
	// mostly is the percentage of a batch that must have ended before the next is let go.
	mostly = 80
	// batchLook is how often a batch is looked at.
	batchLook = 20 * time.Millisecond
	// candidates are how many parked runs are looked through for one that can be a probe.
	candidates = 20
)

// braker follows the brakes of all targets: it probes those that are pulled, and
// lets what they parked go once a probe is answered.
//
// Every process does. Whoever changes the brake's version first makes the probe, or
// leads the batches, and each waits for a probe's time since it saw the version
// first: so there is one probe at a time, and a leader that is lost is replaced,
// without two clocks being compared.
type braker struct {
	m    *Manager
	seen map[Target]versionSeen
	busy sync.Map // Target: this process is at it
	work sync.WaitGroup

	mu    sync.Mutex
	place map[Target]Cursor // the last probe, so that one run does not stand in for all
}

type versionSeen struct {
	version int64
	since   time.Time
}

func newBraker(m *Manager) *braker {
	return &braker{m: m, seen: map[Target]versionSeen{}, place: map[Target]Cursor{}}
}

// run follows the brakes until ctx ends, and returns when its last probe has ended.
func (k *braker) run(ctx context.Context) {
	defer k.work.Wait()
	every := k.m.cfg.Brake.Probe
	for ailing := false; ; {
		err := k.m.brakes.refresh(ctx, 0)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !ailing {
			k.m.log.Error("the brakes can't be followed", zap.Error(err))
		}
		if ailing = err != nil; !ailing {
			k.look(ctx)
		}
		k.m.brakes.tidy(k.m.cfg.Now())
		pause := every
		if len(*k.m.brakes.known.Load()) > 0 {
			pause = every / 5
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (k *braker) look(ctx context.Context) {
	now, seen := time.Now(), map[Target]versionSeen{}
	for t, b := range *k.m.brakes.known.Load() {
		last := k.seen[t]
		if last.version != b.Version || last.since.IsZero() {
			last = versionSeen{b.Version, now}
		}
		seen[t] = last
		if f := k.m.families[t.Family]; f != nil && now.Sub(last.since) >= k.m.cfg.Brake.Probe {
			k.take(ctx, f, b)
		}
	}
	k.seen = seen
}

// take does what a brake calls for that nobody has changed for a probe's time.
func (k *braker) take(ctx context.Context, f Family, b Brake) {
	if b.Version == 0 || b.State == BrakePulled && b.ByHand {
		return // not written yet, or not ours to release
	}
	if _, at := k.busy.LoadOrStore(b.Target, true); at {
		return
	}
	k.work.Go(func() {
		defer k.busy.Delete(b.Target)
		var err error
		if b.State == BrakePulled {
			err = k.probe(ctx, f, b)
		} else {
			err = k.ease(ctx, b)
		}
		if err != nil && ctx.Err() == nil {
			k.m.log.Warn("a brake could not be followed, it is tried again", zap.String("target", b.Name), zap.Error(err))
		}
	})
}

// probe lets one parked run through. When it shows that the target answers, the
// brake is eased.
func (k *braker) probe(ctx context.Context, f Family, b Brake) error {
	run, own, err := k.candidate(ctx, b.Target)
	if err != nil || own == nil {
		return err
	}
	b.Probe, b.Version = run.ID, b.Version+1
	won, err := k.m.cfg.Ledger.StepBrake(ctx, b)
	if err != nil || !won {
		k.m.engaged.leave(run.ID)
		return err
	}
	k.m.brakes.took(b)
	crowd, err := k.crowd(ctx, b.Target)
	if err != nil {
		k.m.engaged.leave(run.ID)
		return err
	}
	answered, after := k.m.probe(f, run, own, crowd)
	k.m.engaged.leave(run.ID)
	if after.Letter == LetterOpen {
		if err := k.m.Bell(ctx, after); err != nil { // its delivery becomes the mirror
			k.m.log.Warn("a letter has no mirror", zap.Stringer("run", after.ID), zap.Error(err))
		}
	}
	if !answered {
		return nil
	}
	err = k.m.brakes.insist(b.Target, func(now Brake) (Brake, bool) {
		if now.State != BrakePulled || now.ByHand {
			return now, false
		}
		return now.Release(k.m.brakes.actor(), CauseAnswered, "the probe was answered", k.m.now())
	})
	if now := (*k.m.brakes.known.Load())[b.Target]; err == nil && now.State == BrakeEasing {
		return k.ease(ctx, now)
	}
	return err
}

// crowd reports whether as many runs are parked, due or not, as it takes to pull a
// brake. Only a crowd is kept from dying: of fewer runs each may be what fails, and
// would be probed for ever with nothing beside it to show that the target works.
func (k *braker) crowd(ctx context.Context, t Target) (bool, error) {
	enough := k.m.cfg.Brake.Cases
	parked, err := k.m.cfg.Ledger.Parked(ctx, t, Cursor{}, k.m.now().Add(horizon), enough)
	return len(parked) >= enough, err
}

// horizon is further than any retry is planned.
const horizon = 10 * 365 * 24 * time.Hour

// candidate engages the parked run that comes after the last probe in order.
func (k *braker) candidate(ctx context.Context, t Target) (Run, *engagement, error) {
	k.mu.Lock()
	place := k.place[t]
	k.mu.Unlock()
	for _, from := range []Cursor{place, {}} {
		parked, err := k.m.cfg.Ledger.Parked(ctx, t, from, k.m.now(), candidates)
		if err != nil {
			return Run{}, nil, err
		}
		for _, r := range parked {
			if own, first := k.m.engaged.enter(r.ID, r.Bell); first {
				k.mu.Lock()
				k.place[t] = Cursor{DueAt: r.DueAt, ID: r.ID}
				k.mu.Unlock()
				return r, own, nil
			}
		}
		if from == (Cursor{}) {
			break
		}
	}
	return Run{}, nil, nil
}

// ease lets go what was parked, in order and batch by batch, as long as the batches
// do not fail.
func (k *braker) ease(ctx context.Context, b Brake) error {
	for {
		batch, err := k.m.cfg.Ledger.Parked(ctx, b.Target, b.LetGo, k.m.now(), k.m.cfg.Brake.Batch)
		if err != nil {
			return err
		}
		if len(batch) == 0 || batch[0].DueAt.After(b.Goal) {
			return k.release(ctx, b)
		}
		last := batch[len(batch)-1]
		b.LetGo = Cursor{DueAt: last.DueAt, ID: last.ID}
		if led, err := k.step(ctx, &b); err != nil || !led {
			return err
		}
		if err := k.m.sweep.ring(ctx, batch); err != nil {
			k.m.log.Warn("what was let go was not rung for, the sweeper will", zap.String("target", b.Name), zap.Error(err))
		}
		led, sound, err := k.watch(ctx, &b, batch)
		if err != nil || !led {
			return err
		}
		if !sound {
			return k.m.brakes.insist(b.Target, func(now Brake) (Brake, bool) {
				return now.Pull(false, k.m.brakes.actor(), CauseRelapsed, "what was let go failed again", k.m.now())
			})
		}
	}
}

// step writes where the easing stands; led is false when somebody else moved the
// brake, and now leads.
func (k *braker) step(ctx context.Context, b *Brake) (led bool, err error) {
	b.Version++
	if led, err = k.m.cfg.Ledger.StepBrake(ctx, *b); led {
		k.m.brakes.took(*b)
	}
	return led, err
}

// watch waits until most of a batch has ended, and tells whether the target bore it.
func (k *braker) watch(ctx context.Context, b *Brake, batch []Run) (led, sound bool, err error) {
	ids, before := make([]RunID, len(batch)), make(map[RunID]Run, len(batch))
	for i, r := range batch {
		ids[i], before[r.ID] = r.ID, r
	}
	shown := time.Now()
	for {
		if !sleep(ctx, batchLook) {
			return false, false, ctx.Err()
		}
		now, err := k.m.cfg.Ledger.Runs(ctx, ids)
		if err != nil {
			return false, false, err
		}
		done, failed := tally(before, now)
		if 100*done >= mostly*len(batch) {
			rule := k.m.cfg.Brake
			return true, failed < rule.Cases || 100*failed < rule.Share*done, nil
		}
		if time.Since(shown) > k.m.cfg.Brake.Probe/3 { // so that nobody takes the lead over
			if led, err := k.step(ctx, b); err != nil || !led {
				return false, false, err
			}
			shown = time.Now()
		}
	}
}

// tally counts the runs of a batch that were tried or ended, and those of them that
// speak against the target.
func tally(before map[RunID]Run, now []Run) (done, failed int) {
	for _, r := range now {
		switch was := before[r.ID]; {
		case r.State.Live() && (r.State == Running || r.Attempt == was.Attempt):
		case r.State == Scheduled, r.Letter == LetterOpen && r.Reason == ReasonRetryExhausted:
			done, failed = done+1, failed+1
		default:
			done++
		}
	}
	return done, failed
}

// release ends the easing, and rings for what was parked since it began.
func (k *braker) release(ctx context.Context, b Brake) error {
	version := b.Version
	err := k.m.brakes.insist(b.Target, func(now Brake) (Brake, bool) {
		if now.State != BrakeEasing || now.Version != version {
			return now, false
		}
		return now.Release(k.m.brakes.actor(), CauseRecovered, "what was parked has been let go", k.m.now())
	})
	for place := b.LetGo; err == nil; {
		var rest []Run
		if rest, err = k.m.cfg.Ledger.Parked(ctx, b.Target, place, k.m.now(), sweepPage); err != nil || len(rest) == 0 {
			return err
		}
		last := rest[len(rest)-1]
		place = Cursor{DueAt: last.DueAt, ID: last.ID}
		err = k.m.sweep.ring(ctx, rest)
	}
	return err
}

// probe makes one attempt of a run whose brake is pulled; own is its engagement. A
// probe that fails spends none of the run's budget while a crowd is parked. answered
// tells whether the target showed that it works.
func (m *Manager) probe(f Family, run Run, own *engagement, crowd bool) (answered bool, after Run) {
	d := &delivery{m: m, family: f, run: run, bell: run.Bell, own: own, doubt: make(chan struct{}), probing: true}
	if m.admit() != nil {
		return false, run
	}
	started, err := d.claim()
	if err != nil {
		m.slots.release()
		if errors.Is(err, ErrKeyExpired) { // it can't be called again, but asked about
			looked, cut := m.lookup(f, d.run)
			return !cut && looked.Class != Unknown, d.run
		}
		return false, d.run
	}
	done := m.attempt(d.calls, f, d.run, started)
	m.slots.release()
	done.probe = crowd
	after, err = m.finish(f, d.run, done)
	if done.late != nil {
		m.awaitLate(f, d.run, done.late)
	}
	if err != nil {
		return false, after
	}
	return !done.interrupted && !failing(done.result), after
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

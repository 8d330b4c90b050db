package background

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// leader leads one opening of a breaker: it lets paused runs through as probing says, of those
// whose targets this process calls. While there are others that tell more of the service, it
// lets the time pass after which another process takes its place: that one may call them.
type leader struct {
	m      *Manager
	f      Family
	target Target
	calls  sync.WaitGroup

	mu      sync.Mutex
	probing *probing
	out     map[RunID]struct{}  // let through and not claimed or given up yet
	later   map[RunID]time.Time // could not be claimed: not to be let through before
	asked   int64               // new cases claimed since the breaker opened

	// Of the leading goroutine alone:
	b       Breaker
	place   Cursor // the last run that probed for want of a new case
	shown   time.Time
	counted time.Time
	paused  int
	called  int // of these: that name what this process calls
}

func newLeader(m *Manager, f Family, b Breaker) *leader {
	chance := rand.New(rand.NewPCG(rand.Uint64(), uint64(b.Version)))
	return &leader{m: m, f: f, target: b.Target, b: b, out: map[RunID]struct{}{}, later: map[RunID]time.Time{}, asked: b.Asked,
		probing: newProbing(m.cfg.Breaker, m.cfg.Slots, chance, time.Now()), shown: time.Now()}
}

// run leads until the breaker is closed, somebody else moves it, or ctx ends.
func (l *leader) run(ctx context.Context) error {
	for {
		done, err := l.step(ctx)
		if done || err != nil {
			return err
		}
		l.mu.Lock()
		pause := l.probing.pause(time.Now())
		l.mu.Unlock()
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

// step lets through what may be now. done reports that this process leads no more.
func (l *leader) step(ctx context.Context) (done bool, err error) {
	if l.m.leadsNothing() || l.replaced() {
		return true, nil
	}
	now := time.Now()
	if now.Sub(l.counted) >= l.m.cfg.Breaker.Lead/countEvery {
		if l.paused, l.called, err = l.m.cfg.Ledger.CountPaused(ctx, l.target, l.m.cfg.Targets[l.target.Family], pausedMost); err != nil {
			return false, err
		}
		l.counted = now
	}
	newest, err := l.list(ctx, PausedQuery{New: true, Newest: true}, l.allowed(now)+len(l.notClaimed()))
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
	recovered, works, relapsed := l.probing.recovered(now, len(newest) > 0, left), l.probing.works(now), l.probing.relapsed(now)
	l.mu.Unlock()
	switch {
	case recovered:
		return true, l.close(ctx)
	case works && l.b.State == BreakerOpen:
		return l.turn(BreakerHalfOpen, CauseAnswered, "a probe was answered")
	case relapsed && l.b.State == BreakerHalfOpen:
		return l.turn(BreakerOpen, CauseRelapsed, "probes fail again, and none is answered")
	}
	picks, err := l.choose(ctx, now, newest)
	if err != nil {
		return false, err
	}
	return l.let(ctx, now, picks, silent)
}

// replaced reports whether somebody else has changed the breaker, as far as this process knows.
func (l *leader) replaced() bool {
	now, open := (*l.m.breakers.known.Load())[l.target]
	return open && now.Version > l.b.Version
}

// leaves reports whether the lead is to be left to another process, which calls what this one
// does not: new cases for it wait and none for this one, or nothing waits for this one. fresh
// says that a new case does.
func (l *leader) leaves(ctx context.Context, fresh bool) (bool, error) {
	if fresh || l.m.cfg.Targets[l.target.Family] == nil {
		return false, nil
	}
	for _, look := range []struct {
		q      PausedQuery
		leaves bool
	}{{PausedQuery{New: true, Newest: true, Others: true}, true}, {PausedQuery{}, false}, {PausedQuery{Others: true}, true}} {
		if found, err := l.list(ctx, look.q, 1); err != nil || len(found) > 0 {
			return look.leaves, err
		}
	}
	return false, nil
}

// allowed is how many new cases may be let through, and at least one: so that it is
// known whether any waits.
func (l *leader) allowed(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.probing.newAllowed(now))
}

// notClaimed are the runs that were let through and that the journal may still list.
func (l *leader) notClaimed() []RunID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]RunID, 0, len(l.out))
	for id := range l.out {
		ids = append(ids, id)
	}
	return ids
}

// list lists paused runs of the target that name what this process calls, or others than that,
// and that are not at hand in this process, nor could not be claimed a moment ago.
func (l *leader) list(ctx context.Context, q PausedQuery, limit int) ([]Run, error) {
	l.mu.Lock()
	now := time.Now()
	maps.DeleteFunc(l.later, func(_ RunID, at time.Time) bool { return !now.Before(at) })
	later := maps.Clone(l.later)
	l.mu.Unlock()
	q.Target, q.Called, q.Due, q.Limit = l.target, l.m.cfg.Targets[l.target.Family], l.m.now(), limit+len(later)
	found, err := l.m.cfg.Ledger.Paused(ctx, q)
	return slices.DeleteFunc(found, func(r Run) bool {
		_, waits := later[r.ID]
		return waits || l.m.engaged.has(r.ID)
	}), err
}

// chosen is a run that is to be let through.
type chosen struct {
	run  Run
	lane lane
	own  *engagement
}

// choose engages the runs that are to be let through now.
func (l *leader) choose(ctx context.Context, now time.Time, newest []Run) ([]chosen, error) {
	l.mu.Lock()
	fresh, tried := l.probing.newAllowed(now), l.probing.triedAllowed(now)
	rests := len(newest) == 0 && l.probing.restDue(now, l.called)
	l.mu.Unlock()
	var picks []chosen
	take := func(r Run, by lane) bool {
		own, first := l.m.engaged.enter(r.ID, r.Bell)
		if first {
			picks = append(picks, chosen{r, by, own})
		}
		return first
	}
	for ; fresh > 0 && len(newest) > 0; fresh-- {
		next := newest[0]
		if from, anywhere := l.pick(); anywhere {
			found, err := l.list(ctx, PausedQuery{New: true, From: from}, 1)
			if err != nil {
				return picks, err
			}
			if len(found) > 0 {
				next = found[0]
			}
		}
		take(next, laneNew)
		newest = slices.DeleteFunc(newest, func(r Run) bool { return r.ID == next.ID })
	}
	if tried > 0 {
		found, err := l.list(ctx, PausedQuery{}, tried+len(l.notClaimed()))
		if err != nil {
			return picks, err
		}
		for _, r := range found[:min(tried, len(found))] {
			take(r, laneTried)
		}
	}
	if rests {
		for _, from := range []Cursor{l.place, {}} {
			found, err := l.list(ctx, PausedQuery{After: from}, 1)
			if err != nil {
				return picks, err
			}
			if len(found) > 0 && take(found[0], laneRest) {
				l.place = Cursor{DueAt: found[0].DueAt, ID: found[0].ID}
				break
			}
		}
	}
	return picks, nil
}

func (l *leader) pick() (from float64, anywhere bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.probing.pick()
}

// let writes down which runs are let through, and lets them. Nothing is claimed when
// somebody else has moved the breaker: then somebody else leads. When silent, it shows nothing
// unless something is let through.
func (l *leader) let(ctx context.Context, now time.Time, picks []chosen, silent bool) (done bool, err error) {
	if len(picks) == 0 && (silent || now.Sub(l.shown) < l.m.cfg.Breaker.Lead/showEvery) {
		return false, nil
	}
	next := l.b
	next.Version++
	next.Probes, next.Paused = l.notClaimed(), l.paused
	for _, p := range picks {
		next.Probes = append(next.Probes, p.run.ID)
	}
	l.mu.Lock()
	next.Asked = l.asked
	l.mu.Unlock()
	led, err := l.m.cfg.Ledger.StepBreaker(ctx, next)
	if err != nil || !led {
		for _, p := range picks {
			l.m.engaged.leave(p.run.ID)
		}
		return !led && err == nil, err
	}
	l.b, l.shown = next, now
	l.m.breakers.took(next)
	for _, p := range picks {
		l.mu.Lock()
		t := l.probing.let(now, p.lane)
		l.out[p.run.ID] = struct{}{}
		l.mu.Unlock()
		l.calls.Go(func() { l.call(ctx, p, t) })
	}
	return false, nil
}

// turn moves the breaker between open and half-open. It stays led.
func (l *leader) turn(to BreakerState, cause, why string) (done bool, err error) {
	version := l.b.Version
	now, moved, err := l.m.breakers.insist(l.target, func(now Breaker) (Breaker, bool) {
		if now.Version != version || !now.Bars() {
			return now, false
		}
		next := now.next(to, l.m.breakers.actor(), cause, why, l.m.now())
		next.Probes, next.Asked = now.Probes, now.Asked
		return next, true
	})
	l.b = now
	return !moved, err
}

// close closes the breaker and notifies what was paused, oldest first.
func (l *leader) close(ctx context.Context) error {
	version := l.b.Version
	_, moved, err := l.m.breakers.insist(l.target, func(now Breaker) (Breaker, bool) {
		if now.Version != version {
			return now, false
		}
		return now.Close(l.m.breakers.actor(), CauseRecovered, "probes were answered", l.m.now())
	})
	if err != nil || !moved {
		return err
	}
	for place := (Cursor{}); ; {
		rest, err := l.m.cfg.Ledger.Waiting(ctx, place, l.m.now(), sweepPage)
		if err != nil || len(rest) == 0 {
			return err
		}
		last := rest[len(rest)-1]
		place = Cursor{DueAt: last.DueAt, ID: last.ID}
		own := slices.DeleteFunc(rest, func(r Run) bool {
			return l.m.endpoint(r) != l.target || !r.State.Waiting() || l.m.engaged.has(r.ID)
		})
		if err := l.m.sweep.ring(ctx, own); err != nil {
			return err
		}
	}
}

package background

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// countsPerTimeout and renewalsPerTimeout are parts of BreakerRule.Lead: how often a leader counts
	// what is paused, and how often it shows itself at least.
	countsPerTimeout, renewalsPerTimeout = 4, 4
	// maxPausedCounted is up to how many paused runs are counted.
	maxPausedCounted = 1000
	// maxClosedRecords is how many trails are told at one time that an opening is over.
	maxClosedRecords = 50
)

// breakerLoop follows the circuit breakers of all targets, and leads those that are open
// and not held by a person.
//
// Every process does. Whoever changes the breaker's version first leads, and the others
// wait for a time since they saw the version first: so there is one leader at a time,
// and one that is lost is replaced, without two clocks being compared.
type breakerLoop struct {
	m                *Manager
	seen             map[Target]breakerObservation
	closedRecordedAt time.Time      // when trails were last looked for that are to say that it is over
	leading          sync.Map       // Target: this process leads it
	work             sync.WaitGroup // leaders
	opened           chan Breaker   // breakers that this process has opened

	mu      sync.Mutex
	stalled map[Target]StalledBreaker
}

// breakerObservation is what was seen of an open breaker, and since when.
type breakerObservation struct {
	version        int64
	since          time.Time
	newCasesProbed int64
	openings       int64
	noNewCaseSince time.Time // since when no new case was asked
	stalledLogged  bool
}

func newBreakerLoop(m *Manager) *breakerLoop {
	return &breakerLoop{m: m, seen: map[Target]breakerObservation{}, opened: make(chan Breaker, 16), stalled: map[Target]StalledBreaker{}}
}

// requestLead asks for a breaker to be led that this process has opened.
func (k *breakerLoop) requestLead(b Breaker) {
	select {
	case k.opened <- b:
	default: // it is found by what it has not shown for a while
	}
}

// run follows the breakers until ctx ends, and returns when what its leaders let through
// has ended.
func (k *breakerLoop) run(ctx context.Context) {
	defer k.work.Wait()
	every := k.m.cfg.Breaker.LeaderTimeout
	for failing := false; ; {
		err := k.m.breakers.refresh(ctx, 0)
		if err == nil && time.Since(k.closedRecordedAt) >= every {
			k.closedRecordedAt = time.Now()
			_, err = k.m.cfg.Store.RecordClosed(ctx, k.m.now(), maxClosedRecords)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			k.m.log.Error("the circuit breakers can't be followed", zap.Error(err))
		}
		if failing = err != nil; !failing {
			k.check(ctx)
		}
		k.m.breakers.expire(time.Now())
		pause := time.NewTimer(every)
		if len(*k.m.breakers.current.Load()) > 0 {
			pause.Reset(every / 5)
		}
		select {
		case <-pause.C:
		case b := <-k.opened:
			k.startLeader(ctx, b)
		case <-ctx.Done():
			return
		}
	}
}

// check takes the lead of breakers that have shown nothing for a while, and says which
// ones are stalled.
func (k *breakerLoop) check(ctx context.Context) {
	now, seen := time.Now(), map[Target]breakerObservation{}
	for t, b := range *k.m.breakers.current.Load() {
		last, known := k.seen[t]
		if !known || last.version != b.Version {
			last.version, last.since = b.Version, now
		}
		if !known || last.newCasesProbed != b.NewCasesProbed || last.openings != b.Openings || b.Paused == 0 {
			last.newCasesProbed, last.openings, last.noNewCaseSince = b.NewCasesProbed, b.Openings, now
		}
		last.stalledLogged = k.updateStalled(b, now.Sub(last.noNewCaseSince), last.stalledLogged)
		seen[t] = last
		if now.Sub(last.since) >= k.m.cfg.Breaker.LeaderTimeout {
			k.startLeader(ctx, b)
		}
	}
	k.mu.Lock()
	for t := range k.stalled {
		if _, still := seen[t]; !still {
			delete(k.stalled, t)
		}
	}
	k.mu.Unlock()
	k.seen = seen
}

// updateStalled notes whether a breaker is stalled, and says so once.
func (k *breakerLoop) updateStalled(b Breaker, noNewCaseFor time.Duration, logged bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b.Manual || b.Paused == 0 || noNewCaseFor < k.m.cfg.Breaker.StalledAfter {
		delete(k.stalled, b.Target)
		return false
	}
	k.stalled[b.Target] = StalledBreaker{Breaker: b, StalledFor: noNewCaseFor}
	if !logged {
		k.m.log.Error("runs wait behind an open circuit breaker, and no new case comes that could show whether the target works",
			zap.String("target", b.Name), zap.String("family", b.Family), zap.Int("paused", b.Paused), zap.Time("open_since", b.OpenedAt))
	}
	return true
}

func (k *breakerLoop) stalledBreakers() []StalledBreaker {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]StalledBreaker, 0, len(k.stalled))
	for _, s := range k.stalled {
		out = append(out, s)
	}
	return out
}

// startLeader does what a breaker calls for that nobody has changed for a while.
func (k *breakerLoop) startLeader(ctx context.Context, b Breaker) {
	if !b.Blocks() || b.Version == 0 || b.Manual {
		return // not written yet, or not ours to release
	}
	f := k.m.families[b.Family]
	if b.Tenant == "" && (f == nil || !k.m.callsTarget(b.Target)) || k.m.mayNotLead() {
		return // of a target that other processes call, or theirs for now
	}
	if _, at := k.leading.LoadOrStore(b.Target, true); at {
		return
	}
	k.work.Go(func() {
		defer k.leading.Delete(b.Target)
		if b.Tenant != "" {
			k.closeReplaced(b)
			return
		}
		l := newBreakerLeader(k.m, f, b)
		defer l.probes.Wait()
		if err := l.run(ctx); err != nil && ctx.Err() == nil {
			k.m.log.Warn("a circuit breaker could not be led, it is tried again", zap.String("target", b.Name), zap.Error(err))
		}
	})
}

// closeReplaced closes a breaker of a single tenant that is not by hand: it is from before
// breakers were over all tenants.
func (k *breakerLoop) closeReplaced(b Breaker) {
	_, _, err := k.m.breakers.update(b.Target, func(now Breaker) (Breaker, bool) {
		if now.Manual || now.Version != b.Version {
			return now, false
		}
		return now.Close(k.m.breakers.actor(), CauseReplaced, "the circuit breaker over all tenants takes its place", k.m.now())
	})
	if err != nil {
		k.m.log.Warn("a circuit breaker could not be closed", zap.String("target", b.Name), zap.Error(err))
	}
}

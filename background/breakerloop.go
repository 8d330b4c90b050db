package background

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/internal/every"
)

const (
	// countsPerTimeout and renewalsPerTimeout divide circuit.Rule.LeaderTimeout: how often a
	// leader counts the paused runs, and how often at least it raises the version.
	countsPerTimeout, renewalsPerTimeout = 4, 4
	// maxPausedCounted bounds the count of paused runs.
	maxPausedCounted = 1000
	// maxClosedRecords bounds the trails that one pass writes the end of an opening to.
	maxClosedRecords = 50
)

// breakerLoop reads the circuit breakers of all targets, and leads those that are open and not
// manual.
//
// Every process runs it. The process that first raises the breaker's version leads; the others
// wait a while since they first saw that version. So there is one leader at a time, and a lost
// one is replaced, without comparing two clocks.
type breakerLoop struct {
	m                *Manager
	seen             map[circuit.Scope]breakerObservation
	closedRecordedAt time.Time            // when RecordClosed was last called
	leading          sync.Map             // Target: this process leads it
	work             sync.WaitGroup       // leaders
	opened           chan circuit.Breaker // breakers that this process opened

	mu      sync.Mutex
	stalled map[circuit.Scope]StalledBreaker
}

// breakerObservation is what was last seen of an open breaker.
type breakerObservation struct {
	version        int64
	since          time.Time
	newCasesProbed int64
	openings       int64
	noNewCaseSince time.Time // since when no new case was probed
	stalledLogged  bool
}

func newBreakerLoop(m *Manager) *breakerLoop {
	return &breakerLoop{m: m, seen: map[circuit.Scope]breakerObservation{}, opened: make(chan circuit.Breaker, 16), stalled: map[circuit.Scope]StalledBreaker{}}
}

// requestLead makes the loop lead a breaker that this process opened.
func (k *breakerLoop) requestLead(b circuit.Breaker) {
	select {
	case k.opened <- b:
	default: // check takes the lead after LeaderTimeout
	}
}

// run reads the breakers until ctx ends, and returns when the probes of its leaders have ended.
func (k *breakerLoop) run(ctx context.Context) {
	defer k.work.Wait()
	interval := k.m.cfg.Breaker.LeaderTimeout
	failures := every.Failures{Log: k.m.log, Failed: "circuit breakers cannot be read", Again: "circuit breakers are read again"}
	for {
		err := k.m.breakers.refresh(ctx, 0)
		if err == nil && time.Since(k.closedRecordedAt) >= interval {
			k.closedRecordedAt = time.Now()
			_, err = k.m.cfg.Store.RecordClosed(ctx, k.m.now(), maxClosedRecords)
		}
		if !failures.Note(ctx, err) {
			return
		}
		if err == nil {
			k.check(ctx)
		}
		k.m.breakers.expire(time.Now())
		pause := time.NewTimer(interval)
		if len(*k.m.breakers.current.Load()) > 0 {
			pause.Reset(interval / 5)
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

// check takes the lead of breakers whose version has not changed for LeaderTimeout, and updates
// which ones are stalled.
func (k *breakerLoop) check(ctx context.Context) {
	now, seen := time.Now(), map[circuit.Scope]breakerObservation{}
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

// updateStalled records whether a breaker is stalled, and logs it once.
func (k *breakerLoop) updateStalled(b circuit.Breaker, noNewCaseFor time.Duration, logged bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if b.Manual || b.Paused == 0 || noNewCaseFor < k.m.cfg.Breaker.StalledAfter {
		delete(k.stalled, b.Scope)
		return false
	}
	k.stalled[b.Scope] = StalledBreaker{Breaker: b, StalledFor: noNewCaseFor}
	if !logged {
		k.m.log.Error("runs are paused by an open circuit breaker, and there is no new case to probe the target with",
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

// startLeader starts to lead a breaker that has no leader.
func (k *breakerLoop) startLeader(ctx context.Context, b circuit.Breaker) {
	if !b.Blocks() || b.Version == 0 || b.Manual {
		return // not written yet, or only a person releases it
	}
	f := k.m.families[b.Family]
	if b.Tenant == "" && (f == nil || !k.m.targets.calls(b.Scope)) || k.m.claimGate.mayNotLead() {
		return // other processes lead it
	}
	if _, at := k.leading.LoadOrStore(b.Scope, true); at {
		return
	}
	k.work.Go(func() {
		defer k.leading.Delete(b.Scope)
		if b.Tenant != "" {
			k.closeReplaced(b)
			return
		}
		l := newBreakerLeader(k.m, f, b)
		defer l.probes.Wait()
		if err := l.run(ctx); err != nil && ctx.Err() == nil {
			k.m.log.Warn("leading a circuit breaker failed, retrying", zap.String("target", b.Name), zap.Error(err))
		}
	})
}

// closeReplaced closes a breaker of a single tenant that was not opened manually: earlier
// versions opened such breakers.
func (k *breakerLoop) closeReplaced(b circuit.Breaker) {
	_, _, err := k.m.breakers.update(b.Scope, func(now circuit.Breaker) (circuit.Breaker, bool) {
		if now.Manual || now.Version != b.Version {
			return now, false
		}
		return now.Close(k.m.breakers.actor(), circuit.CauseReplaced, "the circuit breaker over all tenants replaces it", k.m.now())
	})
	if err != nil {
		k.m.log.Warn("circuit breaker could not be closed", zap.String("target", b.Name), zap.Error(err))
	}
}

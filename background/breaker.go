package background

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background/circuit"
)

// targetSet answers which targets this process calls, and whose breaker applies to a run.
type targetSet struct {
	called         map[string][]string      // Config.Targets
	sharedBreakers map[circuit.Scope]string // Config.SharedBreakers
	log            *zap.Logger
	unknownLogged  sync.Map // Target: logged as not called by this process
}

// breakerScopes returns the two scopes whose breakers can block a run: its target for its own
// tenant, and over all tenants. A target in Config.SharedBreakers is replaced by the one whose
// breaker it uses.
func (s *targetSet) breakerScopes(r Run) (own, all circuit.Scope) {
	all = s.breakerScope(r)
	return circuit.Scope{Tenant: r.Tenant, Family: all.Family, Name: all.Name}, all
}

// breakerScope returns the target over all tenants whose breaker applies to the run.
func (s *targetSet) breakerScope(r Run) circuit.Scope {
	t := circuit.Scope{Family: r.Family, Name: r.Target}
	if of, shared := s.sharedBreakers[t]; shared {
		t.Name = of
	}
	return t
}

// calls reports whether a handler of this process calls a target.
func (s *targetSet) calls(t circuit.Scope) bool {
	targets, some := s.called[t.Family]
	return !some || slices.Contains(targets, t.Name)
}

// allCalled returns all targets in Config.Targets.
func (s *targetSet) allCalled() (all []string) {
	for _, family := range slices.Sorted(maps.Keys(s.called)) {
		all = append(all, s.called[family]...)
	}
	return all
}

// logUnknown logs once per target that runs wait for a process that calls it.
func (s *targetSet) logUnknown(r Run) {
	if _, logged := s.unknownLogged.LoadOrStore(circuit.Scope{Family: r.Family, Name: r.Target}, true); !logged {
		s.log.Error("runs wait for a process that calls their target", zap.String("target", r.Target), zap.String("family", r.Family), zap.Stringer("run", r.ID))
	}
}

// PausedQuery selects waiting runs of a target that are due and that no breaker of their own
// tenant blocks.
type PausedQuery struct {
	circuit.Scope
	Called        []string // only runs of these targets; nil: of any
	Others        bool     // only runs of targets that are not in Called and that another process calls
	NeverClaimed  bool     // only runs never claimed; else only runs claimed before
	NewestFirst   bool     // in descending order of due time; else ascending
	StartFraction float64  // with NeverClaimed, ascending: start between the oldest (0) and the newest (1)
	After         Cursor   // for runs claimed before: strictly after
	Due           time.Time
	Limit         int
}

// BreakerStore stores circuit breakers for all processes.
type BreakerStore interface {
	// Breakers lists the breakers that are not closed.
	Breakers(ctx context.Context) ([]circuit.Breaker, error)
	// BreakerChangedAt returns when a breaker of a target last changed, of its tenant alone or
	// over all tenants, as that change recorded it; zero when none ever changed.
	BreakerChangedAt(ctx context.Context, t circuit.Scope) (time.Time, error)
	// UpdateBreaker changes a breaker and writes a receipt, in one commit. It calls decide with
	// the newest state, which is a closed breaker of version 0 when there is none. When decide
	// returns false nothing is written, and changed is false. now is the breaker as it is then.
	UpdateBreaker(ctx context.Context, t circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (now circuit.Breaker, changed bool, err error)
	// RecordProbes writes Probes, NewCasesProbed, Paused and FewSince of a breaker, without a receipt, if
	// its version is still the one before next's and its state is next's. It reports whether it
	// did.
	RecordProbes(ctx context.Context, next circuit.Breaker) (bool, error)
	// PausedRuns lists waiting runs that a target's breaker applies to, with the fields that
	// DueRuns reads.
	PausedRuns(ctx context.Context, q PausedQuery) ([]Run, error)
	// CountPausedRuns counts the waiting runs that a target's breaker applies to, due or not, up
	// to most: all of them, and those of the targets in called. A nil called means all.
	CountPausedRuns(ctx context.Context, t circuit.Scope, called []string, most int) (all, named int, err error)
	// RecordPaused writes the receipt, in the tenant's own trail, that the breaker of a target
	// over all tenants pauses its runs. It does so once per opening, and not when the breaker is
	// closed.
	RecordPaused(ctx context.Context, tenant string, t circuit.Scope, at time.Time) error
	// RecordClosed writes the receipts, in the trails of paused tenants, that an opening is
	// over, up to limit. It returns how many it wrote.
	RecordClosed(ctx context.Context, at time.Time, limit int) (int, error)
}

// BreakerOpen reports whether an open or half-open breaker applies to a run, as last read by
// this process.
func (m *Manager) BreakerOpen(r Run) bool {
	known := *m.breakers.current.Load()
	own, all := m.targets.breakerScopes(r)
	_, ownBlocks := known[own]
	_, allBlocks := known[all]
	return ownBlocks || allBlocks
}

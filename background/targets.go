package background

import (
	"maps"
	"slices"
	"sync"

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
func (s *targetSet) breakerScopes(r *Run) (own, all circuit.Scope) {
	all = s.breakerScope(r)
	return circuit.Scope{Tenant: r.Tenant, Family: all.Family, Name: all.Name}, all
}

// breakerScope returns the target over all tenants whose breaker applies to the run.
func (s *targetSet) breakerScope(r *Run) circuit.Scope {
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
func (s *targetSet) logUnknown(r *Run) {
	if _, logged := s.unknownLogged.LoadOrStore(circuit.Scope{Family: r.Family, Name: r.Target}, true); !logged {
		s.log.Error("runs wait for a process that calls their target", zap.String("target", r.Target), zap.String("family", r.Family), zap.Stringer("run", r.ID))
	}
}

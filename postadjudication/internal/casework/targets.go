package casework

import (
	"context"
	"maps"
	"slices"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// failureTargetUnknown is the failure type for a target that this process does not call.
const failureTargetUnknown = "executor.target_unknown"

// Targets are the escrow services that a process knows, by name, and the payment queues of remote workers.
// A nil executor marks a payment queue, or an alias of escrow.DefaultTarget.
type Targets map[string]escrow.Executor

// Names returns the sorted names.
func (t Targets) Names() []string { return slices.Sorted(maps.Keys(t)) }

// Knows reports whether adjudications may name a target.
func (t Targets) Knows(target string) bool {
	_, known := t[target]
	return known
}

// Pays reports whether remote workers fetch adjudications from a queue. Nothing else enters it.
func (t Targets) Pays(queue string) bool { return t.Knows(escrow.RemotePrefix + queue) }

// CheckPlainQueue refuses a payment queue for what is no adjudication: a worker that pays what it fetches
// must not be given the work of someone who decided nothing.
func (t Targets) CheckPlainQueue(queue string) error {
	if t.Pays(queue) {
		return &refusal.FieldError{Field: "queue", Problem: "is a payment queue: only adjudications enter it"}
	}
	return nil
}

// breakerTarget returns the target whose circuit breaker a target uses.
func (t Targets) breakerTarget(name string) string {
	if executor, known := t[name]; known && executor == nil && !escrow.IsRemote(name) {
		return escrow.DefaultTarget
	}
	return name
}

// SameService reports whether two targets are names of one escrow service.
func (t Targets) SameService(a, b string) bool { return t.breakerTarget(a) == t.breakerTarget(b) }

// BreakerTargets maps each target to the one whose circuit breaker it uses.
func (t Targets) BreakerTargets() map[string]string {
	out := make(map[string]string, len(t))
	for name := range t {
		out[name] = t.breakerTarget(name)
	}
	return out
}

// SharedBreakers maps each target that uses the circuit breaker of another one to that one.
func (t Targets) SharedBreakers() map[circuit.Scope]string {
	out := map[circuit.Scope]string{}
	for name, of := range t.BreakerTargets() {
		if of != name {
			out[circuit.Scope{Family: Family, Name: name}] = of
		}
	}
	return out
}

// ExecutorOf returns the executor of a target; nil if this process does not call it. Remote workers
// need no process that calls.
func (f *SettlementFamily) ExecutorOf(target string) escrow.Executor {
	if escrow.IsRemote(target) {
		return remoteExecutor{f.Remote}
	}
	executor, known := f.Targets[target]
	if !known {
		return nil
	}
	if executor == nil {
		return f.Executor
	}
	return executor
}

// lookupTargets returns the targets whose executor is a Lookuper.
func (f *SettlementFamily) lookupTargets() (names []string) {
	for _, name := range f.Targets.Names() {
		if _, ok := f.ExecutorOf(name).(escrow.Lookuper); ok {
			names = append(names, name)
		}
	}
	return names
}

// BreakerName returns the target whose circuit breaker a target of a family uses: as recorded, else
// as this process is configured.
func (f *SettlementFamily) BreakerName(ctx context.Context, family, target string) (string, error) {
	name, err := f.Journal.Targets.BreakerOf(ctx, family, target)
	if name != "" || err != nil {
		return name, err
	}
	if family == Family {
		return f.Targets.breakerTarget(target), nil
	}
	return target, nil
}

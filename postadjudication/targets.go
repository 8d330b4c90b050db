package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// Target is an escrow service that adjudications may name beside DefaultTarget.
type Target struct {
	Name string // at most 64 bytes of plain text
	// Executor calls it. Without one it is another name of DefaultTarget: Config.Executor is
	// called, and the circuit breaker of DefaultTarget holds for both.
	Executor Executor
}

// ErrTargetUnknown means that this process does not call the escrow service of a run: it is
// none of Config.Targets.
var ErrTargetUnknown = background.ErrTargetUnknown

// failureTargetUnknown is the type of a failure: this process does not call the run's target.
const failureTargetUnknown = "executor.target_unknown"

// checkTargets refuses targets that can't be told apart, by name or by circuit breaker: an
// executor has one breaker, which nobody may walk around by another name.
func (c *Config) checkTargets() error {
	names := map[string]bool{DefaultTarget: true, Family: true}
	for _, p := range c.Families {
		names[p.Name] = true
	}
	executors := []Executor{c.Executor}
	for _, t := range c.Targets {
		switch {
		case t.Name == "" || len(t.Name) > 64 || !isPlainText(t.Name):
			return fmt.Errorf("postadjudication: Config.Targets names %q: want at most 64 bytes of plain text", t.Name)
		case names[t.Name]:
			return fmt.Errorf("postadjudication: Config.Targets names %q, which is the name of another target or of a family", t.Name)
		case t.Executor != nil && c.Executor == nil:
			return fmt.Errorf("postadjudication: Config.Targets has an executor for %q, and Config.Executor is missing", t.Name)
		case t.Executor != nil && slices.ContainsFunc(executors, func(e Executor) bool { return sameExecutor(e, t.Executor) }):
			return fmt.Errorf("postadjudication: Config.Targets gives %q the executor of another target, whose circuit breaker would be walked around; another name of %s has none", t.Name, DefaultTarget)
		}
		names[t.Name] = true
		executors = append(executors, t.Executor)
	}
	return nil
}

func sameExecutor(a, b Executor) bool {
	return a != nil && reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// targets are the escrow services that a process knows, by name. Those without an executor of
// their own are other names of DefaultTarget.
type targets map[string]Executor

func targetsOf(c *Config) targets {
	out := targets{DefaultTarget: nil}
	for _, t := range c.Targets {
		out[t.Name] = t.Executor
	}
	return out
}

// names are sorted.
func (t targets) names() []string { return slices.Sorted(maps.Keys(t)) }

// breakerTarget is the target whose circuit breaker a target goes by.
func (t targets) breakerTarget(name string) string {
	if executor, known := t[name]; known && executor == nil {
		return DefaultTarget
	}
	return name
}

// breakerTargets maps each target to the one whose circuit breaker it goes by.
func (t targets) breakerTargets() map[string]string {
	out := make(map[string]string, len(t))
	for name := range t {
		out[name] = t.breakerTarget(name)
	}
	return out
}

// sharedBreakers are the targets that go by the circuit breaker of another one.
func (t targets) sharedBreakers() map[background.Target]string {
	out := map[background.Target]string{}
	for name, of := range t.breakerTargets() {
		if of != name {
			out[background.Target{Family: Family, Name: name}] = of
		}
	}
	return out
}

// executorOf is who calls a target; nil when this process does not call it.
func (f *settlementFamily) executorOf(target string) Executor {
	executor, known := f.targets[target]
	if !known {
		return nil
	}
	if executor == nil {
		return f.executor
	}
	return executor
}

// lookupTargets names the targets that a lookup can be asked of.
func (f *settlementFamily) lookupTargets() (names []string) {
	for _, name := range f.targets.names() {
		if _, ok := f.executorOf(name).(Lookuper); ok {
			names = append(names, name)
		}
	}
	return names
}

// ErrTargets means that this process has a target go by another circuit breaker than the one
// recorded, by which other processes go. The error says in one line which, and what to do.
var ErrTargets = postgres.ErrTargetsDiffer

// recordTargets records by whose circuit breakers the targets of this process go, for the claims
// of all processes and for whoever looks. Only a process that executes does. It waits while
// Postgres is away; its only error is ErrTargets. It returns nil when ctx ends.
func (s *Service) recordTargets(ctx context.Context) error {
	for failing := false; ctx.Err() == nil; failing = true {
		err := s.manager.MeasureClock(ctx)
		if err == nil {
			err = s.journal.RecordTargets(ctx, Family, s.settlements.targets.breakerTargets(), s.now().Add(-sessionTimeout))
		}
		if err == nil || errors.Is(err, ErrTargets) {
			return err
		}
		if !failing {
			s.log.Warn("by whose circuit breakers targets go is not recorded yet, trying on", zap.Error(err))
		}
		select {
		case <-time.After(recordTargetsEvery):
		case <-ctx.Done():
		}
	}
	return nil
}

// recordTargetsEvery is how often it is tried again to record the breakers of targets.
const recordTargetsEvery = time.Second

// breakerName is whose circuit breaker a target of a family goes by: as recorded, else as this
// process is configured.
func (s *Service) breakerName(ctx context.Context, family, target string) (string, error) {
	name, err := s.journal.BreakerTarget(ctx, family, target)
	if name != "" || err != nil {
		return name, err
	}
	if family == Family {
		return s.settlements.targets.breakerTarget(target), nil
	}
	return target, nil
}

// findBreaker finds whose circuit breaker a target of a tenant names, or a family by its name. One
// of the target itself that is not closed comes first, so that it can be released.
func (s *Service) findBreaker(ctx context.Context, tenant, target string) (of background.Target, err error) {
	if of.Family, err = s.familyOf(ctx, tenant, target); err != nil {
		return of, err
	}
	of.Name = target
	if tenant != AllTenants {
		of.Tenant = tenant
	}
	found, err := s.journal.TargetBreakers(ctx, of)
	if err != nil || slices.ContainsFunc(found, func(b background.Breaker) bool { return b.Target == of }) {
		return of, err
	}
	of.Name, err = s.breakerName(ctx, of.Family, target)
	return of, err
}

// unknownTargetError refuses an adjudication of a target that this process does not know.
func unknownTargetError(t targets) error {
	return &FieldError{Field: "target", Problem: fmt.Sprintf("must be a target that is configured: %q", t.names())}
}

// answerUnaccepted answers an adjudication that is not accepted any more: its target is one that this
// process does not know, or it is unsafe. One that was accepted before is answered as that;
// anything else is refused.
func (s *Service) answerUnaccepted(ctx context.Context, a *admission, wait bool) (Submitted, error) {
	seen, err := s.journal.SubjectSnapshot(ctx, a.Tenant, postgres.KindSettlement, a.TransactionReceiptID)
	switch {
	case errors.Is(err, ErrNotFound):
		return Submitted{}, a.unsafeErr
	case err != nil:
		return Submitted{}, err
	}
	reply := a.reply(&seen)
	switch reply {
	case AlreadyExecuted, Deduplicated, DeadLettered, Cancelled, StaleGeneration:
	default:
		return Submitted{}, a.unsafeErr
	}
	out, err := s.submitted(&seen, replyError(reply))
	if err == nil {
		out, err = s.completeReply(ctx, a, out, wait)
	}
	if err == nil && out.Reply == StaleGeneration {
		return Submitted{}, a.unsafeErr
	}
	return out, err
}

// Uncalled is how many live runs and open dead letters name a target that no process calls.
type Uncalled = postgres.Uncalled

// Uncalled lists the targets of live runs and open dead letters of settlements, of all tenants,
// that no running process calls: nobody executes these, or asks about them, until one does. It
// reads every one of them.
func (s *Service) Uncalled(ctx context.Context) ([]Uncalled, error) {
	if err := s.manager.MeasureClock(ctx); err != nil {
		return nil, err
	}
	return s.journal.Uncalled(ctx, Family, s.now().Add(-sessionTimeout))
}

// waitsForTarget tells if no running process that serves the run's queue calls its target.
func (st *Status) waitsForTarget(r background.Run, sessions []background.Session) {
	calls := func(s background.Session) bool {
		return slices.Contains(s.Queues, r.Queue) && slices.Contains(s.Targets, r.Target)
	}
	if r.Family == Family && st.WaitsFor == "" && !slices.ContainsFunc(sessions, calls) {
		st.setWait(WaitsForTarget, "no running process calls the escrow service %s: start one that does, or cancel the run", r.Target)
	}
}

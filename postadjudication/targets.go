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
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// Target is an escrow service that adjudications may name, besides escrow.DefaultTarget.
type Target struct {
	Name string // at most 64 bytes of plain text
	// Executor calls it. If nil, the target is an alias of escrow.DefaultTarget: it has the executor and
	// the circuit breaker of escrow.DefaultTarget.
	Executor escrow.Executor
}

// ErrTargetUnknown means that this process does not call the escrow service of a run: it is
// not one of Config.Targets.
var ErrTargetUnknown = background.ErrTargetUnknown

// failureTargetUnknown is the failure type for a target that this process does not call.
const failureTargetUnknown = "executor.target_unknown"

// checkTargets refuses targets without a unique name or circuit breaker: an executor has one
// breaker, and a second name for the executor must not bypass it.
func (c *Config) checkTargets() error {
	names := map[string]bool{escrow.DefaultTarget: true, Family: true}
	for _, p := range c.Families {
		names[p.Name] = true
	}
	executors := []escrow.Executor{c.Executor}
	for _, t := range c.Targets {
		switch {
		case t.Name == "" || len(t.Name) > 64 || !isPlainText(t.Name):
			return fmt.Errorf("postadjudication: Config.Targets names %q: want at most 64 bytes of plain text", t.Name)
		case names[t.Name]:
			return fmt.Errorf("postadjudication: Config.Targets names %q, which is the name of another target or of a family", t.Name)
		case t.Executor != nil && c.Executor == nil:
			return fmt.Errorf("postadjudication: Config.Targets has an executor for %q, and Config.Executor is missing", t.Name)
		case t.Executor != nil && slices.ContainsFunc(executors, func(e escrow.Executor) bool { return sameExecutor(e, t.Executor) }):
			return fmt.Errorf("postadjudication: Config.Targets gives %q the executor of another target, whose circuit breaker would be bypassed; for an alias of %s leave Executor nil", t.Name, escrow.DefaultTarget)
		}
		names[t.Name] = true
		executors = append(executors, t.Executor)
	}
	return nil
}

func sameExecutor(a, b escrow.Executor) bool {
	return a != nil && reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// targets are the escrow services that a process knows, by name. A nil executor marks an alias
// of escrow.DefaultTarget.
type targets map[string]escrow.Executor

func targetsOf(c *Config) targets {
	out := targets{escrow.DefaultTarget: nil}
	for _, t := range c.Targets {
		out[t.Name] = t.Executor
	}
	return out
}

// names returns the sorted names.
func (t targets) names() []string { return slices.Sorted(maps.Keys(t)) }

// breakerTarget returns the target whose circuit breaker a target uses.
func (t targets) breakerTarget(name string) string {
	if executor, known := t[name]; known && executor == nil {
		return escrow.DefaultTarget
	}
	return name
}

// breakerTargets maps each target to the one whose circuit breaker it uses.
func (t targets) breakerTargets() map[string]string {
	out := make(map[string]string, len(t))
	for name := range t {
		out[name] = t.breakerTarget(name)
	}
	return out
}

// sharedBreakers maps each target that uses the circuit breaker of another one to that one.
func (t targets) sharedBreakers() map[background.Target]string {
	out := map[background.Target]string{}
	for name, of := range t.breakerTargets() {
		if of != name {
			out[background.Target{Family: Family, Name: name}] = of
		}
	}
	return out
}

// executorOf returns the executor of a target; nil if this process does not call it.
func (f *settlementFamily) executorOf(target string) escrow.Executor {
	executor, known := f.targets[target]
	if !known {
		return nil
	}
	if executor == nil {
		return f.executor
	}
	return executor
}

// lookupTargets returns the targets whose executor is a Lookuper.
func (f *settlementFamily) lookupTargets() (names []string) {
	for _, name := range f.targets.names() {
		if _, ok := f.executorOf(name).(escrow.Lookuper); ok {
			names = append(names, name)
		}
	}
	return names
}

// ErrTargets means that a target of this process uses another circuit breaker than the recorded
// one, which other processes use. The error says in one line which, and what to do.
var ErrTargets = journal.ErrTargetsDiffer

// recordTargets records which circuit breakers the targets of this process use, for the claims of
// all processes and for readers. Only a process that executes records them. It retries while
// Postgres is away; its only error is ErrTargets. It returns nil if ctx ends.
func (s *Service) recordTargets(ctx context.Context) error {
	for failing := false; ctx.Err() == nil; failing = true {
		err := s.manager.MeasureClock(ctx)
		if err == nil {
			err = s.journal.Targets.Record(ctx, Family, s.settlements.targets.breakerTargets(), s.now().Add(-sessionTimeout))
		}
		if err == nil || errors.Is(err, ErrTargets) {
			return err
		}
		if !failing {
			s.log.Warn("can't record the circuit breakers of targets, retrying", zap.Error(err))
		}
		select {
		case <-time.After(recordTargetsEvery):
		case <-ctx.Done():
		}
	}
	return nil
}

// recordTargetsEvery is the interval between retries of recordTargets.
const recordTargetsEvery = time.Second

// breakerName returns the target whose circuit breaker a target of a family uses: as recorded, else
// as this process is configured.
func (s *Service) breakerName(ctx context.Context, family, target string) (string, error) {
	name, err := s.journal.Targets.BreakerOf(ctx, family, target)
	if name != "" || err != nil {
		return name, err
	}
	if family == Family {
		return s.settlements.targets.breakerTarget(target), nil
	}
	return target, nil
}

// findBreaker returns the circuit breaker that a target of a tenant, or the name of a family, refers
// to. If the target has a breaker of its own that is not closed, that one is returned, so that it
// can be released.
func (s *Service) findBreaker(ctx context.Context, tenant, target string) (of background.Target, err error) {
	if of.Family, err = s.familyOf(ctx, tenant, target); err != nil {
		return of, err
	}
	of.Name = target
	if tenant != AllTenants {
		of.Tenant = tenant
	}
	found, err := s.journal.Breakers.TargetBreakers(ctx, of)
	if err != nil || slices.ContainsFunc(found, func(b background.Breaker) bool { return b.Target == of }) {
		return of, err
	}
	of.Name, err = s.breakerName(ctx, of.Family, target)
	return of, err
}

// unknownTargetError is the error for an adjudication of a target that this process does not know.
func unknownTargetError(t targets) error {
	return &FieldError{Field: "target", Problem: fmt.Sprintf("must be a configured target: %q", t.names())}
}

// answerUnaccepted answers an adjudication that is no longer acceptable: this process does not know
// its target, or it is unsafe. If the same adjudication was accepted before, the reply is that of
// a repetition; else it is refused.
func (s *Service) answerUnaccepted(ctx context.Context, a *admission, wait bool) (Submitted, error) {
	seen, err := s.journal.Cases.SubjectSnapshot(ctx, a.Tenant, journal.KindSettlement, a.TransactionReceiptID)
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

// Uncalled is the number of live runs and open dead letters of a target that no process calls.
type Uncalled = journal.Uncalled

// Uncalled returns the targets of live runs and open dead letters of settlements, of all tenants,
// that no running process calls: they can be neither executed nor looked up until one does. It
// reads all these runs and letters.
func (s *Service) Uncalled(ctx context.Context) ([]Uncalled, error) {
	if err := s.manager.MeasureClock(ctx); err != nil {
		return nil, err
	}
	return s.journal.Metrics.Uncalled(ctx, Family, s.now().Add(-sessionTimeout))
}

// waitsForTarget sets the reason if no running process that serves the run's queue calls its target.
func (st *Status) waitsForTarget(r background.Run, sessions []background.Session) {
	calls := func(s background.Session) bool {
		return slices.Contains(s.Queues, r.Queue) && slices.Contains(s.Targets, r.Target)
	}
	if r.Family == Family && st.WaitsFor == "" && !slices.ContainsFunc(sessions, calls) {
		st.setWait(WaitsForTarget, "no running process calls the escrow service %s: start one that does, or cancel the run", r.Target)
	}
}

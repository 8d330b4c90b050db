package postadjudication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Target is an escrow service that adjudications may name, besides escrow.DefaultTarget.
type Target struct {
	Name string // an id of at most 64 bytes
	// Executor calls it. If nil, the target is an alias of escrow.DefaultTarget: it has the executor and
	// the circuit breaker of escrow.DefaultTarget.
	Executor escrow.Executor
}

// checkTargets refuses targets without a unique name or circuit breaker: an executor has one
// breaker, and a second name for the executor must not bypass it.
func (c *Config) checkTargets() error {
	names := map[string]bool{escrow.DefaultTarget: true, casework.Family: true}
	for _, p := range c.Families {
		names[p.Name] = true
	}
	executors := []escrow.Executor{c.Executor}
	for _, t := range c.Targets {
		wrong := cmp.Or(validate.KnownID("Name", t.Name, escrow.MaxTarget), validate.IDForm("Name", t.Name))
		switch {
		case wrong != nil:
			return fmt.Errorf("postadjudication: Config.Targets names %q: %w", t.Name, wrong)
		case escrow.IsRemote(t.Name):
			return fmt.Errorf("postadjudication: Config.Targets names %q: %s begins the targets of remote workers: name their queue in Config.PaymentQueues", t.Name, escrow.RemotePrefix)
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
	for i, queue := range c.PaymentQueues {
		if _, valid := escrow.RemoteQueue(escrow.RemotePrefix + queue); !valid || slices.Contains(c.PaymentQueues[:i], queue) {
			return fmt.Errorf("postadjudication: Config.PaymentQueues names %q: want each queue once, of lower-case letters, digits, dashes and dots, at most %d bytes", queue, escrow.MaxTarget-len(escrow.RemotePrefix))
		}
	}
	return nil
}

func sameExecutor(a, b escrow.Executor) bool {
	return a != nil && reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

func targetsOf(c *Config) casework.Targets {
	out := casework.Targets{escrow.DefaultTarget: nil}
	for _, t := range c.Targets {
		out[t.Name] = t.Executor
	}
	for _, queue := range c.PaymentQueues {
		out[escrow.RemotePrefix+queue] = nil
	}
	return out
}

// PaymentQueue reports whether remote workers fetch adjudications from a queue, as Config.PaymentQueues says.
func (s *Service) PaymentQueue(queue string) bool { return s.settlements.Targets.Pays(queue) }

// ErrTargets means that a target of this process uses another circuit breaker than the recorded
// one, which other processes use. The error says in one line which, and what to do.
var ErrTargets = journal.ErrTargetsDiffer

// recordTargets records which circuit breakers the targets of this process use, for the claims of
// all processes and for readers. Only a process that executes records them. It retries while
// Postgres is away; its only error is ErrTargets. It returns nil if ctx ends.
func (s *Service) recordTargets(ctx context.Context) error {
	for failing := false; ctx.Err() == nil; failing = true {
		err := s.engine.MeasureClock(ctx)
		if err == nil {
			err = s.journal.Targets.Record(ctx, casework.Family, s.settlements.Targets.BreakerTargets(), s.now().Add(-casework.SessionTimeout))
		}
		if err == nil || errors.Is(err, ErrTargets) {
			return err
		}
		if !failing {
			s.log.Warn("can't record the circuit breakers of targets, retrying", zap.Error(err))
		}
		casework.Sleep(ctx, recordTargetsEvery, nil)
	}
	return nil
}

// recordTargetsEvery is the interval between retries of recordTargets.
const recordTargetsEvery = time.Second

// unknownTargetError is the error for an adjudication of a target that this process does not know.
func unknownTargetError(t casework.Targets) error {
	return &refusal.FieldError{Field: "target", Problem: fmt.Sprintf("must be a configured target: %q; serve --payment-queue adds a queue of remote workers", t.Names())}
}

// Uncalled is the number of live runs and open dead letters of a target that no process calls.
type Uncalled = journal.Uncalled

// Uncalled returns the targets of live runs and open dead letters of settlements, of all tenants,
// that no running process calls: they can be neither executed nor looked up until one does. It
// reads all these runs and letters.
func (h *Health) Uncalled(ctx context.Context) ([]Uncalled, error) {
	if err := h.s.engine.MeasureClock(ctx); err != nil {
		return nil, err
	}
	return h.s.journal.Levels.Uncalled(ctx, casework.Family, h.s.now().Add(-casework.SessionTimeout))
}

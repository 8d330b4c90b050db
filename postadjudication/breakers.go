package postadjudication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// BreakerRule says when a circuit breaker opens automatically, and how it probes.
type BreakerRule = circuit.Rule

// AllTenants stands for all tenants where a circuit breaker is changed or listed. No
// adjudication can be submitted under this name. Its trail holds the receipts of the breakers
// over all tenants.
const AllTenants = journal.AllTenants

// ErrBreakerNotOpen: the circuit breaker is closed, so there is nothing to release.
var ErrBreakerNotOpen = errors.New("postadjudication: the circuit breaker is not open")

// Open opens the circuit breaker of a target by hand, for a tenant or over AllTenants,
// until a person releases it. target is any name of an escrow service, the name of a plain
// family, or escrow.RemotePrefix and the name of a queue, from which no remote worker is given a
// run then. When it returns, the change is committed with its receipt, and no process claims a
// run of the target that was not already being claimed. Attempts in flight continue. A breaker
// that opened automatically is then open by hand. A second call changes nothing.
func (t TenantBreakers) Open(ctx context.Context, target, reason string) (casestatus.Breaker, error) {
	of, err := t.toChange(ctx, target, reason)
	if err != nil {
		return casestatus.Breaker{}, err
	}
	if err := t.checkRoom(ctx, of); err != nil {
		return casestatus.Breaker{}, err
	}
	reason = validate.Clean(reason, 1024)
	for {
		now, _, err := t.s.engine.UpdateBreaker(ctx, of, func(now circuit.Breaker) (circuit.Breaker, bool) {
			return now.Open(true, t.actor, circuit.CauseManual, reason, t.s.now())
		})
		if err != nil {
			return casestatus.BreakerOf(now), err
		}
		// A process that started meanwhile may have mapped the target to another breaker.
		name, err := t.s.journal.Targets.SettledBreakerOf(ctx, of.Family, target)
		if err != nil || name == "" || name == of.Name {
			return casestatus.BreakerOf(now), err
		}
		of.Name = name
	}
}

// Release releases a circuit breaker, whoever opened it. An open breaker over all
// tenants becomes half-open: it probes, and closes after enough answers. A half-open one closes
// at once. A breaker of one tenant closes at once, since probing the target is up to the one
// over all tenants. ErrBreakerNotOpen if the breaker is closed.
func (t TenantBreakers) Release(ctx context.Context, target, reason string) (casestatus.Breaker, error) {
	of, err := t.toChange(ctx, target, reason)
	if err != nil {
		return casestatus.Breaker{}, err
	}
	reason = validate.Clean(reason, 1024)
	now, changed, err := t.s.engine.UpdateBreaker(ctx, of, func(now circuit.Breaker) (circuit.Breaker, bool) {
		return now.Release(t.actor, circuit.CauseManual, reason, t.s.now())
	})
	if err == nil && !changed {
		err = ErrBreakerNotOpen
	}
	return casestatus.BreakerOf(now), err
}

// List lists the circuit breakers that were ever opened for a tenant and those over all
// tenants, closed ones included. For AllTenants it lists only the latter.
func (t TenantBreakers) List(ctx context.Context) ([]casestatus.Breaker, error) {
	found, err := t.s.journal.Breakers.TenantBreakers(ctx, t.tenant)
	if err != nil {
		return nil, err
	}
	out := make([]casestatus.Breaker, len(found))
	for i, b := range found {
		out[i] = casestatus.BreakerOf(b)
	}
	return out, nil
}

// maxOpenBreakers is with how many open circuit breakers a tenant opens no other by hand. Every process reads all that are
// open each time a run may be paused, and a queue may be paused under any name. It bounds work, not money: callers that
// open at once may exceed it by as many.
const maxOpenBreakers = 100

// checkRoom returns an error if a tenant has as many open circuit breakers as it may, and this one is not of them.
func (t TenantBreakers) checkRoom(ctx context.Context, of circuit.Scope) error {
	if t.tenant == AllTenants {
		return nil
	}
	found, err := t.s.journal.Breakers.TenantBreakers(ctx, t.tenant)
	if err != nil {
		return err
	}
	open := 0
	for _, b := range found {
		switch {
		case b.Scope == of && b.Blocks():
			return nil
		case b.Scope.Tenant == t.tenant && b.Blocks():
			open++
		}
	}
	if open >= maxOpenBreakers {
		return &refusal.FieldError{Field: "target", Problem: fmt.Sprintf("is one too many: %d circuit breakers of the tenant are open; release one first", open)}
	}
	return nil
}

// toChange validates a person's request and returns the target of its circuit breaker.
func (t TenantBreakers) toChange(ctx context.Context, target, reason string) (circuit.Scope, error) {
	if err := validateBreakerChange(t.tenant, target, t.actor, reason); err != nil {
		return circuit.Scope{}, err
	}
	return t.find(ctx, target)
}

// maxBreakerTarget bounds the target of a circuit breaker: a queue of jobs has a longer name than a target.
const maxBreakerTarget = len(escrow.RemotePrefix) + 128

func validateBreakerChange(tenant, target, actor, reason string) error {
	errs := []error{validate.KnownID("tenant", tenant, 128)}
	for _, f := range []struct {
		name, value string
		most        int
	}{{"target", target, maxBreakerTarget}, {"actor", actor, 128}, {"reason", reason, 1024}} {
		if f.value == "" || len(f.value) > f.most || !validate.PlainText(f.value) {
			errs = append(errs, &refusal.FieldError{Field: f.name, Problem: "must be plain text, not empty and not too long"})
		}
	}
	return errors.Join(append(errs, validate.NoSecret("target", target), validate.NoSecret("actor", actor))...)
}

// Called returns the escrow services and the families of tasks that running processes call, sorted. It
// is empty while no process runs. A breaker can be opened for any other name, and pauses nothing then.
func (t TenantBreakers) Called(ctx context.Context) ([]string, error) {
	sessions, err := t.s.applier.Sessions.Running(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range sessions {
		names = append(names, s.Targets...)
		for _, queue := range s.Queues {
			if family, _, _ := strings.Cut(queue, ":"); family != casework.Family {
				names = append(names, family)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// familyOf returns the family of a target: a plain family is its own, any other name is an
// escrow service.
func (t TenantBreakers) familyOf(ctx context.Context, target string) (string, error) {
	if t.s.applier.PlainFamilies[target] != nil {
		return target, nil
	}
	found, err := t.s.journal.Breakers.TenantBreakers(ctx, t.tenant)
	if err != nil {
		return "", err
	}
	for _, b := range found {
		if b.Name == target && b.Family == target {
			return target, nil // a plain family of another process
		}
	}
	return casework.Family, nil
}

// Breakers returns the circuit breakers that are not closed, as known to this process.
// stalled are those with paused runs but no new case to probe with: these need a person.
func (h *Health) Breakers() (open, stalled []casestatus.Breaker) {
	blocking, stuck := h.s.engine.Breakers()
	for _, b := range blocking {
		open = append(open, casestatus.BreakerOf(b))
	}
	for _, b := range stuck {
		stalled = append(stalled, casestatus.BreakerOf(b.Breaker))
	}
	byName := func(a, b casestatus.Breaker) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Tenant, b.Tenant))
	}
	slices.SortFunc(open, byName)
	slices.SortFunc(stalled, byName)
	return open, stalled
}

// find returns the circuit breaker that a target of a tenant, or the name of a family, refers
// to. If the target has a breaker of its own that is not closed, that one is returned, so that it
// can be released.
func (t TenantBreakers) find(ctx context.Context, target string) (of circuit.Scope, err error) {
	if of.Family, err = t.familyOf(ctx, target); err != nil {
		return of, err
	}
	of.Name = target
	if t.tenant != AllTenants {
		of.Tenant = t.tenant
	}
	found, err := t.s.journal.Breakers.TargetBreakers(ctx, of)
	if err != nil || slices.ContainsFunc(found, func(b circuit.Breaker) bool { return b.Scope == of }) {
		return of, err
	}
	of.Name, err = t.s.settlements.BreakerName(ctx, of.Family, target)
	return of, err
}

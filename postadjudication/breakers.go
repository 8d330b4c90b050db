package postadjudication

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// BreakerRule says when a circuit breaker opens automatically, and how it probes.
type BreakerRule = background.BreakerRule

// AllTenants stands for all tenants where a circuit breaker is changed or listed. No
// adjudication can be submitted under this name. Its trail holds the receipts of the breakers
// over all tenants.
const AllTenants = journal.AllTenants

// Breaker is the circuit breaker of one escrow service or plain family, over all tenants or for
// one. Unless it is closed, accepted runs of that target are paused: they stay pending or
// scheduled.
type Breaker struct {
	Tenant string                  `json:"tenant"` // AllTenants for all
	Family string                  `json:"family"`
	Target string                  `json:"target"`
	State  background.BreakerState `json:"state"`
	ByHand bool                    `json:"by_hand"` // opened by a person; stays open until a person releases it
	Actor  string                  `json:"actor"`   // of the last change
	Cause  string                  `json:"reason_code"`
	Reason string                  `json:"reason"`
	At     time.Time               `json:"at"`
	Since  *time.Time              `json:"open_since,omitempty"` // nil: it is closed
	Paused int                     `json:"paused_runs"`          // as last counted; 1000 means 1000 or more. Not counted while ByHand
}

// ErrBreakerNotOpen: the circuit breaker is closed, so there is nothing to release.
var ErrBreakerNotOpen = errors.New("postadjudication: the circuit breaker is not open")

// Open opens the circuit breaker of a target by hand, for a tenant or over AllTenants,
// until a person releases it. target is any name of an escrow service, or the name of a plain
// family. When it returns, the change is committed with its receipt, and no process claims a
// run of the target that was not already being claimed. Attempts in flight continue. A breaker
// that opened automatically is then open by hand. A second call changes nothing.
func (t TenantBreakers) Open(ctx context.Context, target, reason string) (Breaker, error) {
	of, err := t.s.breakerToMove(ctx, t.tenant, target, t.actor, reason)
	if err != nil {
		return Breaker{}, err
	}
	reason = cleanText(reason, 1024)
	for {
		now, _, err := t.s.manager.UpdateBreaker(ctx, of, func(now background.Breaker) (background.Breaker, bool) {
			return now.Open(true, t.actor, background.CauseManual, reason, t.s.now())
		})
		if err != nil {
			return breakerFrom(now), err
		}
		// A process that started meanwhile may have mapped the target to another breaker.
		name, err := t.s.journal.Targets.SettledBreakerOf(ctx, of.Family, target)
		if err != nil || name == "" || name == of.Name {
			return breakerFrom(now), err
		}
		of.Name = name
	}
}

// Release releases a circuit breaker, whoever opened it. An open breaker over all
// tenants becomes half-open: it probes, and closes after enough answers. A half-open one closes
// at once. A breaker of one tenant closes at once, since probing the target is up to the one
// over all tenants. ErrBreakerNotOpen if the breaker is closed.
func (t TenantBreakers) Release(ctx context.Context, target, reason string) (Breaker, error) {
	of, err := t.s.breakerToMove(ctx, t.tenant, target, t.actor, reason)
	if err != nil {
		return Breaker{}, err
	}
	reason = cleanText(reason, 1024)
	now, changed, err := t.s.manager.UpdateBreaker(ctx, of, func(now background.Breaker) (background.Breaker, bool) {
		return now.Release(t.actor, background.CauseManual, reason, t.s.now())
	})
	if err == nil && !changed {
		err = ErrBreakerNotOpen
	}
	return breakerFrom(now), err
}

// List lists the circuit breakers that were ever opened for a tenant and those over all
// tenants, closed ones included. For AllTenants it lists only the latter.
func (t TenantBreakers) List(ctx context.Context) ([]Breaker, error) {
	found, err := t.s.journal.Breakers.TenantBreakers(ctx, t.tenant)
	if err != nil {
		return nil, err
	}
	out := make([]Breaker, len(found))
	for i, b := range found {
		out[i] = breakerFrom(b)
	}
	return out, nil
}

// breakerToMove validates a person's request and returns the target of its circuit breaker.
func (s *Service) breakerToMove(ctx context.Context, tenant, target, actor, reason string) (background.Target, error) {
	if err := validateBreakerChange(tenant, target, actor, reason); err != nil {
		return background.Target{}, err
	}
	return s.findBreaker(ctx, tenant, target)
}

func validateBreakerChange(tenant, target, actor, reason string) error {
	var errs []error
	for _, f := range []struct {
		name, value string
		most        int
	}{{"tenant", tenant, 128}, {"target", target, 64}, {"actor", actor, 128}, {"reason", reason, 1024}} {
		if f.value == "" || len(f.value) > f.most || !isPlainText(f.value) {
			errs = append(errs, &FieldError{Field: f.name, Problem: "must be plain text, not empty and not too long"})
		}
	}
	return errors.Join(append(errs, rejectSecret("target", target), rejectSecret("actor", actor))...)
}

// familyOf returns the family of a target: a plain family is its own, any other name is an
// escrow service.
func (s *Service) familyOf(ctx context.Context, tenant, target string) (string, error) {
	if s.plainFamilies[target] != nil {
		return target, nil
	}
	found, err := s.journal.Breakers.TenantBreakers(ctx, tenant)
	if err != nil {
		return "", err
	}
	for _, b := range found {
		if b.Name == target && b.Family == target {
			return target, nil // a plain family of another process
		}
	}
	return Family, nil
}

func breakerFrom(b background.Breaker) Breaker {
	out := Breaker{
		Tenant: b.Tenant, Family: b.Family, Target: b.Name, State: b.State, ByHand: b.Manual, Actor: b.Actor, Cause: b.Cause, Reason: b.Reason, At: b.At,
	}
	if b.Tenant == "" {
		out.Tenant = AllTenants
	}
	if b.Blocks() {
		out.Since, out.Paused = &b.OpenedAt, b.Paused
	}
	return out
}

// OpenBreakers returns the circuit breakers that are not closed, as known to this process.
// stalled are those with paused runs but no new case to probe with: these need a person.
func (s *Service) OpenBreakers() (open, stalled []Breaker) {
	blocking, stuck := s.manager.Breakers()
	for _, b := range blocking {
		open = append(open, breakerFrom(b))
	}
	for _, b := range stuck {
		stalled = append(stalled, breakerFrom(b.Breaker))
	}
	byName := func(a, b Breaker) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Tenant, b.Tenant))
	}
	slices.SortFunc(open, byName)
	slices.SortFunc(stalled, byName)
	return open, stalled
}

// addPausingBreakers adds the circuit breakers that keep a run from being claimed to its
// status.
func (s *Service) addPausingBreakers(ctx context.Context, st *Status, r background.Run) error {
	name, err := s.breakerName(ctx, r.Family, r.Target)
	if err != nil {
		return err
	}
	found, err := s.journal.Breakers.TargetBreakers(ctx, background.Target{Tenant: r.Tenant, Family: r.Family, Name: name})
	for _, b := range found {
		st.PausedBy = append(st.PausedBy, breakerFrom(b))
		st.setWait(WaitsForBreaker, "the circuit breaker of %s is %s", b.Name, b.State)
	}
	return err
}

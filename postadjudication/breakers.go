package postadjudication

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// BreakerRule says when a circuit breaker opens by itself, and how it probes.
type BreakerRule = background.BreakerRule

// AllTenants names all tenants where a circuit breaker is moved or listed. Nothing can be
// handed over under this name; its trail has the receipts of the breakers over all
// tenants.
const AllTenants = postgres.AllTenants

// Breaker is the circuit breaker of one escrow service, or of one plain family: over all
// tenants, or for one. While it is not closed, what is accepted for it is paused: it
// stays pending or scheduled.
type Breaker struct {
	Tenant string                  `json:"tenant"` // AllTenants for all
	Family string                  `json:"family"`
	Target string                  `json:"target"`
	State  background.BreakerState `json:"state"`
	ByHand bool                    `json:"by_hand"` // stays open until a person releases it
	Actor  string                  `json:"actor"`   // of the last move
	Cause  string                  `json:"reason_code"`
	Reason string                  `json:"reason"`
	At     time.Time               `json:"at"`
	Since  *time.Time              `json:"open_since,omitempty"` // unless it is closed
	Paused int                     `json:"paused_runs"`          // as last counted; 1000 means as many or more. Not counted when by hand
}

// ErrBreakerNotOpen: the circuit breaker is closed; there is nothing to release.
var ErrBreakerNotOpen = errors.New("postadjudication: the circuit breaker is not open")

// OpenBreaker opens the circuit breaker of a target by hand: for a tenant, or over
// AllTenants. It stops the claiming of its runs, in every process, until a person
// releases it: the target is an escrow service, by any of its names, or a plain family by its
// name. Attempts
// in flight end as they do. When it returns, the move is committed with its receipt, and
// no claim that begins later succeeds. A breaker that had opened by itself becomes the
// person's; pulling it twice changes nothing.
func (s *Service) OpenBreaker(ctx context.Context, tenant, target, actor, reason string) (Breaker, error) {
	of, err := s.breakerToMove(ctx, tenant, target, actor, reason)
	if err != nil {
		return Breaker{}, err
	}
	reason = cleanText(reason, 1024)
	for {
		now, _, err := s.manager.UpdateBreaker(ctx, of, func(now background.Breaker) (background.Breaker, bool) {
			return now.Open(true, actor, background.CauseManual, reason, s.now())
		})
		if err != nil {
			return breakerFrom(now), err
		}
		// A process that starts may have changed by which one the target goes since that was read.
		name, err := s.journal.SettledBreakerOf(ctx, of.Family, target)
		if err != nil || name == "" || name == of.Name {
			return breakerFrom(now), err
		}
		of.Name = name
	}
}

// ReleaseBreaker lets go of a circuit breaker, whoever opened it. One over all tenants is
// half-open then: it probes, and closes once enough is answered; when it is half-open
// already it closes at once. One of a tenant closes at once: whether the target bears
// what was paused is for the one over all tenants to find. ErrBreakerNotOpen when there is
// nothing to release.
func (s *Service) ReleaseBreaker(ctx context.Context, tenant, target, actor, reason string) (Breaker, error) {
	of, err := s.breakerToMove(ctx, tenant, target, actor, reason)
	if err != nil {
		return Breaker{}, err
	}
	reason = cleanText(reason, 1024)
	now, changed, err := s.manager.UpdateBreaker(ctx, of, func(now background.Breaker) (background.Breaker, bool) {
		return now.Release(actor, background.CauseManual, reason, s.now())
	})
	if err == nil && !changed {
		err = ErrBreakerNotOpen
	}
	return breakerFrom(now), err
}

// Breakers lists the circuit breakers that were ever opened for a tenant, and those over all
// tenants, also those that are closed. Of AllTenants, the latter.
func (s *Service) Breakers(ctx context.Context, tenant string) ([]Breaker, error) {
	found, err := s.journal.TenantBreakers(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]Breaker, len(found))
	for i, b := range found {
		out[i] = breakerFrom(b)
	}
	return out, nil
}

// breakerToMove finds the circuit breaker that a person asks to be moved.
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
			errs = append(errs, &FieldError{Field: f.name, Problem: "must be given, as plain text that is not too long"})
		}
	}
	return errors.Join(append(errs, rejectSecret("target", target), rejectSecret("actor", actor))...)
}

// familyOf finds whose target is named: a plain family is its own, anything else is
// an escrow service.
func (s *Service) familyOf(ctx context.Context, tenant, target string) (string, error) {
	if s.plainFamilies[target] != nil {
		return target, nil
	}
	found, err := s.journal.TenantBreakers(ctx, tenant)
	if err != nil {
		return "", err
	}
	for _, b := range found {
		if b.Name == target && b.Family == target {
			return target, nil // of a family that another process has
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

// OpenBreakers are the circuit breakers that are not closed, as this process knows, and
// those of them behind which runs wait while no new case comes that could show whether
// the target works: somebody has to look at these.
func (s *Service) OpenBreakers() (open, stalled []Breaker) {
	held, stuck := s.manager.Breakers()
	for _, b := range held {
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

// addPausingBreakers adds to a run's status which circuit breakers keep it from being claimed.
func (s *Service) addPausingBreakers(ctx context.Context, st *Status, r background.Run) error {
	name, err := s.breakerName(ctx, r.Family, r.Target)
	if err != nil {
		return err
	}
	found, err := s.journal.TargetBreakers(ctx, background.Target{Tenant: r.Tenant, Family: r.Family, Name: name})
	for _, b := range found {
		st.PausedBy = append(st.PausedBy, breakerFrom(b))
		st.setWait(WaitsForBreaker, "the circuit breaker of %s is %s", b.Name, b.State)
	}
	return err
}

package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// BrakeRule says when a brake pulls itself, and how it is let go.
type BrakeRule = background.BrakeRule

// Brake is the brake of one escrow service, or of one plain family, for a tenant.
// While it is pulled or easing, what is accepted for it is parked: it stays pending
// or scheduled and spends nothing.
type Brake struct {
	Tenant string                `json:"tenant"`
	Family string                `json:"family"`
	Target string                `json:"target"`
	State  background.BrakeState `json:"state"`
	ByHand bool                  `json:"by_hand"` // stays pulled until a person releases it
	Actor  string                `json:"actor"`   // of the last pull or release
	Cause  string                `json:"reason_code"`
	Reason string                `json:"reason"`
	At     time.Time             `json:"at"`
}

// ErrBrakeReleased: the brake is not pulled; there is nothing to release.
var ErrBrakeReleased = errors.New("postadjudication: the brake is not pulled")

// PullBrake stops the claiming of a tenant's runs of a target, in every process,
// until a person releases it: the target is an escrow service, or a plain family by
// its name. Attempts in flight end as they do. When it returns, the pull is committed
// with its receipt, and no claim that begins later succeeds. A brake that had pulled
// itself becomes the person's; pulling it twice changes nothing.
func (s *Service) PullBrake(ctx context.Context, tenant, target, actor, reason string) (Brake, error) {
	b, _, err := s.moveBrake(ctx, tenant, target, actor, reason, func(now background.Brake, reason string) (background.Brake, bool) {
		return now.Pull(true, actor, background.CauseByHand, reason, s.now())
	})
	return b, err
}

// ReleaseBrake releases a brake, whoever pulled it. What it parked is then let go
// batch by batch by the processes that execute, as long as the target bears it; a
// brake that is easing already lets everything go at once. ErrBrakeReleased when
// there is nothing to release.
func (s *Service) ReleaseBrake(ctx context.Context, tenant, target, actor, reason string) (Brake, error) {
	b, moved, err := s.moveBrake(ctx, tenant, target, actor, reason, func(now background.Brake, reason string) (background.Brake, bool) {
		return now.Release(actor, background.CauseByHand, reason, s.now())
	})
	if err == nil && !moved {
		err = ErrBrakeReleased
	}
	return b, err
}

// Brakes lists the brakes that a tenant has had, also those that are released.
func (s *Service) Brakes(ctx context.Context, tenant string) ([]Brake, error) {
	found, err := s.journal.TenantBrakes(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]Brake, len(found))
	for i, b := range found {
		out[i] = brakeOf(b)
	}
	return out, nil
}

func (s *Service) moveBrake(ctx context.Context, tenant, target, actor, reason string, move func(now background.Brake, reason string) (background.Brake, bool)) (Brake, bool, error) {
	if err := validBrakeOrder(tenant, target, actor, reason); err != nil {
		return Brake{}, false, err
	}
	family, err := s.familyOf(ctx, tenant, target)
	if err != nil {
		return Brake{}, false, err
	}
	reason = clean(reason, 1024)
	now, moved, err := s.manager.MoveBrake(ctx, background.Target{Tenant: tenant, Family: family, Name: target},
		func(now background.Brake) (background.Brake, bool) { return move(now, reason) })
	return brakeOf(now), moved, err
}

func validBrakeOrder(tenant, target, actor, reason string) error {
	var errs []error
	for _, f := range []struct {
		name, value string
		most        int
	}{{"tenant", tenant, 128}, {"target", target, 64}, {"actor", actor, 128}, {"reason", reason, 1024}} {
		if f.value == "" || len(f.value) > f.most || !plainText(f.value) {
			errs = append(errs, &FieldError{Field: f.name, Problem: "must be given, as plain text that is not too long"})
		}
	}
	return errors.Join(errs...)
}

// familyOf finds whose target is named: a plain family is its own, anything else is
// an escrow service.
func (s *Service) familyOf(ctx context.Context, tenant, target string) (string, error) {
	if s.plain[target] != nil {
		return target, nil
	}
	found, err := s.journal.TenantBrakes(ctx, tenant)
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

func brakeOf(b background.Brake) Brake {
	return Brake{
		Tenant: b.Tenant, Family: b.Family, Target: b.Name, State: b.State, ByHand: b.ByHand, Actor: b.Actor, Cause: b.Cause, Reason: b.Reason, At: b.At,
	}
}

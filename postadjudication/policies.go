package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// FamilyPolicy is the retry policy that new runs of a family have for a tenant.
type FamilyPolicy struct {
	Tenant  string             `json:"tenant"`
	Family  string             `json:"family"`
	Policy  retrypolicy.Policy `json:"policy"`
	Version int64              `json:"version"` // counts the changes
	// AsConfigured: nobody set a policy, or it was reset. Policy is then what this process
	// has configured, which another may have otherwise.
	AsConfigured bool      `json:"as_configured,omitempty"`
	Actor        string    `json:"actor,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	At           time.Time `json:"at,omitzero"`
}

// PolicyVersionError says that a policy is not, or no longer, of the version that a
// change expects.
type PolicyVersionError struct {
	Expected int64
	Current  FamilyPolicy
}

func (e *PolicyVersionError) Error() string {
	return fmt.Sprintf("postadjudication: the policy of family %s of %s is at version %d, not %d", e.Current.Family, e.Current.Tenant, e.Current.Version, e.Expected)
}

// SetPolicy changes the policy of new runs, with its receipt in one commit, and gives
// it as it is then. Runs that exist keep the policy they were submitted with, and so
// do their forks, unless a fork asks for another. This process gives it to new runs
// at once, the others within PolicyCacheTTL. To set what holds already changes
// nothing. Errors: *FieldError for bad input, *PolicyVersionError,
// background.ErrUnknownFamily. After any other error it is not known whether it was
// set: look at the version.
func (s *Service) SetPolicy(ctx context.Context, q PolicyChange) (FamilyPolicy, error) {
	if err := q.validate(); err != nil {
		return FamilyPolicy{}, err
	}
	if err := s.checkFamilyKnown(ctx, q.Tenant, q.Family); err != nil {
		return FamilyPolicy{}, err
	}
	return s.changePolicy(ctx, q.Tenant, q.Family, q.IfVersion, func(now postgres.Policy) (postgres.Policy, string, error) {
		return q.decide(now, s.configured(q.Family), s.now())
	})
}

// ResetPolicy lets new runs of a family have what is configured again, as before
// anybody set a policy: a change like any other, with its receipt and its version, in
// one commit. It is as soon known everywhere as SetPolicy, and has its errors. Where
// what is configured holds already it changes nothing.
func (s *Service) ResetPolicy(ctx context.Context, q PolicyReset) (FamilyPolicy, error) {
	if err := q.validate(); err != nil {
		return FamilyPolicy{}, err
	}
	if err := s.checkFamilyKnown(ctx, q.Tenant, q.Family); err != nil {
		return FamilyPolicy{}, err
	}
	return s.changePolicy(ctx, q.Tenant, q.Family, q.IfVersion, func(now postgres.Policy) (postgres.Policy, string, error) {
		return q.decide(now, s.configured(q.Family), s.now())
	})
}

func (s *Service) changePolicy(ctx context.Context, tenant, family string, ifVersion *int64, decide func(postgres.Policy) (postgres.Policy, string, error)) (FamilyPolicy, error) {
	now, err := s.journal.UpdatePolicy(ctx, tenant, family, func(now postgres.Policy) (postgres.Policy, string, error) {
		if ifVersion != nil && *ifVersion != now.Version {
			return now, "", errOtherVersion
		}
		return decide(now)
	})
	switch {
	case errors.Is(err, errSamePolicy):
	case errors.Is(err, errOtherVersion):
		return FamilyPolicy{}, &PolicyVersionError{Expected: *ifVersion, Current: s.familyPolicy(now)}
	case err != nil:
		return FamilyPolicy{}, err
	}
	s.policies.store(now)
	return s.familyPolicy(now), nil
}

// What SetPolicy finds on the locked row.
var (
	errSamePolicy   = errors.New("postadjudication: the policy is set already")
	errOtherVersion = errors.New("postadjudication: the policy is of another version")
)

// configured is the policy that this process has for a family; nil when it does not
// have the family.
func (s *Service) configured(family string) *retrypolicy.Policy {
	if family == Family {
		return &s.policy
	}
	if f, ok := s.plainFamilies[family]; ok {
		p := f.Policy.Normalize()
		return &p
	}
	return nil
}

// checkFamilyKnown refuses a family that is neither this process' nor has ever had a task of
// the tenant: a misspelt name must not look as if it were set.
func (s *Service) checkFamilyKnown(ctx context.Context, tenant, family string) error {
	if s.configured(family) != nil {
		return nil
	}
	has, err := s.journal.HasTasks(ctx, tenant, family)
	if err == nil && !has {
		err = fmt.Errorf("%w: %q", background.ErrUnknownFamily, family)
	}
	return err
}

// Policies lists the policies of a tenant's families: those of this process, and
// those that were ever set. No tenant means none.
func (s *Service) Policies(ctx context.Context, tenant string) ([]FamilyPolicy, error) {
	if tenant == "" {
		return nil, nil
	}
	set, err := s.journal.TenantPolicies(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var out []FamilyPolicy
	for _, p := range set {
		out = append(out, s.familyPolicy(p))
	}
	families := []string{Family}
	for name := range s.plainFamilies {
		families = append(families, name)
	}
	for _, name := range families {
		if !slices.ContainsFunc(set, func(p postgres.Policy) bool { return p.Family == name }) {
			out = append(out, FamilyPolicy{Tenant: tenant, Family: name, Policy: *s.configured(name), AsConfigured: true})
		}
	}
	slices.SortFunc(out, func(a, b FamilyPolicy) int { return strings.Compare(a.Family, b.Family) })
	return out, nil
}

func (s *Service) familyPolicy(p postgres.Policy) FamilyPolicy {
	out := FamilyPolicy{Tenant: p.Tenant, Family: p.Family, Policy: p.Policy, Version: p.Version, Actor: p.Actor, Reason: p.Reason, At: p.At}
	if p.Version == 0 {
		out.At, p.AsConfigured = time.Time{}, true
	}
	if out.AsConfigured = p.AsConfigured; out.AsConfigured {
		if c := s.configured(p.Family); c != nil {
			out.Policy = *c
		}
	}
	return out
}

package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// FamilyPolicy is the retry policy of a tenant's new runs of a family.
type FamilyPolicy struct {
	Tenant  string             `json:"tenant"`
	Family  string             `json:"family"`
	Policy  retrypolicy.Policy `json:"policy"`
	Version int64              `json:"version"` // counts the changes
	// AsConfigured: no policy was ever set, or it was reset. Policy is then the one that this
	// process has configured; another process may have another.
	AsConfigured bool      `json:"as_configured,omitempty"`
	Actor        string    `json:"actor,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	At           time.Time `json:"at,omitzero"`
}

// PolicyVersionError means that a policy does not have the version that a change
// expects.
type PolicyVersionError struct {
	Expected int64
	Current  FamilyPolicy
}

func (e *PolicyVersionError) Error() string {
	return fmt.Sprintf("postadjudication: the policy of family %s of %s is at version %d, not %d", e.Current.Family, e.Current.Tenant, e.Current.Version, e.Expected)
}

// policyStore keeps the retry policies of families.
type policyStore struct {
	*policyCache
	base          retrypolicy.Policy // of settlements, as configured
	plainFamilies map[string]*casework.PlainFamily
}

// Set sets the policy of new runs, with its receipt in one commit, and returns the policy
// in force. Existing runs keep the policy they were submitted with, as do their forks, unless a
// fork names another. New runs of this process have the policy at once, those of other
// processes within PolicyCacheTTL. Setting the same policy again changes nothing.
//
// Errors: *FieldError for bad input, *PolicyVersionError, background.ErrUnknownFamily. After any
// other error it is unknown whether the policy was set: read its version.
func (t TenantPolicies) Set(ctx context.Context, q PolicyChange) (FamilyPolicy, error) {
	if err := errors.Join(validate.Change(t.tenant, t.actor, q.Reason), validate.Text("family", q.Family, 32), validate.Policy(q.Policy, q.Family != Family)); err != nil {
		return FamilyPolicy{}, err
	}
	if err := t.s.policies.checkFamilyKnown(ctx, t.tenant, q.Family); err != nil {
		return FamilyPolicy{}, err
	}
	return t.s.policies.changePolicy(ctx, t.tenant, q.Family, q.IfVersion, func(now journal.Policy) (journal.Policy, string, error) {
		return q.decide(now, t.s.policies.configured(q.Family), t.actor, t.s.now())
	})
}

// Reset returns new runs of a family to the configured policy, as before any Set.
// It is a change like any other, with its receipt and version in one commit. It takes effect as
// Set does, and has the same errors. It changes nothing if the configured policy is
// already in force.
func (t TenantPolicies) Reset(ctx context.Context, q PolicyReset) (FamilyPolicy, error) {
	if err := errors.Join(validate.Change(t.tenant, t.actor, q.Reason), validate.Text("family", q.Family, 32)); err != nil {
		return FamilyPolicy{}, err
	}
	if err := t.s.policies.checkFamilyKnown(ctx, t.tenant, q.Family); err != nil {
		return FamilyPolicy{}, err
	}
	return t.s.policies.changePolicy(ctx, t.tenant, q.Family, q.IfVersion, func(now journal.Policy) (journal.Policy, string, error) {
		return q.decide(now, t.s.policies.configured(q.Family), t.actor, t.s.now())
	})
}

func (p *policyStore) changePolicy(ctx context.Context, tenant, family string, ifVersion *int64, decide func(journal.Policy) (journal.Policy, string, error)) (FamilyPolicy, error) {
	now, err := p.journal.Policies.Update(ctx, tenant, family, func(now journal.Policy) (journal.Policy, string, error) {
		if ifVersion != nil && *ifVersion != now.Version {
			return now, "", errOtherVersion
		}
		return decide(now)
	})
	switch {
	case errors.Is(err, errSamePolicy):
	case errors.Is(err, errOtherVersion):
		return FamilyPolicy{}, &PolicyVersionError{Expected: *ifVersion, Current: p.familyPolicy(now)}
	case err != nil:
		return FamilyPolicy{}, err
	}
	p.policyCache.store(now)
	return p.familyPolicy(now), nil
}

// Decisions of Set and Reset on the locked row.
var (
	errSamePolicy   = errors.New("postadjudication: the policy is set already")
	errOtherVersion = errors.New("postadjudication: the policy is of another version")
)

// configured returns the policy that this process has configured for a family; nil if it does
// not have the family.
func (s *policyStore) configured(family string) *retrypolicy.Policy {
	if family == casework.Family {
		return &s.base
	}
	if f, ok := s.plainFamilies[family]; ok && family != jobs.Family { // each job has a policy of its own
		p := f.Policy.Normalize()
		return &p
	}
	return nil
}

// inForce returns the policy of new runs of a tenant's family.
func (p *policyStore) inForce(ctx context.Context, tenant, family string) retrypolicy.Policy {
	var own retrypolicy.Policy
	if c := p.configured(family); c != nil {
		own = *c
	}
	return p.policyFor(ctx, tenant, family, own)
}

// checkFamilyKnown refuses a family that this process does not have and that never had a task of
// the tenant: a misspelt name must not appear to be set.
func (p *policyStore) checkFamilyKnown(ctx context.Context, tenant, family string) error {
	if p.configured(family) != nil {
		return nil
	}
	has, err := p.journal.Cases.HasTasks(ctx, tenant, family)
	if err == nil && !has {
		err = fmt.Errorf("%w: %q", background.ErrUnknownFamily, family)
	}
	return err
}

// List returns the policies of a tenant's families: those of this process, and those that
// were ever set. It returns none for an empty tenant.
func (t TenantPolicies) List(ctx context.Context) ([]FamilyPolicy, error) {
	if t.tenant == "" {
		return nil, nil
	}
	set, err := t.s.journal.Policies.OfTenant(ctx, t.tenant)
	if err != nil {
		return nil, err
	}
	var out []FamilyPolicy
	for _, p := range set {
		out = append(out, t.s.policies.familyPolicy(p))
	}
	families := []string{casework.Family}
	for name := range t.s.policies.plainFamilies {
		if name != jobs.Family {
			families = append(families, name)
		}
	}
	for _, name := range families {
		if !slices.ContainsFunc(set, func(p journal.Policy) bool { return p.Family == name }) {
			out = append(out, FamilyPolicy{Tenant: t.tenant, Family: name, Policy: *t.s.policies.configured(name), AsConfigured: true})
		}
	}
	slices.SortFunc(out, func(a, b FamilyPolicy) int { return strings.Compare(a.Family, b.Family) })
	return out, nil
}

func (s *policyStore) familyPolicy(p journal.Policy) FamilyPolicy {
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

// PolicyChange sets the retry policy of a family for a tenant.
type PolicyChange struct {
	Family    string
	Policy    retrypolicy.Policy // the whole policy; zero members get the default
	Reason    string             // required
	IfVersion *int64             // refused unless it is the current version; nil: any version
}

// decide returns the policy after the change. configured is nil if this process does not have
// the family.
func (q PolicyChange) decide(now journal.Policy, configured *retrypolicy.Policy, actor string, at time.Time) (journal.Policy, string, error) {
	next := journal.Policy{Policy: q.Policy.Normalize(), Actor: actor, Reason: validate.Clean(q.Reason, 1024), At: at}
	switch set := now.Version > 0 && !now.AsConfigured; {
	case set && now.Policy.Encode() == next.Policy.Encode():
		return next, "", errSamePolicy
	case set:
		return next, validate.PolicyChanges(now.Policy, next.Policy), nil
	case configured == nil:
		return next, "set in the place of what is configured", nil
	}
	changes := validate.PolicyChanges(*configured, next.Policy)
	if changes == "" {
		changes = "nothing but that it no longer follows what is configured"
	}
	return next, changes, nil
}

// PolicyReset returns new runs of a family to the configured policy.
type PolicyReset struct {
	Family    string
	Reason    string // required
	IfVersion *int64 // refused unless it is the current version; nil: any version
}

// decide returns the policy after the reset.
func (q PolicyReset) decide(now journal.Policy, configured *retrypolicy.Policy, actor string, at time.Time) (journal.Policy, string, error) {
	next := journal.Policy{AsConfigured: true, Actor: actor, Reason: validate.Clean(q.Reason, 1024), At: at}
	if now.Version == 0 || now.AsConfigured {
		return next, "", errSamePolicy
	}
	changes := "as configured again"
	if configured != nil {
		if difference := validate.PolicyChanges(now.Policy, *configured); difference != "" {
			changes += ": " + difference
		}
	}
	return next, changes, nil
}

// PolicyVersion is one change of a family's policy, as its receipt states it.
type PolicyVersion struct {
	FamilyPolicy
	Changes string `json:"changes"` // differences from the version before
	Receipt string `json:"receipt_id"`
}

// History returns at most limit changes of a family's policy in order, from their receipts,
// beginning after a version. A reset has no Policy: its receipt does not state what was configured,
// nor in which process.
func (t TenantPolicies) History(ctx context.Context, family string, after int64, limit int) ([]PolicyVersion, error) {
	if limit < 1 {
		return nil, &refusal.FieldError{Field: "limit", Problem: "must be at least 1"}
	}
	set, err := t.s.journal.Policies.OfTenant(ctx, t.tenant)
	at := slices.IndexFunc(set, func(p journal.Policy) bool { return p.Family == family })
	if err != nil || at < 0 {
		return nil, err
	}
	trail, err := t.s.journal.Receipts.Trail(ctx, t.tenant, set[at].Case, journal.TrailCursor{Case: set[at].Case, Seq: after}, limit)
	if err != nil {
		return nil, err
	}
	out := make([]PolicyVersion, len(trail))
	for i, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		var policy retrypolicy.Policy
		if p.Policy != "" {
			if policy, err = retrypolicy.Parse(p.Policy); err != nil {
				return nil, err
			}
		}
		out[i] = PolicyVersion{Changes: p.Changes, Receipt: r.ID(), FamilyPolicy: FamilyPolicy{
			Tenant: t.tenant, Family: family, Policy: policy, AsConfigured: p.Policy == "", Version: r.Seq, Actor: r.Actor, Reason: p.Reason, At: r.At,
		}}
	}
	return out, nil
}

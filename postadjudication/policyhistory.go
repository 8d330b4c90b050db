package postadjudication

import (
	"context"
	"slices"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// PolicyVersion is one change of a family's policy, as its receipt tells it.
type PolicyVersion struct {
	FamilyPolicy
	Changes string `json:"changes"` // what became of the one before
	Receipt string `json:"receipt_id"`
}

// PolicyHistory reads the changes of a family's policy off their receipts, the first
// one first, after a version, at most limit of them. One that was reset tells no policy:
// what was configured then, and in which process, is not known.
func (s *Service) PolicyHistory(ctx context.Context, tenant, family string, after int64, limit int) ([]PolicyVersion, error) {
	if limit < 1 {
		return nil, &FieldError{Field: "limit", Problem: "must be at least 1"}
	}
	set, err := s.journal.TenantPolicies(ctx, tenant)
	at := slices.IndexFunc(set, func(p postgres.Policy) bool { return p.Family == family })
	if err != nil || at < 0 {
		return nil, err
	}
	trail, err := s.journal.Trail(ctx, tenant, set[at].Case, postgres.TrailPosition{Case: set[at].Case, Seq: after}, limit)
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
			Tenant: tenant, Family: family, Policy: policy, AsConfigured: p.Policy == "", Version: r.Seq, Actor: r.Actor, Reason: p.Reason, At: r.At,
		}}
	}
	return out, nil
}

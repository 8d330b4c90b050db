package postadjudication

import (
	"context"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// auditPolicies checks that each policy that was set is what the receipt of its
// version says. Receipts stay as they are, so that others may set policies meanwhile.
func (s *Service) auditPolicies(ctx context.Context, a *Audit, tenant string) error {
	set, err := s.journal.TenantPolicies(ctx, tenant)
	if err != nil {
		return err
	}
	for _, p := range set {
		trail, err := s.journal.Trail(ctx, tenant, p.Case, postgres.Place{Case: p.Case, Seq: p.Version - 1}, 1)
		if err != nil {
			return err
		}
		if len(trail) == 0 {
			a.fail(InvariantFold, site{tenant: tenant, kase: p.Case}, "the policy of family %s of %s is at version %d, of which there is no receipt", p.Family, tenant, p.Version)
			continue
		}
		told, err := trail[0].Payload()
		if err != nil {
			return err
		}
		if told.Policy != p.Text() || told.Family != p.Family {
			a.differ(InvariantFold, site{tenant: tenant, kase: p.Case}, p.Text(), told.Policy, "the policy of family %s of %s: stored %s, its receipt says %s", p.Family, tenant, p.Text(), told.Policy)
		}
	}
	return nil
}

// auditHandlers checks that letters and their handlers' runs tell of each other.
func (s *Service) auditHandlers(ctx context.Context, a *Audit, tenant string) error {
	return s.journal.EachMisled(ctx, tenant, a.found(InvariantLetters, tenant))
}

// auditList checks that the list of letters shows each dead letter, or each of one case, as
// it is, and nothing else: what is not in it, nobody sees.
func (s *Service) auditList(ctx context.Context, a *Audit, tenant string, kase receipts.CaseID) error {
	return s.journal.EachUnlisted(ctx, tenant, kase, a.found(InvariantLetters, tenant))
}

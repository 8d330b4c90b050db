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
		trail, err := s.journal.Trail(ctx, tenant, p.Case, postgres.TrailPosition{Case: p.Case, Seq: p.Version - 1}, 1)
		if err != nil {
			return err
		}
		if len(trail) == 0 {
			a.fail(InvariantFold, breakSubject{tenant: tenant, caseID: p.Case}, "the policy of family %s of %s is at version %d, of which there is no receipt", p.Family, tenant, p.Version)
			continue
		}
		recorded, err := trail[0].Payload()
		if err != nil {
			return err
		}
		if recorded.Policy != p.Encoded() || recorded.Family != p.Family {
			a.failDiffering(InvariantFold, breakSubject{tenant: tenant, caseID: p.Case}, p.Encoded(), recorded.Policy, "the policy of family %s of %s: stored %s, its receipt says %s", p.Family, tenant, p.Encoded(), recorded.Policy)
		}
	}
	return nil
}

// auditHandlers checks that letters and their handlers' runs tell of each other.
func (s *Service) auditHandlers(ctx context.Context, a *Audit, tenant string) error {
	return s.journal.EachHandlerMismatch(ctx, tenant, a.addFound(InvariantLetters, tenant))
}

// auditLetterList checks that the list of letters shows each dead letter, or each of one case, as
// it is, and nothing else: what is not in it, nobody sees.
func (s *Service) auditLetterList(ctx context.Context, a *Audit, tenant string, caseID receipts.CaseID) error {
	return s.journal.EachIndexMismatch(ctx, tenant, caseID, a.addFound(InvariantLetters, tenant))
}

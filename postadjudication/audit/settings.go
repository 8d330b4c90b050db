package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
)

// recordedKey is an access key as its receipts describe it.
type recordedKey struct {
	created                        string // binding.KeyTerms at creation
	createdBy, revokedBy           string
	createdAt, revokedAt           time.Time
	createdReceipt, revokedReceipt string // revokedReceipt: empty unless revoked
}

// auditKeys checks that a tenant's access keys match their receipts: principal, roles, expiry
// and revocation. Receipts hold nothing about the secret.
func (s *auditor) auditKeys(ctx context.Context, a *Report, tenant string) error {
	keys, rs, err := s.rows.Keys(ctx, tenant)
	if err != nil {
		return err
	}
	recorded := a.foldKeys(tenant, rs)
	for i := range keys {
		k := &keys[i]
		t, known := recorded[k.Prefix]
		delete(recorded, k.Prefix)
		var revokedAt time.Time
		if k.RevokedAt != nil {
			revokedAt = *k.RevokedAt
		}
		switch {
		case !known || t.createdReceipt == "":
			a.fail(InvariantFold, breakSubject{tenant: tenant}, "the access key %s of %s: no receipt says that it was made", k.Prefix, tenant)
		case binding.KeyTerms(*k) != t.created || k.CreatedBy != t.createdBy || !k.CreatedAt.Equal(t.createdAt):
			a.failDiffering(InvariantFold, breakSubject{tenant: tenant}, binding.KeyTerms(*k)+", made by "+k.CreatedBy, t.created+", made by "+t.createdBy, "the access key %s of %s: stored %s, made by %s; receipt %s says %s, made by %s", k.Prefix, tenant, binding.KeyTerms(*k), k.CreatedBy, t.createdReceipt, t.created, t.createdBy)
		case (k.RevokedAt != nil) != (t.revokedReceipt != "") || k.RevokedBy != t.revokedBy || !revokedAt.Equal(t.revokedAt):
			a.failDiffering(InvariantFold, breakSubject{tenant: tenant}, revokedText(k.RevokedBy), revokedText(t.revokedBy), "the access key %s of %s: stored as revoked %t by %q, its receipts say %t by %q", k.Prefix, tenant, k.RevokedAt != nil, k.RevokedBy, t.revokedReceipt != "", t.revokedBy)
		}
	}
	for prefix, t := range recorded {
		a.fail(InvariantFold, breakSubject{tenant: tenant}, "the access key %s of %s was made by receipt %s, but is not stored", prefix, tenant, t.createdReceipt)
	}
	return nil
}

// foldKeys derives a tenant's keys from their receipts. It reports the receipts that can't be read.
func (a *Report) foldKeys(tenant string, rs []receipts.Receipt) map[string]recordedKey {
	out := map[string]recordedKey{}
	for _, r := range rs {
		p, err := r.Payload()
		if err != nil {
			a.failUnreadable(tenant, r, err)
			continue
		}
		t := out[p.Reference]
		switch r.Subtype {
		case receipts.KeyCreated:
			t.created, t.createdBy, t.createdAt, t.createdReceipt = p.Changes, r.Actor, r.At, r.ID()
		case receipts.KeyRevoked:
			t.revokedBy, t.revokedAt, t.revokedReceipt = r.Actor, r.At, r.ID()
		default:
			continue
		}
		out[p.Reference] = t
	}
	return out
}

// revokedText formats who revoked a key.
func revokedText(by string) string {
	if by == "" {
		return "not revoked"
	}
	return "revoked by " + by
}

// auditPolicies checks that each policy matches the receipt of its version. Receipts never
// change, so others may set policies meanwhile.
func (s *auditor) auditPolicies(ctx context.Context, a *Report, tenant string) error {
	set, err := s.rows.Policies(ctx, tenant)
	if err != nil {
		return err
	}
	for _, p := range set {
		rs, err := s.rows.Trail(ctx, tenant, p.Case, p.Version-1, 1)
		if err != nil {
			return err
		}
		if len(rs) == 0 {
			a.fail(InvariantFold, breakSubject{tenant: tenant, caseID: p.Case}, "the policy of family %s of %s is at version %d, which has no receipt", p.Family, tenant, p.Version)
			continue
		}
		recorded, err := rs[0].Payload()
		if err != nil {
			a.failUnreadable(tenant, rs[0], err)
			continue
		}
		if recorded.Policy != p.Policy || recorded.Family != p.Family {
			a.failDiffering(InvariantFold, breakSubject{tenant: tenant, caseID: p.Case}, p.Policy, recorded.Policy, "the policy of family %s of %s: stored %s, its receipt says %s", p.Family, tenant, p.Policy, recorded.Policy)
		}
	}
	return nil
}

// auditPeople checks that the stored number of people matches the receipts.
func (s *auditor) auditPeople(ctx context.Context, a *Report, tenant string) error {
	now, rs, err := s.rows.People(ctx, tenant)
	if err != nil {
		return err
	}
	recorded, receipt := People{People: stored.DefaultPeople}, "none"
	if n := len(rs); n > 0 {
		p, err := rs[n-1].Payload()
		if err != nil {
			a.failUnreadable(tenant, rs[n-1], err)
			return nil
		}
		recorded.People, recorded.Actor, recorded.Reason, recorded.At, receipt = p.People, rs[n-1].Actor, p.Reason, rs[n-1].At, rs[n-1].ID()
	}
	if now != recorded {
		a.failDiffering(InvariantFold, breakSubject{tenant: tenant}, fmt.Sprintf("%d, set by %s", now.People, now.Actor), fmt.Sprintf("%d, set by %s", recorded.People, recorded.Actor), "the number of people of %s: stored %d, set by %q; receipt %s says %d, set by %q", tenant, now.People, now.Actor, receipt, recorded.People, recorded.Actor)
	}
	return nil
}

package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
)

// recordedKey is an access key as its receipts describe it.
type recordedKey struct {
	created                        string // binding.KeyTerms at creation
	digest                         string // binding.KeyDigest; empty in receipts of versions before
	createdBy, revokedBy           string
	createdAt, revokedAt           time.Time
	createdReceipt, revokedReceipt string // revokedReceipt: empty unless revoked
}

// auditKeys checks that a tenant's access keys match their receipts: secret, principal, roles, expiry
// and revocation.
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
		if !known || t.createdReceipt == "" {
			a.fail(InvariantFold, breakSubject{tenant: tenant}, "the access key %s of %s: no receipt says that it was made", k.Prefix, tenant)
			continue
		}
		t.compare(k).fail(a, breakSubject{tenant: tenant}, fmt.Sprintf("the access key %s of %s", k.Prefix, tenant))
	}
	for prefix, t := range recorded {
		a.fail(InvariantFold, breakSubject{tenant: tenant}, "the access key %s of %s was made by receipt %s, but is not stored", prefix, tenant, t.createdReceipt)
	}
	return nil
}

func (t *recordedKey) compare(k *access.Key) (d differences) {
	var revokedAt time.Time
	if k.RevokedAt != nil {
		revokedAt = *k.RevokedAt
	}
	d.compare("terms", binding.KeyTerms(*k), t.created)
	if t.digest != "" {
		d.compare("digest of the secret", binding.KeyDigest(*k), t.digest)
	}
	d.compare("creator", k.CreatedBy, t.createdBy)
	d.compareTimes("time of creation", k.CreatedAt, t.createdAt)
	d.compare("revoked", k.RevokedAt != nil, t.revokedReceipt != "")
	d.compare("who revoked it", k.RevokedBy, t.revokedBy)
	d.compareTimes("time of revocation", revokedAt, t.revokedAt)
	return d
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
			t.created, t.digest, t.createdBy, t.createdAt, t.createdReceipt = p.Changes, p.ContentDigest, r.Actor, r.At, r.ID()
		case receipts.KeyRevoked:
			t.revokedBy, t.revokedAt, t.revokedReceipt = r.Actor, r.At, r.ID()
		default:
			continue
		}
		out[p.Reference] = t
	}
	return out
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
		var d differences
		d.compare("policy", p.Policy, recorded.Policy)
		d.compare("family", p.Family, recorded.Family)
		d.compare("actor", p.Actor, rs[0].Actor)
		d.compare("reason", p.Reason, recorded.Reason)
		d.compareTimes("time", p.At, rs[0].At)
		d.fail(a, breakSubject{tenant: tenant, caseID: p.Case}, fmt.Sprintf("the policy of family %s of %s", p.Family, tenant))
	}
	return nil
}

// auditPeople checks that the stored number of people matches the receipts.
func (s *auditor) auditPeople(ctx context.Context, a *Report, tenant string) error {
	now, rs, err := s.rows.People(ctx, tenant)
	if err != nil {
		return err
	}
	recorded := People{People: stored.DefaultPeople}
	if n := len(rs); n > 0 {
		p, err := rs[n-1].Payload()
		if err != nil {
			a.failUnreadable(tenant, rs[n-1], err)
			return nil
		}
		recorded.People, recorded.Actor, recorded.Reason, recorded.At = p.People, rs[n-1].Actor, p.Reason, rs[n-1].At
	}
	var d differences
	d.compare("number", now.People, recorded.People)
	d.compare("actor", now.Actor, recorded.Actor)
	d.compare("reason", now.Reason, recorded.Reason)
	d.compareTimes("time", now.At, recorded.At)
	d.fail(a, breakSubject{tenant: tenant}, "the number of people of "+tenant)
	return nil
}

package postadjudication

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/receipts"
)

// toldKey is an access key as the receipts of its register tell it.
type toldKey struct {
	made                     string // what was made
	madeBy, goneBy           string
	madeAt, goneAt           time.Time
	madeReceipt, goneReceipt string // goneReceipt is empty unless it was revoked
}

// auditKeys checks that a tenant's access keys are what the receipts of their register
// say: whose they are, with which roles, until when, and whether they are revoked. Of the
// secret no receipt tells anything.
func (s *Service) auditKeys(ctx context.Context, a *Audit, tenant string) error {
	keys, trail, err := s.journal.KeysAtOnce(ctx, tenant)
	if err != nil {
		return err
	}
	told, err := foldKeys(trail)
	if err != nil {
		return err
	}
	for i := range keys {
		k := &keys[i]
		t, known := told[k.Prefix]
		delete(told, k.Prefix)
		var revokedAt time.Time
		if k.RevokedAt != nil {
			revokedAt = *k.RevokedAt
		}
		switch {
		case !known || t.madeReceipt == "":
			a.fail(InvariantFold, site{tenant: tenant}, "the access key %s of %s: no receipt says that it was made", k.Prefix, tenant)
		case keyWords(*k) != t.made || k.CreatedBy != t.madeBy || !k.CreatedAt.Equal(t.madeAt):
			a.differ(InvariantFold, site{tenant: tenant}, keyWords(*k)+", made by "+k.CreatedBy, t.made+", made by "+t.madeBy, "the access key %s of %s: stored %s, made by %s; receipt %s says %s, made by %s", k.Prefix, tenant, keyWords(*k), k.CreatedBy, t.madeReceipt, t.made, t.madeBy)
		case (k.RevokedAt != nil) != (t.goneReceipt != "") || k.RevokedBy != t.goneBy || !revokedAt.Equal(t.goneAt):
			a.differ(InvariantFold, site{tenant: tenant}, revokedWords(k.RevokedBy), revokedWords(t.goneBy), "the access key %s of %s: stored as revoked %t by %q, its receipts say %t by %q", k.Prefix, tenant, k.RevokedAt != nil, k.RevokedBy, t.goneReceipt != "", t.goneBy)
		}
	}
	for prefix, t := range told {
		a.fail(InvariantFold, site{tenant: tenant}, "the access key %s of %s was made by receipt %s, and is not there", prefix, tenant, t.madeReceipt)
	}
	return nil
}

// foldKeys derives the keys of a tenant from the receipts of their register.
func foldKeys(trail []receipts.Receipt) (map[string]toldKey, error) {
	out := map[string]toldKey{}
	for _, r := range trail {
		p, err := r.Payload()
		if err != nil {
			return nil, err
		}
		t := out[p.Reference]
		switch r.Subtype {
		case receipts.KeyCreated:
			t.made, t.madeBy, t.madeAt, t.madeReceipt = p.Changes, r.Actor, r.At, r.ID()
		case receipts.KeyRevoked:
			t.goneBy, t.goneAt, t.goneReceipt = r.Actor, r.At, r.ID()
		default:
			continue
		}
		out[p.Reference] = t
	}
	return out, nil
}

// keyWords is what the receipt of a key says of it.
func keyWords(k access.Key) string {
	until := "for ever"
	if k.ExpiresAt != nil {
		until = "until " + k.ExpiresAt.Format(time.RFC3339)
	}
	if k.SuccessorOf != "" {
		until += " as successor of " + k.SuccessorOf
	}
	return k.Principal + " as " + roleWords(k.Roles) + " " + until
}

// revokedWords tells who revoked a key.
func revokedWords(by string) string {
	if by == "" {
		return "not revoked"
	}
	return "revoked by " + by
}

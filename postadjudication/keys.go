package postadjudication

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/receipts"
)

// AccessKey is an access key as it is kept: everything but the secret.
type AccessKey = access.Key

// AccessRole is what a key is for: submitter, operator, approver, auditor or admin.
type AccessRole = access.Role

// NewKey asks for an access key.
type NewKey struct {
	Tenant    string       // whose runs and money it opens; required
	Principal string       // who will hold it, and the actor of what is done with it; required
	Roles     []AccessRole // at least one
	ExpiresAt time.Time    // zero: never
	Actor     string       // who makes it; required
	Reason    string       // why; required
}

// CreateKey makes an access key and gives its token, which nobody can read again. The
// key is committed with its receipt. When an error leaves it open whether that
// happened, revoke what Keys shows and make another. Bad input is a *FieldError
// (joined, one per field).
func (s *Service) CreateKey(ctx context.Context, n NewKey) (token string, k AccessKey, err error) {
	at := s.now()
	if err := n.validate(at); err != nil {
		return "", k, err
	}
	token, prefix, digest := access.Mint()
	k = AccessKey{
		ID: newID(), Prefix: prefix, Digest: digest, Tenant: n.Tenant, Principal: n.Principal, Roles: n.Roles, CreatedAt: at, CreatedBy: n.Actor,
	}
	if !n.ExpiresAt.IsZero() {
		end := n.ExpiresAt.UTC().Truncate(time.Microsecond)
		k.ExpiresAt = &end
	}
	err = s.journal.CreateKey(ctx, k, receipts.Draft{Actor: n.Actor, At: at, Payload: receipts.Payload{
		Reference: prefix, Reason: clean(n.Reason, 1024), Changes: keyWords(k),
	}})
	if err != nil {
		return "", AccessKey{}, err
	}
	return token, k, nil
}

func (n NewKey) validate(now time.Time) error {
	errs := []error{
		named("tenant", n.Tenant, 128), named("principal", n.Principal, 128), named("actor", n.Actor, 128), named("reason", n.Reason, 1024),
	}
	if err := access.CheckRoles(n.Roles); err != nil {
		errs = append(errs, &FieldError{Field: "roles", Problem: err.Error()})
	}
	if !n.ExpiresAt.IsZero() && !n.ExpiresAt.After(now) {
		errs = append(errs, &FieldError{Field: "expires_at", Problem: "has passed"})
	}
	return errors.Join(errs...)
}

func roleWords(roles []AccessRole) string {
	words := make([]string, len(roles))
	for i, r := range roles {
		words[i] = string(r)
	}
	return strings.Join(words, "+")
}

// Keys lists the access keys that a tenant has ever had, oldest first. No tenant
// means no keys.
func (s *Service) Keys(ctx context.Context, tenant string) ([]AccessKey, error) {
	if tenant == "" {
		return nil, nil
	}
	return s.journal.Keys(ctx, tenant)
}

// RevokeKey ends a tenant's access key for good, with its receipt. Every process
// refuses it at most access.Memory (2s) later. One that is revoked already stays as it
// is. The key is named by its prefix; ErrNotFound when the tenant has none such.
func (s *Service) RevokeKey(ctx context.Context, tenant, prefix, actor, reason string) (AccessKey, error) {
	if err := errors.Join(named("tenant", tenant, 128), named("actor", actor, 128), named("reason", reason, 1024)); err != nil {
		return AccessKey{}, err
	}
	return s.journal.RevokeKey(ctx, tenant, prefix, receipts.Draft{Actor: actor, At: s.now(), Payload: receipts.Payload{Reference: prefix, Reason: clean(reason, 1024)}})
}

// KeyStore is where an access.Keyring finds the keys of all tenants.
func (s *Service) KeyStore() access.Store { return s.journal }

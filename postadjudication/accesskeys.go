package postadjudication

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/receipts"
)

// AccessKey is a stored access key. It does not hold the secret.
type AccessKey = access.Key

// AccessRole is what a key permits: submitter, operator, approver, auditor or admin.
type AccessRole = access.Role

// NewKey describes an access key to create.
type NewKey struct {
	Tenant    string       // tenant that the key gives access to; required
	Principal string       // holder of the key and actor of its requests, valid by access.CheckPrincipal; required
	Roles     []AccessRole // at least one
	ExpiresAt time.Time    // at most access.MaxLifetime ahead; zero: access.DefaultLifetime ahead
	// NeverExpires is the reason why the key has no expiry; empty: it has one. The receipt
	// records it.
	NeverExpires string
	Actor        string // who creates it; required
	Reason       string // why; required

	successorOf string // prefix of the key it replaces
}

// CreateKey creates an access key and returns its token, which is never shown again. The key
// and its receipt are committed together when it returns. After an error of unknown outcome,
// revoke what Keys lists and create another. Invalid input: one *FieldError per field, joined.
func (s *Service) CreateKey(ctx context.Context, n NewKey) (token string, k AccessKey, err error) {
	at := s.now()
	if err := n.validate(at); err != nil {
		return "", k, err
	}
	token, prefix, digest := access.Mint()
	k = AccessKey{
		ID: newID(), Prefix: prefix, Digest: digest, Tenant: n.Tenant, Principal: n.Principal, Roles: n.Roles, CreatedAt: at, CreatedBy: n.Actor,
		SuccessorOf: n.successorOf, ExpiresAt: n.end(at),
	}
	reason := n.Reason
	if n.NeverExpires != "" {
		reason += "; never expires: " + n.NeverExpires
	}
	err = s.journal.Keys.Create(ctx, k, receipts.Draft{Actor: n.Actor, At: at, Payload: receipts.Payload{
		Reference: prefix, Reason: cleanText(reason, 2048), Changes: keyText(k),
	}})
	if err != nil {
		return "", AccessKey{}, err
	}
	return token, k, nil
}

// end returns the key's expiry; nil means never.
func (n NewKey) end(now time.Time) *time.Time {
	end := n.ExpiresAt
	switch {
	case n.NeverExpires != "":
		return nil
	case end.IsZero():
		end = now.Add(access.DefaultLifetime(n.Principal))
	}
	end = end.UTC().Truncate(time.Microsecond)
	return &end
}

// KeyRotation describes the successor of an access key.
type KeyRotation struct {
	Tenant       string
	Prefix       string    // of the key it replaces; required
	ExpiresAt    time.Time // as in NewKey
	NeverExpires string    // as in NewKey
	Actor        string    // who creates it; required
	Reason       string    // why; required
}

// RotateKey creates a key with the principal and roles of another key and returns its token.
// The old key stays valid until it expires or is revoked. Errors: ErrNotFound if the tenant has
// no key of this prefix; *FieldError if that key is revoked, since a revoked key has no
// successor.
func (s *Service) RotateKey(ctx context.Context, q KeyRotation) (token string, k AccessKey, err error) {
	old, err := s.Key(ctx, q.Tenant, q.Prefix)
	if err != nil {
		return "", k, err
	}
	token, k, err = s.CreateKey(ctx, NewKey{
		Tenant: q.Tenant, Principal: old.Principal, Roles: old.Roles, ExpiresAt: q.ExpiresAt, NeverExpires: q.NeverExpires, Actor: q.Actor, Reason: q.Reason,
		successorOf: old.Prefix,
	})
	if errors.Is(err, access.ErrRevoked) {
		err = &FieldError{Field: "prefix", Problem: "key is revoked; create another key"}
	}
	return token, k, err
}

// KeysToRenew returns the valid access keys of all tenants that need attention: keys without an
// expiry, keys that expire soon and have no valid successor, and keys not used for
// access.UnusedFor.
func (s *Service) KeysToRenew(ctx context.Context) (endless, ending, unused []AccessKey, err error) {
	now := s.now()
	found, err := s.journal.Keys.ToRenew(ctx, now, now.Add(access.ExpiryNotice), now.Add(-access.UnusedFor))
	for _, k := range found {
		used := k.CreatedAt
		if k.LastUsed != nil {
			used = *k.LastUsed
		}
		switch {
		case k.ExpiresAt == nil:
			endless = append(endless, k)
		case access.ExpiresSoon(k.ExpiresAt, now):
			ending = append(ending, k)
		}
		if now.Sub(used) > access.UnusedFor {
			unused = append(unused, k)
		}
	}
	return endless, ending, unused, err
}

// Key returns a tenant's access key by its prefix, or ErrNotFound.
func (s *Service) Key(ctx context.Context, tenant, prefix string) (AccessKey, error) {
	k, err := s.journal.Keys.FindKey(ctx, prefix)
	if errors.Is(err, access.ErrUnknown) || err == nil && (tenant == "" || k.Tenant != tenant) {
		return AccessKey{}, ErrNotFound
	}
	return k, err
}

func (n NewKey) validate(now time.Time) error {
	errs := []error{
		requireIdentifier("tenant", n.Tenant, 128), requireIdentifier("actor", n.Actor, 128), requireText("reason", n.Reason, 1024),
	}
	if err := access.CheckPrincipal(n.Principal); err != nil {
		errs = append(errs, &FieldError{Field: "principal", Problem: err.Error()})
	} else {
		errs = append(errs, rejectSecret("principal", n.Principal))
	}
	if err := access.CheckRoles(n.Roles); err != nil {
		errs = append(errs, &FieldError{Field: "roles", Problem: err.Error()})
	}
	switch {
	case n.NeverExpires != "":
		errs = append(errs, requireText("never_expires", n.NeverExpires, 512))
		if !n.ExpiresAt.IsZero() {
			errs = append(errs, &FieldError{Field: "expires_at", Problem: "can't be given together with never_expires"})
		}
	case n.ExpiresAt.IsZero():
	case !n.ExpiresAt.After(now):
		errs = append(errs, &FieldError{Field: "expires_at", Problem: "has passed"})
	case n.ExpiresAt.Sub(now) > access.MaxLifetime:
		errs = append(errs, &FieldError{Field: "expires_at", Problem: "is more than 2 years ahead; for a key that never expires, give the reason in never_expires"})
	}
	return errors.Join(errs...)
}

func roleText(roles []AccessRole) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, "+")
}

// Keys lists all access keys that a tenant ever had, oldest first. An empty tenant gives none.
func (s *Service) Keys(ctx context.Context, tenant string) ([]AccessKey, error) {
	if tenant == "" {
		return nil, nil
	}
	return s.journal.Keys.List(ctx, tenant)
}

// RevokeKey revokes a tenant's access key permanently and commits the receipt with it. Every
// process refuses the key at most access.CacheTTL (2s) later. A key that is already revoked is
// unchanged. ErrNotFound if the tenant has no key of this prefix.
func (s *Service) RevokeKey(ctx context.Context, tenant, prefix, actor, reason string) (AccessKey, error) {
	if err := errors.Join(requireText("tenant", tenant, 128), requireIdentifier("actor", actor, 128), requireText("reason", reason, 1024)); err != nil {
		return AccessKey{}, err
	}
	return s.journal.Keys.Revoke(ctx, tenant, prefix, receipts.Draft{Actor: actor, At: s.now(), Payload: receipts.Payload{Reference: prefix, Reason: cleanText(reason, 1024)}})
}

// KeyStore returns the store in which an access.Keyring looks up the keys of all tenants.
func (s *Service) KeyStore() access.Store { return s.journal.Keys }

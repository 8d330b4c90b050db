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
	Principal string       // who will hold it, and the actor of what is done with it, as access.CheckPrincipal has it; required
	Roles     []AccessRole // at least one
	ExpiresAt time.Time    // within access.MaxLifetime; zero: after access.DefaultLifetime
	// NeverExpires is why the key has no end; empty: it has one. It stands in the receipt.
	NeverExpires string
	Actor        string // who makes it; required
	Reason       string // why; required

	successorOf string // prefix of the key that it replaces
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
		SuccessorOf: n.successorOf, ExpiresAt: n.end(at),
	}
	reason := n.Reason
	if n.NeverExpires != "" {
		reason += "; never expires: " + n.NeverExpires
	}
	err = s.journal.CreateKey(ctx, k, receipts.Draft{Actor: n.Actor, At: at, Payload: receipts.Payload{
		Reference: prefix, Reason: cleanText(reason, 2048), Changes: keyText(k),
	}})
	if err != nil {
		return "", AccessKey{}, err
	}
	return token, k, nil
}

// end returns when the key ends; nil means never.
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

// KeyRotation asks for the successor of an access key.
type KeyRotation struct {
	Tenant       string
	Prefix       string    // of the key that it replaces; required
	ExpiresAt    time.Time // as in NewKey
	NeverExpires string    // as in NewKey
	Actor        string    // who makes it; required
	Reason       string    // why; required
}

// RotateKey makes a key with the principal and the roles of another one, and returns its
// token. The other one opens beside it until it ends or is revoked. ErrNotFound when the
// tenant has none such; one that was revoked is a *FieldError, it has no successor.
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
		err = &FieldError{Field: "prefix", Problem: "is of a key that was revoked: make another key"}
	}
	return token, k, err
}

// KeysToRenew returns the access keys of all tenants that open and want somebody's look:
// those without an end, those that end soon and have no successor that opens, and those that
// nobody used for access.UnusedFor.
func (s *Service) KeysToRenew(ctx context.Context) (endless, ending, unused []AccessKey, err error) {
	now := s.now()
	found, err := s.journal.KeysToRenew(ctx, now, now.Add(access.ExpiryNotice), now.Add(-access.UnusedFor))
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

// Key returns an access key of a tenant by its prefix; ErrNotFound when it has none such.
func (s *Service) Key(ctx context.Context, tenant, prefix string) (AccessKey, error) {
	k, err := s.journal.FindKey(ctx, prefix)
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
		errs = append(errs, &FieldError{Field: "expires_at", Problem: "is more than 2 years ahead; a key that never expires says why in never_expires"})
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
	if err := errors.Join(requireText("tenant", tenant, 128), requireIdentifier("actor", actor, 128), requireText("reason", reason, 1024)); err != nil {
		return AccessKey{}, err
	}
	return s.journal.RevokeKey(ctx, tenant, prefix, receipts.Draft{Actor: actor, At: s.now(), Payload: receipts.Payload{Reference: prefix, Reason: cleanText(reason, 1024)}})
}

// KeyStore is where an access.Keyring finds the keys of all tenants.
func (s *Service) KeyStore() access.Store { return s.journal }

package postadjudication

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// AccessKey is a stored access key. It does not hold the secret.
type AccessKey = access.Key

// AccessRole is what a key permits: submitter, worker, operator, approver, auditor, admin or platform.
type AccessRole = access.Role

// NewKey describes an access key to create.
type NewKey struct {
	Principal string       // owner of the key and actor of its requests, valid by access.CheckPrincipal; required
	Roles     []AccessRole // at least one
	Queues    []string     // from which a worker with the key fetches, each a name in which * stands for any text; empty: all that are no payment queues
	ExpiresAt time.Time    // at most access.MaxLifetime ahead; zero: access.DefaultLifetime ahead
	// NeverExpires is the reason why the key has no expiry; empty: it has one. The receipt
	// records it.
	NeverExpires string
	Reason       string // why; required

	successorOf string // prefix of the key it replaces
}

// Create creates an access key and returns its token, which is never shown again. The key
// and its receipt are committed together when it returns. After an error of unknown outcome,
// revoke the key that List shows and create another. Invalid input: one *FieldError per field, joined.
// *access.DutiesError if the principal would fetch adjudications and decide about money.
func (t TenantKeys) Create(ctx context.Context, n NewKey) (token string, k AccessKey, err error) {
	at := t.s.now()
	if err := errors.Join(validate.Change(t.tenant, t.actor, n.Reason), n.validate(at)); err != nil {
		return "", k, err
	}
	if err := t.checkForm(ctx); err != nil {
		return "", k, err
	}
	token, prefix, digest := access.Mint()
	k = AccessKey{
		ID: casework.NewID(), Prefix: prefix, Digest: digest, Tenant: t.tenant, Principal: n.Principal, Roles: n.Roles, Queues: n.Queues, CreatedAt: at, CreatedBy: t.actor,
		SuccessorOf: n.successorOf, ExpiresAt: n.end(at),
	}
	reason := n.Reason
	if n.NeverExpires != "" {
		reason += "; never expires: " + n.NeverExpires
	}
	if k.SuccessorOf != "" && !access.SamePrincipal(k.Principal, t.actor) {
		reason += "; its token was given to " + t.actor + ", who is not its principal"
	}
	err = t.s.journal.Keys.Create(ctx, k, binding.RemotePrefix, receipts.Draft{Actor: t.actor, At: at, Payload: receipts.Payload{
		Reference: prefix, Reason: validate.Clean(reason, 2048), Changes: binding.KeyTerms(k), ContentDigest: binding.KeyDigest(k),
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
	Prefix       string    // of the key it replaces; required
	ExpiresAt    time.Time // as in NewKey
	NeverExpires string    // as in NewKey
	Reason       string    // why; required
}

// Rotate creates a key with the principal, roles and queues of another key and returns its token.
// The old key stays valid until it expires or is revoked. The receipt says so if the actor is not the
// principal of the key. Errors: ErrNotFound if the tenant has no key of this prefix; *FieldError if that
// key is revoked, since a revoked key has no successor; access.ErrOtherPrincipal if a key proves an actor
// who is not its principal.
func (t TenantKeys) Rotate(ctx context.Context, q KeyRotation) (token string, k AccessKey, err error) {
	old, err := t.Get(ctx, q.Prefix)
	if err != nil {
		return "", k, err
	}
	if casework.CallerOf(ctx).Key != "" && !access.SamePrincipal(old.Principal, t.actor) {
		return "", k, access.ErrOtherPrincipal
	}
	token, k, err = t.Create(ctx, NewKey{
		Principal: old.Principal, Roles: old.Roles, Queues: old.Queues, ExpiresAt: q.ExpiresAt, NeverExpires: q.NeverExpires, Reason: q.Reason,
		successorOf: old.Prefix,
	})
	if errors.Is(err, access.ErrRevoked) {
		err = &refusal.FieldError{Field: "prefix", Problem: "key is revoked; create another key"}
	}
	return token, k, err
}

// KeysToRenew returns the valid access keys of all tenants that need attention: keys without an
// expiry, keys that expire soon and have no valid successor, and keys not used for
// access.UnusedFor.
func (h *Health) KeysToRenew(ctx context.Context) (endless, ending, unused []AccessKey, err error) {
	now := h.s.now()
	found, err := h.s.journal.Keys.ToRenew(ctx, now, now.Add(access.ExpiryNotice), now.Add(-access.UnusedFor))
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

// MixedDuties returns a *access.DutiesError for each principal that both fetches adjudications of a tenant and
// decides about its money, by keys that are valid. Keys of before may be so; no new one is.
func (h *Health) MixedDuties(ctx context.Context) ([]error, error) {
	return h.s.journal.Keys.MixedDuties(ctx, h.s.now(), binding.RemotePrefix)
}

// CheckDuties returns a *access.DutiesError if a principal of the tenant decides about its money and may fetch adjudications from
// a queue, by keys that are valid.
func (t TenantKeys) CheckDuties(ctx context.Context, principal, queue string) error {
	return t.s.journal.Keys.CheckDuties(ctx, t.tenant, principal, queue, t.s.now())
}

// Get returns a tenant's access key by its prefix, or ErrNotFound.
func (t TenantKeys) Get(ctx context.Context, prefix string) (AccessKey, error) {
	k, err := t.s.journal.Keys.FindKey(ctx, prefix)
	if errors.Is(err, access.ErrUnknown) || err == nil && (t.tenant == "" || k.Tenant != t.tenant) {
		return AccessKey{}, refusal.ErrNotFound
	}
	return k, err
}

// checkForm refuses a tenant whose id has a form that is refused, unless it has a key or a case since before.
func (t TenantKeys) checkForm(ctx context.Context) error {
	refused := validate.IDForm("tenant", t.tenant)
	if refused == nil {
		return nil
	}
	keys, err := t.s.journal.Keys.List(ctx, t.tenant)
	hasCases, _, _, readErr := t.s.journal.Cases.KnownIDs(ctx, journal.SubmittedIDs{Tenant: t.tenant})
	switch {
	case err != nil || readErr != nil:
		return errors.Join(err, readErr)
	case len(keys) > 0 || hasCases:
		return nil
	}
	return refused
}

func (n NewKey) validate(now time.Time) error {
	var errs []error
	if err := access.CheckPrincipal(n.Principal); err != nil {
		errs = append(errs, &refusal.FieldError{Field: "principal", Problem: err.Error()})
	} else {
		errs = append(errs, validate.NoSecret("principal", n.Principal))
	}
	if err := access.CheckRoles(n.Roles); err != nil {
		errs = append(errs, &refusal.FieldError{Field: "roles", Problem: err.Error()})
	}
	if err := access.CheckQueues(n.Queues, n.Roles); err != nil {
		errs = append(errs, &refusal.FieldError{Field: "queues", Problem: err.Error()})
	}
	switch {
	case n.NeverExpires != "":
		errs = append(errs, validate.Text("never_expires", n.NeverExpires, 512))
		if !n.ExpiresAt.IsZero() {
			errs = append(errs, &refusal.FieldError{Field: "expires_at", Problem: "can't be given together with never_expires"})
		}
	case n.ExpiresAt.IsZero():
	case !n.ExpiresAt.After(now):
		errs = append(errs, &refusal.FieldError{Field: "expires_at", Problem: "has passed"})
	case n.ExpiresAt.Sub(now) > access.MaxLifetime:
		errs = append(errs, &refusal.FieldError{Field: "expires_at", Problem: "is more than 2 years ahead; for a key that never expires, give the reason in never_expires"})
	}
	return errors.Join(errs...)
}

// List lists all access keys that a tenant ever had, oldest first. An empty tenant gives none.
func (t TenantKeys) List(ctx context.Context) ([]AccessKey, error) {
	if t.tenant == "" {
		return nil, nil
	}
	return t.s.journal.Keys.List(ctx, t.tenant)
}

// Revoke revokes a tenant's access key permanently and commits the receipt with it. Every
// process refuses the key at most access.CacheTTL (2s) later. A key that is already revoked is
// unchanged. ErrNotFound if the tenant has no key of this prefix.
func (t TenantKeys) Revoke(ctx context.Context, prefix, reason string) (AccessKey, error) {
	if err := validate.Change(t.tenant, t.actor, reason); err != nil {
		return AccessKey{}, err
	}
	return t.s.journal.Keys.Revoke(ctx, t.tenant, prefix, receipts.Draft{Actor: t.actor, At: t.s.now(), Payload: receipts.Payload{Reference: prefix, Reason: validate.Clean(reason, 1024)}})
}

// KeyStore returns the store in which an access.Keyring looks up the keys of all tenants.
func (s *Service) KeyStore() access.KeyStore { return s.journal.Keys }

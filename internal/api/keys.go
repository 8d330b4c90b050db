package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

type keysOutput struct {
	Body struct {
		Keys []access.Key `json:"keys"`
	}
}

type keyInput struct {
	Body struct {
		Principal string        `json:"principal" minLength:"1" maxLength:"128" pattern:"^[a-z]+:[A-Za-z0-9._@+-]{1,100}$" patternDescription:"a kind and a name, such as user:ada or service:desk" doc:"The holder of the key and actor of its actions: a kind and a name. user: is a person; system: and rule: are reserved" example:"user:ada"`
		Roles     []access.Role `json:"roles" minItems:"1" enum:"submitter,operator,approver,auditor,admin"`
		Reason    string        `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
		KeyExpiry
	}
}

// KeyExpiry says when a new key expires.
type KeyExpiry struct {
	ExpiresAt    time.Time `json:"expires_at,omitempty" doc:"At most 2 years ahead. Absent: 90 days ahead for a person (user:...), else 400 days, and not after the expiry of the key that makes it"`
	NeverExpires string    `json:"never_expires,omitempty" maxLength:"512" doc:"Why the key does not expire; recorded in the receipt. Not together with expires_at"`
}

type rotateInput struct {
	Prefix string `path:"prefix" minLength:"12" maxLength:"12"`
	Body   struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
		KeyExpiry
	}
}

// NewKey is a key with its token, which is shown only once.
type NewKey struct {
	Token string `json:"token,omitempty" doc:"Shown only once; a repeated answer has none" example:"rck_..."`
	access.Key
}

type newKeyOutput struct{ Body NewKey }

type revokeInput struct {
	Prefix string `path:"prefix" minLength:"12" maxLength:"12"`
	Reason string `query:"reason" required:"true" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
}

type keyOutput struct{ Body access.Key }

// keyAPI has the operations of access keys.
type keyAPI struct{ *API }

func (a keyAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-keys", method: http.MethodGet, path: "/keys", action: access.Keys, summary: "List the tenant's access keys",
	}, a.listKeys)
	register(a.API, h, operation{
		id: "create-key", method: http.MethodPost, path: "/keys", action: access.Keys, status: http.StatusCreated, secret: true,
		summary: "Make an access key", description: "The answer shows the token, once. The new key can't have a role that allows more, or expire later, than the key that makes it (403 beyond_reach).",
	}, a.createKey)
	register(a.API, h, operation{
		id: "rotate-key", method: http.MethodPost, path: "/keys/{prefix}/rotate", action: access.Keys, status: http.StatusCreated, secret: true,
		summary: "Make the successor of an access key", description: "The successor has the same principal and roles; the answer shows its token, once. The old key stays valid until it expires or is revoked. The limits of create-key apply (403 beyond_reach).",
	}, a.rotateKey)
	register(a.API, h, operation{
		id: "revoke-key", method: http.MethodDelete, path: "/keys/{prefix}", action: access.Keys, summary: "Revoke an access key",
		description: "Every process refuses the key after at most 2 seconds; its streams end within 8. Revoking it again changes nothing.",
	}, a.revokeKey)
}

func (a keyAPI) listKeys(ctx context.Context, c Caller, _ *noInput) (*keysOutput, error) {
	found, err := a.service.As(c.Tenant, "").Keys.List(ctx)
	out := &keysOutput{}
	out.Body.Keys = append([]access.Key{}, found...)
	return out, err
}

func (a keyAPI) createKey(ctx context.Context, c Caller, in *keyInput) (*newKeyOutput, error) {
	expiry := in.Body.cappedBy(c, in.Body.Principal, a.now())
	if err := a.checkGrant(ctx, c, in.Body.Roles, expiry); err != nil {
		return nil, err
	}
	token, k, err := a.service.As(c.Tenant, c.Principal).Keys.Create(ctx, postadjudication.NewKey{
		Principal: in.Body.Principal, Roles: in.Body.Roles, ExpiresAt: expiry.ExpiresAt, NeverExpires: expiry.NeverExpires, Reason: in.Body.Reason,
	})
	return &newKeyOutput{NewKey{token, k}}, err
}

func (a keyAPI) rotateKey(ctx context.Context, c Caller, in *rotateInput) (*newKeyOutput, error) {
	old, err := a.service.As(c.Tenant, "").Keys.Get(ctx, in.Prefix)
	if err != nil {
		return nil, err
	}
	expiry := in.Body.cappedBy(c, old.Principal, a.now())
	if err := a.checkGrant(ctx, c, old.Roles, expiry); err != nil {
		return nil, err
	}
	token, k, err := a.service.As(c.Tenant, c.Principal).Keys.Rotate(ctx, postadjudication.KeyRotation{
		Prefix: in.Prefix, ExpiresAt: expiry.ExpiresAt, NeverExpires: expiry.NeverExpires, Reason: in.Body.Reason,
	})
	return &newKeyOutput{NewKey{token, k}}, err
}

// cappedBy returns the expiry for a new key. A default expiry is capped at the expiry of the
// caller's key.
func (e KeyExpiry) cappedBy(c Caller, principal string, now time.Time) KeyExpiry {
	if e.NeverExpires == "" && e.ExpiresAt.IsZero() {
		e.ExpiresAt = now.Add(access.DefaultLifetime(principal))
		if access.Outlives(e.ExpiresAt, c.expiresAt) {
			e.ExpiresAt = *c.expiresAt
		}
	}
	return e
}

// checkGrant refuses to make a key that allows more, or expires later, than the caller's key. A
// refusal leaves a receipt.
func (a keyAPI) checkGrant(ctx context.Context, c Caller, roles []access.Role, expiry KeyExpiry) error {
	if c.Key == "" { // a local caller would keep its access after keys are required
		return newProblem(http.StatusForbidden, "key_needed", "making an access key takes an access key: make the first with recourse keys create and access to the database")
	}
	beyond := access.Ungrantable(c.Roles, roles)
	longer := access.Outlives(expiry.ExpiresAt, c.expiresAt)
	if len(beyond) == 0 && !longer {
		return nil
	}
	if err := a.recordRefusal(ctx, c, postadjudication.AccessRefusal{Action: string(access.Keys), Code: "beyond_reach"}); err != nil {
		return err
	}
	p := newProblem(http.StatusForbidden, "beyond_reach", "an access key may not make one that allows more than itself")
	if len(beyond) > 0 {
		p = p.withField("roles", fmt.Sprintf("must not allow more than the access key: %v", beyond))
	}
	if longer {
		p = p.withField("expires_at", "must not be after the expiry of the access key, which is "+c.expiresAt.Format(time.RFC3339))
	}
	return p
}

func (a keyAPI) revokeKey(ctx context.Context, c Caller, in *revokeInput) (*keyOutput, error) {
	k, err := a.service.As(c.Tenant, c.Principal).Keys.Revoke(ctx, in.Prefix, in.Reason)
	return &keyOutput{k}, err
}

// KeyExpiresHeader is the header that shows when the caller's key expires, in its last 30 days.
const KeyExpiresHeader = "Recourse-Key-Expires"

const (
	// expiryLogInterval is how often a process logs that a key in use expires soon. A key that was
	// not shown for so long, for example because it was rotated or revoked, is forgotten.
	expiryLogInterval = 24 * time.Hour
	// maxExpiringKeys bounds how many expiring keys are remembered, so that metrics stay small.
	maxExpiringKeys = 256
)

// expiringKeys remembers the keys that were shown in their last 30 days. It is safe for
// concurrent use.
type expiringKeys struct {
	mu       sync.Mutex
	byPrefix map[string]expiringKey
}

type expiringKey struct{ expiresAt, loggedAt, usedAt time.Time }

// record remembers a key. It reports whether its expiry should be logged now.
func (e *expiringKeys) record(prefix string, end, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.prune(now)
	known, is := e.byPrefix[prefix]
	if !is && len(e.byPrefix) >= maxExpiringKeys {
		return false
	}
	due := now.Sub(known.loggedAt) >= expiryLogInterval
	if due {
		known.loggedAt = now
	}
	known.expiresAt, known.usedAt = end, now
	e.byPrefix[prefix] = known
	return due
}

// prune drops expired keys, and keys that were not shown for expiryLogInterval.
func (e *expiringKeys) prune(now time.Time) {
	for prefix, k := range e.byPrefix {
		if !now.Before(k.expiresAt) || now.Sub(k.usedAt) >= expiryLogInterval {
			delete(e.byPrefix, prefix)
		}
	}
}

// ExpiringKeys returns the expiry, by prefix, of each key that this process was shown in the
// key's last 30 days.
func (a *API) ExpiringKeys() map[string]time.Time {
	a.expiringKeys.mu.Lock()
	defer a.expiringKeys.mu.Unlock()
	a.expiringKeys.prune(a.now())
	out := make(map[string]time.Time, len(a.expiringKeys.byPrefix))
	for prefix, k := range a.expiringKeys.byPrefix {
		out[prefix] = k.expiresAt
	}
	return out
}

// announceExpiry sets KeyExpiresHeader for a key that expires soon, and logs it once a day.
func (a *API) announceExpiry(w http.ResponseWriter, c Caller) {
	now := a.now()
	if !access.ExpiresSoon(c.expiresAt, now) {
		return
	}
	w.Header().Set(KeyExpiresHeader, c.expiresAt.UTC().Format(time.RFC3339))
	if a.expiringKeys.record(c.Key, *c.expiresAt, now) {
		a.log.Warn("an access key in use expires soon: make its successor with recourse keys rotate",
			zap.String("key", c.Key), zap.String("tenant", c.Tenant), zap.String("principal", c.Principal), zap.Time("expires_at", *c.expiresAt))
	}
}

// describeExpiryHeader adds KeyExpiresHeader to every answer in the description.
func describeExpiryHeader(doc *huma.OpenAPI) {
	doc.Components.Headers = map[string]*huma.Header{"KeyExpires": {
		Description: "When the access key of the request expires; on every answer in its last 30 days", Schema: &huma.Schema{Type: "string", Format: "date-time"},
	}}
	for _, path := range doc.Paths {
		for _, op := range []*huma.Operation{path.Get, path.Post, path.Delete} {
			if op == nil {
				continue
			}
			for _, answer := range op.Responses {
				if answer.Headers == nil {
					answer.Headers = map[string]*huma.Param{}
				}
				answer.Headers[KeyExpiresHeader] = &huma.Param{Ref: "#/components/headers/KeyExpires"}
			}
		}
	}
}

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

// keyAPI has the operations of access keys.
type keyAPI struct{ *API }

type keysOutput struct {
	Body struct {
		Keys []access.Key `json:"keys"`
	}
}

type keyInput struct {
	Body struct {
		Principal string        `json:"principal" minLength:"1" maxLength:"128" pattern:"^[a-z]+:[A-Za-z0-9._@+-]{1,100}$" patternDescription:"a kind and a name, such as user:ada or service:desk" doc:"The owner of the key and actor of its actions: a kind and a name. user: is a person; system: and rule: are reserved" example:"user:ada"`
		Roles     []access.Role `json:"roles" minItems:"1" enum:"submitter,worker,operator,approver,auditor,admin"`
		Queues    []string      `json:"queues,omitempty" maxItems:"50" doc:"For the role worker: the queues from which it fetches, each a name in which * stands for any text. Each is one of the key that makes it. Absent: all that are no payment queues" example:"payouts"`
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

func (a keyAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-keys", method: http.MethodGet, path: "/keys", action: access.Keys, summary: "List the tenant's access keys",
	}, a.listKeys)
	register(a.API, h, operation{
		id: "create-key", method: http.MethodPost, path: "/keys", action: access.Keys, status: http.StatusCreated, secret: "token",
		summary: "Make an access key", description: "The answer shows the token, once. The new key can't have a role that allows more, or expire later, than the key that makes it (403 beyond_reach). Its principal can't fetch adjudications from a payment queue and be submitter, operator, approver or admin (403 duties_mixed).",
	}, a.createKey)
	register(a.API, h, operation{
		id: "rotate-key", method: http.MethodPost, path: "/keys/{prefix}/rotate", action: access.Keys, status: http.StatusCreated, secret: "token",
		summary: "Make the successor of an access key", description: "The successor has the same principal, roles and queues; the answer shows its token, once. The old key stays valid until it expires or is revoked. Only a key of the same principal gets it (403 other_principal), and the limits of create-key apply (403 beyond_reach).",
	}, a.rotateKey)
	register(a.API, h, operation{
		id: "revoke-key", method: http.MethodDelete, path: "/keys/{prefix}", action: access.Keys, summary: "Revoke an access key",
		description: "Every process refuses the key after at most 2 seconds; its streams end within 8. Revoking it again changes nothing.",
	}, a.revokeKey)
}

func (a keyAPI) listKeys(ctx context.Context, c door.Caller, _ *noInput) (*keysOutput, error) {
	found, err := a.service.As(c.Tenant, "").Keys.List(ctx)
	out := &keysOutput{}
	out.Body.Keys = append([]access.Key{}, found...)
	return out, err
}

func (a keyAPI) createKey(ctx context.Context, c door.Caller, in *keyInput) (*newKeyOutput, error) {
	expiry := in.Body.cappedBy(c, in.Body.Principal, time.Now())
	if err := a.checkGrant(ctx, c, in.Body.Roles, in.Body.Queues, expiry); err != nil {
		return nil, err
	}
	token, k, err := a.service.As(c.Tenant, c.Principal).Keys.Create(ctx, postadjudication.NewKey{
		Principal: in.Body.Principal, Roles: in.Body.Roles, Queues: in.Body.Queues, ExpiresAt: expiry.ExpiresAt, NeverExpires: expiry.NeverExpires, Reason: in.Body.Reason,
	})
	return a.made(ctx, c, token, k, err)
}

// made answers with a new key. A refusal to make it because its principal would pay and decide leaves a receipt.
func (a keyAPI) made(ctx context.Context, c door.Caller, token string, k access.Key, err error) (*newKeyOutput, error) {
	if mixed := (*access.DutiesError)(nil); errors.As(err, &mixed) {
		err = a.refuseGrant(ctx, c, door.NewRefusal(http.StatusForbidden, "duties_mixed", "%v", mixed))
	}
	return &newKeyOutput{NewKey{token, k}}, err
}

func (a keyAPI) rotateKey(ctx context.Context, c door.Caller, in *rotateInput) (*newKeyOutput, error) {
	old, err := a.service.As(c.Tenant, "").Keys.Get(ctx, in.Prefix)
	if err != nil {
		return nil, err
	}
	if c.Key != "" && !access.SamePrincipal(old.Principal, c.Principal) {
		return nil, a.refuseGrant(ctx, c, door.NewRefusal(http.StatusForbidden, "other_principal", "only %s gets the token of a successor of this key: ask with a key of %[1]s, or use recourse keys rotate with access to the database", old.Principal))
	}
	expiry := in.Body.cappedBy(c, old.Principal, time.Now())
	if err := a.checkGrant(ctx, c, old.Roles, old.Queues, expiry); err != nil {
		return nil, err
	}
	token, k, err := a.service.As(c.Tenant, c.Principal).Keys.Rotate(ctx, postadjudication.KeyRotation{
		Prefix: in.Prefix, ExpiresAt: expiry.ExpiresAt, NeverExpires: expiry.NeverExpires, Reason: in.Body.Reason,
	})
	return a.made(ctx, c, token, k, err)
}

// cappedBy returns the expiry for a new key. A default expiry is capped at the expiry of the
// caller's key.
func (e KeyExpiry) cappedBy(c door.Caller, principal string, now time.Time) KeyExpiry {
	if e.NeverExpires == "" && e.ExpiresAt.IsZero() {
		e.ExpiresAt = now.Add(access.DefaultLifetime(principal))
		if access.Outlives(e.ExpiresAt, c.ExpiresAt) {
			e.ExpiresAt = *c.ExpiresAt
		}
	}
	return e
}

// checkGrant refuses to make a key that allows more, or expires later, than the caller's key. A
// refusal leaves a receipt.
func (a keyAPI) checkGrant(ctx context.Context, c door.Caller, roles []access.Role, queues []string, expiry KeyExpiry) error {
	if c.Key == "" { // a local caller would keep its access after keys are required
		return door.NewRefusal(http.StatusForbidden, "key_needed", "making an access key takes an access key: make the first with recourse keys create and access to the database")
	}
	beyond := access.Ungrantable(c.Roles, roles)
	longer := access.Outlives(expiry.ExpiresAt, c.ExpiresAt)
	var others []string
	if slices.Contains(roles, access.Worker) {
		others = access.UngrantableQueues(c.Queues, queues)
	}
	if len(beyond) == 0 && len(others) == 0 && !longer {
		return nil
	}
	refused := door.NewRefusal(http.StatusForbidden, "beyond_reach", "an access key may not make one that allows more than itself")
	if len(beyond) > 0 {
		refused.WithField("roles", fmt.Sprintf("must not allow more than the access key: %v", beyond))
	}
	if len(others) > 0 {
		refused.WithField("queues", fmt.Sprintf("must be among those of the access key, which lacks %s: make the key with recourse keys create and access to the database", strings.Join(others, ", ")))
	}
	if longer {
		refused.WithField("expires_at", "must not be after the expiry of the access key, which is "+c.ExpiresAt.Format(time.RFC3339))
	}
	return a.refuseGrant(ctx, c, refused)
}

// refuseGrant writes the receipt of a key that is not made, and returns the refusal.
func (a keyAPI) refuseGrant(ctx context.Context, c door.Caller, refused *door.Refusal) error {
	if err := a.door.RecordRefusal(ctx, c, postadjudication.AccessRefusal{Action: string(access.Keys), Code: refused.Code}); err != nil {
		return err
	}
	return refused
}

func (a keyAPI) revokeKey(ctx context.Context, c door.Caller, in *revokeInput) (*keyOutput, error) {
	k, err := a.service.As(c.Tenant, c.Principal).Keys.Revoke(ctx, in.Prefix, in.Reason)
	return &keyOutput{k}, err
}

// describeExpiryHeader adds door.KeyExpiresHeader to every answer in the description.
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
				answer.Headers[door.KeyExpiresHeader] = &huma.Param{Ref: "#/components/headers/KeyExpires"}
			}
		}
	}
}

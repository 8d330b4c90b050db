package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

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
		Principal string        `json:"principal" minLength:"1" maxLength:"128" doc:"Who will hold it; the actor of what is done with it" example:"user:ada"`
		Roles     []access.Role `json:"roles" minItems:"1" enum:"submitter,operator,approver,auditor,admin"`
		ExpiresAt time.Time     `json:"expires_at,omitempty" doc:"Absent: never"`
		Reason    string        `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; it stands in the receipt"`
	}
}

// NewKey is a key with its token, which is shown once.
type NewKey struct {
	Token string `json:"token,omitempty" doc:"Shown once; a repeated answer has none" example:"rck_..."`
	access.Key
}

type newKeyOutput struct{ Body NewKey }

type revokeInput struct {
	Prefix string `path:"prefix" minLength:"12" maxLength:"12"`
	Reason string `query:"reason" required:"true" minLength:"1" maxLength:"1024" doc:"Why; it stands in the receipt"`
}

type keyOutput struct{ Body access.Key }

func (a *API) keyOperations(h huma.API) {
	register(a, h, operation{
		id: "list-keys", method: http.MethodGet, path: "/keys", action: access.Keys, summary: "List the tenant's access keys",
	}, a.listKeys)
	register(a, h, operation{
		id: "create-key", method: http.MethodPost, path: "/keys", action: access.Keys, status: http.StatusCreated, secret: true,
		summary: "Make an access key", description: "Its token is shown once. Nobody makes a key with a role that reaches further than their own, nor one that opens longer (403 beyond_reach).",
	}, a.createKey)
	register(a, h, operation{
		id: "revoke-key", method: http.MethodDelete, path: "/keys/{prefix}", action: access.Keys, summary: "Revoke an access key",
		description: "It is refused everywhere at most 2 seconds later; streams end within 8. To revoke it again changes nothing.",
	}, a.revokeKey)
}

func (a *API) listKeys(ctx context.Context, c Caller, _ *nothing) (*keysOutput, error) {
	found, err := a.service.Keys(ctx, c.Tenant)
	out := &keysOutput{}
	out.Body.Keys = append([]access.Key{}, found...)
	return out, err
}

func (a *API) createKey(ctx context.Context, c Caller, in *keyInput) (*newKeyOutput, error) {
	if err := a.withinReach(ctx, c, in); err != nil {
		return nil, err
	}
	token, k, err := a.service.CreateKey(ctx, postadjudication.NewKey{
		Tenant: c.Tenant, Principal: in.Body.Principal, Roles: in.Body.Roles, ExpiresAt: in.Body.ExpiresAt, Actor: c.Principal, Reason: in.Body.Reason,
	})
	return &newKeyOutput{NewKey{token, k}}, err
}

// withinReach refuses to make a key that opens more than the key it is made with, or
// for longer, and leaves a receipt.
func (a *API) withinReach(ctx context.Context, c Caller, in *keyInput) error {
	beyond := access.Beyond(c.Roles, in.Body.Roles)
	longer := access.Outlives(in.Body.ExpiresAt, c.until)
	if len(beyond) == 0 && !longer {
		return nil
	}
	if err := a.tell(ctx, c, postadjudication.AccessRefusal{Action: string(access.Keys), Rule: "beyond_reach"}); err != nil {
		return err
	}
	p := newProblem(http.StatusForbidden, "beyond_reach", "the access key may not make one that opens more than itself")
	if len(beyond) > 0 {
		p = p.with("roles", fmt.Sprintf("%v may do what the key may not", beyond))
	}
	if longer {
		p = p.with("expires_at", "must not be after the end of the key itself, which is "+c.until.Format(time.RFC3339))
	}
	return p
}

func (a *API) revokeKey(ctx context.Context, c Caller, in *revokeInput) (*keyOutput, error) {
	k, err := a.service.RevokeKey(ctx, c.Tenant, in.Prefix, c.Principal, in.Reason)
	return &keyOutput{k}, err
}

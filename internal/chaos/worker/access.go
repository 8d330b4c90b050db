package worker

import (
	"context"
	"crypto/sha256"
	"errors"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts"
)

// access does what faces ask of the journal: keys, refusals, and requests that must
// not be done twice.
func (p *process) access(ctx context.Context, c Command) error {
	switch c.Do {
	case UseKeys:
		return p.keys(ctx, c.Tenant)
	case Refuse:
		refusal := postadjudication.AccessRefusal{Tenant: c.Tenant, Actor: actor, Action: "fork", Rule: "role_missing"}
		if c.Run != "" {
			var err error
			if refusal.Run, err = receipts.ParseRunID(c.Run); err != nil {
				return err
			}
		}
		return p.service.RecordRefusal(ctx, refusal)
	}
	_, begun, err := p.service.BeginRequest(ctx, c.Tenant, reason, sha256.Sum256([]byte(actor)))
	if err != nil || begun == nil {
		return err
	}
	return begun.Answer(ctx, postadjudication.StoredResponse{Status: 200, Body: []byte("{}")})
}

// keys makes a key, uses it and revokes it.
func (p *process) keys(ctx context.Context, tenant string) error {
	_, k, err := p.service.CreateKey(ctx, postadjudication.NewKey{
		Tenant: tenant, Principal: actor, Roles: []postadjudication.AccessRole{"operator"}, Actor: actor, Reason: reason,
	})
	if err != nil {
		return err
	}
	if err := p.service.KeyStore().UseKey(ctx, k.ID, k.CreatedAt); err != nil {
		return err
	}
	gone, err := p.service.RevokeKey(ctx, tenant, k.Prefix, actor, reason)
	if err == nil && gone.RevokedAt == nil {
		err = errors.New("worker: the key is not revoked")
	}
	return err
}

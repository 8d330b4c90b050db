package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Keys are the requests about access keys.
type Keys struct{ *connection }

// List returns the access keys that the tenant has ever had.
func (k Keys) List(ctx context.Context) ([]access.Key, error) {
	var out struct {
		Keys []access.Key `json:"keys"`
	}
	err := k.get(ctx, "/keys", nil, &out)
	return out.Keys, err
}

// Create makes a key. It fails if the first answer was lost: only that one had the secret.
func (k Keys) Create(ctx context.Context, q postadjudication.NewKey) (token string, made access.Key, err error) {
	return k.make(ctx, "/keys", map[string]any{"principal": q.Principal, "roles": q.Roles, "queues": append([]string{}, q.Queues...), "reason": q.Reason}, q.ExpiresAt, q.NeverExpires)
}

// Rotate makes the successor of a key. It fails as Create does.
func (k Keys) Rotate(ctx context.Context, q postadjudication.KeyRotation) (token string, made access.Key, err error) {
	return k.make(ctx, "/keys/"+url.PathEscape(q.Prefix)+"/rotate", map[string]any{"reason": q.Reason}, q.ExpiresAt, q.NeverExpires)
}

func (k Keys) make(ctx context.Context, path string, body map[string]any, end time.Time, never string) (token string, made access.Key, err error) {
	if !end.IsZero() {
		body["expires_at"] = end
	}
	if never != "" {
		body["never_expires"] = never
	}
	var answer api.NewKey
	if err := k.post(ctx, path, body, &answer); err != nil {
		return "", access.Key{}, err
	}
	if answer.Token == "" {
		return "", access.Key{}, errors.New("a key was made, but the answer with its secret was lost: revoke " + answer.Prefix + ", and make another")
	}
	return answer.Token, answer.Key, nil
}

// Revoke revokes a key for good.
func (k Keys) Revoke(ctx context.Context, prefix, reason string) (out access.Key, err error) {
	err = k.sendIdempotent(ctx, http.MethodDelete, "/keys/"+url.PathEscape(prefix), url.Values{"reason": {reason}}, nil, &out)
	return out, err
}

package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func (s *server) Policies(ctx context.Context) ([]postadjudication.FamilyPolicy, error) {
	var out struct {
		Policies []postadjudication.FamilyPolicy `json:"policies"`
	}
	err := s.get(ctx, "/policies", nil, &out)
	return out.Policies, err
}

// versionsQuery asks for versions after one.
func versionsQuery(after int64, limit int) url.Values {
	return url.Values{"after": {strconv.FormatInt(after, 10)}, "limit": {strconv.Itoa(limit)}}
}

func policyPath(family, verb string) string { return "/policies/" + url.PathEscape(family) + verb }

func (s *server) PolicyHistory(ctx context.Context, family string, after int64, limit int) ([]postadjudication.PolicyVersion, error) {
	var out struct {
		Versions []postadjudication.PolicyVersion `json:"versions"`
	}
	err := s.get(ctx, policyPath(family, "/history"), versionsQuery(after, limit), &out)
	return out.Versions, err
}

func (s *server) SetPolicy(ctx context.Context, q postadjudication.PolicyChange) (out postadjudication.FamilyPolicy, err error) {
	err = s.post(ctx, policyPath(q.Family, ""), struct {
		because
		Policy    retrypolicy.Policy `json:"policy"`
		IfVersion *int64             `json:"if_version,omitempty"`
	}{because{q.Reason}, q.Policy, q.IfVersion}, &out)
	return out, err
}

func (s *server) ResetPolicy(ctx context.Context, q postadjudication.PolicyReset) (out postadjudication.FamilyPolicy, err error) {
	err = s.post(ctx, policyPath(q.Family, "/reset"), struct {
		because
		IfVersion *int64 `json:"if_version,omitempty"`
	}{because{q.Reason}, q.IfVersion}, &out)
	return out, err
}

func (s *server) Keys(ctx context.Context) ([]access.Key, error) {
	var out struct {
		Keys []access.Key `json:"keys"`
	}
	err := s.get(ctx, "/keys", nil, &out)
	return out.Keys, err
}

// CreateKey fails when the first answer was lost: the secret was in that one only.
func (s *server) CreateKey(ctx context.Context, q postadjudication.NewKey) (keyMade, error) {
	return s.makeKey(ctx, "/keys", map[string]any{"principal": q.Principal, "roles": q.Roles, "reason": q.Reason}, q.ExpiresAt, q.NeverExpires)
}

// RotateKey fails as CreateKey does.
func (s *server) RotateKey(ctx context.Context, q postadjudication.KeyRotation) (keyMade, error) {
	return s.makeKey(ctx, "/keys/"+url.PathEscape(q.Prefix)+"/rotate", map[string]any{"reason": q.Reason}, q.ExpiresAt, q.NeverExpires)
}

func (s *server) makeKey(ctx context.Context, path string, body map[string]any, end time.Time, never string) (keyMade, error) {
	if !end.IsZero() {
		body["expires_at"] = end
	}
	if never != "" {
		body["never_expires"] = never
	}
	var made api.NewKey
	if err := s.post(ctx, path, body, &made); err != nil {
		return keyMade{}, err
	}
	if made.Token == "" {
		return keyMade{}, errors.New("a key was made, but the answer that showed it was lost: revoke " + made.Prefix + ", and make another")
	}
	return keyMade{made.Token, made.Key}, nil
}

func (s *server) RevokeKey(ctx context.Context, prefix, reason string) (out access.Key, err error) {
	err = s.order(ctx, http.MethodDelete, "/keys/"+url.PathEscape(prefix), url.Values{"reason": {reason}}, nil, &out)
	return out, err
}

func (s *server) Retention(ctx context.Context) ([]postadjudication.Kept, error) {
	var out struct {
		Retention []postadjudication.Kept `json:"retention"`
	}
	err := s.get(ctx, "/retention", nil, &out)
	return out.Retention, err
}

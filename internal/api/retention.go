package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// retentionAPI has the operations of retention rules.
type retentionAPI struct{ *API }

type retentionOutput struct {
	Body struct {
		Retention []retention.Effective `json:"retention"`
	}
}

func (a retentionAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "get-retention", method: http.MethodGet, path: "/retention", action: access.Read, summary: "Get how long dead letters are kept",
		description: "From this server's configuration. expires_at of a letter is when it may be purged.",
	}, func(ctx context.Context, c door.Caller, _ *noInput) (_ *retentionOutput, err error) {
		out := &retentionOutput{}
		out.Body.Retention, err = a.service.As(c.Tenant, "").DeadLetters.Retention(ctx)
		return out, err
	})
}

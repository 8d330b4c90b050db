package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

type retentionOutput struct {
	Body struct {
		Retention []postadjudication.EffectiveRetention `json:"retention"`
	}
}

func (a *API) retentionOperations(h huma.API) {
	register(a, h, operation{
		id: "get-retention", method: http.MethodGet, path: "/retention", action: access.Read, summary: "Tell how long dead letters are kept",
		description: "By this server's configuration. A letter says itself when it may go: expires_at.",
	}, func(context.Context, Caller, *noInput) (*retentionOutput, error) {
		out := &retentionOutput{}
		out.Body.Retention = a.service.Retention()
		return out, nil
	})
}

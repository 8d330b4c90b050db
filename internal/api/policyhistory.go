package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

type policyHistoryInput struct {
	Family string `path:"family" minLength:"1" maxLength:"32" example:"settlement"`
	After  int64  `query:"after" minimum:"0" default:"0" doc:"Versions after this one"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type policyHistoryOutput struct {
	Body struct {
		Versions []postadjudication.PolicyVersion `json:"versions"`
	}
}

func (a *API) policyHistoryOperations(h huma.API) {
	register(a, h, operation{
		id: "policy-history", method: http.MethodGet, path: "/policies/{family}/history", action: access.Receipts, summary: "Tell the changes of a family's policy, from their receipts",
		description: "The first one first. There is none while the policy is as configured.",
	}, func(ctx context.Context, c Caller, in *policyHistoryInput) (*policyHistoryOutput, error) {
		found, err := a.service.PolicyHistory(ctx, c.Tenant, in.Family, in.After, in.Limit)
		out := &policyHistoryOutput{}
		out.Body.Versions = append([]postadjudication.PolicyVersion{}, found...)
		return out, err
	})
}

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

// historyAPI has the operations of operation logs.
type historyAPI struct{ *API }

// HistoryPage selects the entries to return. It is exported because huma ignores embedded
// fields that are not.
type HistoryPage struct {
	After int64 `query:"after" minimum:"0" default:"0" doc:"Start after this sequence number"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type breakerHistoryInput struct {
	Target string `path:"target" minLength:"1" maxLength:"134" example:"escrow"`
	HistoryPage
}

type historyOutput struct {
	Body struct {
		Entries []postadjudication.OperationLogEntry `json:"entries"`
	}
}

// operations registers the operation logs of keys, refusals, plans, webhooks and circuit breakers.
func (a historyAPI) operations(h huma.API) {
	for _, r := range []struct {
		id, path, summary string
		of                postadjudication.OperationLog
	}{
		{"key-history", "/keys/history", "List who made and revoked access keys, from the receipts", postadjudication.OperationLogKeys},
		{"access-history", "/access/history", "List refusals that name no case, from the receipts", postadjudication.OperationLogRefusals},
		{"bulk-history", "/bulk/history", "List who made, started, paused, resumed and cancelled plans, from the receipts", postadjudication.OperationLogBulks},
		{"webhook-history", "/webhooks/history", "List who created, paused, resumed, rotated, replayed and deleted webhooks, from the receipts", postadjudication.OperationLogWebhooks},
	} {
		register(a.API, h, operation{
			id: r.id, method: http.MethodGet, path: r.path, action: access.Receipts, summary: r.summary, description: "Oldest first.",
		}, func(ctx context.Context, c door.Caller, in *HistoryPage) (*historyOutput, error) {
			return historyResult(a.service.As(c.Tenant, "").OperationLogs.History(ctx, r.of, in.After, in.Limit))
		})
	}
	register(a.API, h, operation{
		id: "breaker-history", method: http.MethodGet, path: "/breakers/{target}/history", action: access.Receipts, summary: "List who opened and released the circuit breaker of an escrow service, from the receipts",
		description: "Oldest first. Includes when the circuit breaker over all tenants paused the tenant's runs; with the tenant " + postadjudication.AllTenants + " it is the history of that circuit breaker.",
	}, func(ctx context.Context, c door.Caller, in *breakerHistoryInput) (*historyOutput, error) {
		return historyResult(a.service.As(c.Tenant, "").Breakers.History(ctx, in.Target, in.After, in.Limit))
	})
}

func historyResult(found []postadjudication.OperationLogEntry, err error) (*historyOutput, error) {
	out := &historyOutput{}
	out.Body.Entries = append([]postadjudication.OperationLogEntry{}, found...)
	return out, err
}

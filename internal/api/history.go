package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

// HistoryPage says which entries are asked for. It is exported so that it can be embedded: huma
// passes over what is not.
type HistoryPage struct {
	After int64 `query:"after" minimum:"0" default:"0" doc:"Begin after this sequence number"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type breakerHistoryInput struct {
	Target string `path:"target" minLength:"1" maxLength:"64" example:"escrow"`
	HistoryPage
}

type historyOutput struct {
	Body struct {
		Entries []postadjudication.OperationLogEntry `json:"entries"`
	}
}

// historyOperations tell what was done with things that have no case, from their receipts.
func (a *API) historyOperations(h huma.API) {
	for _, r := range []struct {
		id, path, summary string
		of                postadjudication.OperationLog
	}{
		{"key-history", "/keys/history", "Tell who made and revoked which access key, from the receipts", postadjudication.OperationLogKeys},
		{"access-history", "/access/history", "Tell who was refused what where no case was named, from the receipts", postadjudication.OperationLogRefusals},
		{"bulk-history", "/bulk/history", "Tell who made, started, paused, resumed and cancelled which plan, from the receipts", postadjudication.OperationLogBulks},
	} {
		register(a, h, operation{
			id: r.id, method: http.MethodGet, path: r.path, action: access.Receipts, summary: r.summary, description: "The first one first.",
		}, func(ctx context.Context, c Caller, in *HistoryPage) (*historyOutput, error) {
			return historyResult(a.service.OperationHistory(ctx, c.Tenant, r.of, in.After, in.Limit))
		})
	}
	register(a, h, operation{
		id: "breaker-history", method: http.MethodGet, path: "/breakers/{target}/history", action: access.Receipts, summary: "Tell who moved the circuit breaker of an escrow service, from the receipts",
		description: "The first one first. It also says when the one over all tenants paused the tenant's runs; with the tenant " + postadjudication.AllTenants + " it is that one's own.",
	}, func(ctx context.Context, c Caller, in *breakerHistoryInput) (*historyOutput, error) {
		return historyResult(a.service.BreakerHistory(ctx, c.Tenant, in.Target, in.After, in.Limit))
	})
}

func historyResult(found []postadjudication.OperationLogEntry, err error) (*historyOutput, error) {
	out := &historyOutput{}
	out.Body.Entries = append([]postadjudication.OperationLogEntry{}, found...)
	return out, err
}

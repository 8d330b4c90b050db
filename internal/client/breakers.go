package client

import (
	"context"
	"net/url"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
)

// Breakers are the requests about circuit breakers.
type Breakers struct{ *connection }

// List returns the circuit breakers that were ever opened for the tenant, and those over all tenants.
func (b Breakers) List(ctx context.Context) ([]casestatus.Breaker, error) {
	found, err := b.list(ctx)
	return found.Breakers, err
}

// Called returns the targets that running processes call.
func (b Breakers) Called(ctx context.Context) ([]string, error) {
	found, err := b.list(ctx)
	return found.Called, err
}

type breakersFound struct {
	Breakers []casestatus.Breaker `json:"breakers"`
	Called   []string             `json:"called"`
}

func (b Breakers) list(ctx context.Context) (out breakersFound, err error) {
	err = b.get(ctx, "/breakers", nil, &out)
	return out, err
}

// Open opens the circuit breaker of a target by hand.
func (b Breakers) Open(ctx context.Context, target, reason string) (casestatus.Breaker, error) {
	return b.change(ctx, "open", target, reason)
}

// Release releases the circuit breaker of a target.
func (b Breakers) Release(ctx context.Context, target, reason string) (casestatus.Breaker, error) {
	return b.change(ctx, "release", target, reason)
}

func (b Breakers) change(ctx context.Context, verb, target, reason string) (out casestatus.Breaker, err error) {
	err = b.post(ctx, "/breakers/"+verb, struct {
		reasonBody
		Target string `json:"target"`
	}{reasonBody{reason}, target}, &out)
	return out, err
}

// History returns the changes of a circuit breaker after sequence number after.
func (b Breakers) History(ctx context.Context, target string, after int64, limit int) ([]postadjudication.OperationLogEntry, error) {
	var out struct {
		Entries []postadjudication.OperationLogEntry `json:"entries"`
	}
	err := b.get(ctx, "/breakers/"+url.PathEscape(target)+"/history", versionsQuery(after, limit), &out)
	return out.Entries, err
}

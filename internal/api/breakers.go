package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
)

// breakerAPI has the operations of circuit breakers.
type breakerAPI struct{ *API }

type noInput struct{}

type breakersOutput struct {
	Body struct {
		Breakers []casestatus.Breaker `json:"breakers"`
		Called   []string             `json:"called" doc:"The targets that running processes call, of all tenants: the circuit breaker of another name stops nothing"`
	}
}

type breakerInput struct {
	Body struct {
		Target string `json:"target,omitempty" minLength:"1" maxLength:"134" default:"escrow" doc:"An escrow service, the name of a plain family, or queue: and the name of a queue from which remote workers fetch"`
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type breakerOutput struct{ Body casestatus.Breaker }

func (a breakerAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-breakers", method: http.MethodGet, path: "/breakers", action: access.Read, summary: "List the circuit breakers opened for the tenant or for all tenants",
	}, a.breakers)
	register(a.API, h, operation{
		id: "open-breaker", method: http.MethodPost, path: "/breakers/open", action: access.Breaker, summary: "Open the circuit breaker of an escrow service by hand",
		description: "The service is not called any more. New submissions are accepted and paused until a person releases the circuit breaker. It applies to the key's tenant; with the tenant " + postadjudication.AllTenants + ", to all tenants.",
	}, a.openBreaker)
	register(a.API, h, operation{
		id: "release-breaker", method: http.MethodPost, path: "/breakers/release", action: access.Breaker, summary: "Release paused work: at once for a tenant; for all tenants by probes first, and at once on a second release",
		description: "409 breaker_not_open if there is nothing to release.",
	}, a.releaseBreaker)
}

func (a breakerAPI) breakers(ctx context.Context, c door.Caller, _ *noInput) (*breakersOutput, error) {
	breakers := a.service.As(c.Tenant, "").Breakers
	found, err := breakers.List(ctx)
	if err != nil {
		return nil, err
	}
	called, err := breakers.Called(ctx)
	out := &breakersOutput{}
	out.Body.Breakers, out.Body.Called = append([]casestatus.Breaker{}, found...), append([]string{}, called...)
	return out, err
}

func (a breakerAPI) openBreaker(ctx context.Context, c door.Caller, in *breakerInput) (*breakerOutput, error) {
	b, err := a.service.As(c.Tenant, c.Principal).Breakers.Open(ctx, in.Body.Target, in.Body.Reason)
	return &breakerOutput{b}, err
}

func (a breakerAPI) releaseBreaker(ctx context.Context, c door.Caller, in *breakerInput) (*breakerOutput, error) {
	b, err := a.service.As(c.Tenant, c.Principal).Breakers.Release(ctx, in.Body.Target, in.Body.Reason)
	return &breakerOutput{b}, err
}

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

type nothing struct{}

type brakesOutput struct {
	Body struct {
		Brakes []postadjudication.Brake `json:"brakes"`
	}
}

type brakeInput struct {
	Body struct {
		Target string `json:"target,omitempty" minLength:"1" maxLength:"64" default:"escrow" doc:"The escrow service, or a plain family by its name"`
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; it stands in the receipt"`
	}
}

type brakeOutput struct{ Body postadjudication.Brake }

func (a *API) brakeOperations(h huma.API) {
	register(a, h, operation{
		id: "list-brakes", method: http.MethodGet, path: "/brakes", action: access.Read, summary: "List the circuit breakers that were opened for the tenant, and those over all tenants",
	}, a.brakes)
	register(a, h, operation{
		id: "pull-brake", method: http.MethodPost, path: "/brakes/pull", action: access.Brake, summary: "Stop calling an escrow service: open its circuit breaker by hand",
		description: "What is handed over is accepted and paused until a person releases the circuit breaker. For the tenant alone; with the tenant " + postadjudication.AllTenants + ", over all tenants.",
	}, a.pull)
	register(a, h, operation{
		id: "release-brake", method: http.MethodPost, path: "/brakes/release", action: access.Brake, summary: "Let the paused work go: at once; over all tenants by probes first, and at once when it is said twice",
		description: "409 brake_released when there is nothing to release.",
	}, a.release)
}

func (a *API) brakes(ctx context.Context, c Caller, _ *nothing) (*brakesOutput, error) {
	found, err := a.service.Brakes(ctx, c.Tenant)
	out := &brakesOutput{}
	out.Body.Brakes = append([]postadjudication.Brake{}, found...)
	return out, err
}

func (a *API) pull(ctx context.Context, c Caller, in *brakeInput) (*brakeOutput, error) {
	b, err := a.service.PullBrake(ctx, c.Tenant, in.Body.Target, c.Principal, in.Body.Reason)
	return &brakeOutput{b}, err
}

func (a *API) release(ctx context.Context, c Caller, in *brakeInput) (*brakeOutput, error) {
	b, err := a.service.ReleaseBrake(ctx, c.Tenant, in.Body.Target, c.Principal, in.Body.Reason)
	return &brakeOutput{b}, err
}

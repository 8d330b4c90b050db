package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

type runInput struct {
	Run string `path:"run" format:"uuid"`
}

type runOutput struct{ Body postadjudication.Status }

type cancelInput struct {
	Run  string `path:"run" format:"uuid"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; it stands in the receipt"`
	}
}

func (a *API) runOperations(h huma.API) {
	register(a, h, operation{
		id: "get-run", method: http.MethodGet, path: "/runs/{run}", action: access.Read, summary: "Tell how a run is",
	}, a.getRun)
	register(a, h, operation{
		id: "cancel-run", method: http.MethodPost, path: "/runs/{run}/cancel", action: access.Cancel, summary: "Cancel a run",
		description: "A run that waits and has moved no money ends now. Of a running one it is asked: see cancel_asked. What it had reserved is freed; of a fork it stays reserved, until it is freed by plan-free. 409 ended, reconcile_first.",
	}, a.cancelRun)
}

func (a *API) getRun(ctx context.Context, c Caller, in *runInput) (*runOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	s, err := a.service.Status(ctx, c.Tenant, id)
	return &runOutput{s}, err
}

func (a *API) cancelRun(ctx context.Context, c Caller, in *cancelInput) (*runOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	s, err := a.service.Cancel(ctx, c.Tenant, id, c.Principal, in.Body.Reason)
	if errors.Is(err, postadjudication.ErrEnded) {
		p := newProblem(http.StatusConflict, "ended", "the run has ended: it is %s", s.State)
		p.Run = &s.Run
		return nil, p
	}
	return &runOutput{s}, err
}

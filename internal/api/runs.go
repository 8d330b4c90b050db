package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

type runInput struct {
	Run string `path:"run" format:"uuid"`
}

type runOutput struct{ Body casestatus.Status }

type cancelInput struct {
	Run  string `path:"run" format:"uuid"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

// runAPI has the operations of runs.
type runAPI struct{ *API }

func (a runAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "get-run", method: http.MethodGet, path: "/runs/{run}", action: access.Read, summary: "Get the status of a run",
	}, a.getRun)
	register(a.API, h, operation{
		id: "cancel-run", method: http.MethodPost, path: "/runs/{run}/cancel", action: access.Cancel, summary: "Cancel a run",
		description: "A waiting run that has moved no money ends at once. A running one is only asked to end: see cancel_asked. The money that the run had reserved is freed; the money of a fork stays reserved until plan-free frees it. 409 ended, reconcile_first.",
	}, a.cancelRun)
}

func (a runAPI) getRun(ctx context.Context, c door.Caller, in *runInput) (*runOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	s, err := a.service.Status(ctx, c.Tenant, id)
	return &runOutput{s}, err
}

func (a runAPI) cancelRun(ctx context.Context, c door.Caller, in *cancelInput) (*runOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	s, err := a.service.As(c.Tenant, c.Principal).Cases.Cancel(ctx, id, in.Body.Reason)
	if errors.Is(err, refusal.ErrEnded) {
		return nil, door.NewRefusal(http.StatusConflict, "ended", "the run has ended: it is %s", s.State).WithCause(&runError{run: s.Run})
	}
	return &runOutput{s}, err
}

func parseRunID(text string) (background.RunID, error) {
	id, err := receipts.ParseRunID(text)
	if err != nil {
		return id, door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "a run is named by its id").WithField("run", "is no UUID")
	}
	return id, nil
}

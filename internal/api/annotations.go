package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// annotationAPI has the operations of holds and marks of dead letters.
type annotationAPI struct{ *API }

type holdInput struct {
	Run  string `path:"run" format:"uuid"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type markInput struct {
	Run  string `path:"run" format:"uuid"`
	Body struct {
		Reason    string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
		Reprocess *bool  `json:"reprocess_eligible,omitempty" doc:"A fork is expected to succeed"`
		Review    *bool  `json:"manual_review_required,omitempty" doc:"A person should review the letter first"`
	}
}

type annotationsOutput struct{ Body deadletter.Annotations }

func (a annotationAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "hold-dead-letter", method: http.MethodPost, path: "/dead-letters/{run}/hold", action: access.Hold, summary: "Hold a dead letter: exempt it from retention and purges",
		description: "409 with the gate as code: not_open, held.",
	}, a.hold)
	register(a.API, h, operation{
		id: "release-dead-letter", method: http.MethodPost, path: "/dead-letters/{run}/release", action: access.Hold, summary: "Release the hold of a dead letter",
		description: "409 with the gate as code: not_open, not_held.",
	}, a.releaseHold)
	register(a.API, h, operation{
		id: "mark-dead-letter", method: http.MethodPost, path: "/dead-letters/{run}/mark", action: access.Mark, summary: "Mark a dead letter as worth a fork, or as in need of review",
	}, a.mark)
}

func (a annotationAPI) hold(ctx context.Context, c door.Caller, in *holdInput) (*annotationsOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	annotations, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Hold(ctx, id, in.Body.Reason)
	return &annotationsOutput{annotations}, err
}

func (a annotationAPI) releaseHold(ctx context.Context, c door.Caller, in *holdInput) (*annotationsOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	annotations, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Release(ctx, id, in.Body.Reason)
	return &annotationsOutput{annotations}, err
}

func (a annotationAPI) mark(ctx context.Context, c door.Caller, in *markInput) (*annotationsOutput, error) {
	id, err := parseRunID(in.Run)
	if err != nil {
		return nil, err
	}
	annotations, err := a.service.As(c.Tenant, c.Principal).DeadLetters.Mark(ctx, id, deadletter.Mark{
		Reason: in.Body.Reason, ReprocessEligible: in.Body.Reprocess, ManualReviewRequired: in.Body.Review,
	})
	return &annotationsOutput{annotations}, err
}

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

// peopleAPI has the operations of the number of people that a plan needs.
type peopleAPI struct{ *API }

type peopleInput struct {
	Body struct {
		People int    `json:"people" minimum:"1" maximum:"2" doc:"How many people have to agree to state or free money by hand"`
		Reason string `json:"reason" minLength:"1" maxLength:"1024" doc:"Why; recorded in the receipt"`
	}
}

type peopleOutput struct{ Body postadjudication.People }

type peopleHistoryOutput struct {
	Body struct {
		Versions []postadjudication.PeopleVersion `json:"versions"`
	}
}

func (a peopleAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "get-people", method: http.MethodGet, path: "/people", action: access.Read, summary: "Get how many people it takes to state or free money by hand",
	}, func(ctx context.Context, c door.Caller, _ *noInput) (*peopleOutput, error) {
		p, err := a.service.As(c.Tenant, "").People.Get(ctx)
		return &peopleOutput{p}, err
	})
	register(a.API, h, operation{
		id: "set-people", method: http.MethodPost, path: "/people", action: access.People, plannable: true, summary: "Set how many people it takes to state or free money by hand",
		description: "It applies to findings that money was moved, plans that fork or purge settlements, and plans that free reserved money. Receipts of actions that one person did alone say so. Lowering the number takes two people: 202 second_person_required with a plan that another person has to run.",
	}, func(ctx context.Context, c door.Caller, in *peopleInput) (*peopleOutput, error) {
		p, err := a.service.As(c.Tenant, c.Principal).People.Set(ctx, postadjudication.PeopleChange{People: in.Body.People, Reason: in.Body.Reason, Request: door.RequestID(ctx)})
		return &peopleOutput{p}, err
	})
	register(a.API, h, operation{
		id: "people-history", method: http.MethodGet, path: "/people/history", action: access.Receipts, summary: "List the changes of how many people it takes, from their receipts",
	}, func(ctx context.Context, c door.Caller, in *HistoryPage) (*peopleHistoryOutput, error) {
		found, err := a.service.As(c.Tenant, "").People.History(ctx, in.After, in.Limit)
		out := &peopleHistoryOutput{}
		out.Body.Versions = append([]postadjudication.PeopleVersion{}, found...)
		return out, err
	})
}

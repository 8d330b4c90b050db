package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

type eventsInput struct {
	After int64 `query:"after" minimum:"0" maximum:"9007199254740991" doc:"Begin after this position: the next of the answer before"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	// Less than the time in which the server must have answered.
	Wait int `query:"wait" minimum:"0" maximum:"25" doc:"Seconds to wait when there is none yet"`
}

type eventsOutput struct {
	Body struct {
		Events []postadjudication.Event  `json:"events"`
		Next   postadjudication.Position `json:"next" doc:"Give it as after: nothing is missed, and nothing comes twice"`
	}
}

type streamInput struct {
	After int64 `query:"after" minimum:"0" maximum:"9007199254740991" doc:"Begin after this position"`
	Last  int64 `header:"Last-Event-ID" minimum:"0" maximum:"9007199254740991" doc:"The same, as browsers say it when they come again; it prevails"`
}

func (a *API) eventOperations(h huma.API) {
	register(a, h, operation{
		id: "list-events", method: http.MethodGet, path: "/events", action: access.Read, summary: "Read what happened, in order, from a position on",
		description: "With wait it takes a place as a stream does. 422 invalid naming after, also of a stream, when the position is beyond the newest one of the tenant.",
	}, a.events)
	register(a, h, operation{
		id: "stream-events", method: http.MethodGet, path: "/events/stream", action: access.Read, summary: "The same as server-sent events",
		description: "The id of an event is its position, its type is event, data is the event as JSON. A comment every 15 seconds shows that the stream lives. It ends when the server stops or the key no longer opens. A key has 8 streams and long polls at once and a tenant 32 of each process; 429 too_many_streams beyond.",
	}, a.stream)
	h.OpenAPI().Paths[Prefix+"/events/stream"].Get.Responses["200"] = &huma.Response{
		Description: "OK", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}},
	}
}

func (a *API) events(ctx context.Context, c Caller, in *eventsInput) (*eventsOutput, error) {
	read := a.service.Events
	if in.Wait > 0 {
		release, err := a.acquireStream(c)
		if err != nil {
			return nil, err
		}
		defer release()
		read = a.service.WaitEvents
		var enough context.CancelFunc
		ctx, enough = context.WithTimeout(ctx, time.Duration(in.Wait)*time.Second)
		defer enough()
		defer context.AfterFunc(a.ctx, enough)()
	}
	events, next, err := read(ctx, c.Tenant, postadjudication.Position(in.After), in.Limit)
	out := &eventsOutput{}
	out.Body.Events, out.Body.Next = append([]postadjudication.Event{}, events...), next
	return out, err
}

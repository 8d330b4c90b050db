package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

// eventAPI has the operations of the event log.
type eventAPI struct{ *API }

type eventsInput struct {
	After int64 `query:"after" minimum:"0" maximum:"9007199254740991" doc:"Start after this position: next of the previous answer"`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	// Wait is at most less than an answer may take, so that it is in time.
	Wait int `query:"wait" minimum:"0" maximum:"25" doc:"Seconds to wait if there is no event yet"`
}

type eventsOutput struct {
	Body struct {
		Events []postadjudication.Event  `json:"events"`
		Next   postadjudication.Position `json:"next" doc:"after of the next request: no event is missed or repeated"`
	}
}

type streamInput struct {
	After int64 `query:"after" minimum:"0" maximum:"9007199254740991" doc:"Start after this position"`
	Last  int64 `header:"Last-Event-ID" minimum:"0" maximum:"9007199254740991" doc:"The same, as browsers send it when they reconnect; it has precedence"`
}

func (a eventAPI) operations(h huma.API) {
	register(a.API, h, operation{
		id: "list-events", method: http.MethodGet, path: "/events", action: access.Read, waits: true, summary: "List events in order, starting after a position",
		description: "With wait it counts as an open stream. 422 invalid naming after, also for a stream, if the position is beyond the tenant's newest event.",
	}, a.events)
	register(a.API, h, operation{
		id: "stream-events", method: http.MethodGet, path: "/events/stream", action: access.Read, summary: "Stream events as server-sent events",
		description: "id is the position of the event, event its type, data the event as JSON. A comment every 15 seconds keeps the stream alive. It ends when the server stops or the key is no longer valid. A process allows 8 streams, long polls, exports, tests of webhooks and lookups of a key and 32 of a tenant at once; 429 too_many_streams beyond that.",
	}, a.stream)
	h.OpenAPI().Paths[Prefix+"/events/stream"].Get.Responses["200"] = &huma.Response{
		Description: "OK", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}},
	}
}

func (a eventAPI) events(ctx context.Context, c door.Caller, in *eventsInput) (*eventsOutput, error) {
	read := a.readEvents
	if in.Wait > 0 {
		read = a.waitEvents
	}
	events, next, err := read(ctx, c, postadjudication.Position(in.After), in)
	out := &eventsOutput{}
	out.Body.Events, out.Body.Next = append([]postadjudication.Event{}, events...), next
	return out, err
}

// readEvents reads the events that there are, in a slot of the tenant's reads.
func (a eventAPI) readEvents(ctx context.Context, c door.Caller, after postadjudication.Position, in *eventsInput) (events []postadjudication.Event, next postadjudication.Position, err error) {
	waited := a.door.Read(ctx, c.Tenant, func() { events, next, err = a.service.Events(ctx, c.Tenant, after, in.Limit) })
	return events, next, cmp.Or(waited, err)
}

// waitEvents reads events once there are any, at most for as long as the request asks. It counts as a stream,
// and as a read only while it reads. It fails if the key is no longer valid.
func (a eventAPI) waitEvents(request context.Context, c door.Caller, after postadjudication.Position, in *eventsInput) ([]postadjudication.Event, postadjudication.Position, error) {
	release, err := a.door.AcquireStream(c)
	if err != nil {
		return nil, after, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(request, time.Duration(in.Wait)*time.Second)
	defer cancel()
	defer context.AfterFunc(a.door.Stopping(), cancel)()
	reader := a.service.Follow(c.Tenant, after)
	for {
		events, next, err := a.waitStep(ctx, reader, in.Limit)
		if err == nil {
			err = a.door.CheckKey(request, c)
		}
		if err != nil || len(events) > 0 || ctx.Err() != nil {
			return events, next, err
		}
	}
}

// waitStep reads events once there are any, at most until the key of the reader has to be checked again.
func (a *API) waitStep(ctx context.Context, reader *postadjudication.EventReader, most int) ([]postadjudication.Event, postadjudication.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, keyCheckInterval)
	defer cancel()
	return reader.Next(ctx, most, a.door.ReadPage)
}

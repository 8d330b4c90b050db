package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/recourse-dev/recourse/postadjudication"
)

// Events are the requests about events.
type Events struct{ *connection }

// List returns events after a position, and the position to continue from.
func (e Events) List(ctx context.Context, after postadjudication.Position, limit int) ([]postadjudication.Event, postadjudication.Position, error) {
	return e.list(ctx, after, limit, 0)
}

// waitSeconds is how long the server waits for an event at most: less than an answer may take.
const waitSeconds = 25

// Follow returns a function that waits for events after a position, and returns those after the ones before. It
// returns none if ctx ends.
func (e Events) Follow(after postadjudication.Position) func(context.Context) ([]postadjudication.Event, error) {
	return func(ctx context.Context) ([]postadjudication.Event, error) {
		for {
			events, next, err := e.list(ctx, after, postadjudication.MaxEvents, waitSeconds)
			if ctx.Err() != nil {
				return nil, nil
			}
			if err != nil || len(events) > 0 {
				after = next
				return events, err
			}
		}
	}
}

func (e Events) list(ctx context.Context, after postadjudication.Position, limit, wait int) ([]postadjudication.Event, postadjudication.Position, error) {
	query := url.Values{"after": {strconv.FormatInt(int64(after), 10)}, "limit": {strconv.Itoa(limit)}}
	if wait > 0 {
		query.Set("wait", strconv.Itoa(wait))
	}
	var out struct {
		Events []postadjudication.Event  `json:"events"`
		Next   postadjudication.Position `json:"next"`
	}
	err := e.get(ctx, "/events", query, &out)
	return out.Events, out.Next, err
}

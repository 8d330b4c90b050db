package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

const (
	// keyCheckInterval is how often streams, long polls and exports check that their key is still valid.
	// After every checksPerHeartbeat checks without an event a stream sends a heartbeat.
	keyCheckInterval   = 5 * time.Second
	checksPerHeartbeat = 3

	// streamWriteTimeout is how long a reader may take to read one write.
	streamWriteTimeout = 10 * time.Second
	streamPage         = 200
	streamType         = "text/event-stream"
)

// stream writes events as they arrive:
//
//	id: 4711
//	event: run.dead_lettered
//	data: {"position":4711,"id":"...","type":"run.dead_lettered",...}
func (a eventAPI) stream(ctx context.Context, c door.Caller, in *streamInput) (*huma.StreamResponse, error) {
	after := postadjudication.Position(in.After)
	if in.Last > 0 {
		after = postadjudication.Position(in.Last)
	}
	release, err := a.door.AcquireStream(c)
	if err != nil {
		return nil, err
	}
	if _, _, err := a.service.Events(ctx, c.Tenant, after, 1); err != nil { // once started, a stream can't be refused
		release()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		defer release()
		r, w := humago.Unwrap(hc)
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Type", streamType)
			return
		}
		s := &stream{a.API, c, w, http.NewResponseController(w)}
		if err := s.run(hc.Context(), after); err != nil && hc.Context().Err() == nil {
			a.log.Info("a stream of events ended", zap.String("tenant", c.Tenant), zap.Error(err))
		}
	}}, nil
}

type stream struct {
	*API
	caller door.Caller
	w      http.ResponseWriter
	ctl    *http.ResponseController
}

// run returns when the reader disconnects, the server stops, or the key is no longer valid.
func (s *stream) run(ctx context.Context, after postadjudication.Position) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.door.Stopping(), cancel)()
	s.w.Header().Set("Content-Type", streamType)
	s.w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer
	if err := s.send([]byte(": recourse\n\n")); err != nil {
		return err
	}
	reader := s.service.Follow(s.caller.Tenant, after)
	for idleChecks := 0; ctx.Err() == nil; {
		if err := s.door.CheckKey(ctx, s.caller); err != nil {
			return err
		}
		events, next, err := s.waitStep(ctx, reader, streamPage)
		switch {
		case err != nil:
			return err
		case len(events) > 0:
			idleChecks, err = 0, s.write(events)
		default:
			if idleChecks++; idleChecks%checksPerHeartbeat == 0 {
				err = s.send(fmt.Appendf(nil, ": still here\nid: %d\n\n", next))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) write(events []postadjudication.Event) error {
	var out bytes.Buffer
	for _, e := range events {
		data, err := json.Marshal(e) // one line
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "id: %d\nevent: %s\ndata: %s\n\n", e.Position, e.Type, data)
	}
	return s.send(out.Bytes())
}

func (s *stream) send(text []byte) error {
	if err := s.ctl.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return err
	}
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.ctl.Flush()
}

package ojs

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/internal/strictjson"
)

// TestPrefix is the path prefix of the requests that only a process in test mode answers.
const TestPrefix = "/test"

// directive returns the state that a heartbeat asks of a worker: running, but for a job in test mode that
// asks for another one.
func (s *Server) directive(q request, ids []string) string {
	if s.test == nil {
		return spec.WorkerRunning
	}
	for _, id := range ids {
		if found, err := q.jobs.Find(q.Context(), id); err == nil {
			if asked := spec.DirectiveOf(found.Payload); asked != "" {
				return asked
			}
		}
	}
	return spec.WorkerRunning
}

// Tests returns the handler of TestPrefix. prune makes a round of retention.
func (s *Server) Tests(prune func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+TestPrefix+"/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.test.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST "+TestPrefix+"/clock", func(w http.ResponseWriter, r *http.Request) {
		setFrame(w.Header(), requestID(r))
		ctl := http.NewResponseController(w) // a round of retention takes as long as it takes
		_, _ = ctl.SetReadDeadline(time.Time{}), ctl.SetWriteDeadline(time.Time{})
		err := s.passTime(r, prune)
		if err != nil {
			s.mux.Refuse(w, r, refusalOf(err))
			return
		}
		s.write(w, 0, marshal(map[string]string{"now": spec.FormatTime(s.test.Now())}))
	})
	return door.LoopbackOnly(http.NewCrossOriginProtection().Handler(mux))
}

// readClock reads the body that sets the clock.
func readClock(body io.Reader, asked any) error {
	text, err := io.ReadAll(io.LimitReader(body, 1<<10))
	if err != nil {
		return err
	}
	return strictjson.Decode(text, asked)
}

// passTime reads {"advance":"P181D"}, and prunes after it.
func (s *Server) passTime(r *http.Request, prune func(context.Context) error) error {
	var asked struct {
		Advance string `json:"advance"`
	}
	if err := readClock(r.Body, &asked); err != nil {
		return spec.InvalidPayload("is not readable")
	}
	by, err := spec.ParseDuration(asked.Advance)
	if err != nil {
		return spec.Invalid("advance", "%s", err)
	}
	if !s.test.Advance(by) {
		return spec.Invalid("advance", "is too much")
	}
	return prune(r.Context())
}

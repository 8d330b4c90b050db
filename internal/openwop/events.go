package openwop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
)

// polled is the answer to a poll.
type polled struct {
	Events     []spec.Event `json:"events"`
	IsComplete bool         `json:"isComplete"`
}

// poll answers GET /v1/runs/{runId}/events/poll. It counts as a stream while it waits.
func (s *Server) poll(w http.ResponseWriter, q request) error {
	asked, err := spec.ParsePoll(q.URL.Query())
	if err != nil {
		return err
	}
	log, _, err := s.openRun(q.Context(), q.caller.Tenant, q.PathValue("run"))
	if err != nil {
		return err
	}
	w.Header().Set(caseHeader, log.of.String())
	if len(log.After(asked.After)) == 0 && !log.Ended() && q.Method != http.MethodHead {
		if err := s.pollUntil(q, log, asked); err != nil {
			return err
		}
	}
	out := polled{Events: log.After(asked.After), IsComplete: log.Ended()}
	if out.Events == nil {
		out.Events = []spec.Event{}
	}
	return s.write(w, http.StatusOK, out)
}

// pollUntil reads the log until it has an event that is asked for, its last one, or the time is over.
func (s *Server) pollUntil(q request, log *runLog, asked spec.Poll) error {
	release, err := s.Door.AcquireStream(q.caller)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(q.Context(), asked.Timeout)
	defer cancel()
	defer context.AfterFunc(s.Door.Stopping(), cancel)()
	follow := s.follow(ctx, q.caller, log)
	defer follow.done()
	for len(log.After(asked.After)) == 0 && !log.Ended() && ctx.Err() == nil {
		if err := follow.next(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// follow reads a log as it grows.
type follow struct {
	server *Server
	caller door.Caller
	log    *runLog
	news   <-chan struct{}
	done   func()
	began  bool
	looked time.Time // when the key was checked
}

func (s *Server) follow(ctx context.Context, c door.Caller, log *runLog) *follow {
	news, done := s.followers.wait(ctx, c.Tenant, log.Run)
	return &follow{server: s, caller: c, log: log, news: news, done: done, looked: time.Now()}
}

const (
	// idle is how long a reader waits for news before it reads all the same.
	idle = 5 * time.Second
	// keyCheck is how often the key of a reader is checked.
	keyCheck = 5 * time.Second
	// keepalive is how long a stream is silent at most.
	keepalive = 15 * time.Second
)

// next waits for news of the run and reads its log. It reads at once when it is called first: what was
// committed between the last reading and the beginning of follow would wake nobody. It fails if the key of
// the caller is no longer valid.
func (f *follow) next(ctx context.Context) error {
	if f.began {
		select {
		case <-f.news:
		case <-time.After(f.server.idle):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.began = true
	if time.Since(f.looked) >= keyCheck {
		if err := f.server.Door.CheckKey(ctx, f.caller); err != nil {
			return err
		}
		f.looked = time.Now()
	}
	return f.read(ctx)
}

// read reads the log, as one of the reads that its tenant may have at once.
func (f *follow) read(ctx context.Context) error {
	return f.server.inReadSlot(ctx, f.caller.Tenant, func() error { return f.log.read(ctx) })
}

// stream answers GET /v1/runs/{runId}/events with server-sent events. It ends after the last event of
// the log.
func (s *Server) stream(w http.ResponseWriter, q request) error {
	asked, err := spec.ParseStream(q.URL.Query(), q.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	log, _, err := s.openRun(q.Context(), q.caller.Tenant, q.PathValue("run"))
	if err != nil {
		return err
	}
	w.Header().Set(caseHeader, log.of.String())
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer
	if q.Method == http.MethodHead {
		return nil
	}
	release, err := s.Door.AcquireStream(q.caller)
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	defer context.AfterFunc(s.Door.Stopping(), cancel)()
	out := &stream{asked: asked, log: log, fold: log.Fold(log.tenant), sent: asked.After, w: w, ctl: http.NewResponseController(w)}
	if err := out.run(ctx, s.follow(ctx, q.caller, log)); err != nil && ctx.Err() == nil {
		s.Log.Info("a stream of a run ended", zap.String("tenant", q.caller.Tenant), zap.String("run", log.Run.String()), zap.Error(err))
	}
	return nil // the answer has begun
}

// stream writes the log of a run as server-sent events.
type stream struct {
	asked spec.Stream
	log   *runLog
	fold  *spec.Fold // of the log, for the mode values
	sent  int        // sequence of the last event that was sent or left out
	wrote time.Time
	w     http.ResponseWriter
	ctl   *http.ResponseController
}

// run returns when the log has ended, the reader left, or ctx is done.
func (t *stream) run(ctx context.Context, f *follow) error {
	defer f.done()
	if err := t.send([]byte(": recourse\n\n")); err != nil {
		return err
	}
	if t.asked.Modes[0] == spec.Values && t.sent >= 0 { // a reader that comes back begins with the state
		t.sent = min(t.sent, len(t.log.Events)-1)
		if err := t.writeEvents([]spec.Event{t.snapshotAt(t.sent)}); err != nil {
			return err
		}
	}
	for {
		if err := t.write(); err != nil || t.log.Ended() {
			return err
		}
		before := len(t.log.Events)
		if err := f.next(ctx); err != nil {
			return err
		}
		if wait := t.asked.Buffer; wait > 0 && len(t.log.Events) > before && !t.log.Ended() {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := f.read(ctx); err != nil {
				return err
			}
		}
		if time.Since(t.wrote) >= keepalive {
			if err := t.send([]byte(":keepalive\n\n")); err != nil {
				return err
			}
		}
	}
}

// write sends the events that were not sent yet and that a mode shows.
func (t *stream) write() error {
	var shown []spec.Event
	for _, e := range t.log.After(t.sent) {
		t.sent = e.Sequence
		if t.mode(e) == "" {
			continue
		}
		if t.asked.Modes[0] == spec.Values {
			e = t.snapshotAt(e.Sequence)
		}
		shown = append(shown, e)
	}
	return t.writeEvents(shown)
}

// mode returns the first mode of the stream that shows an event, or "".
func (t *stream) mode(e spec.Event) spec.Mode {
	for _, m := range t.asked.Modes {
		if m.Shows(e) {
			return m
		}
	}
	return ""
}

// snapshotAt returns the event of the mode values after the event of a sequence, which is not before that of
// the call before; -1: before the first.
func (t *stream) snapshotAt(sequence int) spec.Event {
	at := t.log.Submission().At
	out := spec.Event{ID: fmt.Sprintf("%s.snapshot.%d", t.log.Run, sequence), Run: t.log.Run.String(), Type: spec.StateSnapshot, Timestamp: spec.FormatTime(at), Sequence: sequence}
	if sequence >= 0 {
		out.Timestamp = t.log.Events[sequence].Timestamp
	}
	out.Payload = t.fold.After(sequence + 1)
	return out
}

// writeEvents writes events: each alone, or all as one batch if the reader asked for batches.
func (t *stream) writeEvents(all []spec.Event) error {
	if len(all) == 0 {
		return nil
	}
	var out bytes.Buffer
	if t.asked.Buffer > 0 {
		if err := writeFrame(&out, all[len(all)-1].Sequence, "batch", all); err != nil {
			return err
		}
		return t.send(out.Bytes())
	}
	for _, e := range all {
		name := e.Type
		if len(t.asked.Modes) > 1 { // OpenWOP names the mode then
			name = string(t.mode(e))
		}
		if err := writeFrame(&out, e.Sequence, name, e); err != nil {
			return err
		}
	}
	return t.send(out.Bytes())
}

func writeFrame(out *bytes.Buffer, id int, name string, data any) error {
	text, err := json.Marshal(data) // one line
	if err != nil {
		return err
	}
	if id >= 0 { // a snapshot before the first event has no place in the log
		fmt.Fprintf(out, "id: %d\n", id)
	}
	fmt.Fprintf(out, "event: %s\ndata: %s\n\n", name, text)
	return nil
}

// streamWriteTimeout is how long a reader may take to read one write.
const streamWriteTimeout = 10 * time.Second

func (t *stream) send(text []byte) error {
	if err := t.ctl.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return err
	}
	if _, err := t.w.Write(text); err != nil {
		return err
	}
	t.wrote = time.Now()
	return t.ctl.Flush()
}

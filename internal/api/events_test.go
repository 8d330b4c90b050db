package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestEventsAreReadAndWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	auditor := r.key("acme", access.Auditor)
	none := r.ask(auditor, http.MethodGet, "/api/v1/events?wait=1", "").is(http.StatusOK)
	if len(none["events"].([]any)) != 0 {
		t.Errorf("%v", none)
	}
	waited := make(chan answer)
	go func() { waited <- r.ask(auditor, http.MethodGet, "/api/v1/events?wait=25&limit=1", "") }()
	run := r.letter("acme", 1, `"refused"`)
	first := (<-waited).is(http.StatusOK)["events"].([]any)
	if len(first) != 1 || first[0].(map[string]any)["type"] != "run.created" || first[0].(map[string]any)["run_id"] != run {
		t.Errorf("%v", first)
	}
	if err := r.main.Service.DrainEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	var types []string
	for after := "0"; ; {
		page := r.ask(auditor, http.MethodGet, "/api/v1/events?limit=2&after="+after, "").is(http.StatusOK)
		for _, e := range page["events"].([]any) {
			types = append(types, e.(map[string]any)["type"].(string))
		}
		if len(page["events"].([]any)) == 0 {
			break
		}
		after = strconv.FormatInt(int64(page["next"].(float64)), 10)
	}
	for _, path := range []string{"/api/v1/events?after=", "/api/v1/events?wait=25&after=", "/api/v1/events/stream?after="} {
		r.ask(auditor, http.MethodGet, path+"9007199254740991", "").refused(http.StatusUnprocessableEntity, "invalid", "after")
	}
	r.ask(auditor, http.MethodGet, "/api/v1/events/stream", "", "Last-Event-ID", "1000").refused(http.StatusUnprocessableEntity, "invalid", "after")
	// On a machine that stands still for seconds an attempt is given up before it is sent, and made again.
	if got := strings.ReplaceAll(strings.Join(types, " "), "node.retried node.started ", ""); got != "run.created run.started node.started node.failed run.dead_lettered run.failed" {
		t.Errorf("%s", got)
	}
}

// sseEvent is an event of a stream.
type sseEvent struct{ id, kind, data string }

// listen reads a stream of events until it ends.
func (r *rig) listen(ctx context.Context, token, path string, headers ...string) <-chan sseEvent {
	r.t.Helper()
	resp, err := http.DefaultClient.Do(r.request(ctx, token, http.MethodGet, path, "", headers...))
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, text)
	}
	out := make(chan sseEvent, 100)
	go func() {
		defer close(out)
		defer resp.Body.Close()
		err := testkit.ReadSentEvents(resp.Body, func(e testkit.SentEvent) bool {
			out <- sseEvent{id: e.ID, kind: e.Event, data: e.Data}
			return false
		})
		if err != nil && ctx.Err() == nil {
			r.t.Error(err)
		}
	}()
	return out
}

func TestAStreamGoesOnWhereItsReaderLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	auditor := r.key("acme", access.Auditor)
	ctx, leave := context.WithCancel(t.Context())
	live := r.listen(ctx, auditor, "/api/v1/events/stream")
	run := r.letter("acme", 1, `"refused"`)
	r.letter("other", 1, `"refused"`)
	var seen []sseEvent
	for len(seen) < 6 {
		seen = append(seen, <-live)
	}
	leave()
	for range live { // until the stream ends
	}
	var data struct {
		Position int64
		Run      string `json:"run_id"`
		Tenant   string
	}
	for _, h := range seen {
		if err := json.Unmarshal([]byte(h.data), &data); err != nil || strconv.FormatInt(data.Position, 10) != h.id || data.Run != run || data.Tenant != "acme" {
			t.Errorf("%+v: %+v, %v", h, data, err)
		}
	}
	ctx, leave = context.WithCancel(t.Context())
	defer leave()
	rest := r.listen(ctx, auditor, "/api/v1/events/stream?after=1", "Last-Event-ID", seen[3].id)
	for _, want := range seen[4:] {
		if got := <-rest; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestStreamsAndWaitingEndWithTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	auditor := r.key("acme", access.Auditor)
	if head := r.ask(auditor, http.MethodHead, "/api/v1/events/stream", ""); head.status != http.StatusOK || head.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", head.status, head.header)
	}
	stream := r.listen(context.Background(), auditor, "/api/v1/events/stream")
	waited := make(chan answer)
	go func() { waited <- r.ask(auditor, http.MethodGet, "/api/v1/events?wait=25", "") }()
	r.waitFor("the wait has begun", `SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%event_log%' AND datname = current_database()`)
	if err := r.main.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if h, more := <-stream; more {
		t.Errorf("%+v", h)
	}
	if a := <-waited; a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.text)
	}
}

func TestAStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made := r.ask(r.key("acme", access.Admin), http.MethodPost, "/api/v1/keys", `{"principal":"user:ada","roles":["auditor"],"reason":"x"}`).is(http.StatusCreated)
	stream := r.listen(t.Context(), made["token"].(string), "/api/v1/events/stream")
	r.ask(r.key("acme", access.Admin), http.MethodDelete, "/api/v1/keys/"+made["prefix"].(string)+"?reason=left", "").is(http.StatusOK)
	if h, more := <-stream; more { // bounded by the time limit of go test
		t.Errorf("%+v", h)
	}
}

// A long poll ends with its key: it waits for no more events.
func TestALongPollEndsWithItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	leaver := r.keyOf("user:leaver", time.Time{}, access.Auditor)
	prefix, _ := access.Prefix(leaver)
	polled := make(chan answer)
	go func() { polled <- r.ask(leaver, http.MethodGet, "/api/v1/events?wait=25", "") }()
	r.waitFor("the key is used", `SELECT last_used_at IS NOT NULL FROM recourse.keys WHERE prefix = $1`, prefix)
	r.ask(r.key("acme", access.Admin), http.MethodDelete, "/api/v1/keys/"+prefix+"?reason=left", "").is(http.StatusOK)
	(<-polled).refused(http.StatusUnauthorized, "key_revoked", "")
}

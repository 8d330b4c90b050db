package openwop

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// streamOf opens a stream of a run and returns its frames until it ends. The function is called after each, and reports whether
// the reader leaves.
func (f *fixture) streamOf(key, run, query, last string, each func(testkit.SentEvent) (leave bool)) (out []testkit.SentEvent) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/v1/runs/"+run+"/events"+query, nil)
	if err != nil {
		f.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		f.Fatalf("%d %s", a.StatusCode, a.Header.Get("Content-Type"))
	}
	err = testkit.ReadSentEvents(a.Body, func(one testkit.SentEvent) bool {
		out = append(out, one)
		return each != nil && each(one)
	})
	if err != nil {
		f.Error(err)
	}
	return out
}

func framed(all []testkit.SentEvent) string {
	var out []string
	for _, one := range all {
		out = append(out, one.ID+" "+one.Event)
	}
	return strings.Join(out, ", ")
}

func TestAStreamShowsWhatItsModeShows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"chores","inputs":{"fails":true}}`)
	f.finished(key, run)
	for _, c := range []struct{ query, last, want string }{
		{"", "", "0 run.started, 4 node.failed, 5 run.dead_lettered, 6 run.failed"},
		{"", "4", "5 run.dead_lettered, 6 run.failed"},
		{"", "6", ""},
		{"", "99", ""},
		{"?streamMode=debug", "", "0 run.started, 1 node.started, 2 node.retried, 3 node.started, 4 node.failed, 5 run.dead_lettered, 6 run.failed"},
		{"?streamMode=messages", "", ""},
		{"?streamMode=updates,messages", "4", "5 updates, 6 updates"},
		{"?bufferMs=10", "", "6 batch"},
		{"?streamMode=values", "5", "5 state.snapshot, 6 state.snapshot"},
	} {
		if got := framed(f.streamOf(key, run, c.query, c.last, nil)); got != c.want {
			t.Errorf("%s after %q: %s, want %s", c.query, c.last, got, c.want)
		}
	}
}

func TestASnapshotOfAStreamIsTheRunAsItWas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"chores"}`)
	f.finished(key, run)
	var states []string
	for _, one := range f.streamOf(key, run, "?streamMode=values", "", nil) {
		var e struct {
			Payload struct {
				Run    string `json:"runId"`
				Status string `json:"status"`
			} `json:"payload"`
		}
		if err := json.Unmarshal([]byte(one.Data), &e); err != nil || e.Payload.Run != run || one.Event != "state.snapshot" {
			t.Fatalf("%v %v", one, err)
		}
		states = append(states, e.Payload.Status)
	}
	if got := strings.Join(states, " "); got != "running running running completed" {
		t.Error(got)
	}
}

// Readers that come and go while runs end miss no event and have none twice.
func TestReadersSeeEachEventOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			run := f.create(key, fmt.Sprintf(`{"workflowId":"chores","inputs":{"n":%d,"fails":%t}}`, n, n%3 == 0))
			var seen []string
			for last, ended := "", false; !ended; {
				left := 0
				for _, one := range f.streamOf(key, run, "?streamMode=debug", last, func(testkit.SentEvent) bool { left++; return left > n%3 }) { // connections are lost
					seen, last = append(seen, one.ID), one.ID
					ended = one.Event == "run.completed" || one.Event == "run.failed"
				}
			}
			whole := f.finished(key, run)
			want := make([]string, len(whole.Events))
			for i := range want {
				want[i] = fmt.Sprint(i)
			}
			if strings.Join(seen, " ") != strings.Join(want, " ") {
				t.Errorf("run %d: read %v of %d events", n, seen, len(want))
			}
		})
	}
	all.Wait()
}

// A poll that waits is answered when its run has news, and no earlier by news of others.
func TestAPollWaitsForNewsOfItsRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	started := f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=60&lastSequence=0", "")
	if !strings.Contains(string(started.text), `"node.started"`) || !strings.Contains(string(started.text), `"isComplete":false`) {
		t.Errorf("%s", started.text)
	}
	answered := make(chan answer, 1)
	go func() {
		a, err := f.send(f.url, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=60&lastSequence=1", "")
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	f.finished(key, f.create(key, `{"workflowId":"chores"}`))
	select {
	case a := <-answered:
		t.Errorf("answered by news of another run: %s", a.text)
	default:
	}
	close(f.block)
	if a := <-answered; !strings.Contains(string(a.text), `"run.completed"`) && !strings.Contains(string(a.text), `"node.completed"`) {
		t.Errorf("%s", a.text)
	}
	if a := f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=1&lastSequence=99", ""); string(a.text) != `{"events":[],"isComplete":true}`+"\n" {
		t.Errorf("%s", a.text)
	}
}

func TestBadParametersAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"chores"}`)
	path := "/v1/runs/" + run
	for _, bad := range []string{"/events/poll?timeout=0", "/events/poll?timeout=61", "/events/poll?lastSequence=x", "/events/poll?after=1", "/events?bufferMs=-1", "/events?mode=debug", "?x=1", "/events/poll?timeout=1&timeout=2"} {
		f.refused(http.StatusBadRequest, "validation_error", key, "GET", path+bad, "")
	}
	for _, bad := range []string{"everything", "values,updates", "updates,", "UPDATES"} {
		if got := f.refused(http.StatusBadRequest, "unsupported_stream_mode", key, "GET", path+"/events?streamMode="+bad, ""); fmt.Sprint(got.detail("supported")) != "[updates values messages debug]" {
			t.Errorf("%s", got.text)
		}
	}
	f.refused(http.StatusBadRequest, "validation_error", key, "GET", path+"/events", "", "Last-Event-ID", "x")
	f.refused(http.StatusBadRequest, "validation_error", key, "GET", "/runs", "")
	f.refused(http.StatusNotFound, "not_found", key, "GET", "/v1/nothing", "")
	f.refused(http.StatusMethodNotAllowed, "method_not_allowed", key, "DELETE", path, "")
	f.refused(http.StatusUnsupportedMediaType, "unsupported_media_type", key, "POST", "/v1/runs", `{"workflowId":"chores"}`, "Content-Type", "text/plain")
	f.refused(http.StatusRequestEntityTooLarge, "payload_too_large", key, "POST", "/v1/runs", `{"workflowId":"`+strings.Repeat("x", maxBody)+`"}`)
	f.refused(http.StatusBadRequest, "validation_error", key, "POST", "/v1/runs", `{"workflowId":"chores","inputs":{"password":"hunter2secret"}}`)
	f.refused(http.StatusBadRequest, "validation_error", key, "POST", "/v1/runs", strings.Repeat("[", 10_000))
	f.refused(http.StatusBadRequest, "validation_error", key, "POST", "/v1/runs", `{"workflowId":"settlement","inputs":{"outcome":"both"}}`)
}

// What is committed after a poll has read its log, and before it waits, must not be waited for.
func TestWhatIsCommittedBeforeAPollWaitsWakesIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"chores"}`)
	stale, _, err := f.server.openRun(t.Context(), "acme", run)
	if err != nil {
		t.Fatal(err)
	}
	stale.Events, stale.after = nil, 0 // as it was read before anything happened
	stale.Log = spec.Log{Workflow: stale.Workflow, Run: stale.Run}
	f.finished(key, run)
	if err := f.service.DrainEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	news := f.server.follow(t.Context(), door.Caller{Tenant: "acme"}, stale)
	defer news.done()
	ctx, cancel := context.WithTimeout(t.Context(), idle/2)
	defer cancel()
	if err := news.next(ctx); err != nil || !stale.Ended() {
		t.Errorf("it waited for what had happened: %v, ended %t", err, stale.Ended())
	}
}

package openwop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// hostileRetrying adds a workflow to a fixture that is retried at even times.
func hostileRetrying(pause time.Duration, attempts int) func(*postadjudication.Config, *fixture) {
	return func(c *postadjudication.Config, _ *fixture) {
		c.Families[0].Policy = retrypolicy.Policy{MaxRetryAttempts: attempts, BaseDelay: pause, Coefficient: 1}
		c.Families[0].Handle = func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: background.NotExecuted, Retry: true, Failure: &background.Failure{Type: "core.fail", Message: "fails"}}
		}
	}
}

// hostileLine is a line of a stream and when it was read.
type hostileLine struct {
	text string
	at   time.Duration
}

// hostileStream reads a stream for a time, or until it ends, and reports whether it ended.
func (f *fixture) hostileStream(key, run, query, last string, during time.Duration) (lines []hostileLine, ended bool) {
	ctx, cancel := context.WithTimeout(f.Context(), during)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/v1/runs/"+run+"/events"+query, nil)
	if err != nil {
		f.Error(err)
		return nil, false
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	began := time.Now()
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Error(err)
		return nil, false
	}
	defer a.Body.Close()
	for s := bufio.NewScanner(a.Body); ; {
		if !s.Scan() {
			return lines, ctx.Err() == nil
		}
		if s.Text() != "" {
			lines = append(lines, hostileLine{s.Text(), time.Since(began)})
		}
	}
}

// The key of a reader is revoked while its run has news. The stream must end soon; idle streams end in 15 s.
func TestHostileARevokedKeyReadsABusyRunOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, hostileRetrying(2*time.Second, 20))
	key := f.all("acme")
	token, made, err := f.service.As("acme", "test").Keys.Create(t.Context(), postadjudication.NewKey{Principal: "service:reader", Roles: []access.Role{access.Auditor}, Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	run := f.create(key, `{"workflowId":"chores"}`)
	go func() {
		time.Sleep(2 * time.Second)
		if _, err := f.service.As("acme", "test").Keys.Revoke(context.Background(), made.Prefix, "stolen"); err != nil {
			t.Error(err)
		}
	}()
	lines, ended := f.hostileStream(token, run, "?streamMode=debug", "", 27*time.Second)
	if !ended {
		newest := lines[len(lines)-1]
		t.Errorf("the key was revoked after 2s; %s after it the stream still sent %s", newest.at-2*time.Second, newest.text)
	}
	f.want(http.StatusUnauthorized, token, "GET", "/v1/runs/"+run, "")
}

// bufferMs is how long events are collected for one batch: none is held back for longer.
func TestHostileABatchHoldsEventsBackTooLong(t *testing.T) {
	t.Parallel()
	f := newFixture(t, hostileRetrying(700*time.Millisecond, 12))
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"chores"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20", "")
	const buffer = 2 * time.Second
	began := time.Now()
	lines, _ := f.hostileStream(key, run, "?streamMode=debug&bufferMs=2000", "", 20*time.Second)
	for _, l := range lines {
		data, is := strings.CutPrefix(l.text, "data: ")
		var batch []spec.Event
		if !is {
			continue
		}
		if err := json.Unmarshal([]byte(data), &batch); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, batch[0].Timestamp)
		if err != nil {
			t.Fatal(err)
		}
		if held := began.Add(l.at).Sub(at); held > buffer+900*time.Millisecond {
			t.Errorf("event %d was held back for %s, bufferMs is %s", batch[0].Sequence, held, buffer)
		}
	}
}

// A reader of values that comes back with an id beyond the end gets the state as it is, and then as it becomes.
func TestHostileValuesAfterAnIDBeyondTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20&lastSequence=0", "")
	go func() { time.Sleep(time.Second); close(f.block) }()
	lines, ended := f.hostileStream(key, run, "?streamMode=values", "99", 20*time.Second)
	if !ended {
		t.Fatal("the stream did not end")
	}
	text := fmt.Sprint(lines)
	if !strings.Contains(text, `"status":"completed"`) {
		t.Errorf("the stream ended and said that the run is running: %s", text)
	}
}

// A reader that begins with the state of a run that waits is told an id; the event of that id comes all the same.
func TestHostileValuesOfAWaitingRunSkipItsFirstEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.stop() // nothing executes
	run := f.create(key, `{"workflowId":"chores"}`)
	first, _ := f.hostileStream(key, run, "?streamMode=values", "0", time.Second)
	t.Logf("%v", first)
	for _, l := range first {
		if l.text == "id: 0" {
			t.Errorf("the log is empty, and the reader is told that it has event 0: %v", first)
		}
	}
}

// Readers end when the door stops, also if nothing happens to their run.
func TestHostileReadersEndWhenTheDoorStops(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	shared, err := door.New(door.Config{Service: f.service})
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(Config{Service: f.service, Door: shared, Log: zap.NewNop(), Version: "test", RetentionDays: days, Now: f.clock.Now, Workflows: []spec.Workflow{{ID: "waits", Name: "waits", NodeType: "recourse.task"}}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	defer web.Close()
	run := f.create(key, `{"workflowId":"waits"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20&lastSequence=0", "")
	var all sync.WaitGroup
	began := time.Now()
	for _, path := range []string{"/events", "/events/poll?timeout=60&lastSequence=1"} {
		all.Go(func() {
			if a, err := f.send(web.URL, key, "GET", "/v1/runs/"+run+path, ""); err != nil || a.status != http.StatusOK {
				t.Errorf("%s: %d %v", path, a.status, err)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	shared.Stop()
	all.Wait()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the readers ended after %s", took)
	}
	if n := len(server.followers.byTenant); n != 0 {
		t.Errorf("%d followers are left", n)
	}
	close(f.block)
}

// A poll is woken by the event, not by the quarter of a minute after which it looks all the same.
func TestHostileAPollIsWokenByTheEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20&lastSequence=0", "")
	go func() { time.Sleep(time.Second); close(f.block) }()
	began := time.Now()
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=60&lastSequence=1", "")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the poll took %s", took)
	}
}

// A snapshot is of one moment: a run whose log has ended is not cancelling.
func TestHostileAnEndedRunIsNotCancelling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	for try := range 25 {
		f.block = make(chan struct{})
		run := f.create(key, `{"workflowId":"waits"}`)
		f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20", "")
		f.want(http.StatusOK, key, "POST", "/v1/runs/"+run+"/cancel", "")
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					a, err := f.send(f.url, key, "GET", "/v1/runs/"+run, "")
					if err != nil {
						t.Error(err)
						return
					}
					if a.object["completedAt"] != nil {
						if a.object["status"] == "cancelling" {
							t.Errorf("try %d: %s", try, a.text)
						}
						return
					}
				}
			})
		}
		close(f.block)
		all.Wait()
		if t.Failed() {
			return
		}
	}
}

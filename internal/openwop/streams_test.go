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

// retrying adds a workflow to a fixture that is retried at even times.
func retrying(pause time.Duration, attempts int) func(*postadjudication.Config, *fixture) {
	return func(c *postadjudication.Config, _ *fixture) {
		c.Families[0].Policy = retrypolicy.Policy{MaxRetryAttempts: attempts, BaseDelay: pause, Coefficient: 1}
		c.Families[0].Handle = func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: background.NotExecuted, Retry: true, Failure: &background.Failure{Type: "core.fail", Message: "fails"}}
		}
	}
}

// readFor reads a stream for a time, or until it ends, and reports whether it ended.
func (f *fixture) readFor(key, run, query, last string, during time.Duration) (lines []string, ended bool) {
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
			lines = append(lines, s.Text())
		}
	}
}

// The key of a reader is revoked while its run has news. The stream ends all the same.
func TestARevokedKeyEndsTheStreamOfABusyRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, retrying(2*time.Second, 20))
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
	lines, ended := f.readFor(token, run, "?streamMode=debug", "", 27*time.Second)
	if !ended {
		t.Errorf("the stream went on: %v", lines)
	}
	f.want(http.StatusUnauthorized, token, "GET", "/v1/runs/"+run, "")
}

// bufferMs is how long events are collected for one batch: none is held back for longer.
func TestABatchHoldsEventsNoLongerThanAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, retrying(700*time.Millisecond, 12))
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"chores"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20", "")
	lines, _ := f.readFor(key, run, "?streamMode=debug&bufferMs=2000", "", 20*time.Second)
	together := false
	for _, l := range lines {
		data, is := strings.CutPrefix(l, "data: ")
		var batch []spec.Event
		if !is {
			continue
		}
		if err := json.Unmarshal([]byte(data), &batch); err != nil {
			t.Fatal(err)
		}
		first, err := time.Parse(time.RFC3339Nano, batch[0].Timestamp)
		last, err2 := time.Parse(time.RFC3339Nano, batch[len(batch)-1].Timestamp)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		together = together || last.Sub(first) >= 700*time.Millisecond
	}
	if !together {
		t.Errorf("no batch has what happened while it was collected: %v", lines)
	}
}

// A reader of values that comes back with an id beyond the end gets the state as it is, and then as it becomes.
func TestValuesAfterAnIDBeyondTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20&lastSequence=0", "")
	go func() { time.Sleep(time.Second); close(f.block) }()
	lines, ended := f.readFor(key, run, "?streamMode=values", "99", 20*time.Second)
	if !ended {
		t.Fatal("the stream did not end")
	}
	text := fmt.Sprint(lines)
	if !strings.Contains(text, `"status":"completed"`) {
		t.Errorf("the stream ended and said that the run is running: %s", text)
	}
}

// A reader that begins with the state of a run that waits is told an id; the event of that id comes all the same.
func TestValuesOfAWaitingRunKeepItsFirstEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.stop() // nothing executes
	run := f.create(key, `{"workflowId":"chores"}`)
	first, _ := f.readFor(key, run, "?streamMode=values", "0", time.Second)
	t.Logf("%v", first)
	for _, l := range first {
		if l == "id: 0" {
			t.Errorf("the log is empty, and the reader is told that it has event 0: %v", first)
		}
	}
}

// Readers end when the door stops, also if nothing happens to their run.
func TestReadersEndWhenTheDoorStops(t *testing.T) {
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

// A poll is woken by the event.
func TestAPollIsWokenByTheEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20&lastSequence=0", "")
	f.server.idle = time.Hour // nobody looks without news
	go func() { time.Sleep(time.Second); close(f.block) }()
	a := f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=60&lastSequence=1", "")
	if !strings.Contains(string(a.text), "node.completed") {
		t.Errorf("nothing woke the poll: %s", a.text)
	}
}

// A snapshot is of one moment: a run whose log has ended is not cancelling.
func TestAnEndedRunIsNotCancelling(t *testing.T) {
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

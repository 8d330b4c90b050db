package openwop

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
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

// awaitReaders returns when a number of requests wait for news of a run.
func (f *fixture) awaitReaders(s *Server, tenant, run string, n int) {
	id := background.RunID(uuid.MustParse(run))
	waiting := func() int {
		s.followers.mu.Lock()
		defer s.followers.mu.Unlock()
		if of := s.followers.byTenant[tenant]; of != nil {
			return len(of.waiting[id])
		}
		return 0
	}
	poll.Until(f, "requests wait for the run", func() bool { return waiting() >= n })
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
	read := 0
	frames := f.streamOf(token, run, "?streamMode=debug", "", func(one testkit.SentEvent) bool {
		if read++; read == 1 {
			if _, err := f.service.As("acme", "test").Keys.Revoke(context.Background(), made.Prefix, "stolen"); err != nil {
				t.Error(err)
			}
		}
		return one.Event == spec.RunDeadLettered
	})
	if last := frames[len(frames)-1]; last.Event == spec.RunDeadLettered {
		t.Errorf("the stream went on to the end of the run: %s", framed(frames))
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
	together := false
	frames := f.streamOf(key, run, "?streamMode=debug&bufferMs=2000", "", func(one testkit.SentEvent) bool {
		var batch []spec.Event
		if err := json.Unmarshal([]byte(one.Data), &batch); err != nil {
			t.Fatal(err)
		}
		first, err := time.Parse(time.RFC3339Nano, batch[0].Timestamp)
		last, err2 := time.Parse(time.RFC3339Nano, batch[len(batch)-1].Timestamp)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		together = together || last.Sub(first) >= 700*time.Millisecond
		return together
	})
	if !together {
		t.Errorf("no batch has what happened while it was collected: %v", frames)
	}
}

// A reader of values that comes back with an id beyond the end gets the state as it is, and then as it becomes.
func TestValuesAfterAnIDBeyondTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=20&lastSequence=0", "")
	read := 0
	frames := f.streamOf(key, run, "?streamMode=values", "99", func(testkit.SentEvent) bool {
		if read++; read == 1 {
			close(f.block)
		}
		return false
	})
	if len(frames) < 2 || !strings.Contains(frames[len(frames)-1].Data, `"status":"completed"`) {
		t.Errorf("the stream ended and did not say that the run is completed: %v", frames)
	}
}

// A reader that comes back to a run that waits is told no id: its log is empty.
func TestValuesOfAWaitingRunKeepItsFirstEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.stop() // nothing executes
	run := f.create(key, `{"workflowId":"chores"}`)
	first := f.streamOf(key, run, "?streamMode=values", "0", func(testkit.SentEvent) bool { return true })
	if len(first) != 1 || first[0].ID != "" {
		t.Errorf("the log is empty, and the reader is told an id: %v", first)
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
	for _, path := range []string{"/events", "/events/poll?timeout=60&lastSequence=1"} {
		all.Go(func() {
			if a, err := f.send(web.URL, key, "GET", "/v1/runs/"+run+path, ""); err != nil || a.status != http.StatusOK {
				t.Errorf("%s: %d %v", path, a.status, err)
			}
		})
	}
	f.awaitReaders(server, "acme", run, 2)
	shared.Stop()
	all.Wait()
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
	go func() {
		f.awaitReaders(f.server, "acme", run, 1)
		close(f.block)
	}()
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

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/postadjudication"
)

// receiver is the receiver of a webhook. It verifies each request by the published library, and
// keeps what arrived.
type receiver struct {
	url string

	mu       sync.Mutex
	bodies   map[string][]byte   // by id, of the first arrival
	arrived  map[string][]string // sequences by case, each once, in the order of first arrivals
	problems []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	by, err := standardwebhooks.NewWebhook(worker.WebhookSecret)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{bodies: map[string][]byte{}, arrived: map[string][]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // its sender was killed within the request
		}
		if err := by.Verify(body, q.Header); err != nil {
			r.problem("the signature of a request is not valid: " + err.Error())
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.take(q.Header.Get("Webhook-Id"), body)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) problem(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, text)
}

// take keeps an event that arrived.
func (r *receiver) take(id string, body []byte) {
	var event struct {
		ID       string `json:"id"`
		Case     string `json:"caseid"`
		Sequence string `json:"sequence"`
	}
	if err := json.Unmarshal(body, &event); err != nil || event.ID != id || event.Case == "" || event.Sequence == "" {
		r.problem("a body is no event with the id of its header: " + string(body))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first, again := r.bodies[id]
	switch {
	case !again:
		r.bodies[id] = body
		r.arrived[event.Case] = append(r.arrived[event.Case], event.Sequence)
	case !bytes.Equal(first, body):
		r.problems = append(r.problems, "event "+id+" arrived with two bodies")
	}
}

// count returns how many different events have arrived.
func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.bodies)
}

// missing returns how many events have not arrived.
func (r *receiver) missing(all []postadjudication.Event) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range all {
		if r.bodies[e.ID] == nil {
			n++
		}
	}
	return n
}

// verdict returns what must not have happened: a body or a signature that is wrong, or events of a
// case that arrived first in another order than theirs.
func (r *receiver) verdict() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := append([]string(nil), r.problems...)
	for id, sequences := range r.arrived {
		for i := 1; i < len(sequences); i++ {
			if sequences[i-1] >= sequences[i] {
				out = append(out, "events of case "+id+" arrived in the order "+strings.Join(sequences, " "))
				break
			}
		}
	}
	return out
}

// allEvents returns the events of the tenant, in order.
func (s *fixture) allEvents() (all []postadjudication.Event) {
	s.t.Helper()
	if err := s.service.DrainEvents(s.ctx()); err != nil {
		s.t.Fatal(err)
	}
	for after := postadjudication.Position(0); ; {
		page, next, err := s.service.Events(s.ctx(), "chaos", after, postadjudication.MaxEvents)
		if err != nil {
			s.t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		all, after = append(all, page...), next
	}
}

// awaitEvents waits until every event of the tenant has arrived at the receiver, and checks what
// arrived.
func (s *fixture) awaitEvents() {
	s.t.Helper()
	all := s.allEvents()
	if len(all) == 0 {
		s.t.Fatal("there are no events")
	}
	s.untilTrue("every event has arrived", func() bool { return s.receiver.missing(all) == 0 })
	for _, problem := range s.receiver.verdict() {
		s.t.Error(problem)
	}
}

// webhookCommand sends a worker a command about the tenant's webhook, during which it may end.
func webhookCommand(s *fixture, h *workerProcess, do string) {
	s.t.Helper()
	r, err := h.ask(s.ctx(), worker.Command{Do: do, Tenant: "chaos", URL: s.receiver.url})
	if !errors.Is(err, errWorkerEnded) && (err != nil || r.Error != "") {
		s.t.Fatalf("%s: %v %s", do, err, r.Error)
	}
}

func createWebhook(s *fixture, h *workerProcess) { webhookCommand(s, h, worker.CreateWebhook) }

func pauseWebhook(s *fixture, h *workerProcess) { webhookCommand(s, h, worker.PauseWebhooks) }

func resumeWebhook(s *fixture, h *workerProcess) { webhookCommand(s, h, worker.ResumeWebhooks) }

// webhookOf leaves a webhook that was created before any event, and an adjudication whose call
// simulates words and whose events have arrived or have not. No worker is left.
func webhookOf(words string) func(*fixture) {
	return func(s *fixture) {
		h := s.worker("")
		createWebhook(s, h)
		s.submit(h, adjudication(1, words, ""))
		s.until("the run has ended", `SELECT bool_and(NOT live) FROM recourse.runs`)
		s.terminate(h)
	}
}

// submitMore submits adjudications that end at once, and one with a second attempt.
func submitMore(s *fixture, h *workerProcess) {
	for n := range 5 {
		s.submit(h, adjudication(n+2, "retryable,ok", ""))
	}
}

// Repeated or not, there is one webhook, and as many receipts as it has versions.
const webhookOnce = `SELECT count(*) = 1 AND sum(version) = (SELECT count(*) FROM recourse.receipts WHERE subtype = 'webhook-changed') FROM recourse.webhooks`

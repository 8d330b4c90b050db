package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/localredis"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/receipts/events"
)

// restartable is a fixture on servers of its own, which the test ends and starts.
type restartable struct {
	*fixture
	postgres *localpg.Server
	cache    *localredis.Server
}

func newRestartable(t *testing.T) *restartable {
	t.Helper()
	postgres, err := localpg.Start(t.Context(), localpg.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := (postadjudication.Migration{DatabaseURL: postgres.URL("postgres"), AppRole: localpg.AppRole}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	cache, _ := testkit.Redis(t)
	return &restartable{newFixtureOn(t, postgres.AppURL("postgres"), postgres.URL("postgres"), cache.URL()), postgres, cache}
}

// abort ends Postgres without a shutdown, as a crash does, and starts it again.
func (s *restartable) abort() {
	s.t.Helper()
	if err := s.postgres.Restart(s.t.Context(), localpg.Immediate); err != nil {
		s.t.Fatal(err)
	}
}

// eventReader is a program that reads the stream of events, and after every end of it goes on after the
// last event that it has.
type eventReader struct {
	url  string
	last string // the position of the last event

	mu      sync.Mutex
	ids     []string // of the events, as they came
	streams int      // that gave an event
	problem error
}

// read reads until ctx is done.
func (r *eventReader) read(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		_ = r.stream(ctx) // it ends when a server does
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// stream reads one stream until it ends.
func (r *eventReader) stream(ctx context.Context) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+api.Prefix+"/events/stream", nil)
	if err != nil {
		return err
	}
	if r.last != "" {
		q.Header.Set("Last-Event-ID", r.last)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream answers %d", answer.StatusCode)
	}
	first := true
	return testkit.ReadSentEvents(answer.Body, func(e testkit.SentEvent) bool {
		var event struct {
			ID       string `json:"id"`
			Position int64  `json:"position"`
		}
		err := json.Unmarshal([]byte(e.Data), &event)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil || strconv.FormatInt(event.Position, 10) != e.ID {
			r.problem = fmt.Errorf("%+v is no event: %w", e, err)
			return true
		}
		if first {
			first = false
			r.streams++
		}
		r.last, r.ids = e.ID, append(r.ids, event.ID)
		return false
	})
}

func (r *eventReader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

// serveEvents serves the API for the tenant, and starts a reader. cut ends all streams.
func (s *restartable) serveEvents() (r *eventReader, cut func()) {
	s.t.Helper()
	shared, err := door.New(door.Config{Service: s.service, Keyless: &door.Keyless{Tenant: "chaos"}, Log: zap.NewNop()})
	if err != nil {
		s.t.Fatal(err)
	}
	pages, err := api.New(s.service, shared, zap.NewNop())
	if err != nil {
		s.t.Fatal(err)
	}
	server := httptest.NewServer(pages)
	r = &eventReader{url: server.URL}
	ctx, leave := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() { r.read(ctx) })
	s.t.Cleanup(func() {
		leave()
		reading.Wait()
		shared.Stop()
		server.Close()
	})
	return r, server.CloseClientConnections
}

const (
	// patience is how long every wait may take: on a busy machine two restarts of servers add up.
	patience = 2 * time.Minute

	writers    = 64
	eachWriter = 2 // submissions of a writer in a round
)

// writeDuring lets 64 writers submit at once, each until it has its answers, and calls fault when half of
// the submissions have been answered. Of three adjudications one succeeds, one succeeds by a second attempt,
// and one becomes a dead letter.
func (s *restartable) writeDuring(round int, fault func()) {
	s.t.Helper()
	words := []string{"ok", "retryable,ok", "refused"}
	half, all := make(chan struct{}, writers*eachWriter), sync.WaitGroup{}
	for writer := range writers {
		all.Go(func() {
			for n := range eachWriter {
				s.submitUntilAnswered(adjudication((round*eachWriter+n)*writers+writer+1, words[(writer+n)%len(words)], ""))
				half <- struct{}{}
			}
		})
	}
	for range writers * eachWriter / 2 {
		<-half
	}
	fault()
	all.Wait()
}

// submitUntilAnswered submits until the submission is answered: the outcome of one that failed is unknown.
func (s *restartable) submitUntilAnswered(a postadjudication.Adjudication) {
	s.accepted.noteSubmitted(a)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx := s.t.Context(); ctx.Err() == nil; {
		got, err := s.service.Submit(ctx, a)
		if err == nil {
			s.accepted.noteReply(a, worker.Reply{Reply: got.Reply, Run: got.Run.String()})
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// A reader or receiver, while 64 writers commit and servers restart, misses no event and, by id, sees
// each once.
func TestNoEventIsMissedWhileServersRestart(t *testing.T) {
	t.Parallel()
	s := newRestartable(t)
	s.limit = patience
	s.receiver = newReceiver(t)
	executes := func(c *worker.Settings) { c.Webhooks = false }
	s.worker("", executes)
	sender := s.worker("")
	createWebhook(s.fixture, sender)
	reader, cut := s.serveEvents()
	before := 0 // what had arrived when the sender started
	replaceSender := func() {
		s.untilTrue("the sender delivers", func() bool { return s.receiver.count() > before })
		if err := sender.kill(); err != nil {
			t.Error(err)
		}
		before = s.receiver.count()
		sender = s.worker("")
	}
	restartRedis := func() {
		if err := s.cache.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for round, fault := range []func(){
		replaceSender,
		s.abort,
		restartRedis,
		func() { cut(); s.abort(); replaceSender() },
	} {
		s.writeDuring(round, fault)
	}
	s.awaitNoneLive()
	// A lookup may add an event of a case without a live run at any time.
	s.untilTrue("every event was read", func() bool { return reader.count() >= len(s.allEvents()) })
	s.awaitEvents()
	s.checkReader(reader)
	s.checkReceived()
	s.checkConsistent()
}

// checkReader checks that the reader has each event once, in order, and that its stream has ended and
// begun again.
func (s *restartable) checkReader(r *eventReader) {
	s.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := s.allEvents() // after the last event of the reader
	if r.problem != nil {
		s.t.Error(r.problem)
	}
	if r.streams < 2 {
		s.t.Errorf("the reader had %d streams: the faults did not reach it", r.streams)
	}
	for n, id := range r.ids {
		if n >= len(all) || all[n].ID != id {
			s.t.Fatalf("the reader has %d events, the order of events %d; number %d is %s", len(r.ids), len(all), n, id)
		}
	}
}

// checkReceived checks that what arrived, by id, is what the receipts state, and that the reader was
// offered nothing else. A lookup may add an event meanwhile, so what differs is compared again.
func (s *restartable) checkReceived() {
	s.t.Helper()
	stated := map[string]bool{}
	s.untilTrue("the receipts, the order of events and the receiver have the same events", func() bool {
		clear(stated)
		s.readStated(stated)
		all := s.allEvents()
		for _, e := range all {
			if !stated[e.ID] {
				return false
			}
		}
		return len(stated) == len(all) && s.receiver.missing(all) == 0 && s.receiver.count() == len(all)
	})
	if cases := writers * eachWriter * 4; len(stated) < 3*cases {
		s.t.Errorf("%d events of %d cases", len(stated), cases)
	}
}

// readStated adds the ids of the events that the receipts state.
func (s *restartable) readStated(stated map[string]bool) {
	s.t.Helper()
	for r, err := range s.service.AuditReader().Receipts(s.ctx(), "chaos") {
		if err != nil {
			s.t.Fatal(err)
		}
		public, err := events.Of(r)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range public {
			stated[e.ID] = true
		}
	}
}

package main

import (
	"net/url"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
)

// Open connections to Postgres that never answer again, as after a switch forgot them,
// are given up, and the work continues on new ones.
func TestHalfOpenConnectionsToPostgresAreGivenUp(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.addr()
	h := s.worker("", func(c *worker.Settings) { c.DatabaseURL = u.String() })
	s.submit(h, adjudication(1, "ok", ""))
	s.awaitNoneLive()
	p.blackhole()
	began := time.Now()
	again := adjudication(2, "ok", "")
	s.submitted = append(s.submitted, again)
	s.accepted.noteSubmitted(again)
	for {
		r, err := h.ask(s.ctx(), worker.Command{Do: worker.Submit, Adjudication: again})
		if err != nil {
			t.Fatal(err)
		}
		if r.Error == "" {
			s.accepted.noteReply(again, r)
			break
		}
	}
	t.Logf("submitted %s after the connections were blackholed", time.Since(began).Round(time.Millisecond))
	s.awaitNoneLive()
	t.Logf("settled after %s", time.Since(began).Round(time.Millisecond))
	s.terminate(h)
	s.checkConsistent()
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

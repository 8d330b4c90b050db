package openwop

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
)

// keyOf makes a key of another principal of acme.
func (f *fixture) keyOf(principal string, roles ...access.Role) string {
	f.Helper()
	token, _, err := f.service.As("acme", "test").Keys.Create(f.Context(), postadjudication.NewKey{Principal: principal, Roles: roles, Reason: "test"})
	if err != nil {
		f.Fatal(err)
	}
	return token
}

// An Idempotency-Key belongs to a principal: another one's same request under the same key is its own.
func TestPrincipalsShareNoIdempotencyKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const body = `{"workflowId":"chores"}`
	one, two := f.keyOf("service:one", access.Submitter), f.keyOf("service:two", access.Submitter)
	first := f.want(http.StatusCreated, one, "POST", "/v1/runs", body, "Idempotency-Key", "c-1")
	if again := f.ask(one, "POST", "/v1/runs", body, "Idempotency-Key", "c-1"); again.run() != first.run() || again.header.Get("openwop-Idempotent-Replay") != "true" {
		t.Errorf("repeated: %d %s", again.status, again.text)
	}
	if other := f.want(http.StatusCreated, two, "POST", "/v1/runs", body, "Idempotency-Key", "c-1"); other.run() == first.run() || other.header.Get("openwop-Idempotent-Replay") != "" {
		t.Errorf("the request of another principal was answered with the run %s of the first", other.run())
	}
}

// Polls that wait and streams count together: beyond eight of a key they are refused.
func TestPollsAndStreamsOfAKeyAreCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	run := f.create(key, `{"workflowId":"waits"}`)
	const pollPath = "/events/poll?lastSequence=99&timeout="
	for range 4 {
		for _, path := range []string{pollPath + "30", "/events"} {
			go func() { _, _ = f.send(f.url, key, "GET", "/v1/runs/"+run+path, "") }() // ends with the test
		}
	}
	f.awaitReaders(f.server, "acme", run, 8)
	for _, path := range []string{pollPath + "1", "/events"} {
		if a := f.ask(key, "GET", "/v1/runs/"+run+path, ""); a.status != http.StatusTooManyRequests {
			t.Errorf("the ninth, %s: %d %s", path, a.status, a.text)
			break // a stream that is not refused does not end
		}
	}
	f.want(http.StatusOK, key, "GET", "/v1/runs/"+run, "")
}

// However many reads of a tenant wait in the database, two have a connection.
func TestReadsTakeTheSlotsOfTheirTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, other := f.all("acme"), f.all("umbrella")
	run := f.create(key, `{"workflowId":"chores"}`)
	f.finished(key, run)
	unlock := testkit.LockTables(t, f.db, `recourse.receipts`) // logs of runs are read from it
	const reads, ofTenant = 8, 2
	ended := make(chan string, reads)
	for range reads {
		go func() {
			a, err := f.send(f.url, key, "GET", "/v1/runs/"+run, "")
			ended <- fmt.Sprint(a.status, err)
		}()
	}
	waiting := func() (n int) { // the loops of the process may wait for the table too, in other statements
		if err := f.db.QueryRowContext(context.Background(), `SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'recourse/queries' GROUP BY query) w`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	poll.Until(t, "reads wait", func() bool { return waiting() >= ofTenant })
	for range 20 {
		f.want(http.StatusOK, other, "GET", "/v1/workflows/chores", "")
	}
	if n := waiting(); n != ofTenant {
		t.Errorf("%d reads of a tenant have a connection, want %d", n, ofTenant)
	}
	unlock()
	for range reads {
		if got := <-ended; got != "200<nil>" && got != "200 <nil>" {
			t.Error(got)
		}
	}
}

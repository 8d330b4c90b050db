package ojs

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
)

// The key of a fetch belongs to a principal: another worker's same fetch under the same key gets no jobs that
// the first one has.
func TestWorkersShareNoKeysOfFetches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, one, two := f.key("acme", access.Submitter), f.key("acme", access.Worker), f.key("acme", access.Operator, access.Worker)
	made := f.must(shop, "/jobs", `{"type":"a.b","args":[]}`)
	fetch := func(key string) bool {
		t.Helper()
		status, _, text := f.raw(f.url, key, "POST", "/ojs/v1/workers/fetch", `{"queues":["default"]}`, "Idempotency-Key", "f1")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, text)
		}
		return strings.Contains(string(text), made.Job.ID)
	}
	for _, time := range []string{"first", "repeated"} {
		if !fetch(one) {
			t.Errorf("the worker does not get its job by the %s fetch", time)
		}
	}
	if fetch(two) {
		t.Error("a worker gets the job of another worker that used the same key")
	}
}

// However many reads of a tenant wait in the database, two have a connection.
func TestReadsTakeTheSlotsOfTheirTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key, other := f.all("acme"), f.all("umbrella")
	id := f.dead(key, "mail")
	unlock := testkit.LockTables(t, f.db, `recourse.receipts`) // the history of a job is read from it
	const reads, ofTenant = 8, 2
	ended := make(chan int, reads)
	for range reads {
		go func() {
			status, _, _ := f.raw(f.url, key, "GET", "/ojs/v1/jobs/"+id, "")
			ended <- status
		}()
	}
	waiting := func() (n int) {
		if err := f.db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'recourse/queries'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	poll.Until(t, "reads wait", func() bool { return waiting() >= ofTenant })
	for range 20 {
		if status, refused := f.ask(other, "GET", "/ojs/v1/queues", ""); status != http.StatusOK {
			t.Errorf("%d %+v", status, refused)
		}
	}
	if n := waiting(); n != ofTenant {
		t.Errorf("%d reads of a tenant have a connection, want %d", n, ofTenant)
	}
	unlock()
	for range reads {
		if status := <-ended; status != http.StatusOK {
			t.Error(status)
		}
	}
}

// A body over 64 KiB counts as a batch of its tenant, a shorter one does not.
func TestALongBodyCountsAsABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("acme", access.Submitter)
	release, err := f.ojs.door.AcquireBatch(door.Caller{Tenant: "acme"}, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(length int, chunked bool) int {
		t.Helper()
		body := `{"type":"a.b","args":["` + strings.Repeat("x", length) + `"]}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/ojs/v1/jobs", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if chunked {
			r.ContentLength = -1
		}
		r.Header.Set("Authorization", "Bearer "+key)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		return a.StatusCode
	}
	const long = 70 << 10
	if short, known, unknown := enqueue(1<<10, false), enqueue(long, false), enqueue(long, true); short != http.StatusCreated || known != http.StatusTooManyRequests || unknown != http.StatusTooManyRequests {
		t.Errorf("while the batches of the tenant are at their limit: %d, of 70 KiB %d, of an unknown length %d", short, known, unknown)
	}
	release()
	if status := enqueue(long, false); status != http.StatusCreated {
		t.Error(status)
	}
}

package ojs

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
)

// keepBatchesOpen keeps the transaction of a unique job of some tenants open while the test holds a lock. release ends that.
func (f *fixture) keepBatchesOpen() (release func()) {
	f.Helper()
	if _, err := f.db.ExecContext(f.Context(), `CREATE FUNCTION public.keep_open() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.tenant LIKE 'slow%' THEN
		PERFORM pg_advisory_xact_lock_shared(2);
		WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.02); END LOOP;
	END IF;
	RETURN NEW; END $$;
CREATE TRIGGER keep_open BEFORE INSERT ON recourse.unique_jobs FOR EACH ROW EXECUTE FUNCTION public.keep_open()`); err != nil {
		f.Fatal(err)
	}
	tx, err := f.db.BeginTx(f.Context(), nil)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := tx.ExecContext(f.Context(), `SELECT pg_advisory_xact_lock(1)`); err != nil {
		f.Fatal(err)
	}
	return func() {
		f.Helper()
		if err := tx.Rollback(); err != nil {
			f.Error(err)
		}
	}
}

// keptOpen returns how many transactions keepBatchesOpen keeps open.
func (f *fixture) keptOpen() (n int) {
	f.Helper()
	if err := f.db.QueryRowContext(f.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

func uniqueBatch(client, n int) string {
	jobs := make([]string, n)
	for i := range jobs {
		jobs[i] = fmt.Sprintf(`{"type":"a.b","queue":"q","args":[%d,%d],"unique":{"keys":["type","args"]}}`, client, i)
	}
	return `{"jobs":[` + strings.Join(jobs, ",") + `]}`
}

// Batches of other tenants, however many and however long, keep no tenant from changing its keys and from enqueueing.
func TestBatchesTakeTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.key("other", access.Submitter)
	release := f.keepBatchesOpen()
	var clients sync.WaitGroup
	for client := range 12 {
		key := f.keyOf(fmt.Sprintf("slow%d", client%2), fmt.Sprintf("service:%d", client), access.Submitter)
		clients.Go(func() {
			status, header, text := f.raw(f.url, key, "POST", "/ojs/v1/jobs/batch", uniqueBatch(client, 2))
			if status != http.StatusCreated && (status != http.StatusServiceUnavailable || header.Get("Retry-After") == "") {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	poll.Until(t, "two batches are being written", func() bool { return f.keptOpen() >= 2 })
	for i := range 5 {
		created := postadjudication.NewKey{Principal: "service:new", Roles: []access.Role{access.Submitter}, Reason: "test"}
		if _, _, err := f.service.As("other", "test").Keys.Create(t.Context(), created); err != nil {
			t.Errorf("a key: %v", err)
		}
		for _, unique := range []string{"", `,"unique":{"keys":["type","args"]}`} {
			f.must(other, "/jobs", fmt.Sprintf(`{"type":"a.b","queue":"q","args":[%d]%s}`, i, unique))
		}
	}
	if n := f.keptOpen(); n > 2 {
		t.Errorf("%d batches are written at once", n)
	}
	release()
	clients.Wait()
}

// A client whose batch takes too long is told to send smaller ones: sent again it would take as long.
func TestABatchThatTakesTooLongIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("slow", access.Submitter)
	release := f.keepBatchesOpen()
	before := f.runs()
	status, _, text := f.raw(f.url, key, "POST", "/ojs/v1/jobs/batch", uniqueBatch(1, 2))
	if status != http.StatusServiceUnavailable || !strings.Contains(string(text), "smaller batches") || !strings.Contains(string(text), `"retryable":false`) || f.runs() != before {
		t.Errorf("%d %s", status, text)
	}
	release()
	f.must(key, "/jobs/batch", uniqueBatch(1, 2))
}

// A batch of as many jobs as the manifest promises is written in time, whatever its jobs have in their way.
func TestTheLargestBatchIsTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("acme", access.Submitter)
	for _, batch := range []string{
		uniqueBatch(1, 200), strings.ReplaceAll(uniqueBatch(1, 200), `"args"]}`, `"args"],"on_conflict":"replace"}`), strings.ReplaceAll(uniqueBatch(2, 200), `,"args"]}`, `],"on_conflict":"replace"}`),
	} {
		status, refused := f.ask(key, "POST", "/ojs/v1/jobs/batch", batch)
		for try := 1; try < 5 && status == http.StatusServiceUnavailable; try++ { // a busy machine may run out of time
			status, refused = f.ask(key, "POST", "/ojs/v1/jobs/batch", batch)
		}
		if status != http.StatusCreated {
			t.Fatalf("%d %+v", status, refused.Error)
		}
	}
	if status, refused := f.ask(key, "POST", "/ojs/v1/jobs/batch", uniqueBatch(3, 201)); status != http.StatusBadRequest || !strings.Contains(refused.Error.Message, "1 to 200 jobs") {
		t.Errorf("%d %+v", status, refused.Error)
	}
}

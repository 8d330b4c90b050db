package ojs

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

// While a payment queue is paused, its adjudications wait: nothing is decided about their money. The one that a worker
// holds is paid and settled.
func TestAPausedPaymentQueueOnlyWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, worker, operator := f.key("acme", access.Submitter), f.key("acme", access.Worker), f.key("acme", access.Operator)
	submit := func(n int) string {
		status, out := f.answerTo(shop, "POST", "/ojs/v1/jobs", adjudication(n, ``))
		id, _ := at(out, "job", "id").(string)
		if status != http.StatusCreated || id == "" {
			t.Fatal(status, out)
		}
		return id
	}
	fetch := func() []any {
		_, out := f.answerTo(worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["payouts"],"worker_id":"w1"}`)
		return out["jobs"].([]any)
	}
	held := submit(1)
	order := fetch()[0]
	if status, out := f.answerTo(operator, "POST", "/ojs/v1/queues/payouts/pause", ``); status != http.StatusOK {
		t.Fatal(status, out)
	}
	waiting := submit(2)
	if got := fetch(); len(got) != 0 {
		t.Errorf("fetched %v", got)
	}
	ack := `{"job_id":"` + held + `","worker_id":"w1","attempt":1,"result":{"moved":{"minor":1000,"currency":"EUR"},"reference":"pay_1"}}`
	if status, out := f.answerTo(worker, "POST", "/ojs/v1/workers/ack", ack); status != http.StatusOK || at(out, "state") != "completed" {
		t.Errorf("%d %v of %v", status, out, order)
	}
	var receipts, unknown int
	if err := f.db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM recourse.receipts p JOIN recourse.runs r ON r.id = p.run_id WHERE r.id = $1), (SELECT count(*) FROM recourse.cases WHERE unknown_open > 0)`, waiting).Scan(&receipts, &unknown); err != nil || receipts != 1 || unknown != 0 {
		t.Errorf("%d receipts of what waits, %d cases of unknown outcome, %v", receipts, unknown, err)
	}
	if status, out := f.answerTo(operator, "POST", "/ojs/v1/queues/payouts/resume", ``); status != http.StatusOK {
		t.Fatal(status, out)
	}
	if got := fetch(); len(got) != 1 || at(got[0], "id") != waiting {
		t.Errorf("fetched %v after the queue was resumed", got)
	}
	found, err := f.service.As("acme", "ada").Breakers.History(t.Context(), "queue:payouts", 0, 10)
	if err != nil || len(found) != 2 || found[0].Actor != "service:operator" {
		t.Errorf("%+v %v", found, err)
	}
	report, err := audit.Run(t.Context(), f.service.AuditReader(), f.service.AuditQuery())
	if err != nil || !report.OK() {
		t.Errorf("%+v %v", report, err)
	}
}

// A paused queue gives nothing until it is resumed, and the status of what waits says why.
func TestAPausedQueueGivesNoJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	id := f.must(key, "/jobs", `{"type":"a.b","queue":"mail","args":[]}`).Job.ID
	f.must(key, "/queues/mail/pause", ``)
	fetched := func() any {
		_, out := f.answerTo(key, "POST", "/ojs/v1/workers/fetch", `{"queues":["mail"]}`)
		return at(out, "jobs", 0, "id")
	}
	if got := fetched(); got != nil {
		t.Errorf("fetched %v", got)
	}
	job, err := f.service.As("acme", "ada").Jobs.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := f.service.Status(t.Context(), "acme", job.Run); err != nil || len(st.PausedBy) != 1 || st.PausedBy[0].Target != "queue:mail" {
		t.Errorf("%+v %v", st, err)
	}
	f.must(key, "/queues/mail/resume", ``)
	if got := fetched(); got != id {
		t.Errorf("fetched %v", got)
	}
}

// A batch whose handler is interrupted after its commit is answered as made when it is sent again, and makes nothing a
// second time.
func TestABatchIsMadeOnceByItsIdempotencyKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop := f.key("acme", access.Submitter)
	body := `{"jobs":[{"type":"a.b","args":[1]},{"type":"a.b","args":[2]},{"type":"a.c","args":[],"unique":{"keys":["type"]}}]}`
	made := func(url string, want int) string {
		status, _, text := f.raw(url, shop, "POST", "/ojs/v1/jobs/batch", body, "Idempotency-Key", "batch-1")
		if status != want {
			t.Fatalf("%d %s, want %d", status, text, want)
		}
		return string(text)
	}
	first := made(f.url, http.StatusCreated)
	if again := made(f.url, http.StatusCreated); again != first {
		t.Error("the answer was not stored")
	}
	f.timeOut(crashed)
	again := made(f.url, http.StatusCreated)
	if f.runs() != 3 || strings.Contains(again, "deduplicated") || strings.Count(again, `"id":`) != 3 {
		t.Errorf("%d runs: %s", f.runs(), again)
	}
	failing := f.another("POST "+root+"/jobs/batch", func() error { return errors.New("out of memory") })
	if status, _, _ := f.raw(failing, shop, "POST", "/ojs/v1/jobs/batch", body); status < 500 || f.runs() != 3 {
		t.Error(status, f.runs())
	}
}

package ojs

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// What a submitter is answered that asks for what another principal enqueued: as of what does not exist, or a list without it.
// Queues and rules are those of the tenant.
var submitterReads = map[string]string{
	"GET /ojs/v1/jobs/{id}": "404", "POST /ojs/v1/jobs/{id}/activate": "404", "GET /ojs/v1/dead-letter/{id}": "404", "GET /ojs/v1/admin/dead-letter/{id}": "404",
	"GET /ojs/v1/events": "left out", "GET /ojs/v1/queues": "settings", "GET /ojs/v1/dead-letter/replay-rules": "settings", "GET /ojs/v1/admin/dead-letter/replay-rules": "settings",
	"POST /ojs/v1/jobs": "tested below", "POST /ojs/v1/jobs/batch": "tested below",
}

func TestASubmitterReadsOnlyWhatItsPrincipalEnqueued(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, worker := f.keyOf("acme", "service:shop", access.Submitter), f.key("acme", access.Worker)
	letter := f.must(shop, "/jobs", `{"type":"mail.send","queue":"mail","args":["of the shop"],"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`).Job.ID
	f.must(worker, "/workers/fetch", `{"queues":["mail"]}`)
	f.must(worker, "/workers/nack", `{"job_id":"`+letter+`","error":{}}`)
	unique := `{"type":"a.b","queue":"mail","args":["of the shop"],"options":{"pending":true},"unique":{"keys":["type"],"on_conflict":"ignore"}}`
	pending := f.must(shop, "/jobs", unique).Job.ID
	paid := f.must(shop, "/jobs", adjudicationJob("1")).Job.ID
	mallory, both := f.keyOf("acme", "service:mallory", access.Submitter), f.keyOf("acme", "service:mallory", access.Submitter, access.Worker)
	auditor := f.keyOf("acme", "service:mallory", access.Submitter, access.Auditor)
	own := f.must(mallory, "/jobs", `{"type":"a.c","queue":"mail","args":[]}`).Job.ID
	if err := f.service.DrainEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	const none = "0197a1c2-0000-7000-8000-000000000001"
	ask := func(key, pattern, id string) (int, string) {
		method, path, _ := strings.Cut(pattern, " ")
		status, header, text := f.raw(f.url, key, method, strings.ReplaceAll(path, "{id}", id), "")
		return status, strings.NewReplacer(id, "ID", header.Get("X-Request-Id"), "REQUEST").Replace(string(text))
	}
	for _, o := range f.ojs.operations() {
		if !access.May([]access.Role{access.Submitter}, o.action) {
			continue
		}
		kind := submitterReads[o.pattern]
		if kind == "" {
			t.Errorf("%s: say what a submitter reads by it", o.pattern)
		}
		for _, key := range []string{mallory, both} {
			for _, id := range []string{letter, pending, paid} {
				status, text := ask(key, o.pattern, id)
				switch kind {
				case "404":
					if unknown, want := ask(key, o.pattern, none); status != http.StatusNotFound || unknown != status || text != want {
						t.Errorf("%s: %d %s, of an unknown one %d %s", o.pattern, status, text, unknown, want)
					}
				case "left out":
					if status != http.StatusOK || strings.Contains(text, "ID") || !strings.Contains(text, own) {
						t.Errorf("%s: %d %s", o.pattern, status, text)
					}
				}
			}
		}
	}
	for _, id := range []string{letter, pending, paid} {
		for _, key := range []string{shop, auditor} {
			for _, pattern := range []string{"GET /ojs/v1/jobs/{id}", "GET /ojs/v1/events"} {
				if id == paid && strings.HasSuffix(pattern, "/events") {
					continue // the events of adjudications are not there
				}
				if status, text := ask(key, pattern, id); status != http.StatusOK || !strings.Contains(text, `"ID"`) {
					t.Errorf("%s by who may read it: %d %s", pattern, status, text)
				}
			}
		}
	}
	for _, body := range []string{`{"type":"a.b","args":[],"id":"` + pending + `"}`, strings.Replace(unique, "of the shop", "of mallory", 1), adjudicationJob("1"), strings.Replace(adjudicationJob("1"), "release", "refund", 1)} {
		status, refused := f.ask(mallory, http.MethodPost, "/ojs/v1/jobs", body)
		if status != http.StatusConflict || refused.Error.Code != "duplicate" || refused.Error.Details["existing_job_id"] != nil || refused.Error.Details["existing_job_state"] != nil || refused.Job.ID != "" {
			t.Errorf("%s: %d %+v", body, status, refused)
		}
	}
	for _, job := range []string{`{"type":"a.b","args":[],"id":"` + pending + `"}`, unique, strings.Replace(unique, "ignore", "reject", 1)} {
		before := f.runs()
		status, refused := f.ask(mallory, http.MethodPost, "/ojs/v1/jobs/batch", `{"jobs":[{"type":"a.d","args":[]},`+job+`]}`)
		if status != http.StatusConflict || refused.Error.Code != "duplicate" || refused.Error.Details["index"] != 1.0 || len(refused.Error.Details) != 1 || f.runs() != before {
			t.Errorf("a batch with %s: %d %+v", job, status, refused)
		}
	}
	if again := f.must(shop, "/jobs", unique).Job.ID; again != pending {
		t.Errorf("its own principal is told of %s", again)
	}
}

func adjudicationJob(n string) string {
	return `{"type":"settlement.execute","queue":"payouts","args":[{"transaction_receipt_id":"txr_` + n + `","submission_receipt_id":"sub_1","adjudication_id":"adj_1","escrow_reference":"esc_` + n +
		`","outcome":"release","amount":{"minor":1000,"currency":"USD"},"held":{"minor":1000,"currency":"USD"}}]}`
}

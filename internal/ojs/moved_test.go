package ojs

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// run returns the newest run of a job.
func (f *fixture) run(tenant, id string) background.RunID {
	f.Helper()
	found, err := f.service.As(tenant, "service:test").Jobs.Find(f.Context(), id)
	if err != nil {
		f.Fatal(err)
	}
	return found.Run
}

// A fork moves a job to another queue and gives it another policy, alone or in a plan. Workers and lists are told
// so, the queue is listed, and a later retry that changes something else leaves both as they are.
func TestARetryWithChangesLeavesTheRestAsItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.runService()
	policy := retrypolicy.Policy{MaxRetryAttempts: 1, Jitter: 0.25, NonRetryable: []string{"Fatal"}}
	for name, move := range map[string]func(id, queue string){
		"alone": func(id, queue string) {
			how := deadletter.Fork{Reason: "another queue", Queue: queue, Policy: &policy}
			if _, err := f.service.As("acme", "user:ada").DeadLetters.Fork(t.Context(), f.run("acme", id), how); err != nil {
				t.Fatal(err)
			}
		},
		"in a plan": func(_, queue string) {
			plans := f.service.As("acme", "user:ada").Bulk
			plan, err := plans.Plan(t.Context(), bulk.Request{Action: bulk.Fork, Filter: deadletter.Filter{Family: jobs.Family, Queue: "mail"}, Reason: "another queue", Queue: queue, Policy: &policy})
			if err != nil {
				t.Fatal(err)
			}
			if plan, err = plans.Run(t.Context(), plan.ID, plan.Hash); err != nil {
				t.Fatal(err)
			}
			wait(t, "the plan", func() bool {
				plan, err = plans.Get(t.Context(), plan.ID)
				return err != nil || plan.State == bulk.Done
			})
			if err != nil || plan.Progress.Done != 1 {
				t.Fatalf("%+v, %v", plan.Progress, err)
			}
		},
	} {
		queue := strings.ReplaceAll(name, " ", "-")
		id := f.dead(key, "mail")
		move(id, queue)
		check := func(when string, job any) {
			t.Helper()
			if at(job, "queue") != queue || at(job, "max_attempts") != 1.0 || at(job, "retry", "non_retryable_errors", 0) != "Fatal" || at(job, "retry", "on_exhaustion") != "dead_letter" {
				t.Errorf("%s, %s: %v", name, when, job)
			}
		}
		if _, out := f.answerTo(key, "GET", "/ojs/v1/queues", ""); !strings.Contains(string(marshal(out)), `"name":"`+queue+`"`) {
			t.Errorf("%s: %v", name, out)
		}
		status, out := f.answerTo(key, "POST", "/ojs/v1/workers/fetch", `{"queues":["`+queue+`"]}`)
		if check("fetched", at(out, "jobs", 0)); status != http.StatusOK || at(out, "jobs", 0, "id") != id {
			t.Fatalf("%s: %d %v", name, status, out)
		}
		f.must(key, "/workers/nack", `{"job_id":"`+id+`","error":{}}`)
		_, out = f.answerTo(key, "GET", deadLetters+"?queue="+queue, "")
		check("listed", at(out, "jobs", 0))
		before := f.run("acme", id)
		status, out = f.answerTo(key, "POST", deadLetters+"/"+id+"/retry", `{"override":{"args":["other"]}}`)
		if check("retried", at(out, "job")); status != http.StatusOK || at(out, "job", "args", 0) != "other" {
			t.Errorf("%s: %d %v", name, status, out)
		}
		retried, err := f.service.Status(t.Context(), "acme", f.run("acme", id))
		if err != nil || retried.Run == before || retried.Queue != queue || retried.Policy.Encode() != policy.Encode() {
			t.Errorf("%s: %+v, %v", name, retried, err)
		}
		f.dieAgain(key, queue, id)
		_, out = f.answerTo(key, "POST", deadLetters+"/"+id+"/retry", `{"override":{"retry":{"max_attempts":2}}}`)
		if at(out, "job", "queue") != queue || at(out, "job", "max_attempts") != 2.0 || at(out, "job", "retry", "non_retryable_errors", 0) != "Fatal" {
			t.Errorf("%s: %v", name, out)
		}
		f.must(key, "/workers/fetch", `{"queues":["`+queue+`"]}`)
		f.must(key, "/workers/ack", `{"job_id":"`+id+`"}`)
	}
}

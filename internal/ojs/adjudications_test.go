package ojs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// adjudication returns the body of a job that is an adjudication. change replaces members of the
// adjudication.
func adjudication(n int, change string) string {
	members := map[string]any{}
	text := fmt.Sprintf(`{"transaction_receipt_id":"txr_%d","submission_receipt_id":"sub_%d","adjudication_id":"adj_%d","escrow_reference":"esc_%d",
		"outcome":"release","amount":{"minor":1000,"currency":"EUR"},"held":{"minor":1000,"currency":"EUR"}}`, n, n, n, n)
	for _, t := range []string{text, "{" + change + "}"} {
		if err := json.Unmarshal([]byte(t), &members); err != nil {
			panic(err)
		}
	}
	body, err := json.Marshal(map[string]any{"type": "settlement.execute", "queue": "payouts", "args": []any{members}})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// answerTo returns the whole answer to a request.
func (f *fixture) answerTo(key, method, path, body string, headers ...string) (int, map[string]any) {
	f.Helper()
	status, _, text := f.raw(f.url, key, method, path, body, headers...)
	out := map[string]any{}
	if err := json.Unmarshal(text, &out); err != nil {
		f.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return status, out
}

// at returns what is at a path of names and numbers; nil if nothing is.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

// A job of type settlement.execute gets the answers of a submission.
func TestAnAdjudicationIsSubmittedAsAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Remote.KeyLifetime = time.Hour })
	shop, worker := f.key("acme", access.Submitter), f.key("acme", access.Worker)
	const jobs = "/ojs/v1/jobs"
	wantAnswer := func(name string, body string, status int, path []any, want any) map[string]any {
		t.Helper()
		got, out := f.answerTo(shop, "POST", jobs, body)
		if got != status || at(out, path...) != want {
			t.Errorf("%s: %d %v, want %d with %v", name, got, out, status, want)
		}
		return out
	}
	first := wantAnswer("new", adjudication(1, ``), 201, []any{"job", "state"}, "available")
	id, _ := at(first, "job", "id").(string)
	if at(first, "job", "type") != "settlement.execute" || at(first, "job", "queue") != "payouts" || at(first, "job", "args", 0, "transaction_receipt_id") != "txr_1" || at(first, "job", "meta", "recourse.run_id") != id {
		t.Errorf("%v", first)
	}
	wantAnswer("again", adjudication(1, ``), 200, []any{"deduplicated"}, true)
	wantAnswer("again, target named", adjudication(1, `"target":"queue:payouts"`), 200, []any{"job", "id"}, id)
	wantAnswer("other content", adjudication(1, `"adjudication_id":"adj_x"`), 409, []any{"error", "details", "rule"}, "retry_key_mismatch")
	wantAnswer("the other outcome", adjudication(1, `"outcome":"refund"`), 409, []any{"error", "details", "existing_job_id"}, id)
	wantAnswer("more than is held", adjudication(2, `"amount":{"minor":1001,"currency":"EUR"}`), 400, []any{"error", "code"}, "invalid_request")
	wantAnswer("more than is free", adjudication(3, `"escrow_reference":"esc_1"`), 422, []any{"error", "code"}, "x_exceeds_held")
	wantAnswer("another escrow", adjudication(4, `"escrow_reference":"esc_1","held":{"minor":2000,"currency":"EUR"}`), 422, []any{"error", "code"}, "x_escrow_mismatch")
	if status, out := f.answerTo(shop, "GET", jobs+"/"+id, ""); status != 200 || at(out, "job", "id") != id {
		t.Errorf("%d %v", status, out)
	}
	if status, out := f.answerTo(shop, "GET", "/ojs/v1/queues", ""); status != 200 || at(out, "queues", 1, "name") != "payouts" {
		t.Errorf("%d %v", status, out)
	}
	status, out := f.answerTo(worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["payouts"],"worker_id":"w1"}`, "Idempotency-Key", "f1")
	if status != 200 || at(out, "jobs", 0, "id") != id || at(out, "jobs", 0, "meta", "recourse.attempt") != 1.0 || at(out, "jobs", 0, "meta", "recourse.not_after") == nil {
		t.Fatalf("%d %v", status, out)
	}
	if again, same := f.answerTo(worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["payouts"],"worker_id":"w1"}`, "Idempotency-Key", "f1"); again != 200 || at(same, "jobs", 0, "id") != id {
		t.Errorf("repeated: %d %v", again, same)
	}
	for said, field := range map[string]any{`{}`: "result", `{"moved":{"minor":1000,"currency":"USD"},"reference":"r"}`: "result.moved.currency"} {
		if status, out := f.answerTo(worker, "POST", "/ojs/v1/workers/ack", `{"job_id":"`+id+`","worker_id":"w1","result":`+said+`}`); status != 422 || at(out, "error", "details", "field") != field {
			t.Errorf("%s: %d %v", said, status, out)
		}
	}
	if status, out := f.answerTo(f.key("acme", access.Operator), "DELETE", jobs+"/"+id, ""); status != 409 || at(out, "error", "details", "cancel_asked") != true {
		t.Errorf("cancel: %d %v", status, out)
	}
	paid := `{"job_id":"` + id + `","result":{"moved":{"minor":1000,"currency":"EUR"},"reference":"r1"}}`
	if status, out := f.answerTo(worker, "POST", "/ojs/v1/workers/ack", paid); status != 200 || at(out, "state") != "completed" {
		t.Errorf("%d %v", status, out)
	}
	if status, out := f.answerTo(worker, "POST", "/ojs/v1/workers/ack", paid); status != 409 || at(out, "error", "details", "current_state") != "completed" {
		t.Errorf("%d %v", status, out)
	}
	wantAnswer("executed", adjudication(1, ``), 200, []any{"job", "state"}, "completed")
	wantAnswer("decided again", adjudication(1, `"generation":2`), 409, []any{"error", "details", "rule"}, "case_ended")
	if status, _ := f.answerTo(f.key("umbrella", access.Submitter), "GET", jobs+"/"+id, ""); status != 404 {
		t.Errorf("another tenant: %d", status)
	}
}

// What adjudications do not have is refused, and nothing is written.
func TestAnAdjudicationHasNoOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop := f.key("acme", access.Submitter)
	good := adjudication(1, ``)
	with := func(more string) string { return good[:len(good)-1] + "," + more + "}" }
	for body, want := range map[string]string{
		with(`"id":"01980000-0000-7000-8000-000000000001"`): "400 id",
		with(`"priority":1`):                                                                   "400 priority",
		with(`"scheduled_at":"2099-01-01T00:00:00Z"`):                                          "400 scheduled_at",
		with(`"expires_at":"2099-01-01T00:00:00Z"`):                                            "400 expires_at",
		with(`"unique":{"on_conflict":"replace"}`):                                             "400 unique",
		with(`"options":{"pending":true}`):                                                     "400 options",
		with(`"meta":{"a":1}`):                                                                 "400 meta",
		with(`"tags":["a"]`):                                                                   "400 tags",
		with(`"retry":{"on_exhaustion":"discard"}`):                                            "422 retry.on_exhaustion",
		with(`"retry":{"max_attempts":9}`):                                                     "422 retry.max_attempts",
		`{"type":"settlement.execute","args":[]}`:                                              "400 args",
		`{"type":"settlement.execute","args":[{},{}]}`:                                         "400 args",
		`{"type":"settlement.execute","args":["x"]}`:                                           "400 args[0].",
		adjudication(1, `"target":"escrow"`):                                                   "400 args[0].target",
		adjudication(1, `"target":"queue:other"`):                                              "400 args[0].target",
		adjudication(1, `"outcome":"both"`):                                                    "400 args[0].outcome",
		adjudication(1, `"tenant":"umbrella"`):                                                 "400 args[0].tenant",
		adjudication(1, `"amount":{"minor":1.5,"currency":"EUR"}`):                             "400 args[0].amount.minor",
		adjudication(1, `"payload":{"card":"4111 1111 1111 1111"}`):                            "400 args[0].payload.card",
		strings.Replace(good, `"queue":"payouts"`, `"queue":"`+strings.Repeat("q", 60)+`"`, 1): "400 queue",
	} {
		status, out := f.answerTo(shop, "POST", "/ojs/v1/jobs", body)
		if got := fmt.Sprint(status, " ", at(out, "error", "details", "field")); got != want {
			t.Errorf("%s: %s, want %s: %v", body, got, want, out)
		}
	}
	if status, out := f.answerTo(shop, "POST", "/ojs/v1/jobs", with(`"retry":{"on_exhaustion":"dead_letter"}`)); status != 201 {
		t.Errorf("%d %v", status, out)
	}
	var cases int
	if err := f.db.QueryRow(`SELECT count(*) FROM recourse.cases WHERE kind <> 'operations'`).Scan(&cases); err != nil || cases != 1 {
		t.Errorf("%d cases, %v", cases, err)
	}
}

// The worker of the guide, in another language, executes releases and refunds at a payment service. One is
// killed while it pays: another one repeats its order, and each order is paid once.
func TestTheWorkerOfTheGuidePays(t *testing.T) {
	t.Parallel()
	bank, err := fakeescrow.Start(fakeescrow.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bank.Close)
	f := newFixture(t, func(c *postadjudication.Config) {
		c.Executor, c.Remote.KeyLifetime = neverCalled{t}, escrow.Forever
	})
	f.runService()
	shop, work := f.key("acme", access.Submitter), f.guideWorker(bank.URL())
	const orders = 12
	for n := range orders {
		change := `"payload":{"note":"größer <b>"}`
		switch {
		case n == 0:
			change = `"payload":{"simulate":["hang","ok"]}`
		case n%2 == 1:
			change = `"outcome":"refund"`
		}
		if status, out := f.answerTo(shop, "POST", "/ojs/v1/jobs", adjudication(n, change)); status != 201 {
			t.Fatalf("%d %v", status, out)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			f.logRuns()
		}
	})
	kill := work(5 * time.Second) // a lease of a second may be over before a busy machine has made the call
	wait(t, "the first order is at the payment service", func() bool { return len(bank.AllCalls()) > 0 })
	kill()
	work(time.Minute) // on a busy machine a short lease could end at every attempt, and the order be dead-lettered
	work(time.Minute)
	wait(t, "all orders are executed", func() bool {
		var settled int
		if err := f.db.QueryRow(`SELECT count(*) FROM recourse.cases WHERE progression IN ('settled', 'refunded')`).Scan(&settled); err != nil {
			t.Fatal(err)
		}
		return settled == orders
	})
	if effects := bank.Effects(); len(effects) != orders || bank.DoubleEffects() != 0 {
		t.Errorf("%d effects: %v", len(effects), bank.Violations())
	}
	var lost int
	if err := f.db.QueryRow(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'attempt-interrupted'`).Scan(&lost); err != nil || lost == 0 {
		t.Errorf("%d attempts of the killed worker, %v", lost, err)
	}
	report, err := audit.Run(context.Background(), f.service.AuditReader(), f.service.AuditQuery())
	if err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}

// logRuns writes to the log of the test what each run waits for.
func (f *fixture) logRuns() {
	rows, err := f.db.Query(`SELECT concat_ws(' ', r.id, r.state, r.letter, r.class, r.attempt_count, 'due', r.due_at, r.error_type, r.error_text, l.worker, l.at, l.ended, 'now', now())
		FROM recourse.runs r LEFT JOIN recourse.leases l ON l.run_id = r.id`)
	if err != nil {
		f.Error(err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var run string
		if err := rows.Scan(&run); err != nil {
			f.Error(err)
		}
		f.Log(run)
	}
	if err := rows.Err(); err != nil {
		f.Error(err)
	}
}

// A refusal is certain, but for one of the key: it says nothing of the money. So the worker of the guide reports it.
func TestTheWorkerOfTheGuideTakesNoRefusalOfTheKeyForCertain(t *testing.T) {
	t.Parallel()
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		code := "account_closed"
		if strings.Contains(string(order), `"outcome":"refund"`) {
			code = "idempotency_key_reused"
		}
		if _, err := fmt.Fprintf(w, `{"code":%q}`, code); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(bank.Close)
	f := newFixture(t, func(c *postadjudication.Config) {
		c.Executor, c.Remote.KeyLifetime = neverCalled{t}, escrow.Forever
	})
	f.runService()
	shop := f.key("acme", access.Submitter)
	for n, change := range []string{``, `"outcome":"refund"`} {
		if status, out := f.answerTo(shop, "POST", "/ojs/v1/jobs", adjudication(n, change)); status != 201 {
			t.Fatalf("%d %v", status, out)
		}
	}
	f.guideWorker(bank.URL)(time.Minute)
	var ends string
	wait(t, "both orders are dead letters", func() bool {
		err := f.db.QueryRow(`SELECT count(*) || coalesce(string_agg(' ' || c.subject || ' ' || r.class, '' ORDER BY c.subject), '') FROM recourse.runs r JOIN recourse.cases c ON c.id = r.case_id WHERE r.letter = 'open'`).Scan(&ends)
		if err != nil {
			t.Fatal(err)
		}
		return ends[0] == '2'
	})
	if want := "2 txr_0 not_executed txr_1 unknown"; ends != want {
		t.Errorf("%s, want %s", ends, want)
	}
}

// guideWorker returns what starts the worker of the guide, which pays at the given address, with a key of its own.
func (f *fixture) guideWorker(pay string) (work func(lease time.Duration) (kill func())) {
	f.Helper()
	script, key := guideScript(f.T), f.key("acme", access.Worker)
	return func(lease time.Duration) (kill func()) {
		cmd := exec.Command("perl", script)
		cmd.Env = append(os.Environ(), "OJS="+f.url+"/ojs/v1", "PAY="+pay, "QUEUE=payouts", "KEY="+key, fmt.Sprint("LEASE_MS=", lease.Milliseconds()))
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			f.Fatal(err)
		}
		var once sync.Once
		kill = func() {
			once.Do(func() {
				if err := cmd.Process.Kill(); err != nil {
					f.Error(err)
				}
				if err := cmd.Wait(); err == nil || said.Len() > 0 {
					f.Errorf("the worker ended by itself, or complained: %v %s", err, said.String())
				}
			})
		}
		f.Cleanup(kill)
		return kill
	}
}

// guideScript writes the worker of the guide to a file, and returns its path.
func guideScript(t *testing.T) string {
	t.Helper()
	guide, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(guide), "```perl\n")
	script, _, closed := strings.Cut(script, "```\n")
	if lines := strings.Count(script, "\n"); !found || !closed || lines > 40 {
		t.Fatalf("the guide has no short worker: %d lines", lines)
	}
	path := filepath.Join(t.TempDir(), "worker.pl")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// neverCalled is the executor of a process of which only remote workers execute.
type neverCalled struct{ *testing.T }

func (n neverCalled) Execute(context.Context, escrow.Call) escrow.Answer {
	n.Error("a remote adjudication was delivered")
	return escrow.Answer{Class: escrow.NotExecuted}
}

func (neverCalled) KeyLifetime() time.Duration { return 0 }

// wait waits until a condition holds.
func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	poll.Until(t, what, holds)
}

// Dead-lettered adjudications are listed by their type. No program deletes them.
func TestDeadLetteredAdjudicationsAreFoundByTheirType(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker, approver := f.key("acme", access.Worker), f.key("acme", access.Approver, access.Operator)
	_, out := f.answerTo(f.key("acme", access.Submitter), "POST", "/ojs/v1/jobs", adjudication(1, ``))
	id, _ := at(out, "job", "id").(string)
	if status, out := f.answerTo(worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["payouts"],"worker_id":"w1"}`); status != 200 || at(out, "jobs", 0, "id") != id {
		t.Fatalf("%d %v", status, out)
	}
	why := `{"job_id":"` + id + `","error":{"code":"x_not_executed","message":"closed","retryable":false}}`
	if status, out := f.answerTo(worker, "POST", "/ojs/v1/workers/nack", why); status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	const letters = "/ojs/v1/dead-letter?type=settlement.execute"
	listed := func(want any) {
		t.Helper()
		if status, out := f.answerTo(approver, "GET", letters, ""); status != 200 || at(out, "jobs", 0, "id") != want {
			t.Errorf("%d %v, want %v", status, out, want)
		}
	}
	listed(id)
	if status, out := f.answerTo(approver, "DELETE", letters+"&confirm=true", ""); status != 409 || at(out, "error", "details", "rule") != "second_person_required" {
		t.Errorf("deleted by one person: %d %v", status, out)
	}
	listed(id)
	for _, override := range []string{`{"retry":{"max_attempts":10000}}`, `{"queue":"others"}`, `{"args":[]}`, `{}`} {
		if status, out := f.answerTo(approver, "POST", "/ojs/v1/dead-letter/"+id+"/retry", `{"override":`+override+`}`); status != 422 {
			t.Errorf("retried with %s: %d %v", override, status, out)
		}
	}
	if n := f.runs(); n != 1 {
		t.Errorf("%d runs", n)
	}
	if status, out := f.answerTo(approver, "POST", "/ojs/v1/dead-letter/"+id+"/retry", ""); status != 200 {
		t.Errorf("retried: %d %v", status, out)
	}
	listed(nil)
}

package ojs

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// fixture is a server that needs keys.
type fixture struct {
	*testing.T
	service *postadjudication.Service
	door    *door.Door
	ojs     *Server
	url     string
	db      *sql.DB
}

// runService runs the service until the test ends.
func (f *fixture) runService() {
	f.Helper()
	running, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- f.service.Run(running) }()
	f.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			f.Error(err)
		}
	})
}

func newFixture(t *testing.T, change ...func(*postadjudication.Config)) *fixture {
	t.Helper()
	_, redis := testkit.Redis(t)
	database := testkit.Migrated(t)
	config := postadjudication.Config{DatabaseURL: database, Redis: redis, Jobs: true, Executor: unused{}, PaymentQueues: []string{"payouts"}, TimeLimit: time.Second}
	for _, c := range change {
		c(&config)
	}
	service, err := postadjudication.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	shared, err := door.New(door.Config{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shared.Stop)
	server := New(Config{Service: service, Door: shared, Log: zap.NewNop(), Version: "test"})
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	return &fixture{t, service, shared, server, web.URL, testkit.OpenAsOwner(t, database)}
}

func (f *fixture) key(tenant string, roles ...access.Role) string {
	f.Helper()
	return f.keyOf(tenant, "service:"+string(roles[0]), roles...)
}

// keyOf makes a key of a principal. That of a worker alone fetches from all queues.
func (f *fixture) keyOf(tenant, principal string, roles ...access.Role) string {
	f.Helper()
	n := postadjudication.NewKey{Principal: principal, Roles: roles, Reason: "test"}
	if slices.Equal(roles, []access.Role{access.Worker}) {
		n.Queues = []string{"*"}
	}
	token, _, err := f.service.As(tenant, "test").Keys.Create(context.Background(), n)
	if err != nil {
		f.Fatal(err)
	}
	return token
}

// ask returns the status of the answer, and the refusal in it.
func (f *fixture) ask(key, method, path, body string) (int, envelope) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		f.Fatal(err)
	}
	if a.Header.Get("OJS-Version") != "1.0" || a.Header.Get("X-Request-Id") == "" || a.StatusCode != http.StatusNoContent && a.Header.Get("Content-Type") != mediaType {
		f.Errorf("%s %s: %v", method, path, a.Header)
	}
	var out envelope
	if err := json.Unmarshal(text, &out); err != nil && len(text) > 0 {
		f.Errorf("%s %s: %s", method, path, text)
	}
	if a.StatusCode >= 400 && (out.Error.Code == "" || out.Error.Type != out.Error.Code || out.Error.Message == "" || out.Error.RequestID != a.Header.Get("X-Request-Id")) {
		f.Errorf("%s %s: %d %s", method, path, a.StatusCode, text)
	}
	return a.StatusCode, out
}

type envelope struct {
	Error struct {
		Code      string         `json:"code"`
		Type      string         `json:"type"`
		Message   string         `json:"message"`
		RequestID string         `json:"request_id"`
		Details   map[string]any `json:"details"`
	} `json:"error"`
	Job struct {
		ID string `json:"id"`
	} `json:"job"`
}

// The roles of each operation, as the guide has them. Other roles are refused.
const operationRoles = `
GET    /queues                            submitter operator approver auditor admin
GET    /queues/{queue}/stats              operator approver auditor admin
POST   /queues/{queue}/pause              operator
POST   /queues/{queue}/resume             operator
POST   /jobs                              submitter
POST   /jobs/batch                        submitter
GET    /jobs/{id}                         submitter operator approver auditor admin
DELETE /jobs/{id}                         operator
POST   /jobs/{id}/activate                submitter
POST   /workers/fetch                     worker
POST   /workers/ack                       worker
POST   /workers/nack                      worker
POST   /workers/heartbeat                 worker
GET    /events                            submitter operator approver auditor admin
GET    /dead-letter                       operator approver auditor admin
GET    /dead-letter/stats                 operator approver auditor admin
GET    /dead-letter/{id}                  submitter operator approver auditor admin
POST   /dead-letter/{id}/retry            operator
POST   /dead-letter/retry                 -      both-at-once
POST   /admin/jobs/bulk/retry             -      both-at-once
DELETE /dead-letter/{id}                  approver
DELETE /dead-letter                       approver
POST   /dead-letter/purge                 approver
GET    /dead-letter/replay-rules          submitter operator approver auditor admin
POST   /dead-letter/replay-rules          admin
DELETE /dead-letter/replay-rules/{rule}   admin
`

// rolesOf returns the roles of an operation by operationRoles. The paths of the admin document have the
// same ones.
func rolesOf(t *testing.T, pattern string) []string {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.TrimPrefix(path, "/ojs/v1")
	if !strings.HasPrefix(path, "/admin/jobs") {
		path = strings.TrimPrefix(path, "/admin")
	}
	for line := range strings.Lines(operationRoles) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == method && f[1] == path {
			return f[2:]
		}
	}
	t.Errorf("%s is not in the table", pattern)
	return nil
}

// Each role at each operation: one that lacks an action is refused with a receipt, and changes nothing.
func TestEveryRoleOfEveryOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := map[access.Role]string{}
	for _, role := range access.Roles() {
		keys[role] = f.key("acme", role)
	}
	refusals := 0
	for _, o := range f.ojs.operations() {
		method, path, _ := strings.Cut(o.pattern, " ")
		path = strings.NewReplacer("{id}", "0197a1c2-0000-7000-8000-000000000001", "{rule}", "none", "{queue}", "mail").Replace(path)
		for _, role := range access.Roles() {
			may := slices.Contains(rolesOf(t, o.pattern), string(role))
			status, refused := f.ask(keys[role], method, path, "{}")
			if forbidden := status == http.StatusForbidden; forbidden == may || forbidden && refused.Error.Code != "x_role_missing" || !forbidden && (status == http.StatusUnauthorized || status >= 500) {
				t.Errorf("%s by %s: %d %s", o.pattern, role, status, refused.Error.Message)
			}
			if !may {
				refusals++
			}
		}
		if status, refused := f.ask("", method, path, ""); status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
			t.Errorf("%s without a key: %d %s", o.pattern, status, refused.Error.Code)
		}
	}
	var recorded, runs int
	if err := f.db.QueryRow(`SELECT (SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND body LIKE '%role_missing%'), (SELECT count(*) FROM recourse.runs)`).Scan(&recorded, &runs); err != nil || recorded != refusals || refusals < 100 || runs != 0 {
		t.Errorf("%d receipts of %d refusals, %d runs, %v", recorded, refusals, runs, err)
	}
}

// The three programs of a tenant do their parts with keys of their own; another tenant sees nothing of it.
func TestATenantKeepsItsJobsToItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, worker, ada := f.key("acme", access.Submitter), f.key("acme", access.Worker), f.key("acme", access.Operator)
	foreign := f.key("umbrella", access.Submitter, access.Worker, access.Operator, access.Approver, access.Auditor)
	status, made := f.ask(shop, "POST", "/ojs/v1/jobs", `{"type":"a.b","args":[],"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`)
	id := made.Job.ID
	if status != http.StatusCreated || id == "" {
		t.Fatalf("%d %+v", status, made)
	}
	visit := func(state string) {
		t.Helper()
		for _, path := range []string{"/jobs/", "/dead-letter/"} {
			if status, refused := f.ask(foreign, "GET", "/ojs/v1"+path+id, ""); status != http.StatusNotFound || refused.Error.Details["current_state"] != nil {
				t.Errorf("%s of another tenant, %s: %d %+v", path, state, status, refused)
			}
		}
		for _, do := range []string{"ack", "nack"} {
			if status, refused := f.ask(foreign, "POST", "/ojs/v1/workers/"+do, `{"job_id":"`+id+`","error":{}}`); status != http.StatusNotFound || refused.Error.Details["current_state"] != nil {
				t.Errorf("%s by another tenant, %s: %d %+v", do, state, status, refused)
			}
		}
		if status, _ := f.ask(foreign, "DELETE", "/ojs/v1/jobs/"+id, ""); status != http.StatusNotFound {
			t.Errorf("cancel by another tenant, %s: %d", state, status)
		}
		if status, _ := f.ask(foreign, "POST", "/ojs/v1/dead-letter/"+id+"/retry", ""); status != http.StatusNotFound {
			t.Errorf("retry by another tenant, %s: %d", state, status)
		}
	}
	visit("available")
	if status, _ := f.ask(worker, "POST", "/ojs/v1/workers/fetch", `{"queues":["default"]}`); status != http.StatusOK {
		t.Fatal(status)
	}
	visit("active")
	if status, _ := f.ask(worker, "POST", "/ojs/v1/workers/nack", `{"job_id":"`+id+`","error":{}}`); status != http.StatusOK {
		t.Fatal(status)
	}
	visit("dead")
	if status, got := f.ask(ada, "POST", "/ojs/v1/dead-letter/"+id+"/retry", ""); status != http.StatusOK || got.Job.ID != id {
		t.Errorf("%d %+v", status, got)
	}
	if status, same := f.ask(foreign, "POST", "/ojs/v1/jobs", `{"type":"a.b","args":[],"id":"`+id+`"}`); status != http.StatusCreated || same.Job.ID != id {
		t.Errorf("the same id in another tenant: %d %+v", status, same)
	}
	var actors []string
	rows, err := f.db.Query(`SELECT DISTINCT body::json->>'actor' FROM recourse.receipts WHERE tenant = 'acme' AND subtype IN ('submitted', 'dead-lettered', 'manual-retry-requested') ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			t.Fatal(err)
		}
		actors = append(actors, one)
	}
	if want := []string{"service:operator", "service:submitter", "service:worker"}; rows.Err() != nil || !slices.Equal(actors, want) {
		t.Errorf("%v, %v", actors, rows.Err())
	}
}

// A lease belongs to the principal of the key that fetched it, and each key of that principal may answer. The answers of
// another principal are refused by a rule, and are on record.
func TestALeaseBelongsToThePrincipalOfItsKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop, first, second := f.key("acme", access.Submitter), f.keyOf("acme", "service:mailer", access.Worker), f.keyOf("acme", "service:mailer", access.Worker)
	other := f.keyOf("acme", "user:other", access.Worker)
	_, made := f.ask(shop, "POST", "/ojs/v1/jobs", `{"type":"a.b","args":[]}`)
	id := made.Job.ID
	if status, _ := f.ask(first, "POST", "/ojs/v1/workers/fetch", `{"queues":["default"],"worker_id":"w1"}`); status != http.StatusOK {
		t.Fatal(status)
	}
	for _, q := range [][2]string{
		{"ack", `{"job_id":"` + id + `"}`}, {"ack", `{"job_id":"` + id + `","worker_id":"w1"}`},
		{"nack", `{"job_id":"` + id + `","error":{"code":"x_not_executed","message":"no"}}`}, {"nack", `{"job_id":"` + id + `","requeue":true,"error":{}}`},
		{"heartbeat", `{"active_jobs":["` + id + `"],"worker_id":"w1"}`},
	} {
		if status, refused := f.ask(other, "POST", "/ojs/v1/workers/"+q[0], q[1]); status != http.StatusConflict || refused.Error.Code != "conflict" || refused.Error.Details["rule"] != "not_the_holder" {
			t.Errorf("%s %s: %d %+v", q[0], q[1], status, refused)
		}
	}
	var recorded int
	if err := f.db.QueryRow(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'refused' AND actor = 'user:other' AND body LIKE '%not_the_holder%'`).Scan(&recorded); err != nil || recorded != 4 {
		t.Errorf("%d receipts, %v", recorded, err)
	}
	if status, got := f.ask(second, "POST", "/ojs/v1/workers/ack", `{"job_id":"`+id+`"}`); status != http.StatusOK {
		t.Errorf("%d %+v", status, got)
	}
}

// A key fetches from its queues, and from a payment queue only if it names it. A refusal leaves a receipt, and what it
// asked for stays where it is.
func TestAKeyFetchesFromItsQueuesOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shop := f.key("acme", access.Submitter)
	for _, body := range []string{adjudication(1, ``), `{"type":"a.b","args":[],"queue":"mail"}`} {
		if status, refused := f.ask(shop, "POST", "/ojs/v1/jobs", body); status != http.StatusCreated {
			t.Fatalf("%d %v", status, refused)
		}
	}
	n := 0
	for _, c := range []struct {
		queues []string
		roles  []access.Role
		fetch  string
		want   string
	}{
		{nil, []access.Role{access.Worker}, `"payouts"`, "403 x_queue_forbidden"},
		{nil, []access.Role{access.Worker}, `"mail","payouts"`, "403 x_queue_forbidden"},
		{[]string{"mail"}, []access.Role{access.Worker}, `"payouts"`, "403 x_queue_forbidden"},
		{[]string{"payouts"}, []access.Role{access.Worker}, `"mail"`, "403 x_queue_forbidden"},
		{[]string{"*"}, []access.Role{access.Worker, access.Submitter}, `"payouts"`, "403 x_queue_forbidden"}, // the process does not run: its queue is not recorded
		{nil, []access.Role{access.Worker, access.Submitter}, `"mail"`, "200 "},
		{[]string{"pay*"}, []access.Role{access.Worker}, `"payouts"`, "200 "},
	} {
		n++
		token, _, err := f.service.As("acme", "test").Keys.Create(t.Context(), postadjudication.NewKey{Principal: fmt.Sprintf("service:w%d", n), Roles: c.roles, Queues: c.queues, Reason: "test"})
		if err != nil {
			t.Fatal(err)
		}
		status, answer := f.ask(token, "POST", "/ojs/v1/workers/fetch", `{"queues":[`+c.fetch+`]}`)
		if got := fmt.Sprint(status, " ", answer.Error.Code); got != c.want {
			t.Errorf("%v of %v fetches %s: %s", c.roles, c.queues, c.fetch, got)
		}
	}
	var receipts, held int
	if err := f.db.QueryRow(`SELECT (SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND body LIKE '%queue_forbidden%'), (SELECT count(*) FROM recourse.leases)`).Scan(&receipts, &held); err != nil || receipts != 5 || held != 2 {
		t.Errorf("%d receipts, %d leases, %v", receipts, held, err)
	}
}

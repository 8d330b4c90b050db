package openwop

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// The roles of each operation, as the guide has them. Other roles are refused.
const operationRoles = `
POST /v1/runs                     submitter
GET  /v1/runs/{run}               submitter operator approver auditor admin
GET  /v1/runs/{run}/events/poll   submitter operator approver auditor admin
GET  /v1/runs/{run}/events        submitter operator approver auditor admin
POST /v1/runs/{run}:fork          operator
POST /v1/runs/{run}/cancel        operator
GET  /v1/workflows/settlement     submitter operator approver auditor admin
`

func TestEachRoleMayDoWhatTheTableSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	run := f.dead(f.all("acme"), "txr_1")
	keys := map[access.Role]string{}
	for _, role := range access.Roles() {
		keys[role] = f.key("acme", role)
	}
	refusals := 0
	for line := range strings.Lines(strings.TrimSpace(operationRoles)) {
		words := strings.Fields(line)
		method, path, roles := words[0], strings.Replace(words[1], "{run}", run, 1), words[2:]
		for role, key := range keys {
			body := ""
			if method == "POST" {
				body = `{"unknown":1}` // refused by whoever reads it
			}
			a := f.ask(key, method, path, body)
			if may := slices.Contains(roles, string(role)); may == (a.status == http.StatusForbidden) {
				t.Errorf("%s %s as %s: %d %s", method, path, role, a.status, a.text)
			}
			if a.status == http.StatusForbidden {
				refusals++
				if a.code() != "forbidden" {
					t.Errorf("%s", a.text)
				}
			}
		}
		if a := f.ask("", method, path, ""); a.status != http.StatusUnauthorized || a.code() != "unauthenticated" {
			t.Errorf("%s %s without a key: %d %s", method, path, a.status, a.text)
		}
	}
	var receipts int
	if err := f.db.QueryRow(`SELECT count(*) FROM recourse.receipts WHERE subtype IN ('refused', 'access-refused')`).Scan(&receipts); err != nil || receipts != refusals {
		t.Errorf("%d refusals left %d receipts, %v", refusals, receipts, err)
	}
}

func TestTheTableHasEveryOperation(t *testing.T) {
	t.Parallel()
	var s Server
	for _, o := range s.operations() {
		pattern := strings.Replace(strings.Replace(o.pattern, "/{run}/:fork", "/{run}:fork", 1), "{workflow}", "settlement", 1)
		method, path, _ := strings.Cut(pattern, " ")
		found := false
		for line := range strings.Lines(strings.TrimSpace(operationRoles)) {
			words := strings.Fields(line)
			found = found || words[0] == method && words[1] == path
		}
		if !found {
			t.Errorf("no row for %s", o.pattern)
		}
	}
}

// Another tenant, and who has no business with it, are told the same as of a run that does not exist.
func TestATenantKeepsItsRunsToItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	run := f.dead(f.all("acme"), "txr_1")
	other := f.all("other")
	const nobody = "01934b2e-7c00-7000-8000-00000000000a"
	job, err := f.service.As("acme", "test").Jobs.Enqueue(f.Context(), jobs.Job{Type: "mail.send", Queue: "mail", Payload: json.RawMessage(`{"type":"mail.send","args":[]}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"GET", "/events/poll?timeout=1", ""}, {"GET", "/events", ""}, {"POST", "/cancel", "{}"}, {"POST", ":fork", branch},
	} {
		want := f.refused(http.StatusNotFound, "not_found", other, request.method, "/v1/runs/"+nobody+request.path, request.body)
		for _, c := range []struct{ key, id string }{{other, run}, {f.all("acme"), job.Run.String()}} {
			if got := f.ask(c.key, request.method, "/v1/runs/"+c.id+request.path, request.body); got.status != want.status || string(got.text) != string(want.text) {
				t.Errorf("%s %s: %d %s, want %s", request.path, c.id, got.status, got.text, want.text)
			}
		}
	}
}

func TestDiscoveryNeedsNoKeyAndIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for path, key := range map[string]string{DiscoveryPath: "", "/v1/openapi.json": "nonsense"} {
		first := f.want(http.StatusOK, key, "GET", path, "")
		if first.header.Get("Cache-Control") == "" || first.header.Get("ETag") == "" {
			t.Errorf("%v", first.header)
		}
		f.want(http.StatusNotModified, "", "GET", path, "", "If-None-Match", first.header.Get("ETag"))
		f.want(http.StatusOK, "", "GET", path, "", "If-None-Match", `"other"`)
	}
	a := f.want(http.StatusOK, "", "GET", DiscoveryPath, "")
	want := `{"protocolVersion":"1.0","supportedEnvelopes":[],"schemaVersions":{},"limits":{"clarificationRounds":0,"schemaRounds":0,"envelopesPerTurn":0},` +
		`"implementation":{"name":"recourse","version":"test","vendor":"recourse-dev"},"supportedTransports":["rest"],` +
		`"replay":{"supported":true,"modes":["branch"]},"deadLetter":{"supported":true,"retentionDays":30}}` + "\n"
	if string(a.text) != want {
		t.Errorf("%s\nwant %s", a.text, want)
	}
	f.refused(http.StatusNotFound, "not_found", f.all("acme"), "POST", ExhaustPath, `{"scenario":"exhaust-retries"}`)
}

func TestOneKeyMakesOneRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	const body = `{"workflowId":"chores"}`
	runs := map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			a, err := f.send(f.url, key, "POST", "/v1/runs", body, "Idempotency-Key", "k-1")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.status == http.StatusCreated:
				runs[a.run()] = true
			case a.status != http.StatusConflict || a.code() != "idempotency_in_flight" || a.detail("retryAfter") == nil:
				t.Errorf("%d %s", a.status, a.text)
			}
		})
	}
	all.Wait()
	if len(runs) != 1 {
		t.Errorf("one key made the runs %v", runs)
	}
	again := f.want(http.StatusCreated, key, "POST", "/v1/runs", body, "Idempotency-Key", "k-1")
	if !runs[again.run()] || again.header.Get("openwop-Idempotent-Replay") != "true" {
		t.Errorf("%s %v", again.text, again.header)
	}
	f.refused(http.StatusConflict, "idempotency_key_mismatch", key, "POST", "/v1/runs", `{"workflowId":"chores","inputs":{"n":1}}`, "Idempotency-Key", "k-1")
	f.refused(http.StatusBadRequest, "validation_error", key, "POST", "/v1/runs", body, "Idempotency-Key", "a b")
}

// What is final is repeated; what may turn out otherwise is tried again. A key of one endpoint says nothing
// of another's.
func TestFinalRefusalsAreKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.want(http.StatusCreated, key, "POST", "/v1/runs", `{"workflowId":"chores"}`, "Idempotency-Key", "shared")
	run := f.create(key, adjudication("txr_1"))
	f.finished(key, run)
	first := f.refused(http.StatusConflict, "already_executed", key, "POST", forkPath(run), branch, "Idempotency-Key", "shared")
	again := f.refused(http.StatusConflict, "already_executed", key, "POST", forkPath(run), branch, "Idempotency-Key", "shared")
	if again.header.Get("openwop-Idempotent-Replay") != "true" || first.header.Get("openwop-Idempotent-Replay") != "" || string(again.text) != string(first.text) {
		t.Errorf("%v, then %v", first.header, again.header)
	}
	f.refused(http.StatusBadRequest, "validation_error", key, "POST", "/v1/runs", `{"workflowId":"nothing"}`, "Idempotency-Key", "k-2")
	f.want(http.StatusCreated, key, "POST", "/v1/runs", `{"workflowId":"chores"}`, "Idempotency-Key", "k-2")
}

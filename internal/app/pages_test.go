package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
)

// request sends a request for a page; headers come in pairs.
func request(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// checkAnswer checks the status and the text of a page.
func checkAnswer(t *testing.T, url string, status int, word string, headers ...string) {
	t.Helper()
	if resp, text := request(t, url, headers...); resp.StatusCode != status || !strings.Contains(text, word) {
		t.Errorf("%s %v: %d %.300q, want %d %q", url, headers, resp.StatusCode, text, status, word)
	}
}

// bearer returns the Authorization header of a new key with one role.
func bearer(t *testing.T, m *app.Main, role access.Role) string {
	t.Helper()
	token, _, err := m.Service.As("acme", "test").Keys.Create(t.Context(), postadjudication.NewKey{
		Principal: "user:" + string(role), Roles: []access.Role{role}, Reason: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + token
}

const sample = "recourse_build_info"

func TestMetricsBeyondLoopbackTakeAPlatformKey(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	o.Listen, o.Expose = "0.0.0.0:0", true
	start(t, o, m)
	url := strings.Replace(m.URL, "0.0.0.0", "127.0.0.1", 1)
	url = strings.Replace(url, "[::]", "127.0.0.1", 1)
	checkAnswer(t, url+"/metrics", http.StatusUnauthorized, "key_missing")
	for _, role := range access.Roles() {
		checkAnswer(t, url+"/metrics", http.StatusForbidden, "role_missing", "Authorization", bearer(t, m, role))
	}
	checkAnswer(t, url+"/metrics", http.StatusOK, sample, "Authorization", bearer(t, m, access.Platform))
	checkAnswer(t, url+"/readyz", http.StatusOK, "ok")
	checkAnswer(t, url+"/livez", http.StatusOK, "ok")
}

// A proxy in front of a process that requires keys forwards requests with its own host name.
func TestMetricsOnLoopbackAskForNoKeyUnderItsOwnNameOnly(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	o.RequireKeys = true
	start(t, o, m)
	checkAnswer(t, m.URL+"/metrics", http.StatusOK, sample)
	checkAnswer(t, m.URL+"/metrics", http.StatusUnauthorized, "key_missing", "Host", "recourse.example")
	checkAnswer(t, m.URL+"/metrics", http.StatusOK, sample, "Host", "recourse.example", "Authorization", bearer(t, m, access.Platform))
	checkAnswer(t, m.URL+"/readyz", http.StatusOK, "ok", "Host", "recourse.example")
}

// A path leads to no other page than that of its beginning: an encoded slash or dot of an id is one of the id, under which what
// was accepted is found, and a part of dots does not lead back.
func TestAPathLeadsToNoOtherPageThanItBegins(t *testing.T) {
	t.Parallel()
	m := &app.Main{}
	start(t, options(t), m)
	for id, escaped := range map[string]string{"a/../b": "a%2F..%2Fb", "a//b": "a%2F%2Fb", "..": "%2E%2E", "../../etc": "..%2F..%2Fetc", "plain": "plain"} {
		a := adjudication()
		a.TransactionReceiptID, a.EscrowReference = id, "esc_"+id
		if _, err := m.Service.Submit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		checkAnswer(t, m.URL+"/api/v1/transactions/"+escaped, http.StatusOK, `"transaction_receipt_id":`+string(text), "Recourse-Tenant", a.Tenant)
	}
	for _, path := range []string{"/api/v1/transactions/..%2F..%2F..%2Fmetrics", "/api/v1/transactions/%2E%2E%2F%2E%2E%2F%2E%2E%2Fasynqmon"} {
		checkAnswer(t, m.URL+path, http.StatusNotFound, `"code":"not_found"`, "Recourse-Tenant", adjudication().Tenant)
	}
	for _, path := range []string{"//api/v1/transactions/plain", "/api/v1/../../metrics", "/api/v1/./../../livez", "//api/v1/../v1/transactions/plain"} {
		checkAnswer(t, m.URL+path, http.StatusNotFound, `"code":"no_such_path"`, "Recourse-Tenant", adjudication().Tenant)
	}
	for _, path := range []string{"/../metrics", "/livez/../metrics", "/./"} {
		checkAnswer(t, m.URL+path, http.StatusNotFound, "404 page not found")
	}
	if _, text := request(t, m.URL+"/asynqmon/../metrics"); strings.Contains(text, sample) {
		t.Error("the monitor's path leads to the metrics")
	}
}

func TestMetricsAreServedAtAListenerOfTheirOwn(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	o.MetricsListen = "127.0.0.1:0"
	start(t, o, m)
	if m.MetricsURL == m.URL {
		t.Fatalf("both at %s", m.URL)
	}
	checkAnswer(t, m.MetricsURL+"/metrics", http.StatusOK, sample)
	checkAnswer(t, m.MetricsURL+"/readyz", http.StatusOK, "ok")
	checkAnswer(t, m.MetricsURL+"/livez", http.StatusOK, "ok")
	for _, path := range []string{"/metrics", "/readyz"} {
		checkAnswer(t, m.MetricsURL+path, http.StatusForbidden, "loopback", "Host", "evil.example")
	}
	for _, path := range []string{"/asynqmon", "/api/v1/openapi.json", "/api/v1/breakers"} {
		checkAnswer(t, m.MetricsURL+path, http.StatusNotFound, "")
	}
	checkAnswer(t, m.URL+"/metrics", http.StatusNotFound, "")
	if _, index := request(t, m.URL+"/"); strings.Contains(index, "/metrics") || !strings.Contains(index, "/asynqmon") {
		t.Errorf("%q", index)
	}
}

func TestEveryPageSaysItsTypeAndForbidsFrames(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	start(t, o, m)
	for path, media := range map[string]string{
		"/": "text/plain", "/livez": "text/plain", "/readyz": "text/plain", "/metrics": "text/plain", "/no-such-page": "text/plain",
		"/asynqmon": "text/html", "/asynqmon/api/queues": "application/json", "/asynqmon/api/redis_info": "application/json", "/asynqmon/api/queues/no-such": "text/plain",
	} {
		resp, _ := request(t, m.URL+path)
		if !strings.HasPrefix(resp.Header.Get("Content-Type"), media) || resp.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
}

// The full reason may name servers: it is written to the log, once, and at the listener for metrics.
func TestReadinessShowsNoAddress(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	o, m := options(t), &app.Main{Log: zap.New(core)}
	databaseURL, drop, err := app.FreshDatabase(t.Context(), testkit.Owner(t, o.DatabaseURL), "recourse_gone")
	if err != nil {
		t.Fatal(err)
	}
	o.DatabaseURL, o.MetricsListen = testkit.Migrate(t, databaseURL), "127.0.0.1:0"
	start(t, o, m)
	checkAnswer(t, m.URL+"/readyz", http.StatusOK, "ok")
	if err := drop(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if resp, text := request(t, m.URL+"/readyz"); resp.StatusCode != http.StatusServiceUnavailable || text != "not ready: the database can't be reached\n" {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
	}
	if resp, text := request(t, m.URL+"/readyz", "Accept", "application/json"); resp.StatusCode != http.StatusServiceUnavailable || text != `{"ready":false,"reason":"the database can't be reached"}`+"\n" {
		t.Errorf("%d %q", resp.StatusCode, text)
	}
	checkAnswer(t, m.MetricsURL+"/readyz", http.StatusServiceUnavailable, "the journal cannot be reached: ")
	lines := logs.FilterMessage("not ready").All()
	if len(lines) != 1 || !strings.Contains(lines[0].ContextMap()["error"].(string), "the journal cannot be reached: ") {
		t.Errorf("%v", lines)
	}
	checkAnswer(t, m.URL+"/livez", http.StatusOK, "ok")
}

// The hints of /readyz about tenants are for this machine and the listener for metrics.
func TestOpenCircuitBreakersAreNotShownToWhoeverAsks(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"", "127.0.0.1:0"} {
		o, m := options(t), &app.Main{}
		o.RequireKeys, o.MetricsListen = true, listen
		running(t, o, m)
		if _, err := m.Service.As("acme", "user:ada").Breakers.Open(t.Context(), "escrow", "stop all"); err != nil {
			t.Fatal(err)
		}
		poll.Until(t, "the circuit breaker is seen", func() bool { open, _ := m.Service.Health().Breakers(); return len(open) > 0 })
		waitForReadiness(t, m, http.StatusOK, "", "")
		checkAnswer(t, m.MetricsURL+"/readyz", http.StatusOK, "tenant acme")
		checkAnswer(t, m.MetricsURL+"/readyz", http.StatusOK, "open_circuit_breakers", "Accept", "application/json")
		elsewhere := []string{"Host", "recourse.example"}
		if listen != "" {
			elsewhere = nil // the listener for metrics answers no other host name
		}
		if resp, text := request(t, m.URL+"/readyz", elsewhere...); resp.StatusCode != http.StatusOK || text != "ok\n" {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
		if resp, text := request(t, m.URL+"/readyz", append(elsewhere, "Accept", "application/json")...); resp.StatusCode != http.StatusOK || text != `{"ready":true,"reason":""}`+"\n" {
			t.Errorf("%d %q", resp.StatusCode, text)
		}
	}
}

package api_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
)

func TestMain(m *testing.M) {
	if os.Getenv(hostileVariable) == "" {
		os.Exit(testkit.Main(m))
	}
	if err := beHostile(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rig is a running recourse on real servers, with the escrow service of the demonstration,
// which simulates the outcomes in a payload.
type rig struct {
	t    *testing.T
	main *app.Main
	db   *sql.DB
	keys map[string]string // tokens: tenant + role
	logs *observer.ObservedLogs
}

func newRig(t *testing.T, change ...func(*app.Options)) *rig {
	t.Helper()
	redis, _ := testkit.Redis(t)
	o := app.Options{
		Lookups:     postadjudication.LookupRule{Off: true},
		DatabaseURL: testkit.Migrated(t), RedisURL: redis.URL(), Embedded: true, RequireKeys: true,
		Listen: "127.0.0.1:0", TimeLimit: 300 * time.Millisecond, Breaker: postadjudication.BreakerRule{Disabled: true},
	}
	for _, f := range change {
		f(&o)
	}
	core, logs := observer.New(zap.DebugLevel)
	r := &rig{t: t, main: &app.Main{Options: o, Log: zap.New(core)}, keys: map[string]string{}, logs: logs}
	if err := r.main.Parse(func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.main.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := r.main.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.db = testkit.OpenAsOwner(t, o.DatabaseURL)
	return r
}

// work runs the workers until the end of the test.
func (r *rig) work() *rig {
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- r.main.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	return r
}

// key returns a token of a tenant with one role; its principal is role@tenant.
func (r *rig) key(tenant string, role access.Role) string {
	r.t.Helper()
	name := tenant + "/" + string(role)
	if r.keys[name] == "" {
		token, _, err := r.main.Service.As(tenant, "test").Keys.Create(context.Background(), postadjudication.NewKey{
			Principal: "user:" + string(role) + "@" + strings.ReplaceAll(tenant, "*", "all"), Roles: []access.Role{role}, Reason: "test",
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.keys[name] = token
	}
	return r.keys[name]
}

// answer is the answer to a request.
type answer struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	text   string
}

// ask sends a request with a key; headers come in pairs.
func (r *rig) ask(token, method, path, body string, headers ...string) answer {
	r.t.Helper()
	resp, err := http.DefaultClient.Do(r.request(r.t.Context(), token, method, path, body, headers...))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := answer{r.t, method + " " + path, resp.StatusCode, resp.Header, string(text)}
	a.checkCode(resp.Request)
	return a
}

func (r *rig) request(ctx context.Context, token, method, path, body string, headers ...string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.main.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

// describedCodes returns, for each operation of the committed description, the codes of its problems, and a mux that
// finds the operation of a request.
var describedCodes = sync.OnceValues(func() (codes map[string][]any, operations *http.ServeMux) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		panic(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema struct {
						AllOf []struct {
							Properties struct{ Code struct{ Enum []any } }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		panic(err)
	}
	codes, operations = map[string][]any{}, http.NewServeMux()
	for path, methods := range doc.Paths {
		for method, op := range methods {
			pattern := strings.ToUpper(method) + " " + path
			operations.Handle(pattern, http.NotFoundHandler())
			codes[pattern] = []any{}
			for _, part := range op.Responses["default"].Content["application/problem+json"].Schema.AllOf {
				codes[pattern] = append(codes[pattern], part.Properties.Code.Enum...)
			}
		}
	}
	return codes, operations
})

// checkCode checks that the description of the operation has the code that it is refused with.
func (a answer) checkCode(req *http.Request) {
	a.t.Helper()
	if a.status < 300 || a.header.Get("Content-Type") != "application/problem+json" {
		return
	}
	codes, operations := describedCodes()
	_, pattern := operations.Handler(req)
	if of, is := codes[pattern]; is && !slices.Contains(of, a.object()["code"]) {
		a.t.Errorf("%s: the description does not have the code %v", a.what, a.object()["code"])
	}
}

// object parses the JSON object of an answer.
func (a answer) object() map[string]any {
	a.t.Helper()
	var v map[string]any
	dec := json.NewDecoder(bytes.NewReader([]byte(a.text)))
	if err := dec.Decode(&v); err != nil {
		a.t.Fatalf("%s: %d %v in %q", a.what, a.status, err, a.text)
	}
	return v
}

// is checks the status and returns the object.
func (a answer) is(status int) map[string]any {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("%s: %d, want %d: %s", a.what, a.status, status, a.text)
	}
	return a.object()
}

// refused checks a problem by its status and code, and which field it names first.
func (a answer) refused(status int, code, field string) map[string]any {
	a.t.Helper()
	p := a.is(status)
	if p["code"] != code || p["type"] != "urn:recourse:problem:"+code || p["status"] != float64(status) || a.header.Get("Content-Type") != "application/problem+json" {
		a.t.Errorf("%s: %s, want %s", a.what, a.text, code)
	}
	if field != "" {
		first := ""
		if errs, _ := p["errors"].([]any); len(errs) > 0 {
			first, _ = errs[0].(map[string]any)["field"].(string)
		}
		if first != field {
			a.t.Errorf("%s: field %q, want %q: %s", a.what, first, field, a.text)
		}
	}
	return p
}

// adjudication returns a body; words are the outcomes that the escrow service simulates.
func adjudication(n int, words string) string {
	return fmt.Sprintf(`{"transaction_receipt_id":"txr_%d","submission_receipt_id":"sub_%d","adjudication_id":"adj_%d","escrow_reference":"esc_%d",`+
		`"outcome":"release","amount":{"minor":1000,"currency":"USD"},"held":{"minor":1000,"currency":"USD"},"simulate":[%s]}`, n, n, n, n, words)
}

// letter submits an adjudication that the escrow service refuses, and returns its dead-lettered run.
func (r *rig) letter(tenant string, n int, words string) string {
	r.t.Helper()
	run := r.ask(r.key(tenant, access.Submitter), "POST", "/api/v1/adjudications", adjudication(n, words)).is(http.StatusCreated)["run_id"].(string)
	r.waitFor("the run is dead", `SELECT EXISTS (SELECT FROM recourse.runs WHERE id = $1 AND state = 'dead_lettered')`, run)
	return run
}

// waitFor waits for a condition in the database; the query returns one bool.
func (r *rig) waitFor(what, query string, args ...any) {
	r.t.Helper()
	poll.Until(r.t, what, func() (ok bool) {
		if err := r.db.QueryRow(query, args...).Scan(&ok); err != nil {
			r.t.Fatal(err)
		}
		return ok
	})
}

func (r *rig) count(query string, args ...any) (n int) {
	r.t.Helper()
	if err := r.db.QueryRow(query, args...).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

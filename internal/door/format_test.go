package door_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// plain is a format of its own: refusals are lines of text.
var plain = door.Format{MediaTypes: []string{"text/json"}, Description: "/help", WriteRefusal: func(w http.ResponseWriter, _ *http.Request, refused *door.Refusal) error {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(refused.Status)
	var fields []string
	for _, f := range refused.Fields {
		fields = append(fields, f.Field)
	}
	_, err := fmt.Fprintf(w, "%s (%s) %v %v", refused.Code, strings.Join(fields, " "), refused.Needs, refused.Done)
	return err
}}

// fixture is a server with two doors that share a Door.
type fixture struct {
	*testing.T
	service         *postadjudication.Service
	server          *httptest.Server
	auditor, worker string // tokens

	mu      sync.Mutex
	refused []string // codes that OnRefusal was called with
	calls   int      // of the handler that changes something
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t}
	_, redis := testkit.Redis(t)
	var err error
	f.service, err = postadjudication.Open(t.Context(), postadjudication.Config{DatabaseURL: testkit.Migrated(t), Redis: redis})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.service.Close(); err != nil {
			t.Error(err)
		}
	})
	shared, err := door.New(door.Config{Service: f.service, OnRefusal: func(code string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refused = append(f.refused, code)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shared.Stop)
	f.auditor, f.worker = f.key(access.Auditor), f.key(access.Worker)
	mux, other := shared.NewMux(plain), shared.NewMux(plain)
	f.routes(mux)
	other.HandlePublic("GET /other/open", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	both := http.NewServeMux()
	both.Handle("/door/", mux)
	both.Handle("/other/", other)
	f.server = httptest.NewServer(both)
	t.Cleanup(f.server.Close)
	return f
}

func (f *fixture) routes(mux *door.Mux) {
	mux.Handle("GET /door/read", door.Route{Action: access.Read}, func(w http.ResponseWriter, _ *http.Request, c door.Caller, body []byte) error {
		_, err := fmt.Fprintf(w, "%s %s %d", c.Tenant, c.Principal, len(body))
		return err
	})
	mux.Handle("POST /door/work", door.Route{Action: access.Work, MaxBody: 64}, func(w http.ResponseWriter, _ *http.Request, _ door.Caller, body []byte) error {
		f.mu.Lock()
		f.calls++
		f.mu.Unlock()
		_, err := w.Write(append([]byte("did "), body...))
		return err
	})
	for name, err := range map[string]error{
		"field": &refusal.FieldError{Field: "a.b", Problem: "is bad"}, "notfound": refusal.ErrNotFound, "outage": io.ErrUnexpectedEOF, "unknown": errors.New("secret cause"),
		"own": door.NewRefusal(http.StatusTeapot, "teapot", "short and stout"),
	} {
		mux.Handle("POST /door/"+name, door.Route{Action: access.Work}, func(http.ResponseWriter, *http.Request, door.Caller, []byte) error { return err })
	}
	for name, answer := range map[string]string{"made": `{"secret":"hidden","id":1}`, "text": `"hidden"`} {
		mux.Handle("POST /door/"+name, door.Route{Action: access.Work, Secret: "secret"}, func(w http.ResponseWriter, _ *http.Request, _ door.Caller, _ []byte) error {
			f.mu.Lock()
			f.calls++
			f.mu.Unlock()
			_, err := io.WriteString(w, answer)
			return err
		})
	}
	mux.Handle("POST /door/panic", door.Route{Action: access.Work}, func(http.ResponseWriter, *http.Request, door.Caller, []byte) error { panic("secret cause") })
}

func (f *fixture) key(role access.Role) string {
	f.Helper()
	token, _, err := f.service.As("acme", "test").Keys.Create(context.Background(), postadjudication.NewKey{Principal: "service:" + string(role), Roles: []access.Role{role}, Reason: "test"})
	if err != nil {
		f.Fatal(err)
	}
	return token
}

// ask returns the status, the body and the headers of the answer. Headers are names, each with its value.
func (f *fixture) ask(key, method, path, body string, headers ...string) (int, string, http.Header) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.server.URL+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	answer, err := f.server.Client().Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

// Every refusal that the package makes by itself is written in the format of its door, and names no cause.
func TestEveryRefusalIsInTheFormatOfItsDoor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, c := range map[string]struct {
		key, method, path, body string
		headers                 []string
		status                  int
		want                    string
	}{
		"no key":           {"", "GET", "/door/read", "", nil, 401, "key_missing () [] "},
		"unknown key":      {"rck_000000000000_x", "GET", "/door/read", "", nil, 401, "key_invalid () [] "},
		"two keys":         {f.auditor, "GET", "/door/read", "", []string{"Authorization", "Bearer x"}, 400, "header_doubled () [] "},
		"another tenant":   {f.auditor, "GET", "/door/read", "", []string{door.TenantHeader, "umbrella"}, 403, "tenant_mismatch () [] "},
		"another role":     {f.auditor, "POST", "/door/work", "{}", nil, 403, "role_missing () [worker] "},
		"another origin":   {f.worker, "POST", "/door/work", "{}", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross_origin () [] "},
		"no such path":     {f.worker, "GET", "/door/nothing", "", nil, 404, "no_such_path () [] "},
		"no such method":   {f.worker, "GET", "/door/work", "", nil, 405, "method_not_allowed () [] "},
		"doubled query":    {f.auditor, "GET", "/door/read?a=1&a=2&b=", "", nil, 422, "invalid (a b) [] "},
		"unreadable query": {f.auditor, "GET", "/door/read?a=%zz", "", nil, 400, "malformed () [] "},
		"media type":       {f.worker, "POST", "/door/work", "{}", []string{"Content-Type", "application/json"}, 415, "unsupported_media_type () [] "},
		"compressed":       {f.worker, "POST", "/door/work", "{}", []string{"Content-Encoding", "gzip"}, 415, "content_encoding_unsupported () [] "},
		"too large":        {f.worker, "POST", "/door/work", `{"a":"` + strings.Repeat("a", 64) + `"}`, nil, 413, "too_large () [] "},
		"no object":        {f.worker, "POST", "/door/work", `[]`, nil, 400, "malformed () [] "},
		"a member twice":   {f.worker, "POST", "/door/work", `{"a":1,"a":2}`, nil, 400, "malformed (a) [] "},
		"a long key":       {f.worker, "POST", "/door/work", "{}", []string{"Idempotency-Key", strings.Repeat("k", 256)}, 422, "invalid (Idempotency-Key) [] "},
		"a field":          {f.worker, "POST", "/door/field", "{}", nil, 422, "invalid (a.b) [] "},
		"not found":        {f.worker, "POST", "/door/notfound", "{}", nil, 404, "not_found () [] "},
		"an outage":        {f.worker, "POST", "/door/outage", "{}", nil, 503, "unavailable () [] unknown"},
		"an error":         {f.worker, "POST", "/door/unknown", "{}", nil, 500, "internal () [] "},
		"of a handler":     {f.worker, "POST", "/door/own", "{}", nil, 418, "teapot () [] "},
	} {
		status, text, header := f.ask(c.key, c.method, c.path, c.body, c.headers...)
		if status != c.status || text != c.want || header.Get("Content-Type") != "text/plain" || header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %q %v", name, status, text, header)
		}
		if (header.Get("WWW-Authenticate") != "") != (status == 401) || (header.Get("Allow") != "") != (status == 405) || (header.Get("Retry-After") != "") != (status == 503) {
			t.Errorf("%s: %v", name, header)
		}
	}
	if status, text, _ := f.ask(f.worker, "POST", "/door/panic", "{}"); status != 0 || strings.Contains(text, "secret") {
		t.Errorf("a panic: %d %q", status, text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.refused)
	if want := []string{"cross_origin", "key_invalid", "key_missing", "role_missing", "tenant_mismatch"}; !slices.Equal(f.refused, want) || f.calls != 0 {
		t.Errorf("%v were counted, the handler was called %d times", f.refused, f.calls)
	}
}

// An answer with a secret is stored without it. One from which it can't be removed is not stored: the request is
// handled again.
func TestAnAnswerIsStoredWithoutItsSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		path, first, again string
		calls              int
	}{
		{"/door/made", `{"secret":"hidden","id":1}`, `{"id":1}`, 1},
		{"/door/text", `"hidden"`, `"hidden"`, 2},
	} {
		f.calls = 0
		_, first, _ := f.ask(f.worker, "POST", c.path, "{}", "Idempotency-Key", "k"+c.path)
		_, again, _ := f.ask(f.worker, "POST", c.path, "{}", "Idempotency-Key", "k"+c.path)
		if first != c.first || again != c.again || f.calls != c.calls {
			t.Errorf("%s: %s, then %s, handled %d times", c.path, first, again, f.calls)
		}
	}
}

func TestAnAnswerIsRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if status, text, _ := f.ask(f.auditor, "GET", "/door/read", ""); status != 200 || text != "acme service:auditor 0" {
		t.Errorf("%d %q", status, text)
	}
	for i, replayed := range []string{"", "true", "true"} {
		status, text, header := f.ask(f.worker, "POST", "/door/work", `{"n":1}`, "Idempotency-Key", "k1")
		if status != 200 || text != `did {"n":1}` || header.Get(door.ReplayedHeader) != replayed {
			t.Errorf("%d: %d %q %v", i, status, text, header)
		}
	}
	if status, text, _ := f.ask(f.worker, "POST", "/door/work", `{"n":2}`, "Idempotency-Key", "k1"); status != 422 || !strings.HasPrefix(text, "idempotency_mismatch") {
		t.Errorf("%d %q", status, text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls != 1 {
		t.Errorf("the handler was called %d times", f.calls)
	}
}

// Failures at one door count at the other.
func TestDoorsShareTheirLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if status, _, _ := f.ask("", "GET", "/other/open", ""); status != 204 {
		t.Errorf("a public route: %d", status)
	}
	for range 20 {
		if status, text, _ := f.ask("", "GET", "/door/read", ""); status != 401 {
			t.Fatalf("%d %s", status, text)
		}
	}
	if status, text, header := f.ask("", "GET", "/other/closed", ""); status != 429 || !strings.HasPrefix(text, "too_many_failures") || header.Get("Retry-After") == "" {
		t.Errorf("%d %s", status, text)
	}
	if status, _, _ := f.ask(f.auditor, "GET", "/door/read", ""); status != 200 {
		t.Errorf("a valid key: %d", status)
	}
}

package ojs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// raw sends a request and returns the whole answer. Headers are names, each with its value.
func (f *fixture) raw(url, key, method, path, body string, headers ...string) (int, http.Header, []byte) {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
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
	return a.StatusCode, a.Header, text
}

func (f *fixture) must(key, path, body string) envelope {
	f.Helper()
	status, out := f.ask(key, "POST", "/ojs/v1"+path, body)
	if status >= 300 {
		f.Fatalf("%s: %d %+v", path, status, out)
	}
	return out
}

// all makes a key with all roles of a tenant.
func (f *fixture) all(tenant string) string { return f.key(tenant, access.Roles()...) }

// dead makes a dead letter in a queue.
func (f *fixture) dead(key, queue string) string {
	f.Helper()
	id := f.must(key, "/jobs", `{"type":"a.b","queue":"`+queue+`","args":[],"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`).Job.ID
	f.must(key, "/workers/fetch", `{"queues":["`+queue+`"]}`)
	f.must(key, "/workers/nack", `{"job_id":"`+id+`","error":{}}`)
	return id
}

// unused is an escrow service that no job calls.
type unused struct{}

func (unused) Execute(context.Context, escrow.Call) escrow.Answer { return escrow.Answer{} }
func (unused) KeyLifetime() time.Duration                         { return escrow.Forever }

// keyless starts a server that requires no keys.
func (f *fixture) keyless(test *door.TestMode) string {
	f.Helper()
	shared, err := door.New(door.Config{Service: f.service, Keyless: &door.Keyless{Tenant: "acme"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(shared.Stop)
	server := New(Config{Service: f.service, Door: shared, Log: zap.NewNop(), Test: test})
	pages := http.NewServeMux()
	pages.Handle(Prefix+"/", server)
	if test != nil {
		pages.Handle(TestPrefix+"/", server.Tests(func(context.Context) error { return nil }))
	}
	web := httptest.NewServer(pages)
	f.Cleanup(web.Close)
	return web.URL
}

// transactions returns how many transactions of the database have ended, once their count stands still.
func (f *fixture) transactions() (n int64) {
	f.Helper()
	for last := int64(-1); ; last = n {
		<-time.After(1500 * time.Millisecond) // a backend reports once a second
		if err := f.db.QueryRow(`SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
			f.Fatal(err)
		}
		if n-last < 10 {
			return n
		}
	}
}

// A worker that hands a job back as often as it likes must not make a page of one event read its receipts once
// for each of them.
func TestEventsOfJobsThatWereHandedBackAreReadAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	id := f.must(key, "/jobs", `{"type":"a.b","args":[]}`).Job.ID
	const handedBack = 150
	for range handedBack {
		f.must(key, "/workers/fetch", `{"queues":["default"]}`)
		f.must(key, "/workers/nack", `{"job_id":"`+id+`","requeue":true,"error":{}}`)
	}
	before := f.transactions()
	if status, _ := f.ask(key, "GET", "/ojs/v1/events?limit=1", ""); status != http.StatusOK {
		t.Fatal(status)
	}
	if took := f.transactions() - before; took > handedBack*2/3 { // most of them are not the page's: there are some each second
		t.Errorf("a page of one event took %d transactions after a job was handed back %d times", took, handedBack)
	}
}

// README: "a page of large jobs ends after 4 to 8 MiB". What workers said of failures counts, too.
func TestAPageOfDeadLettersIsBoundedWithItsFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	frames := strings.Repeat(`,"`+strings.Repeat(`\"`, 160)+`"`, 50)[1:]
	why := `{"code":"boom","message":"` + strings.Repeat("m", 2000) + `","backtrace":[` + frames + `],"details":{"d":"` + strings.Repeat("d", 4000) + `"}}`
	var all sync.WaitGroup
	for n := range 14 {
		all.Go(func() {
			queue := fmt.Sprintf("big%d", n)
			id := f.must(key, "/jobs", `{"type":"a.b","args":[],"queue":"`+queue+`","retry":{"max_attempts":49,"initial_interval_ms":1,"max_interval_ms":1,"jitter":false,"on_exhaustion":"dead_letter"}}`).Job.ID
			for failures := 0; failures < 49; {
				f.must(key, "/workers/fetch", `{"queues":["`+queue+`"]}`)
				if status, _ := f.ask(key, "POST", "/ojs/v1/workers/nack", `{"job_id":"`+id+`","error":`+why+`}`); status == http.StatusOK {
					failures++
				}
			}
		})
	}
	all.Wait()
	if _, _, page := f.raw(f.url, key, "GET", "/ojs/v1/dead-letter?limit=200", ""); len(page) > 9<<20 {
		t.Errorf("a page of 14 dead letters with empty envelopes has %d bytes", len(page))
	}
}

// A purge that says two things, a filter in its body and none in its query, must not delete everything.
func TestAPurgeDoesNotIgnoreItsBody(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	f.runService()
	id := f.dead(key, "keep")
	for _, c := range []struct{ method, path, body string }{
		{"DELETE", "/dead-letter?confirm=true", `{"filter":{"queue":"drop"},"confirm":true}`}, {"DELETE", "/dead-letter?confirm=true", `not JSON`},
		{"POST", "/dead-letter/purge?older_than=0h", `{"queue":"drop"}`},
	} {
		if status, _ := f.ask(key, c.method, "/ojs/v1"+c.path, c.body); status < 400 {
			t.Errorf("%s %s %s: %d", c.method, c.path, c.body, status)
		}
	}
	if status, _ := f.ask(key, "GET", "/ojs/v1/dead-letter/"+id, ""); status != http.StatusOK {
		t.Errorf("the dead letter of a queue that no body names is gone: %d", status)
	}
}

// Members of meta may have any name; the receipt of a retry must not forbid one.
func TestARetryTakesAnyNameInMeta(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	for n, name := range []string{`a\nb`, `\u202eabc`, `\u200b`} {
		id := f.dead(key, fmt.Sprintf("q%d", n))
		if status, out := f.ask(key, "POST", "/ojs/v1/dead-letter/"+id+"/retry", `{"override":{"meta":{"`+name+`":1}}}`); status != http.StatusOK {
			t.Errorf("%s: %d %s", name, status, out.Error.Message)
		}
	}
}

// No refusal repeats a secret that stands in the path or in the name of a parameter.
func TestNoRefusalRepeatsASecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	for _, path := range []string{"PUT /ojs/v1/jobs/" + key, "GET /ojs/v1/dead-letter?" + key + "=", "GET /ojs/v1/dead-letter?" + key + "=1", "GET /ojs/v1/queues?password%3Dhunter2=1"} {
		method, path, _ := strings.Cut(path, " ")
		if _, _, text := f.raw(f.url, key, method, path, ""); bytes.Contains(text, []byte(key)) || bytes.Contains(text, []byte("hunter2")) {
			t.Errorf("%s %.30s: %s", method, path, bytes.ReplaceAll(text, []byte(key), []byte("rck_<THE KEY>")))
		}
	}
}

// Who repeats a request too early is told that it may be repeated.
func TestARequestInProgressMayBeRepeated(t *testing.T) {
	t.Parallel()
	refused := (&door.Door{}).RefusalOf(context.Background(), postadjudication.ErrRequestBusy)
	if own := ofDoor(refused); refused.RetryAfter > 0 && !own.Retryable {
		t.Errorf("Retry-After: %d, and %s", refused.RetryAfter, own.Body("r"))
	}
}

// A refusal of the version has the headers of every other answer.
func TestARefusedVersionHasTheHeadersOfTheDoor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	status, header, _ := f.raw(f.url, "", "GET", "/ojs/v1/jobs/x", "", "OJS-Version", "9.9")
	if header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %v", status, header)
	}
	if status, _, text := f.raw(f.url, key, "POST", "/ojs/v1/jobs", `{"type":"a.b","args":[]}`, "OJS-Version", "1.0", "OJS-Version", "9.9"); status != 422 && status != 400 {
		t.Errorf("two versions: %d %s", status, text)
	}
}

// The name of a tenant that no store can hold is refused, and disturbs no other tenant.
func TestATenantThatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	url := f.keyless(nil)
	for _, path := range []string{"GET /queues", "GET /events", "GET /dead-letter", "POST /workers/fetch"} {
		method, path, _ := strings.Cut(path, " ")
		if status, _, text := f.raw(url, "", method, "/ojs/v1"+path, `{"queues":["a"]}`, door.TenantHeader, "\xff"); status >= 500 {
			t.Errorf("%s %s: %d %s", method, path, status, text)
		}
	}
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f.raw(url, "", "POST", "/ojs/v1/workers/fetch", `{"queues":["a"]}`, door.TenantHeader, "\xff")
				}
			}
		})
	}
	failed := 0
	for range 50 {
		if status, _, _ := f.raw(url, "", "POST", "/ojs/v1/workers/fetch", `{"queues":["a"]}`); status != http.StatusOK {
			failed++
		}
	}
	close(stop)
	all.Wait()
	if failed > 0 {
		t.Errorf("%d of 50 fetches of another tenant failed meanwhile", failed)
	}
}

// A web page that is open on this machine neither empties the world nor moves the clock.
func TestTestModeRefusesPagesOfOtherOrigins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	url := f.keyless(&door.TestMode{})
	for _, path := range []string{"/test/reset", "/test/clock"} {
		if status, _, _ := f.raw(url, "", "POST", path, `{"advance":"PT1S"}`, "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"); status != http.StatusForbidden {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// What a worker did is not done again for the form of what it says: each answer is taken, a failure is on record with its text, and
// of a result all is kept but what may not be, which the answer says.
func TestEachAnswerOfAWorkerIsTakenInWhateverForm(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.runService()
	key := f.all("acme")
	fetched := func() string {
		t.Helper()
		id := f.must(key, "/jobs", `{"type":"a.b","queue":"mail","args":[],"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`).Job.ID
		f.must(key, "/workers/fetch", `{"queues":["mail"],"worker_id":"w1"}`)
		return id
	}
	long := `"` + strings.Repeat("r", 64<<10) + `"`
	for result, kept := range map[string]string{
		`{"sent": 3}`:                             `{"sent": 3}`,
		`{"next_page_token":"abc","sent":3}`:      `{"next_page_token":"[redacted]","sent":3}`,
		`{"id":4111111111111111,"ok":true}`:       `{"id":"[redacted]","ok":true}`,
		`{"log":"cut \ud83d and \u0000 and ü"}`:   `{"log":"cut \ufffd and \ufffd and ü"}`,
		long:                                      `{"too_long":` + fmt.Sprint(len(long)) + `}`,
		`{"4111111111111111":"a name is a card"}`: `{"redacted":""}`,
	} {
		id := fetched()
		status, _, text := f.raw(f.url, key, "POST", "/ojs/v1/workers/ack", `{"job_id":"`+id+`","worker_id":"w1","result":`+result+`}`)
		said := map[bool]string{true: "", false: `"result":` + kept}[kept == result]
		if status != http.StatusOK || !strings.Contains(string(text), said) || said == "" && strings.Contains(string(text), `"result"`) {
			t.Errorf("%.60s: %d %.300s", result, status, text)
		}
		if _, _, text = f.raw(f.url, key, "GET", "/ojs/v1/jobs/"+id, ""); !strings.Contains(string(text), `"result":`+kept) || !strings.Contains(string(text), `"state":"completed"`) {
			t.Errorf("%.60s: %.600s", result, text)
		}
	}
	id := fetched()
	f.must(key, "/workers/nack", `{"job_id":"`+id+`","worker_id":"w1","error":{"code":"`+strings.Repeat("c", 300)+`","message":"SMTP \u0000 said \ud83d","backtrace":"a\nb","details":{"pin":1234,"mailbox":"full"}}}`)
	if _, _, text := f.raw(f.url, key, "GET", "/ojs/v1/jobs/"+id, ""); !strings.Contains(string(text), "SMTP \uFFFD said \uFFFD") || !strings.Contains(string(text), `"mailbox":"full"`) || strings.Contains(string(text), "1234") {
		t.Errorf("%s", text)
	}
}

// What the guide says of arguments: what is refused, by its place, and the ways round it.
func TestArgumentsAreRefusedAsTheGuideSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.all("acme")
	for args, field := range map[string]string{
		`{"token":"x"}`: "args[0].token", `{"next_page_token":"x"}`: "args[0].next_page_token", `{"password":"x"}`: "args[0].password", `{"secret":"x"}`: "args[0].secret",
		`{"api_key":"x"}`: "args[0].api_key", `{"authorization":"x"}`: "args[0].authorization", `{"pin":"x"}`: "args[0].pin", `{"cvv":"x"}`: "args[0].cvv", `{"private_key":"x"}`: "args[0].private_key",
		`{"id":4111111111111111}`: "args[0].id", `"4111-1111-1111-1111"`: "args[0]", `"DE89 3704 0044 0532 0130 00"`: "args[0]", `"https://ada:pw@host/"`: "args[0]", `"sk_live_0123456789abcdef"`: "args[0]",
		`{"page_cursor":"x"}`: "", `{"next_page":"x"}`: "", `{"confirmation_id":"x"}`: "", `{"id":"order-4111111111111111"}`: "args[0].id", `{"id":"14h9mddt8lj"}`: "", `{"id":"41111111x11111111"}`: "", `{"uses":"vault:mail/smtp"}`: "", `{"id":1764400000000}`: "",
		`{"id":"0197a1c2-0000-7000-8000-000000000001"}`: "", `{"at":1764400000000000}`: "", `"+49 30 901820"`: "",
	} {
		status, made := f.ask(key, "POST", "/ojs/v1/jobs", `{"type":"a.b","args":[`+args+`]}`)
		if field == "" && status != http.StatusCreated || field != "" && (status != http.StatusBadRequest || made.Error.Details["field"] != field) {
			t.Errorf("%s: %d %v, want %q", args, status, made.Error.Details, field)
		}
	}
}

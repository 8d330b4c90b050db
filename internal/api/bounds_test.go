package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
)

// keyNamed makes another key of a tenant.
func (r *rig) keyNamed(tenant, principal string, roles ...access.Role) string {
	r.t.Helper()
	token, _, err := r.main.Service.As(tenant, "test").Keys.Create(context.Background(), postadjudication.NewKey{Principal: principal, Roles: roles, Reason: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// A key may have eight open streams, long polls, exports, tests of webhooks and lookups, a tenant 32; a closed one does not count.
func TestStreamsAreSharedAmongKeysAndTenants(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var open []<-chan sseEvent
	tokens := make([]string, 5)
	for i := range tokens {
		tokens[i] = r.keyNamed("acme", fmt.Sprintf("user:%d", i), access.Auditor, access.Admin, access.Operator)
	}
	for range 8 {
		open = append(open, r.listen(ctx, tokens[0], "/api/v1/events/stream"))
	}
	for _, asked := range []string{"GET /api/v1/events/stream", "GET /api/v1/events?wait=1", "GET /api/v1/dead-letters/export", "POST /api/v1/webhooks/0198a1c2-0000-7000-8000-000000000001/test", `POST /api/v1/dead-letters/0198a1c2-0000-7000-8000-000000000001/reconcile {"lookup":true}`} {
		method, path, _ := strings.Cut(asked, " ")
		path, body, _ := strings.Cut(path, " ")
		a := r.ask(tokens[0], method, path, body)
		if a.refused(http.StatusTooManyRequests, "too_many_streams", ""); a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	r.ask(tokens[0], http.MethodGet, "/api/v1/events", "").is(http.StatusOK)
	for i := range 24 {
		open = append(open, r.listen(ctx, tokens[1+i/8], "/api/v1/events/stream"))
	}
	r.ask(tokens[4], http.MethodGet, "/api/v1/events/stream", "").refused(http.StatusTooManyRequests, "too_many_streams", "")
	r.listen(ctx, r.key("other", access.Auditor), "/api/v1/events/stream")
	leave()
	for _, one := range open {
		for range one { // until the stream ends
		}
	}
	poll.Until(t, "a place is free again", func() bool {
		return r.ask(tokens[0], http.MethodGet, "/api/v1/events?wait=1", "").status == http.StatusOK
	})
}

// Only the item with ambiguous JSON is refused; a body without a list is refused as a whole.
func TestABatchIsReadItemByItem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	submitter := r.key("acme", access.Submitter)
	send := func(body string) answer {
		return r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", body)
	}
	twice := strings.Replace(adjudication(1, `"ok"`), "{", `{"generation":1,"generation":2,`, 1)
	all := send(`{"adjudications":[` + twice + "," + adjudication(2, `"ok"`) + `]}`).is(http.StatusOK)
	if results := all["results"].([]any); all["accepted"] != 1.0 || results[0].(map[string]any)["problem"] == nil {
		t.Errorf("%v", all)
	}
	long := `{"payload":"` + strings.Repeat("x", 64<<10) + `"}`
	send(`{"adjudications":[{},`+long+`]}`).refused(http.StatusUnprocessableEntity, "invalid", "adjudications[1]")
	send(`{"adjudications":[`+strings.Repeat("{},", 100_000)+`{}]}`).refused(http.StatusUnprocessableEntity, "invalid", "adjudications")
	send(`{"adjudications":[{}`).refused(http.StatusBadRequest, "malformed", "")
	send(``).refused(http.StatusBadRequest, "malformed", "")
	if n := r.count(`SELECT count(*) FROM recourse.runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// However many reads of one tenant wait in the database, those of another have a connection,
// and so has the process itself.
func TestReadsOfATenantLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	auditor, victim := r.key("acme", access.Auditor), r.key("other", access.Submitter)
	run := r.letter("other", 1, `"refused"`)
	unlock := testkit.LockTables(t, r.db, `recourse.annotations`) // lists of cases read it
	const reads, ofTenant = 20, 2
	listed := make(chan int, reads)
	for range reads {
		go func() {
			status, err := answered(func() (*http.Request, error) {
				return r.request(t.Context(), auditor, http.MethodGet, "/api/v1/cases", ""), nil
			})
			if err != nil {
				t.Error(err)
			}
			listed <- status
		}()
	}
	const waiting = ` FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'SELECT q.*, coalesce(d.held%'`
	r.waitFor("they wait", `SELECT count(*) >= $1`+waiting, ofTenant)
	for range 10 {
		r.ask(victim, http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)
	}
	if n := r.count(`SELECT count(*)` + waiting); n != ofTenant {
		t.Errorf("%d reads of a tenant have a connection, want %d", n, ofTenant)
	}
	if n := len(listed); n > 0 {
		t.Errorf("%d reads ended without the table", n)
	}
	unlock()
	for range reads {
		if status := <-listed; status != http.StatusOK {
			t.Errorf("%d", status)
		}
	}
}

// One batch of the maximum length uses the tenant's whole quota.
func TestBatchesOfATenantAreBoundedTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	submitter := r.key("acme", access.Submitter)
	begin := func(token string) (in *io.PipeWriter, answered <-chan int, reads <-chan struct{}) {
		body, in := io.Pipe()
		reading := make(chan struct{})
		trace := &httptrace.ClientTrace{Got100Continue: func() { close(reading) }} // the server reads the body once it has the quota
		req := r.request(httptrace.WithClientTrace(t.Context(), trace), token, http.MethodPost, "/api/v1/adjudications/batch", "")
		req.Header.Set("Expect", "100-continue")
		req.Header.Set("Content-Type", "application/json")
		req.Body, req.ContentLength = body, -1
		status := make(chan int, 1)
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				status <- 0
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			status <- resp.StatusCode
		}()
		return in, status, reading
	}
	write := func(in *io.PipeWriter, text string) {
		if _, err := io.Copy(in, bytes.NewBufferString(text)); err != nil {
			t.Error(err)
		}
	}
	full := func() bool {
		return r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[{}]}`).status == http.StatusTooManyRequests
	}
	first, firstStatus, reads := begin(submitter)
	select {
	case status := <-firstStatus:
		t.Fatalf("%d", status)
	case <-reads:
	}
	if !full() {
		t.Error("a second batch is taken")
	}
	write(first, `{"adjudications":[`)
	if a := r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[{}]}`); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	} else {
		a.refused(http.StatusTooManyRequests, "too_many_batches", "")
	}
	r.ask(r.key("other", access.Submitter), http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[{}]}`).is(http.StatusOK)
	r.askLong(submitter).refused(http.StatusTooManyRequests, "too_many_batches", "")
	r.askLong(r.key("acme", access.Auditor)).refused(http.StatusForbidden, "role_missing", "")
	r.askLong(r.key("other", access.Submitter)).refused(http.StatusRequestEntityTooLarge, "too_large", "")
	write(first, `{}]}`)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if status := <-firstStatus; status != http.StatusOK {
		t.Errorf("%d", status)
	}
	poll.Until(t, "the place is free again", func() bool { return !full() })
}

// askLong sends a batch of 28 MiB, beyond the most that is taken, and reads the answer after the last byte is written.
func (r *rig) askLong(token string) answer {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.main.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	const path = "/api/v1/adjudications/batch"
	body := `{"adjudications":[` + strings.Repeat(`{"note":"`+strings.Repeat("x", 60<<10)+`"},`, 480)
	if err := r.request(r.t.Context(), token, http.MethodPost, path, body).Write(conn); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{r.t, path, resp.StatusCode, resp.Header, string(text)}
}

// Pages and streams of events are reads like others: while those of one tenant wait in the database, others are
// answered, and the process stays ready.
func TestReadersOfEventsLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	auditor, victim := r.key("acme", access.Auditor), r.key("other", access.Submitter)
	run := r.letter("other", 1, `"refused"`)
	unlock := testkit.LockTables(t, r.db, `recourse.receipts`) // pages of events read it
	const readers, ofTenant = 8, 2
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for _, query := range []string{"", "?wait=20"} {
		for range readers { // answered once the table is free, or never
			go func() {
				_, _ = answered(func() (*http.Request, error) {
					return r.request(ctx, auditor, http.MethodGet, "/api/v1/events"+query, ""), nil
				})
			}()
		}
	}
	// The loops of the process may wait for the table too, in other statements.
	const waiting = ` FROM (SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'recourse/queries' GROUP BY query) w`
	r.waitFor("they wait", `SELECT coalesce(max(n), 0) >= $1`+waiting, ofTenant)
	for range 10 {
		r.ask(victim, http.MethodGet, "/api/v1/breakers", "").is(http.StatusOK)
	}
	if a := r.ask("", http.MethodGet, "/readyz", ""); a.status != http.StatusOK {
		t.Errorf("the process is not ready: %d %s", a.status, a.text)
	}
	// On a busy machine a read may end by its time limit just now, and the next one take its place.
	r.waitFor("two reads of a tenant have a connection", `SELECT coalesce(max(n), 0) = $1`+waiting, ofTenant)
	leave()
	unlock()
	r.ask(victim, http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)
}

// However much is wrong with a request, a refusal is short: it names some of it.
func TestARefusalDoesNotNameEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token := r.keyNamed("acme", "user:ada", access.Roles()...)
	var members, query strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&members, `,"%x":1`, i)
		fmt.Fprintf(&query, "&%x=1", i)
	}
	unknown, empty := `{"outcome":"release"`+members.String()+`}`, strings.ReplaceAll(query.String(), "=1", "")
	for _, asked := range [][]string{
		{"POST /api/v1/adjudications", unknown}, {"POST /api/v1/adjudications", `{"amount":` + unknown + `}`}, {"POST /api/v1/adjudications/batch", `{"adjudications":[` + unknown + `]}`},
		{"POST /api/v1/breakers/open", unknown}, {"POST /v1/runs", unknown}, {"POST /v1/runs", `{"workflowId":"settlement","inputs":` + unknown + `}`}, {"POST /ojs/v1/jobs", unknown},
		{"GET /api/v1/cases?" + query.String(), ""}, {"GET /api/v1/cases?" + empty, ""}, {"GET /ojs/v1/queues?" + query.String(), ""}, {"GET /ojs/v1/queues?" + empty, ""},
		{"GET /v1/runs/0198a1c2-0000-7000-8000-000000000001/events?" + query.String(), ""}, {"GET /v1/runs/0198a1c2-0000-7000-8000-000000000001/events/poll?" + empty, ""},
	} {
		method, path, _ := strings.Cut(asked[0], " ")
		if a := r.ask(token, method, path, asked[1]); len(a.text) > 8<<10 || !strings.Contains(path, "batch") && a.status/100 != 4 {
			t.Errorf("%.60s: %d, %d bytes", asked[0], a.status, len(a.text))
		}
	}
}

// The trial of a rule is a read like others: while those of one tenant wait in the database, others are answered.
func TestTrialsOfRulesLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	admin, victim := r.key("acme", access.Admin), r.key("other", access.Submitter)
	r.letter("acme", 1, `"refused"`)
	const body = `{"rule":{"enabled":false,"all":true,"delay":"PT1H","max_replays":1}}`
	r.ask(admin, http.MethodPost, "/api/v1/rules/nightly/try", body).is(http.StatusOK)
	unlock := testkit.LockTables(t, r.db, `recourse.rule_replays`) // a trial reads how often letters were replayed
	const trials, ofTenant = 12, 2
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range trials {
		go func() {
			_, _ = answered(func() (*http.Request, error) { // once the table is free, or never
				return r.request(ctx, admin, http.MethodPost, "/api/v1/rules/nightly/try", body), nil
			})
		}()
	}
	const waiting = ` FROM (SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'recourse/queries' GROUP BY query) w`
	r.waitFor("they wait", `SELECT coalesce(max(n), 0) >= $1`+waiting, ofTenant)
	for range 10 {
		r.ask(victim, http.MethodGet, "/api/v1/breakers", "").is(http.StatusOK)
	}
	if n := r.count(`SELECT coalesce(max(n), 0)` + waiting); n != ofTenant {
		t.Errorf("%d trials of a tenant have a connection, want %d", n, ofTenant)
	}
	leave()
	unlock()
}

package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
)

// hostile are requests of a submitter and an auditor that cost as much as they can.
func hostile(submitter, auditor string) map[string]func(r *rig) *http.Request {

	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 30), ",") + "]"
	costly := url.QueryEscape(list + `.all(a, ` + list + `.all(b, a == b || error.message.matches("(x|y){300}$")))`)
	huge := url.QueryEscape(`error.message.matches("(?:` + strings.Repeat(".", 900) + `){1000}"+"")`)
	constant := url.QueryEscape(`error.message.matches("(?:` + strings.Repeat(".", 900) + `){1000}")`)
	many := `{"adjudications":[` + strings.Repeat("{},", 5_000_000) + `{}]}`
	item := `{"payload":{"n":%d,"a":[` + strings.TrimSuffix(strings.Repeat(`{},`, 5000), ",") + `]}},`
	var wide strings.Builder
	wide.WriteString(`{"adjudications":[`)
	for i := range 100 {
		fmt.Fprintf(&wide, item, i)
	}
	wide.WriteString(`{}]}`)
	get := func(path string) func(*rig) *http.Request {
		return func(r *rig) *http.Request {
			return r.request(context.Background(), auditor, http.MethodGet, "/api/v1/dead-letters/"+path, "")
		}
	}
	post := func(body string) func(*rig) *http.Request {
		return func(r *rig) *http.Request {
			return r.request(context.Background(), submitter, http.MethodPost, "/api/v1/adjudications/batch", body)
		}
	}
	return map[string]func(*rig) *http.Request{
		"search": get("search?scan=100000&where=" + costly), "export": get("export?where=" + costly), "huge search": get("search?where=" + huge), "huge export": get("export?where=" + constant),
		"many items": post(many), "wide items": post(wide.String()),
	}
}

// percentile99 asks so often for a run of its own tenant.
func (r *rig) percentile99(token, run string, asks int) time.Duration {
	r.t.Helper()
	took := make([]time.Duration, asks)
	for i := range took {
		began := time.Now()
		r.ask(token, http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[asks*99/100]
}

// resident is the memory of this process in MiB, and 0 where that can't be read.
func resident() (mib int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &mib); err == nil {
			return mib >> 10
		}
	}
	return 0
}

// Eight clients with the keys of one tenant at once are answered or refused, never by an error of
// the server. It reports what another tenant and the memory feel of it; it measures, and so
// runs alone.
func TestEightHostileClientsAreBounded(t *testing.T) {
	r := newRig(t, func(o *app.Options) { o.TimeLimit = 5 * time.Second }).work()
	submitter, auditor, victim := r.key("acme", access.Submitter), r.key("acme", access.Auditor), r.key("other", access.Submitter)
	items := make([]string, 400)
	for i := range items {
		items[i] = adjudication(i, `"refused"`)
	}
	r.ask(submitter, http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[`+strings.Join(items, ",")+`]}`).is(http.StatusOK)
	run := r.letter("other", 1, `"refused"`)
	r.until("all are letters", `SELECT count(*) = 401 FROM recourse.runs WHERE state = 'dead_lettered'`)
	requests := hostile(submitter, auditor)
	r.percentile99(victim, run, 100) // warms up
	idle, before := r.percentile99(victim, run, 300), resident()

	var most atomic.Int64
	var mu sync.Mutex
	answers := map[string]int{}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	names := []string{"search", "export", "huge search", "many items", "wide items", "huge export", "search", "wide items"}
	for i := range 8 {
		clients.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				name := names[n%len(names)]
				resp, err := http.DefaultClient.Do(requests[name](r))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil && !(name == "export" && errors.Is(err, io.ErrUnexpectedEOF)) { // cut off at its time limit
					t.Errorf("%s: %v", name, err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				answers[fmt.Sprint(name, " ", resp.StatusCode)]++
				mu.Unlock()
				most.Store(max(most.Load(), resident()))
			}
		})
	}
	attacked := r.percentile99(victim, run, 300)
	stop()
	clients.Wait()
	t.Logf("another tenant's p99: %v idle, %v attacked; %d MiB resident before, %d at most; answers: %v", idle, attacked, before, most.Load(), answers)
	for answer := range answers {
		name, status := answer[:len(answer)-4], answer[len(answer)-3:]
		if allowed := map[string]string{"search": "200 429", "export": "200 429", "huge search": "422 429", "huge export": "422 429", "many items": "422 429", "wide items": "200 429"}[name]; !strings.Contains(allowed, status) {
			t.Errorf("%s: %s", name, status)
		}
	}
	for name, want := range map[string]int{"search": 200, "export": 200, "huge search": 422, "huge export": 422, "many items": 422, "wide items": 200} {
		resp, err := http.DefaultClient.Do(requests[name](r))
		if err != nil {
			t.Fatalf("%s alone: %v", name, err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("%s alone: %d, want %d; %v", name, resp.StatusCode, want, err)
		}
	}
}

package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// hostileVariable makes the test binary run as the hostile clients, so that their load is not
// in the server's process.
const hostileVariable = "RECOURSE_TEST_HOSTILE"

// target is the server of the hostile clients, and their keys of one tenant.
type target struct{ URL, Submitter, Auditor string }

// clientReport holds the answers of the hostile clients by request and status, and their errors.
type clientReport struct {
	Answers map[string]int
	Wrong   []string
}

// hostile returns the most expensive requests of a submitter and an auditor.
func (to target) hostile() map[string]func() (*http.Request, error) {
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 30), ",") + "]"
	costly := url.QueryEscape(list + `.all(a, ` + list + `.all(b, a == b || error.message.matches("(x|y){300}$")))`)
	huge := url.QueryEscape(`error.message.matches("(?:` + strings.Repeat(".", 900) + `){1000}"+"")`)
	constant := url.QueryEscape(`error.message.matches("(?:` + strings.Repeat(".", 900) + `){1000}")`)
	many := `{"adjudications":[` + strings.Repeat("{},", 5_000_000) + `{}]}`
	item := `{"payload":{"n":%d,"a":[` + strings.TrimSuffix(strings.Repeat(`{},`, 1000), ",") + `]}},`
	var wide strings.Builder
	wide.WriteString(`{"adjudications":[`)
	for i := range 100 {
		fmt.Fprintf(&wide, item, i)
	}
	wide.WriteString(`{}]}`)
	ask := func(token, method, path, body string) func() (*http.Request, error) {
		return func() (*http.Request, error) {
			req, err := http.NewRequest(method, to.URL+"/api/v1/"+path, strings.NewReader(body))
			if err == nil {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			return req, err
		}
	}
	get := func(path string) func() (*http.Request, error) {
		return ask(to.Auditor, http.MethodGet, "dead-letters/"+path, "")
	}
	post := func(body string) func() (*http.Request, error) {
		return ask(to.Submitter, http.MethodPost, "adjudications/batch", body)
	}
	return map[string]func() (*http.Request, error){
		"search": get("search?scan=100000&where=" + costly), "export": get("export?where=" + costly), "huge search": get("search?where=" + huge), "huge export": get("export?where=" + constant),
		"many items": post(many), "wide items": post(wide.String()),
	}
}

// latencies are those of one tenant's reads of a run.
type latencies []time.Duration

// read adds the latencies of so many reads.
func (l *latencies) read(r *rig, token, run string, asks int) {
	r.t.Helper()
	for range asks {
		began := time.Now()
		r.ask(token, http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)
		*l = append(*l, time.Since(began))
	}
}

// percentile returns the latency that so many percent of the reads do not exceed.
func (l latencies) percentile(n int) time.Duration {
	sorted := slices.Sorted(slices.Values(l))
	return sorted[len(sorted)*n/100]
}

// beHostile reads the target from in, and sends requests with eight clients at once until in ends. It
// writes the number of clients once each of them has been answered, and a clientReport in the end.
func beHostile(in io.Reader, out io.Writer) error {
	text := json.NewDecoder(in)
	var to target
	if err := text.Decode(&to); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		_ = text.Decode(&to) // returns at the end of the input, or when the parent has died
	}()
	requests := to.hostile()
	names := []string{"search", "export", "huge search", "many items", "wide items", "huge export", "search", "wide items"}
	var mu sync.Mutex
	all := clientReport{Answers: map[string]int{}}
	var clients, answeredOnce sync.WaitGroup
	answeredOnce.Add(len(names))
	for i := range len(names) {
		clients.Go(func() {
			first := sync.OnceFunc(answeredOnce.Done)
			defer first()
			for n := i; ctx.Err() == nil; n++ {
				name := names[n%len(names)]
				status, err := answered(requests[name])
				mu.Lock()
				all.Answers[fmt.Sprint(name, " ", status)]++
				if err != nil && !(name == "export" && errors.Is(err, io.ErrUnexpectedEOF)) { // cut off at its time limit
					all.Wrong = append(all.Wrong, fmt.Sprintf("%s: %v", name, err))
				}
				mu.Unlock()
				first()
			}
		})
	}
	answeredOnce.Wait()
	report := json.NewEncoder(out)
	if err := report.Encode(len(names)); err != nil {
		return err
	}
	clients.Wait()
	return report.Encode(all)
}

// answered sends a request and reads the whole answer.
func answered(request func() (*http.Request, error)) (status int, err error) {
	req, err := request()
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// attack starts the hostile clients in another process, and in a session of their own: the kernel
// shares the processors between sessions, so that the clients take no part of the server's share,
// as clients on other machines would not. It returns when each of them has been answered. The returned
// function ends them.
func (r *rig) attack(to target) (end func() clientReport) {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), self)
	cmd.Env = append(os.Environ(), hostileVariable+"=1")
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setsid: true}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	var clients int
	report := json.NewDecoder(out)
	if err := errors.Join(json.NewEncoder(in).Encode(to), report.Decode(&clients)); err != nil {
		r.t.Fatal(err)
	}
	return func() (all clientReport) {
		r.t.Helper()
		if err := errors.Join(in.Close(), report.Decode(&all), cmd.Wait()); err != nil {
			r.t.Fatal(err)
		}
		return all
	}
}

// held returns the memory in use by the runtime of this process, in MiB.
func held() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64()-samples[1].Value.Uint64()) >> 20
}

// The latency of another tenant is that of so many reads under attack, and of half as many before and
// after it, because the load of the machine changes meanwhile.
const attackReads = 40

// mostMemory is how much more memory, in MiB, the server may use under eight hostile clients.
const mostMemory = 200

// Eight clients with the keys of one tenant at once are answered or refused, never with a server
// error, and cost the server little memory. The latency of another tenant meanwhile is only
// logged. The test measures, and so is not parallel.
func TestEightHostileClientsAreBounded(t *testing.T) {
	r := newRig(t, func(o *app.Options) { o.TimeLimit = 5 * time.Second }).work()
	to := target{r.main.URL, r.key("acme", access.Submitter), r.key("acme", access.Auditor)}
	victim := r.key("other", access.Submitter)
	items := make([]string, 400)
	for i := range items {
		items[i] = adjudication(i, `"refused"`)
	}
	r.ask(to.Submitter, http.MethodPost, "/api/v1/adjudications/batch", `{"adjudications":[`+strings.Join(items, ",")+`]}`).is(http.StatusOK)
	run := r.letter("other", 1, `"refused"`)
	r.waitFor("all are letters", `SELECT count(*) = 401 FROM recourse.runs WHERE state = 'dead_lettered'`)
	var idle, attacked latencies
	new(latencies).read(r, victim, run, 20) // warms up
	before := held()
	ctx, stop := context.WithCancel(t.Context())
	most := make(chan int64)
	go func() {
		var high int64
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			high = max(high, held())
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				most <- high
				return
			}
		}
	}()
	idle.read(r, victim, run, attackReads/2)
	end := r.attack(to)
	attacked.read(r, victim, run, attackReads)
	all := end()
	idle.read(r, victim, run, attackReads/2)
	stop()
	peak := <-most
	for _, n := range []int{50, 95} {
		was, is := idle.percentile(n), attacked.percentile(n)
		t.Logf("another tenant's p%d: %v idle, %v attacked, %.1f times", n, was, is, float64(is)/float64(was))
	}
	t.Logf("%d MiB before, %d at most; answers: %v", before, peak, all.Answers)
	for _, wrong := range all.Wrong {
		t.Error(wrong)
	}
	if peak-before > mostMemory {
		t.Errorf("%d MiB more than before", peak-before)
	}
	for answer := range all.Answers {
		name, status := answer[:len(answer)-4], answer[len(answer)-3:]
		if allowed := map[string]string{"search": "200 429", "export": "200 429", "huge search": "422 429", "huge export": "422 429", "many items": "422 429", "wide items": "200 429"}[name]; !strings.Contains(allowed, status) {
			t.Errorf("%s: %s", name, status)
		}
	}
	requests := to.hostile()
	for name := range requests {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(all.Answers)), func(answer string) bool { return strings.HasPrefix(answer, name+" ") }) {
			t.Errorf("no answer to %s", name)
		}
	}
	for name, want := range map[string]int{"search": 200, "export": 200, "huge search": 422, "huge export": 422, "many items": 422, "wide items": 200} {
		if status, err := answered(requests[name]); err != nil || status != want {
			t.Errorf("%s alone: %d, want %d; %v", name, status, want, err)
		}
	}
}

// Only long computations wait for a slot of the processor limit; reads and submissions of
// another tenant do not wait behind them.
func TestWhatComputesLittleWaitsForNoProcessorOfTheLimit(t *testing.T) {
	r := newRig(t).work()
	to := target{r.main.URL, r.key("acme", access.Submitter), r.key("acme", access.Auditor)}
	victim := r.key("other", access.Submitter)
	r.letter("acme", 1, `"refused"`)
	run := r.letter("other", 1, `"refused"`)
	release := testkit.TakeTurns(t, "acme")
	var clients sync.WaitGroup
	var ended atomic.Int64
	for name, request := range to.hostile() {
		if strings.HasSuffix(name, "export") { // two conditions of a tenant at once
			continue
		}
		clients.Go(func() {
			if _, err := answered(request); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ended.Add(1)
		})
	}
	for i := range 50 {
		r.ask(victim, http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)
		r.ask(victim, http.MethodPost, "/api/v1/adjudications", strings.Replace(adjudication(10+i, `"ok"`), `"acme"`, `"other"`, 1)).is(http.StatusCreated)
	}
	if n := ended.Load(); n > 0 {
		t.Errorf("%d hostile requests were answered without a slot of the limit", n)
	}
	release()
	clients.Wait()
}

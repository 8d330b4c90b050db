package openwop

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// payer is an escrow service in memory: it answers each transaction as it is told, and pays an operation
// key once.
type payer struct {
	mu      sync.Mutex
	answers map[string][]escrow.Answer // by transaction, one for each call; the last one for all that follow
	paid    map[escrow.OperationKey]int
	calls   int
	keys    time.Duration // lifetime of operation keys
}

func (p *payer) Execute(_ context.Context, c escrow.Call) escrow.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	var request struct {
		Transaction string `json:"transaction_receipt_id"`
	}
	if err := json.Unmarshal(c.Request, &request); err != nil {
		return escrow.Answer{Class: escrow.NotExecuted, Type: "bad", Message: err.Error()}
	}
	out := escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "pay_1"}
	if all := p.answers[request.Transaction]; len(all) > 0 {
		out = all[0]
		if len(all) > 1 {
			p.answers[request.Transaction] = all[1:]
		}
	}
	if out.Class == escrow.Executed {
		out.Moved = c.Amount.Minor
		p.paid[c.OperationKey]++
	}
	return out
}

func (p *payer) KeyLifetime() time.Duration { return p.keys }

// answer sets the answers to the calls about a transaction.
func (p *payer) answer(transaction string, all ...escrow.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[transaction] = all
}

// payments returns how many payments were made.
func (p *payer) payments() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.paid)
}

var (
	refuses = escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.refused", Code: "422", Message: "account closed"}
	unclear = escrow.Answer{Class: escrow.Unknown, Retry: true, Type: "http.timeout", Message: "no answer"}
)

// fixture is a server that needs keys, on a service that executes.
type fixture struct {
	*testing.T
	service *postadjudication.Service
	payer   *payer
	clock   *door.TestMode
	url     string
	server  *Server
	db      *sql.DB
	stop    func() // stops executing
	block   chan struct{}
}

const days = 30

// newFixture starts a server with the workflows settlement, chores, which fails as its inputs say, and
// waits, whose runs end when block is closed.
func newFixture(t *testing.T, change ...func(*postadjudication.Config, *fixture)) *fixture {
	t.Helper()
	_, redis := testkit.Redis(t)
	database := testkit.Migrated(t)
	f := &fixture{T: t, payer: &payer{answers: map[string][]escrow.Answer{}, paid: map[escrow.OperationKey]int{}, keys: escrow.Forever}, clock: &door.TestMode{}, block: make(chan struct{})}
	config := postadjudication.Config{
		DatabaseURL: database, Redis: redis, Jobs: true, PaymentQueues: []string{"payouts"}, Executor: f.payer, TimeLimit: time.Second, Now: f.clock.Now, Simulated: true,
		Families: []postadjudication.PlainFamily{
			{Name: "chores", Policy: retrypolicy.Policy{MaxRetryAttempts: 2, BaseDelay: time.Millisecond}, Handle: choreHandler},
			{Name: "waits", Policy: retrypolicy.Policy{MaxRetryAttempts: 1}, Handle: func(ctx context.Context, _ background.Attempt) background.Result {
				select {
				case <-f.block:
					return background.Result{Class: background.Executed}
				case <-ctx.Done():
					return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "interrupted", Message: "interrupted"}}
				}
			}},
		},
	}
	for _, c := range change {
		c(&config, f)
	}
	var err error
	if f.service, err = postadjudication.Open(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.service.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	f.stop = func() { cancel(); running.Wait() }
	t.Cleanup(func() {
		f.stop()
		if err := f.service.Close(); err != nil {
			t.Error(err)
		}
	})
	f.url = f.serve()
	f.db = testkit.OpenAsOwner(t, database)
	return f
}

func choreHandler(_ context.Context, a background.Attempt) background.Result {
	var in struct {
		Fails bool `json:"fails"`
	}
	if err := json.Unmarshal(a.Run.Payload, &in); err != nil || in.Fails {
		return background.Result{Class: background.NotExecuted, Retry: true, Failure: &background.Failure{Type: "core.fail", Message: "deterministic failure"}}
	}
	return background.Result{Class: background.Executed}
}

// serve starts a server of the service and returns its URL.
func (f *fixture) serve() string {
	f.Helper()
	shared, err := door.New(door.Config{Service: f.service})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(shared.Stop)
	server, err := New(Config{
		Service: f.service, Door: shared, Log: zap.NewNop(), Version: "test", RetentionDays: days, Now: f.clock.Now,
		Workflows: []spec.Workflow{{ID: "chores", Name: "chores", NodeType: "recourse.task"}, {ID: "waits", Name: "waits", NodeType: "recourse.task"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.server = server
	web := httptest.NewServer(server)
	f.Cleanup(web.Close)
	return web.URL
}

// onePerson lets two people lower how many people the money of acme requires to one.
func (f *fixture) onePerson() {
	f.Helper()
	_, err := f.service.As("acme", "user:root").People.Set(f.Context(), postadjudication.PeopleChange{People: 1, Reason: "one person only"})
	var planned *bulk.SecondPersonError
	if errors.As(err, &planned) {
		_, err = f.service.As("acme", "user:bob").Bulk.Run(f.Context(), planned.Plan.ID, planned.Plan.Hash)
	}
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) key(tenant string, roles ...access.Role) string {
	f.Helper()
	token, _, err := f.service.As(tenant, "test").Keys.Create(context.Background(), postadjudication.NewKey{Principal: "service:" + string(roles[0]), Roles: roles, Reason: "test"})
	if err != nil {
		f.Fatal(err)
	}
	return token
}

// all makes a key with all roles of a tenant.
func (f *fixture) all(tenant string) string { return f.key(tenant, access.Roles()...) }

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	text   []byte
	object map[string]any
}

// code returns the code of a refusal.
func (a answer) code() string { return fmt.Sprint(a.object["error"]) }

// detail returns a detail of a refusal, or nil.
func (a answer) detail(name string) any {
	details, _ := a.object["details"].(map[string]any)
	return details[name]
}

// run returns the id of the run that an answer is about.
func (a answer) run() string { return fmt.Sprint(a.object["runId"]) }

// ask sends a request. Headers are names, each with its value.
func (f *fixture) ask(key, method, path, body string, headers ...string) answer {
	f.Helper()
	a, err := f.send(f.url, key, method, path, body, headers...)
	if err != nil {
		f.Fatal(err)
	}
	if a.status >= 400 {
		f.checkEnvelope(method+" "+path, a)
	}
	return a
}

func (f *fixture) send(url, key, method, path, body string, headers ...string) (a answer, err error) {
	r, err := http.NewRequestWithContext(f.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return a, err
	}
	defer got.Body.Close()
	a.status, a.header = got.StatusCode, got.Header
	if a.text, err = io.ReadAll(got.Body); err != nil {
		return a, err
	}
	if strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") && len(a.text) > 0 {
		err = json.Unmarshal(a.text, &a.object)
	}
	return a, err
}

// checkEnvelope requires error, message, details, and nothing else.
func (f *fixture) checkEnvelope(name string, a answer) {
	f.Helper()
	if a.header.Get("Content-Type") != "application/json" {
		f.Errorf("%s: %d as %s", name, a.status, a.header.Get("Content-Type"))
	}
	for member := range a.object {
		if member != "error" && member != "message" && member != "details" {
			f.Errorf("%s: the envelope has %s: %s", name, member, a.text)
		}
	}
	if code, _ := a.object["error"].(string); code == "" {
		f.Errorf("%s: %d without a code: %s", name, a.status, a.text)
	}
	if message, _ := a.object["message"].(string); message == "" {
		f.Errorf("%s: %d without a message: %s", name, a.status, a.text)
	}
}

// want sends a request whose answer has a status.
func (f *fixture) want(status int, key, method, path, body string, headers ...string) answer {
	f.Helper()
	a := f.ask(key, method, path, body, headers...)
	if a.status != status {
		f.Fatalf("%s %s: %d %s, want %d", method, path, a.status, a.text, status)
	}
	return a
}

// refused sends a request that is refused with a status and a code.
func (f *fixture) refused(status int, code, key, method, path, body string, headers ...string) answer {
	f.Helper()
	a := f.want(status, key, method, path, body, headers...)
	if a.code() != code {
		f.Errorf("%s %s: %s, want the code %s", method, path, a.text, code)
	}
	return a
}

// adjudication returns the body of a create of a settlement.
func adjudication(transaction string) string {
	return `{"workflowId":"settlement","inputs":{"transaction_receipt_id":"` + transaction + `","submission_receipt_id":"sub_1","adjudication_id":"adj_1","escrow_reference":"esc_` +
		transaction + `","outcome":"release","amount":{"minor":12500,"currency":"USD"},"held":{"minor":12500,"currency":"USD"}}}`
}

// create creates a run and returns its id.
func (f *fixture) create(key, body string) string {
	f.Helper()
	return f.want(http.StatusCreated, key, "POST", "/v1/runs", body).run()
}

// log is the answer to a poll.
type log struct {
	Events []struct {
		ID       string         `json:"eventId"`
		Type     string         `json:"type"`
		Sequence int            `json:"sequence"`
		Payload  map[string]any `json:"payload"`
	} `json:"events"`
	IsComplete bool `json:"isComplete"`
}

func (l log) types() string {
	var out []string
	for _, e := range l.Events {
		out = append(out, e.Type)
	}
	return strings.Join(out, " ")
}

// finished polls a run until its log is complete, and returns the whole log.
func (f *fixture) finished(key, run string) log {
	f.Helper()
	for {
		var l log
		a := f.want(http.StatusOK, key, "GET", "/v1/runs/"+run+"/events/poll?timeout=30", "")
		if err := json.Unmarshal(a.text, &l); err != nil {
			f.Fatal(err)
		}
		if l.IsComplete {
			return l
		}
		if len(l.Events) == 0 {
			f.Fatalf("run %s has not ended", run)
		}
		f.want(http.StatusOK, key, "GET", fmt.Sprintf("/v1/runs/%s/events/poll?timeout=30&lastSequence=%d", run, l.Events[len(l.Events)-1].Sequence), "")
	}
}

// dead creates a run of a settlement that dies, and returns its id.
func (f *fixture) dead(key, transaction string) string {
	f.Helper()
	f.payer.answer(transaction, refuses)
	run := f.create(key, adjudication(transaction))
	f.finished(key, run)
	return run
}

// status returns the status of a run.
func (f *fixture) status(key, run string) string {
	f.Helper()
	return fmt.Sprint(f.want(http.StatusOK, key, "GET", "/v1/runs/"+run, "").object["status"])
}

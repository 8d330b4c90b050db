package app_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func noEnvironment(string) string { return "" }

func options(t *testing.T) app.Options {
	redis, _ := testkit.Redis(t)
	return app.Options{
		DatabaseURL: testkit.Migrated(t), RedisURL: redis.URL(), Embedded: true, Listen: "127.0.0.1:0", TimeLimit: time.Second,
	}
}

// start starts a Main and closes it at the end of the test.
func start(t *testing.T, o app.Options, m *app.Main) {
	t.Helper()
	m.Options = o
	if err := m.Parse(noEnvironment); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, url string, header ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) == 2 {
		req.Header.Set(header[0], header[1])
	}
	return answerOf(t, req)
}

func answerOf(t *testing.T, q *http.Request) (status int, body string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func adjudication() postadjudication.Adjudication {
	usd := func(n int64) settlement.Money { return settlement.Money{Minor: n, Currency: "USD"} }
	return postadjudication.Adjudication{Instruction: settlement.Instruction{
		Tenant: "acme", TransactionReceiptID: "txr_1", SubmissionReceiptID: "sub_1", AdjudicationID: "adj_1", EscrowReference: "esc_1",
		Outcome: settlement.Release, Generation: 1, Amount: usd(100), Held: usd(100),
	}}
}

func TestARunningMainSettlesAndShowsIt(t *testing.T) {
	t.Parallel()
	settled := make(chan struct{}, 1)
	m := &app.Main{OnTransition: func(_ background.Transition, after background.Run) {
		if after.State == background.Succeeded {
			settled <- struct{}{}
		}
	}}
	start(t, options(t), m)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	if _, err := m.Service.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err)
	}
	<-settled
	if n := m.EmbeddedEscrow.Totals().Released["USD"]; n != 100 {
		t.Errorf("the escrow service released %d", n)
	}
	for path, want := range map[string]string{
		"/": "/asynqmon", "/livez": "ok", "/readyz": "ok", "/metrics": `recourse_attempts_total{class="executed"} 1`,
		"/asynqmon": "<html", "/asynqmon/api/queues": "settlement:",
	} {
		if status, body := get(t, m.URL+path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200q", path, status, body)
		}
	}
	if status, body := get(t, m.URL+"/readyz", "Accept", "application/json"); status != http.StatusOK || body != `{"ready":true,"reason":""}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := get(t, m.URL+"/no-such-page"); status != http.StatusNotFound {
		t.Errorf("a page that is not there: %d", status)
	}
	stop()
	if err := <-ran; err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestAsynqmonIsReadOnly(t *testing.T) {
	t.Parallel()
	m := &app.Main{}
	start(t, options(t), m)
	for _, method := range []string{http.MethodDelete, http.MethodPost} {
		req, err := http.NewRequestWithContext(t.Context(), method, m.URL+"/asynqmon/api/queues/settlement:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
}

func TestPrivateServersComeAndGoWithTheMain(t *testing.T) {
	t.Parallel()
	m := &app.Main{}
	start(t, app.Options{Private: true, Embedded: true, TimeLimit: time.Second}, m)
	if s, err := m.Service.Submit(t.Context(), adjudication()); err != nil || s.Reply != postadjudication.Created {
		t.Fatalf("%+v, %v", s, err)
	}
	if m.URL != "" {
		t.Errorf("pages are served without Listen: %s", m.URL)
	}
	redis, escrow := addr(m.Redis), strings.TrimPrefix(m.EscrowURL, "http://")
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{redis, escrow} {
		if c, err := net.Dial("tcp", gone); err == nil {
			t.Errorf("%s still answers", gone)
			_ = c.Close() // the test has failed already
		}
	}
}

func TestAStartThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, tc := range map[string]struct {
		change func(*app.Options)
		check  func(error) bool
	}{
		"no schema": {func(o *app.Options) { o.DatabaseURL = testkit.Database(t) }, func(err error) bool { return errors.Is(err, postadjudication.ErrSchema) }},
		"port taken": {func(o *app.Options) { o.Listen = taken.Addr().String() }, func(err error) bool {
			return errors.Is(err, app.ErrOptions) && strings.Contains(err.Error(), "address already in use")
		}},
		"bad escrow URL":   {func(o *app.Options) { o.EscrowURL, o.KeyLifetime = "ftp://x", app.Lifetime{Given: true} }, func(err error) bool { return errors.Is(err, app.ErrOptions) }},
		"bad database URL": {func(o *app.Options) { o.DatabaseURL = "nonsense" }, func(err error) bool { return errors.Is(err, app.ErrOptions) }},
	} {
		o := options(t)
		tc.change(&o)
		m := &app.Main{Options: o}
		err := m.Parse(noEnvironment)
		if err == nil {
			err = m.Start(t.Context())
		}
		if err == nil || !tc.check(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err := m.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

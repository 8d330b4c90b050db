package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/localpg"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication"
)

// running starts a Main and runs it until the end of the test.
func running(t *testing.T, o app.Options, m *app.Main) {
	t.Helper()
	start(t, o, m)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// waitForReadiness polls /readyz until it has the status and the reason, and checks that text and JSON
// agree: the full reason at the listener for metrics, else the plain reason.
func waitForReadiness(t *testing.T, m *app.Main, status int, reason, plain string) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("%d, and the reason %q", status, reason), func() bool {
		code, body := get(t, m.MetricsURL+"/readyz", "Accept", "application/json")
		var answer struct {
			Ready  bool
			Reason string
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Ready != (code == http.StatusOK) || answer.Ready != (answer.Reason == "") {
			t.Fatalf("%d %s: %v", code, body, err)
		}
		return code == status && strings.Contains(answer.Reason, reason)
	})
	// In plain text it is the same, unless it has changed just now.
	if code, body := get(t, m.URL+"/readyz"); code == status && status != http.StatusOK && (!strings.HasPrefix(body, "not ready: ") || !strings.Contains(body, plain)) {
		t.Errorf("%d %q", code, body)
	}
	if code, body := get(t, m.URL+"/livez"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("livez: %d %q", code, body)
	}
}

func db(t *testing.T, url string) func(query string) {
	t.Helper()
	d := testkit.OpenAsOwner(t, url)
	return func(query string) {
		t.Helper()
		if _, err := d.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
}

const refuseTriggerSQL = `CREATE FUNCTION recourse.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the disk is full'; END $$;`

// An outcome that cannot be written makes the process unready, with the reason. It is ready again once
// the outcome is written, and nothing is lost.
func TestEvidenceThatCannotBeWrittenIsNotReady(t *testing.T) {
	t.Parallel()
	settled := make(chan struct{}, 1)
	m := &app.Main{OnTransition: func(_ background.Transition, after background.Run) {
		if after.State == background.Succeeded {
			settled <- struct{}{}
		}
	}}
	o := options(t)
	o.MetricsListen = "127.0.0.1:0"
	running(t, o, m)
	waitForReadiness(t, m, http.StatusOK, "", "")
	exec := db(t, o.DatabaseURL)
	exec(refuseTriggerSQL + `CREATE TRIGGER refuse BEFORE INSERT ON recourse.receipts FOR EACH ROW WHEN (NEW.subtype = 'attempt-succeeded') EXECUTE FUNCTION recourse.refuse()`)
	s, err := m.Service.Submit(t.Context(), adjudication())
	if err != nil {
		t.Fatal(err)
	}
	waitForReadiness(t, m, http.StatusServiceUnavailable, "1 transitions wait to be written: postgres: pq: the disk is full", "not ready: the journal cannot be written\n")
	exec(`DROP TRIGGER refuse ON recourse.receipts`)
	waitForReadiness(t, m, http.StatusOK, "", "")
	<-settled
	st, err := m.Service.Status(t.Context(), "acme", s.Run)
	if err != nil || st.State != background.Succeeded || st.Attempts != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if n := m.EmbeddedEscrow.Totals().Released["USD"]; n != 100 {
		t.Errorf("the escrow service released %d", n)
	}
}

// A process that cannot renew its session is unready, with the reason. It is ready again once it is
// registered again, and executes runs.
func TestAProcessThatIsNotKnownIsNotReady(t *testing.T) {
	t.Parallel()
	settled := make(chan struct{}, 1)
	m := &app.Main{OnTransition: func(_ background.Transition, after background.Run) {
		if after.State == background.Succeeded {
			settled <- struct{}{}
		}
	}}
	o := options(t)
	o.MetricsListen = "127.0.0.1:0"
	running(t, o, m)
	waitForReadiness(t, m, http.StatusOK, "", "")
	exec := db(t, o.DatabaseURL)
	exec(refuseTriggerSQL + `CREATE TRIGGER refuse BEFORE INSERT ON recourse.sessions FOR EACH ROW EXECUTE FUNCTION recourse.refuse()`)
	exec(`DELETE FROM recourse.sessions`)
	waitForReadiness(t, m, http.StatusServiceUnavailable, "cannot send heartbeats; nothing is claimed", "this process cannot send heartbeats\n")
	if _, err := m.Service.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err) // the submission is accepted and waits
	}
	exec(`DROP TRIGGER refuse ON recourse.sessions`)
	waitForReadiness(t, m, http.StatusOK, "", "")
	<-settled
}

// While Postgres is down the process is unready but live. It is ready again without a restart once
// Postgres is back.
func TestWithoutPostgresItIsNotReadyUntilItIsBack(t *testing.T) {
	t.Parallel()
	server, err := localpg.Start(t.Context(), localpg.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	o := app.Options{DatabaseURL: server.AppURL("postgres"), Embedded: true, Listen: "127.0.0.1:0", TimeLimit: time.Second}
	redis, _ := testkit.Redis(t)
	o.RedisURL = redis.URL()
	if _, err := (postadjudication.Migration{DatabaseURL: server.URL("postgres"), AppRole: localpg.AppRole}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled := make(chan struct{}, 1)
	m := &app.Main{OnTransition: func(_ background.Transition, after background.Run) {
		if after.State == background.Succeeded {
			settled <- struct{}{}
		}
	}}
	o.MetricsListen = "127.0.0.1:0"
	running(t, o, m)
	waitForReadiness(t, m, http.StatusOK, "", "")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	waitForReadiness(t, m, http.StatusServiceUnavailable, "the journal cannot be reached", "the database can't be reached")
	if err := server.Restart(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	waitForReadiness(t, m, http.StatusOK, "", "")
	if _, err := m.Service.Submit(t.Context(), adjudication()); err != nil {
		t.Fatal(err)
	}
	<-settled
}

// A process is unready if Redis answers but accepts no task or returns none.
func TestARedisThatTakesOrGivesNothingIsNotReady(t *testing.T) {
	t.Parallel()
	o, m := options(t), &app.Main{}
	o.MetricsListen = "127.0.0.1:0"
	running(t, o, m)
	waitForReadiness(t, m, http.StatusOK, "", "")
	client := redis.NewClient(&redis.Options{Addr: addr(m.Redis), Password: password(m.Redis)})
	defer func() { _ = client.Close() }()
	do := func(args ...any) {
		t.Helper()
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do("CONFIG", "SET", "maxmemory", "1")
	waitForReadiness(t, m, http.StatusServiceUnavailable, "no notification can be sent since", "no notification can be sent")
	do("CONFIG", "SET", "maxmemory", "0")
	waitForReadiness(t, m, http.StatusOK, "", "")
	do("ACL", "SETUSER", "default", "-evalsha", "-eval")
	waitForReadiness(t, m, http.StatusServiceUnavailable, "no queue can be polled since", "no queue can be polled")
	do("ACL", "SETUSER", "default", "+evalsha", "+eval")
	waitForReadiness(t, m, http.StatusOK, "", "")
}

// hanging is a proxy to a server that can stop forwarding while its connections stay open.
type hanging struct {
	net.Listener
	hung atomic.Bool
	mu   sync.Mutex
	open []net.Conn
}

// hangable returns a hanging proxy to a server until the end of the test.
func hangable(t *testing.T, server string) *hanging {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hanging{Listener: l}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			to, err := new(net.Dialer).Dial("tcp", server)
			if err != nil {
				_ = from.Close() // the client sees a broken connection
				continue
			}
			h.mu.Lock()
			h.open = append(h.open, from, to)
			h.mu.Unlock()
			go h.carry(to, from)
			go h.carry(from, to)
		}
	}()
	return h
}

// carry forwards until either connection ends, and closes the other one.
func (h *hanging) carry(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if h.hung.Load() {
			return
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// end closes every connection.
func (h *hanging) end() {
	_ = h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.open {
		_ = c.Close()
	}
}

// If the database uses up the time limit of the health check, Redis is not reported.
func TestADatabaseThatHangsIsNoFaultOfRedis(t *testing.T) {
	t.Parallel()
	o := options(t)
	at, err := url.Parse(o.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	way := hangable(t, at.Host)
	at.Host = way.Addr().String()
	o.DatabaseURL = at.String()
	m := &app.Main{}
	start(t, o, m)
	t.Cleanup(way.end)
	if status, body := get(t, m.URL+"/readyz"); status != http.StatusOK {
		t.Fatalf("%d %q", status, body)
	}
	way.hung.Store(true)
	if status, body := get(t, m.URL+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the database can't be reached") || strings.Contains(body, "Redis") {
		t.Errorf("%d %q", status, body)
	}
}

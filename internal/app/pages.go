package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/postadjudication"
)

// readyLimit bounds the question whether this process can do its work.
const readyLimit = 3 * time.Second

const index = `recourse carries adjudicated escrow decisions to settled, or to a person's desk.

/livez     200 while the process runs
/readyz    200 while it can do its work, else 503 and why
/metrics   for Prometheus
/asynqmon  queues and tasks, to look at only
/api/v1    the HTTP API; /api/v1/openapi.json says what it is
`

func newMonitor(redis asynq.RedisConnOpt) *asynqmon.HTTPHandler {
	return asynqmon.New(asynqmon.Options{RootPath: "/asynqmon", RedisConnOpt: redis, ReadOnly: true})
}

// routes are the pages. What tells of runs and money asks for a key where one is
// needed; the others tell of this process only.
func (m *Main) routes(monitor http.Handler, face *api.API) http.Handler {
	monitor = face.Guard(access.Queues, looking(monitor))
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", m.here(func(w http.ResponseWriter, _ *http.Request) { m.text(w, http.StatusOK, index) }))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { m.text(w, http.StatusOK, "ok\n") })
	mux.Handle("GET /readyz", m.here(m.ready))
	mux.Handle("GET /metrics", m.here(m.metrics.page(m.Log).ServeHTTP))
	mux.Handle("/asynqmon/", monitor)
	mux.Handle("/asynqmon", monitor)
	mux.Handle(api.Prefix+"/", face)
	if m.Stage != nil {
		mux.Handle("/stage/", m.Stage)
	}
	return framed(mux)
}

// framed forbids every page to be framed, or taken for another type than it says.
func framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// here wraps a page in a policy that forbids it to load anything and to be framed. Where no key
// is needed it answers only under a loopback name in the Host header.
func (m *Main) here(page http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.Keys && !api.LoopbackName(r.Host) {
			http.Error(w, "without keys this is answered under the names of loopback only", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		page(w, r)
	})
}

// looking lets only through what changes nothing, whatever the handler would do.
func looking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this is to look at only", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ready answers in JSON when that is asked for, else in plain text. A paused queue
// keeps runs waiting but is an operator's will, and an open circuit breaker is the
// escrow service's fault: they are told, and are no fault of this process. Nor is a
// breach of conservation, which is a matter for a person.
func (m *Main) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyLimit)
	defer cancel()
	failover := m.Service.Failover()
	status, reason, paused, breaches := http.StatusOK, "", m.Service.Paused(), m.Service.Breaches()
	open, stalled := m.Service.OpenBrakes()
	if err := m.Service.Healthy(ctx); err != nil {
		status, reason = http.StatusServiceUnavailable, err.Error()
	}
	if r.Header.Get("Accept") == "application/json" {
		answer := map[string]any{"ready": status == http.StatusOK, "reason": reason}
		if len(paused) > 0 {
			answer["paused_queues"] = paused
		}
		if breaches.Excesses > 0 || breaches.Escrows > 0 {
			answer["conservation_breaches"] = map[string]int64{"payments_beyond_adjudication": breaches.Excesses, "escrows_beyond_held": breaches.Escrows}
		}
		if failover != nil {
			answer["failover"] = failover
		}
		if len(open) > 0 {
			answer["open_circuit_breakers"] = open
		}
		if len(stalled) > 0 {
			answer["stalled_circuit_breakers"] = stalled
		}
		body, err := json.Marshal(answer)
		if err != nil {
			status, body = http.StatusInternalServerError, nil
		}
		w.Header().Set("Content-Type", "application/json")
		m.write(w, status, string(body)+"\n")
		return
	}
	told := failedOver(failover) + hints(paused, open, stalled, breaches)
	if status == http.StatusOK {
		m.text(w, status, "ok\n"+told)
		return
	}
	m.text(w, status, fmt.Sprintf("not ready: %s\n", reason)+told)
}

// failedOver are lines about a failover of the database; a person has to compare what was
// decided shortly before it with what is known elsewhere.
func failedOver(f *postadjudication.Failover) string {
	if f == nil {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "ALARM: the database went from timeline %d to %d (seen %s), by a failover or a restore: what was committed last before may be lost, unless replication is synchronous\n",
		f.From, f.To, f.SeenAt.UTC().Format(time.RFC3339))
	for _, u := range f.Tenants {
		fmt.Fprintf(&out, "shortly before, tenant %s: %d attempts of unknown outcome, %d findings: %s\n", u.Tenant, u.Unknown, u.Findings, f.Command(u.Tenant))
	}
	return out.String()
}

// hints are lines about what is no fault but a person should know.
func hints(paused []string, open, stalled []postadjudication.Brake, breaches postadjudication.Breaches) string {
	var out strings.Builder
	for _, b := range stalled {
		fmt.Fprintf(&out, "ALARM: %d runs wait behind the circuit breaker of %s (%s), open since %s, and no new case comes that could show whether it works\n",
			b.Paused, b.Target, b.Family, b.Since.UTC().Format(time.RFC3339))
	}
	for _, b := range open {
		fmt.Fprintf(&out, "the circuit breaker of %s (%s, tenant %s) is %s since %s: its runs are paused\n",
			b.Target, b.Family, b.Tenant, b.State, b.Since.UTC().Format(time.RFC3339))
	}
	for _, queue := range paused {
		fmt.Fprintf(&out, "the queue %s is paused in asynq: its runs wait until it is unpaused\n", queue)
	}
	if breaches.Excesses > 0 || breaches.Escrows > 0 {
		fmt.Fprintf(&out, "conservation was breached: payments beyond what was adjudicated %d, escrows that committed more than they hold %d\n", breaches.Excesses, breaches.Escrows)
	}
	return out.String()
}

func (m *Main) text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	m.write(w, status, body)
}

func (m *Main) write(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if _, err := io.WriteString(w, body); err != nil {
		m.Log.Debug("a page was not read to its end", zap.Error(err))
	}
}

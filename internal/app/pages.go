package app

import (
	"io"
	"net/http"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
)

const (
	metricsLine = "/metrics   for Prometheus\n"
	index       = `recourse carries adjudicated escrow decisions to settled, or to a person's desk.

/livez     200 while the process runs
/readyz    200 while it can do its work, else 503 and why
` + metricsLine + `/asynqmon  queues and tasks, to look at only
/api/v1    the HTTP API; /api/v1/openapi.json says what it is
`
)

func newMonitor(redis asynq.RedisConnOpt) *asynqmon.HTTPHandler {
	return asynqmon.New(asynqmon.Options{RootPath: "/asynqmon", RedisConnOpt: redis, ReadOnly: true})
}

// routes are the pages. What tells of runs and money asks for a key where one is
// needed; the others tell of this process only.
func (m *Main) routes(monitor http.Handler, face *api.API) http.Handler {
	monitor = face.Guard(access.Queues, looking(monitor))
	mux := http.NewServeMux()
	listed := index
	if m.Options.MetricsListen == "" {
		mux.Handle("GET /metrics", m.here(m.scraped(face)))
	} else {
		listed = strings.Replace(index, metricsLine, "", 1)
	}
	mux.Handle("GET /{$}", m.here(m.page(listed)))
	mux.Handle("GET /livez", m.page("ok\n"))
	mux.Handle("GET /readyz", m.here(m.ready(false)))
	mux.Handle("/asynqmon/", monitor)
	mux.Handle("/asynqmon", monitor)
	mux.Handle(api.Prefix+"/", face)
	if m.Stage != nil {
		mux.Handle("/stage/", loopbackOnly(http.NewCrossOriginProtection().Handler(m.Stage)))
	}
	return framed(mux)
}

// innerRoutes are the pages of MetricsListen. They ask for no key: who reaches that address may
// read them. On loopback that is this machine, and no page in a browser of it.
func (m *Main) innerRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", m.page("ok\n"))
	mux.Handle("GET /readyz", m.ready(true))
	mux.Handle("GET /metrics", m.metrics.page(m.Log))
	var pages http.Handler = mux
	if loopbackAddress(m.Options.MetricsListen) {
		pages = loopbackOnly(pages)
	}
	return framed(locked(pages))
}

// scraped shows the metrics to this machine, and to others with a key that opens what belongs to
// all tenants.
func (m *Main) scraped(face *api.API) http.Handler {
	page := m.metrics.page(m.Log)
	guarded := face.Guard(access.Metrics, page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.local(r) {
			page.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// local reports whether a request came from this machine and was meant for it. A proxy in front
// that keeps the Host header tells others apart; behind any other one MetricsListen has to be used.
func (m *Main) local(r *http.Request) bool {
	return m.Options.MetricsListen == "" && m.Options.loopback() && api.LoopbackName(r.Host)
}

// framed forbids every page to be framed, or taken for another type than it says.
func framed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// here is locked. Where no key is needed it answers only under a loopback name in the Host header.
func (m *Main) here(page http.Handler) http.Handler {
	if !m.Keys {
		page = loopbackOnly(page)
	}
	return locked(page)
}

// locked wraps a page in a policy that forbids it to load anything and to be framed.
func locked(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		page.ServeHTTP(w, r)
	})
}

// loopbackOnly answers only under a loopback name in the Host header: a page in a browser of this
// machine that had its own name resolved to loopback asks under that one.
func loopbackOnly(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !api.LoopbackName(r.Host) {
			http.Error(w, "without keys this is answered under the names of loopback only", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
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
		if strings.HasPrefix(r.URL.Path, "/asynqmon/api/") {
			w.Header().Set("Content-Type", "application/json") // asynqmon says it of its errors only, which are text
		}
		next.ServeHTTP(w, r)
	})
}

func (m *Main) page(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { m.text(w, http.StatusOK, body) })
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

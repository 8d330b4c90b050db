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
	metricsIndexLine = "/metrics   for Prometheus\n"
	indexText        = `recourse carries adjudicated escrow decisions to settled, or to a person's desk.

/livez     200 while the process runs
/readyz    200 while it can do its work, else 503 and why
` + metricsIndexLine + `/asynqmon  queues and tasks, to look at only
/api/v1    the HTTP API; /api/v1/openapi.json says what it is
`
)

func newMonitor(redis asynq.RedisConnOpt) *asynqmon.HTTPHandler {
	return asynqmon.New(asynqmon.Options{RootPath: "/asynqmon", RedisConnOpt: redis, ReadOnly: true})
}

// routes are the pages. What tells of runs and money asks for a key where one is
// needed; the others tell of this process only.
func (m *Main) routes(monitor http.Handler, apiServer *api.API) http.Handler {
	monitor = apiServer.Guard(access.Queues, readOnly(monitor))
	mux := http.NewServeMux()
	listed := indexText
	if m.Options.MetricsListen == "" {
		mux.Handle("GET /metrics", m.localPage(m.metricsHandler(apiServer)))
	} else {
		listed = strings.Replace(indexText, metricsIndexLine, "", 1)
	}
	mux.Handle("GET /{$}", m.localPage(m.textPage(listed)))
	mux.Handle("GET /livez", m.textPage("ok\n"))
	mux.Handle("GET /readyz", m.localPage(m.readyHandler(false)))
	mux.Handle("/asynqmon/", monitor)
	mux.Handle("/asynqmon", monitor)
	mux.Handle(api.Prefix+"/", apiServer)
	if m.DemoHandler != nil {
		mux.Handle("/stage/", loopbackOnly(http.NewCrossOriginProtection().Handler(m.DemoHandler)))
	}
	return forbidFraming(mux)
}

// metricsRoutes are the pages of MetricsListen. They ask for no key: who reaches that address may
// read them. On loopback that is this machine, and no page in a browser of it.
func (m *Main) metricsRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", m.textPage("ok\n"))
	mux.Handle("GET /readyz", m.readyHandler(true))
	mux.Handle("GET /metrics", m.metrics.handler(m.Log))
	var pages http.Handler = mux
	if loopbackAddress(m.Options.MetricsListen) {
		pages = loopbackOnly(pages)
	}
	return forbidFraming(withPagePolicy(pages))
}

// metricsHandler shows the metrics to this machine, and to others with a key that opens what belongs to
// all tenants.
func (m *Main) metricsHandler(apiServer *api.API) http.Handler {
	page := m.metrics.handler(m.Log)
	guarded := apiServer.Guard(access.Metrics, page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.isLocal(r) {
			page.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request came from this machine and was meant for it. A proxy in front
// that keeps the Host header tells others apart; behind any other one MetricsListen has to be used.
func (m *Main) isLocal(r *http.Request) bool {
	return m.Options.MetricsListen == "" && m.Options.loopback() && api.IsLoopbackHost(r.Host)
}

// forbidFraming forbids every page to be framed, or taken for another type than it says.
func forbidFraming(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// localPage is locked. Where no key is needed it answers only under a loopback name in the Host header.
func (m *Main) localPage(page http.Handler) http.Handler {
	if !m.KeysRequired {
		page = loopbackOnly(page)
	}
	return withPagePolicy(page)
}

// withPagePolicy wraps a page in a policy that forbids it to load anything and to be framed.
func withPagePolicy(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		page.ServeHTTP(w, r)
	})
}

// loopbackOnly answers only under a loopback name in the Host header: a page in a browser of this
// machine that had its own name resolved to loopback asks under that one.
func loopbackOnly(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !api.IsLoopbackHost(r.Host) {
			http.Error(w, "without keys this is answered under the names of loopback only", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// readOnly lets only through what changes nothing, whatever the handler would do.
func readOnly(next http.Handler) http.Handler {
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

func (m *Main) textPage(body string) http.Handler {
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

package app

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/api"
	"github.com/recourse-dev/recourse/internal/build"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs"
	"github.com/recourse-dev/recourse/internal/openwop"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

const (
	metricsIndexLine = "/metrics   for Prometheus\n"
	indexText        = `recourse executes adjudicated escrow decisions.

/livez     200 while the process runs
/readyz    200 while the process can work, otherwise 503 with the reasons
` + metricsIndexLine + `/asynqmon  queues and tasks, read-only
/api/v1    the HTTP API, described by /api/v1/openapi.json
/ojs       jobs, as Open Job Spec has them
/v1        runs, as OpenWOP has them, discovered by /.well-known/openwop
`
)

func newMonitor(redis asynq.RedisConnOpt) *asynqmon.HTTPHandler {
	return asynqmon.New(asynqmon.Options{RootPath: "/asynqmon", RedisConnOpt: redis, ReadOnly: true})
}

// routes returns the pages. Pages about runs and money require a key if KeysRequired is set; the
// others are about this process only.
func (m *Main) routes(monitor http.Handler, apiServer *api.API) *http.ServeMux {
	monitor = apiServer.Require(access.Queues, readOnly(monitor))
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
	mux.Handle(api.Prefix, apiServer)
	mux.Handle(api.Prefix+"/", apiServer)
	if m.DemoHandler != nil {
		mux.Handle("/demo/", door.LoopbackOnly(http.NewCrossOriginProtection().Handler(m.DemoHandler)))
	}
	return mux
}

// serveJobs adds the pages of Open Job Spec.
func (m *Main) serveJobs(pages *http.ServeMux, shared *door.Door) {
	server := ojs.New(ojs.Config{Service: m.Service, Door: shared, Log: m.Log, Version: build.Read().Version, Test: m.testMode})
	pages.Handle(ojs.Prefix, server)
	pages.Handle(ojs.Prefix+"/", server)
	if m.testMode != nil {
		pages.Handle(ojs.TestPrefix+"/", server.Tests(func(ctx context.Context) error { return prune(ctx, m.Service) }))
	}
}

// pruneAgainAfter is the pause before a round of retention is tried again.
const pruneAgainAfter = 10 * time.Millisecond

// prune runs a round of retention. A round at intervals that is running began before the time passed:
// prune waits for its end.
func prune(ctx context.Context, service *postadjudication.Service) error {
	for {
		report, err := service.Prune(ctx)
		if err != nil || report.Ran {
			return err
		}
		select {
		case <-time.After(pruneAgainAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serveRuns adds the pages of OpenWOP.
func (m *Main) serveRuns(ctx context.Context, pages *http.ServeMux, shared *door.Door) error {
	config := openwop.Config{Service: m.Service, Door: shared, Log: m.Log, Version: build.Read().Version, Now: m.now()}
	if m.testMode != nil {
		config.Workflows = m.fixtures.Workflows()
		config.Test = &openwop.TestMode{Fixtures: m.fixtures.Advertised()}
	}
	families := []string{postadjudication.Family}
	for _, w := range config.Workflows {
		families = append(families, w.ID)
	}
	rules, err := m.Service.As("", "").DeadLetters.Retention(ctx)
	if err != nil {
		return err
	}
	if config.RetentionDays, err = retentionDays(rules, families); err != nil {
		return err
	}
	server, err := openwop.New(config)
	if err != nil {
		return err
	}
	for _, path := range []string{openwop.DiscoveryPath, openwop.Prefix, openwop.Prefix + "/", "/runs", "/runs/", "/workflows/"} {
		pages.Handle(path, server)
	}
	return nil
}

// retentionDays returns for how many whole days the rules keep every dead letter of some families.
// OpenWOP promises that time, which a rule by number can't keep.
func retentionDays(rules []retention.Effective, families []string) (int, error) {
	least := time.Duration(math.MaxInt64)
	for _, r := range rules {
		if !slices.Contains(families, r.Family) {
			continue
		}
		if r.MaxCount > 0 {
			return 0, optionError("--retain keeps dead letters of %s by number: OpenWOP promises a time for which they can be forked; leave the number out, or give --no-openwop", r.Family)
		}
		least = min(least, time.Duration(r.MaxAge))
	}
	days := int(least / (24 * time.Hour))
	if days < 1 {
		return 0, optionError("--retain keeps dead letters for less than a day: OpenWOP promises whole days for which they can be forked; keep them longer, or give --no-openwop")
	}
	return days, nil
}

// now returns the clock of the service.
func (m *Main) now() func() time.Time {
	if m.Now != nil {
		return m.Now
	}
	return time.Now
}

// metricsRoutes returns the pages of MetricsListen. They require no key: everyone who can reach the
// address may read them. On loopback they refuse web pages that resolve their own name to it.
func (m *Main) metricsRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", m.textPage("ok\n"))
	mux.Handle("GET /readyz", m.readyHandler(true))
	mux.Handle("GET /metrics", m.metrics.handler(m.Log))
	var pages http.Handler = mux
	if door.IsLoopbackHost(m.Options.MetricsListen) {
		pages = door.LoopbackOnly(pages)
	}
	return forbidFraming(withPagePolicy(pages))
}

// metricsHandler serves the metrics to this machine without a key, and to others with a key that
// covers all tenants.
func (m *Main) metricsHandler(apiServer *api.API) http.Handler {
	page := m.metrics.handler(m.Log)
	guarded := apiServer.Require(access.Metrics, page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.isLocal(r) {
			page.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// isLocal reports whether a request came from this machine and names it as its host. A proxy on
// this machine must keep the Host header; behind any other proxy use MetricsListen.
func (m *Main) isLocal(r *http.Request) bool {
	return m.Options.MetricsListen == "" && m.Options.loopback() && door.IsLoopbackHost(r.Host)
}

// withoutRedirects has a path such as /ojs//v1/jobs answered by the page of its beginning. A mux redirects it in its own form
// of answer, in which a client may send its body a second time. No path leads to another page than that of its beginning, past
// a proxy that lets some pages through: a part . or .. ends the beginning, and an encoded slash or dot is one of a name.
func withoutRedirects(pages *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if door.IsCanonical(r.URL.EscapedPath()) {
			pages.ServeHTTP(w, r)
			return
		}
		parts := strings.FieldsFunc(r.URL.EscapedPath(), func(c rune) bool { return c == '/' })
		switch dots := slices.IndexFunc(parts, func(part string) bool { return part == "." || part == ".." }); {
		case dots == 0:
			http.NotFound(w, r)
			return
		case dots > 0:
			parts = append(parts[:dots:dots], "/")
		}
		begins := r.Clone(r.Context())
		begins.URL = (&url.URL{Path: "/"}).JoinPath(parts...)
		page, _ := pages.Handler(begins)
		page.ServeHTTP(w, r)
	})
}

// forbidFraming sets headers that forbid framing and content sniffing on every page.
func forbidFraming(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// localPage sets the page policy. If no keys are required it answers only with a loopback name in
// the Host header.
func (m *Main) localPage(page http.Handler) http.Handler {
	if !m.KeysRequired {
		page = door.LoopbackOnly(page)
	}
	return withPagePolicy(page)
}

// withPagePolicy sets a policy that forbids the page to load anything and to be framed.
func withPagePolicy(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		page.ServeHTTP(w, r)
	})
}

// readOnly passes only GET and HEAD requests to the handler, and none of a path that it would redirect to another page.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this page is read-only", http.StatusMethodNotAllowed)
			return
		}
		if !door.IsCanonical(r.URL.EscapedPath()) {
			http.NotFound(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/asynqmon/api/") {
			w.Header().Set("Content-Type", "application/json") // asynqmon sets a type only on its errors, which are text
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
		m.Log.Debug("a page could not be written completely", zap.Error(err))
	}
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Prefix is the path prefix of the API.
const Prefix = "/api/v1"

// DescriptionPath is the path of the OpenAPI description. It needs no key.
const DescriptionPath = Prefix + "/openapi.json"

// Keyless admits requests without a key as Local, with every role. It is for loopback only.
type Keyless struct {
	Tenant string // of requests that name none; empty: a request must name one
}

// Config holds what an API needs.
type Config struct {
	Service *postadjudication.Service
	Keyless *Keyless         // nil: a key is always needed
	Log     *zap.Logger      // none when nil
	Now     func() time.Time // time.Now when nil

	RequestLevel zapcore.Level     // level of the log line of each request
	OnRefusal    func(code string) // called for each request refused with 401, 403 or 429; must not block; may be nil
}

// API serves /api/v1. It is safe for concurrent use.
type API struct {
	service      *postadjudication.Service
	keyless      *Keyless
	log          *zap.Logger
	now          func() time.Time
	keys         *access.Keyring
	keyFailures  *keyedLimiter // requests without a valid key, by address
	keyLookups   *keyedLimiter // lookups of uncached keys, by addresses that failed too often
	keyRefusals  *keyedLimiter // refusals that leave a receipt, by key
	expiringKeys expiringKeys
	access       *accessLog
	onRefusal    func(code string)

	mux         *http.ServeMux
	description *huma.OpenAPI
	actions     map[string]access.Action // by operation id
	streamQuota *quota                   // open streams and long polls
	batchQuota  *quota                   // bytes of batches in work
	reads       *tenantlimit.Limit       // requests that read
	ctx         context.Context          // done after Stop
	stop        context.CancelFunc
	loops       sync.WaitGroup
	handler     http.Handler
}

// New returns an API whose background loops run until Stop.
func New(c Config) (*API, error) {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &API{
		service: c.Service, keyless: c.Keyless, log: c.Log, now: c.Now, mux: http.NewServeMux(), actions: map[string]access.Action{},
		expiringKeys: expiringKeys{byPrefix: map[string]expiringKey{}},
		streamQuota:  newQuota(maxStreams, maxTenantStreams, maxKeyStreams), batchQuota: newQuota(maxProcessBatchBytes, maxTenantBatchBytes, 0),
		reads: tenantlimit.New(maxReads, maxTenantReads),
	}
	if a.onRefusal = c.OnRefusal; a.onRefusal == nil {
		a.onRefusal = func(string) {}
	}
	a.access = &accessLog{log: c.Log.Named(AccessLogger), level: c.RequestLevel, byAddress: map[string]*failureCount{}}
	var err error
	if a.keys, err = access.NewKeyring(c.Service.KeyStore(), c.Now, func(err error) { c.Log.Warn("failed to record the use of a key", zap.Error(err)) }); err != nil {
		return nil, err
	}
	if a.keyFailures, err = newKeyedLimiter(failuresPerSecond, failureBurst); err != nil {
		return nil, err
	}
	if a.keyLookups, err = newKeyedLimiter(lookupsPerSecond, lookupBurst); err != nil {
		return nil, err
	}
	if a.keyRefusals, err = newKeyedLimiter(refusalsPerSecond, refusalBurst); err != nil {
		return nil, err
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	if err := a.describe(); err != nil {
		a.stop()
		return nil, err
	}
	// A page of another origin, opened in a browser that can reach this server, changes nothing.
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.writeProblem(w, newProblem(http.StatusForbidden, "cross_origin", "a page of another origin may not change anything"))
	}))
	a.handler = crossOrigin.Handler(http.HandlerFunc(a.serve))
	a.loops.Go(func() { a.access.run(a.ctx) })
	return a, nil
}

// Stop ends the streams and long polls, so that the server can shut down, and waits for the
// background loops.
func (a *API) Stop() {
	a.stop()
	a.loops.Wait()
}

// ServeHTTP serves every path under Prefix.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		panicked := recover()
		if panicked == nil {
			return
		}
		if err, ok := panicked.(error); !ok || !errors.Is(err, http.ErrAbortHandler) { // its cause is already logged
			a.log.Error("a request panicked", zap.String("request", requestName(r)), zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
		}
		panic(http.ErrAbortHandler)
	}()
	w, logRequest := a.access.recordStatus(w, r)
	defer logRequest()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	a.handler.ServeHTTP(w, r)
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == DescriptionPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		a.mux.ServeHTTP(w, r)
		return
	}
	c, err := a.authenticate(r)
	a.recordCaller(w, c)
	if err != nil {
		a.writeProblem(w, err)
		return
	}
	c.requestName = requestName(r)
	handler, pattern := a.mux.Handler(r)
	if pattern == "" {
		a.writeProblem(w, noRouteProblem(handler, r))
		return
	}
	a.mux.ServeHTTP(w, r.WithContext(a.withCaller(r.Context(), c)))
}

// noRouteProblem returns the problem of a request that no route matches: 404 for an unknown
// path, 405 for a method that the path does not have. The mux answers both in plain text.
func noRouteProblem(handler http.Handler, r *http.Request) *Problem {
	answer := &headRecorder{header: http.Header{}}
	handler.ServeHTTP(answer, r)
	if answer.status == http.StatusMethodNotAllowed {
		p := newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "%s does not allow %s: see %s", r.URL.Path, r.Method, DescriptionPath)
		p.allow = answer.header.Get("Allow")
		return p
	}
	return newProblem(http.StatusNotFound, "no_such_path", "there is no path %s: see %s", r.URL.Path, DescriptionPath)
}

// headRecorder keeps the status and the header of an answer and discards its body.
type headRecorder struct {
	header http.Header
	status int
}

func (m *headRecorder) Header() http.Header         { return m.header }
func (m *headRecorder) WriteHeader(status int)      { m.status = status }
func (m *headRecorder) Write(b []byte) (int, error) { return len(b), nil }

// Description returns the OpenAPI 3.1 document as it is served and committed.
func (a *API) Description() ([]byte, error) {
	text, err := json.MarshalIndent(a.description, "", " ")
	return append(text, '\n'), err
}

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Prefix is where the API is.
const Prefix = "/api/v1"

// DescriptionPath is where it says what it is. No key is needed there.
const DescriptionPath = Prefix + "/openapi.json"

// Open lets requests without a key pass, as Local with every role. It is for loopback.
type Open struct {
	Tenant string // of requests that name none; empty: they must
}

// Config says what an API is made of.
type Config struct {
	Service *postadjudication.Service
	Open    *Open            // nil: a key is always needed
	Log     *zap.Logger      // none when nil
	Now     func() time.Time // time.Now when nil

	RequestLevel zapcore.Level     // at which each request is logged
	OnRefusal    func(code string) // of each request that is refused for who asks (401, 403, 429); it must not block; nil: nobody is told
}

// API serves /api/v1. It is safe for concurrent use.
type API struct {
	service   *postadjudication.Service
	open      *Open
	log       *zap.Logger
	now       func() time.Time
	keys      *access.Keyring
	failed    *failures // to show a key
	lookups   *failures // of keys that were never found here, by addresses that failed too often
	refused   *failures // by keys, wherever that leaves a receipt
	ends      keyEnds
	access    *accessLog
	onRefusal func(code string)

	mux         *http.ServeMux
	description *huma.OpenAPI
	actions     map[string]access.Action // of each operation, by its id
	streams     *shares                  // streams and long polls that are open
	batches     *shares                  // bytes of batches that are worked on
	ctx         context.Context          // ends with Stop
	stop        context.CancelFunc
	watching    sync.WaitGroup
	handler     http.Handler
}

// New makes one. Stop ends it.
func New(c Config) (*API, error) {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &API{
		service: c.Service, open: c.Open, log: c.Log, now: c.Now, mux: http.NewServeMux(), actions: map[string]access.Action{},
		ends:    keyEnds{by: map[string]keyEnding{}},
		streams: newShares(mostStreams, streamsOfTenant, streamsOfKey), batches: newShares(batchesOfProcess, batchesOfTenant, 0),
	}
	if a.onRefusal = c.OnRefusal; a.onRefusal == nil {
		a.onRefusal = func(string) {}
	}
	a.access = &accessLog{log: c.Log.Named(AccessLogger), level: c.RequestLevel, by: map[string]*failing{}}
	var err error
	if a.keys, err = access.NewKeyring(c.Service.KeyStore(), c.Now, func(err error) { c.Log.Warn("the use of a key was not noted", zap.Error(err)) }); err != nil {
		return nil, err
	}
	if a.failed, err = newFailures(failuresPace, failuresAtOnce); err != nil {
		return nil, err
	}
	if a.lookups, err = newFailures(lookupsPace, lookupsAtOnce); err != nil {
		return nil, err
	}
	if a.refused, err = newFailures(refusalsPace, refusalsAtOnce); err != nil {
		return nil, err
	}
	a.ctx, a.stop = context.WithCancel(context.Background())
	if err := a.describe(); err != nil {
		a.stop()
		return nil, err
	}
	// A page of another origin, opened in a browser that can reach us, changes nothing.
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.say(w, newProblem(http.StatusForbidden, "cross_origin", "a page of another origin may not change anything here"))
	}))
	a.handler = foreign.Handler(http.HandlerFunc(a.serve))
	a.watching.Go(func() { a.access.watch(a.ctx) })
	return a, nil
}

// Stop ends the streams and the waiting, so that the server can shut down.
func (a *API) Stop() {
	a.stop()
	a.watching.Wait()
}

// ServeHTTP answers everything under Prefix.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		broken := recover()
		if broken == nil {
			return
		}
		if broken != http.ErrAbortHandler { // that one was told where it arose
			a.log.Error("a request broke", zap.String("request", requested(r)), zap.Any("panic", broken), zap.ByteString("stack", debug.Stack()))
		}
		panic(http.ErrAbortHandler)
	}()
	w, logged := a.access.record(w, r)
	defer logged()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	a.handler.ServeHTTP(w, r)
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == DescriptionPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		a.mux.ServeHTTP(w, r)
		return
	}
	c, err := a.admit(r)
	a.admitted(w, c)
	if err != nil {
		a.say(w, err)
		return
	}
	c.request = requested(r)
	handler, pattern := a.mux.Handler(r)
	if pattern == "" {
		a.say(w, noSuch(handler, r))
		return
	}
	a.mux.ServeHTTP(w, r.WithContext(a.withCaller(r.Context(), c)))
}

// noSuch tells a path that is not there from a method that it does not have, as the
// mux does in plain text.
func noSuch(handler http.Handler, r *http.Request) *Problem {
	answer := &muted{header: http.Header{}}
	handler.ServeHTTP(answer, r)
	if answer.status == http.StatusMethodNotAllowed {
		p := newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not for %s: see %s", r.URL.Path, r.Method, DescriptionPath)
		p.allow = answer.header.Get("Allow")
		return p
	}
	return newProblem(http.StatusNotFound, "no_such_path", "there is no %s: see %s", r.URL.Path, DescriptionPath)
}

// muted keeps the head of an answer and throws its body away.
type muted struct {
	header http.Header
	status int
}

func (m *muted) Header() http.Header         { return m.header }
func (m *muted) WriteHeader(status int)      { m.status = status }
func (m *muted) Write(b []byte) (int, error) { return len(b), nil }

// Description is the OpenAPI 3.1 document, as it is served and committed.
func (a *API) Description() ([]byte, error) {
	text, err := json.MarshalIndent(a.description, "", " ")
	return append(text, '\n'), err
}

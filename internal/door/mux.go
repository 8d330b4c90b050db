package door

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/redact"
)

// Format is how one door reads bodies and renders refusals.
type Format struct {
	MediaTypes        []string // of bodies, in UTF-8; the first is that of a body that names none
	Description       string   // path that refusals of an unknown path or method point to; empty: none
	Headers           []string // headers of an answer that are stored and repeated with it, besides Content-Type and Location
	HandlersCheckJSON bool     // false: the Mux takes only one strict JSON object as a body
	Idempotency       Idempotency
	// WriteRefusal writes a status and a body. Headers of Refusal.Headers are set before.
	WriteRefusal func(w http.ResponseWriter, r *http.Request, refused *Refusal) error
}

// Route says who may make a request, and what its body is.
type Route struct {
	Action     access.Action
	Also       access.Action           // required too; empty: none
	MaxBody    int64                   // in bytes; 0: DefaultMaxBody
	CheckBody  func(body []byte) error // called with a body that is not empty; may be nil
	ReadsBody  bool                    // the handler reads the body itself: it gets none, and no answer is stored
	Repeatable bool                    // safe to repeat without an Idempotency-Key: no answer is stored
	Secret     string                  // member of the answer that is left out of the stored answer
	Outage     Outage                  // what is known after an outage; zero: OutageNothingDone of a GET, else OutageOfAction
}

// Handler answers a request that its caller may make. The body is nil if it is empty, of a GET or a HEAD, and
// on a Route that ReadsBody. An error is written as the refusal that Door.RefusalOf returns for it: a handler
// that returns one must have written nothing.
type Handler func(w http.ResponseWriter, r *http.Request, c Caller, body []byte) error

// Mux is one door: it routes the requests of its paths, and refuses in its format. It is safe for
// concurrent use once all routes are registered.
type Mux struct {
	door    *Door
	format  Format
	routes  *http.ServeMux
	public  map[string]bool // patterns that need no key
	handler http.Handler
}

// NewMux returns a door without routes.
func (d *Door) NewMux(f Format) *Mux {
	m := &Mux{door: d, format: f, routes: http.NewServeMux(), public: map[string]bool{}}
	// A page of another origin, opened in a browser that can reach this server, changes nothing.
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.Refuse(w, r, NewRefusal(http.StatusForbidden, "cross_origin", "a page of another origin may not change anything"))
	}))
	m.handler = crossOrigin.Handler(http.HandlerFunc(m.serve))
	return m
}

// Handle registers a handler for a pattern of http.ServeMux. It checks role and query, then, of a
// method other than GET and HEAD, media type, size and JSON, and then Idempotency-Key. A path parameter {run}
// or {case} is the run or case of a refusal's receipt.
func (m *Mux) Handle(pattern string, route Route, do Handler) {
	m.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		w = &deadlineResponse{ResponseWriter: w, answers: m.door.answerQuota, caller: requestOf(r.Context()).caller}
		if err := m.admit(w, r, route, do); err != nil {
			m.refuseUnread(w, r, err)
		}
	})
}

// HandlePublic registers a handler that needs no key.
func (m *Mux) HandlePublic(pattern string, handler http.Handler) {
	m.public[pattern] = true
	m.routes.Handle(pattern, handler)
}

// ServeHTTP answers a request. Only a public route is reached without a caller.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		panicked := recover()
		if panicked == nil {
			return
		}
		if err, ok := panicked.(error); !ok || !errors.Is(err, http.ErrAbortHandler) { // its cause is already logged
			m.door.log.Error("a request panicked", zap.String("request", requestName(r)), zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
		}
		panic(http.ErrAbortHandler)
	}()
	w, logRequest := m.record(w, r)
	defer logRequest()
	m.handler.ServeHTTP(w, r)
}

// ServeRefusal answers a request with a refusal, before its key and route are looked at.
func (m *Mux) ServeRefusal(w http.ResponseWriter, r *http.Request, err error) {
	w, logRequest := m.record(w, r)
	defer logRequest()
	m.Refuse(w, r, err)
}

// record sets the headers of every answer. The returned function logs the request.
func (m *Mux) record(w http.ResponseWriter, r *http.Request) (recorded http.ResponseWriter, log func()) {
	recorded, log = m.door.access.recordStatus(w, r)
	recorded.Header().Set("Cache-Control", "no-store")
	recorded.Header().Set("X-Content-Type-Options", "nosniff")
	return recorded, log
}

func (m *Mux) serve(w http.ResponseWriter, r *http.Request) {
	handler, pattern := m.routes.Handler(r)
	if !IsCanonical(r.URL.EscapedPath()) { // the mux would redirect it
		pattern = ""
	}
	if m.public[pattern] {
		m.routes.ServeHTTP(w, r)
		return
	}
	c, err := m.door.authenticate(r)
	m.door.recordCaller(w, c)
	r = m.door.withCaller(r, c)
	switch {
	case err != nil:
		m.Refuse(w, r, err)
	case pattern == "":
		m.Refuse(w, r, m.noRoute(handler, r))
	default:
		m.routes.ServeHTTP(w, r)
	}
}

// IsCanonical reports whether an escaped path has no empty part, and none that is . or ... Another path is none of a door.
func IsCanonical(of string) bool {
	clean := path.Clean(of)
	return clean == of || clean+"/" == of
}

// admit calls do if the caller may make the request, and the request can be read.
func (m *Mux) admit(w http.ResponseWriter, r *http.Request, route Route, do Handler) error {
	admitted := requestOf(r.Context())
	admitted.outage = route.outage(r.Method)
	if !utf8.ValidString(r.URL.Path) || strings.ContainsRune(r.URL.Path, 0) { // nothing that is stored has such a name
		return NewRefusal(http.StatusNotFound, "not_found", "the path is no text")
	}
	if err := m.door.authorize(r, admitted.caller, route.Action); err != nil {
		return err
	}
	if route.Also != "" {
		if err := m.door.authorize(r, admitted.caller, route.Also); err != nil {
			return err
		}
	}
	if err := checkQuery(r); err != nil {
		return err
	}
	if route.ReadsBody || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return do(w, r, admitted.caller, nil)
	}
	return m.readBody(w, r, route, func(body []byte) error {
		if keys := r.Header.Values("Idempotency-Key"); len(keys) > 0 && !route.Repeatable {
			return m.doOnce(w, r, route, keys, body, do)
		}
		return do(w, r, admitted.caller, body)
	})
}

func (route Route) outage(method string) Outage {
	if method == http.MethodGet || method == http.MethodHead {
		return cmp.Or(route.Outage, OutageNothingDone)
	}
	return cmp.Or(route.Outage, OutageOfAction)
}

// Refuse writes the refusal of an error.
func (m *Mux) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	refused := m.door.RefusalOf(r.Context(), err)
	m.door.CountRefusal(refused)
	for name, values := range refused.Headers() {
		for _, value := range values {
			w.Header().Add(name, value)
		}
	}
	if err := m.format.WriteRefusal(w, r, refused); err != nil {
		m.door.log.Debug("failed to write a refusal", zap.Error(err))
	}
}

const (
	// maxServerReads is how many bytes of an unread body net/http reads itself before it closes the connection.
	maxServerReads = 256 << 10
	// maxUnread and unreadTimeout are how many bytes of the body of a refused request are read, and for how long: twice
	// the longest body that a route takes.
	maxUnread     = 32 << 20
	unreadTimeout = 5 * time.Second
)

// refuseUnread writes the refusal of a request of a known caller, and then reads, up to a limit, what is left of a long
// body. If the connection were closed with unread bytes, a client that writes its whole body before it reads
// would find the connection broken, and not the answer.
func (m *Mux) refuseUnread(w http.ResponseWriter, r *http.Request, err error) {
	if r.ContentLength >= 0 && r.ContentLength <= maxServerReads {
		m.Refuse(w, r, err)
		return
	}
	// Errors of the connection show in what is read and written. Nothing is left to do about them.
	connection := http.NewResponseController(w)
	_ = connection.EnableFullDuplex()
	m.Refuse(w, r, err)
	_ = connection.Flush()
	_ = connection.SetReadDeadline(time.Now().Add(unreadTimeout))
	_, _ = io.CopyN(io.Discard, r.Body, maxUnread)
}

// noRoute returns the refusal of a request that no route matches: 404 for an unknown path, 405
// for a method that the path does not have. The mux answers both in plain text.
func (m *Mux) noRoute(handler http.Handler, r *http.Request) *Refusal {
	answer := &headRecorder{header: http.Header{}}
	handler.ServeHTTP(answer, r)
	refused := NewRefusal(http.StatusNotFound, "no_such_path", "there is no path %s", redact.Text(r.URL.Path))
	if answer.status == http.StatusMethodNotAllowed {
		refused = NewRefusal(http.StatusMethodNotAllowed, "method_not_allowed", "%s does not allow %s", redact.Text(r.URL.Path), r.Method)
		refused.Allow = answer.header.Get("Allow")
	}
	if m.format.Description != "" {
		refused.Detail += ": see " + m.format.Description
	}
	return refused
}

// headRecorder keeps the status and the header of an answer and discards its body.
type headRecorder struct {
	header http.Header
	status int
}

func (m *headRecorder) Header() http.Header         { return m.header }
func (m *headRecorder) WriteHeader(status int)      { m.status = status }
func (m *headRecorder) Write(b []byte) (int, error) { return len(b), nil }

// answerTimeout is how long a reader may take to read an answer; streams set their own deadline.
const answerTimeout = 30 * time.Second

// deadlineResponse starts the write deadline with the first byte of the answer, so that an
// operation that took long can still be answered. A long answer is counted until it is written.
type deadlineResponse struct {
	http.ResponseWriter
	started bool
	answers *quota
	caller  Caller
}

// Unwrap is for http.ResponseController.
func (w *deadlineResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineResponse) WriteHeader(status int) {
	w.start()
	w.ResponseWriter.WriteHeader(status)
}

func (w *deadlineResponse) Write(b []byte) (int, error) {
	w.start()
	if len(b) > maxUncountedAnswer {
		defer w.answers.hold(w.caller, int64(len(b)))()
	}
	return w.ResponseWriter.Write(b)
}

func (w *deadlineResponse) start() {
	if w.started {
		return
	}
	w.started = true
	// A writer may not support deadlines; on a closed connection Write returns the error.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout))
}

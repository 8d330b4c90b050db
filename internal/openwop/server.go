package openwop

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
)

// The paths of the door.
const (
	Prefix        = "/v1"
	DiscoveryPath = "/.well-known/openwop"

	runs = Prefix + "/runs"
)

// maxBody is the maximum length of a body in bytes. That of an adjudication is the same at /api/v1.
const maxBody = 64 << 10

// Config holds what a Server needs.
type Config struct {
	Service       *postadjudication.Service
	Door          *door.Door
	Log           *zap.Logger
	Version       string           // of the program
	RetentionDays int              // for how many days a dead-lettered run can be read and forked; at least 1
	Now           func() time.Time // the clock of Service
	Workflows     []spec.Workflow  // one for each plain family; the id of a workflow is the name of its family
	Test          *TestMode        // nil: none
}

// TestMode configures a process in test mode.
type TestMode struct {
	Fixtures []string // workflows for conformance tests
}

// Server serves the paths of the door. It is safe for concurrent use.
type Server struct {
	Config
	mux       *door.Mux
	workflows map[string]spec.Workflow // by family
	followers followers
	discovery document
	openAPI   document
	idle      time.Duration // see idle
}

// New returns a server of the runs of a service.
func New(c Config) (*Server, error) {
	s := &Server{Config: c, workflows: map[string]spec.Workflow{postadjudication.Family: settlement}, idle: idle}
	s.followers = followers{service: c.Service, stopping: c.Door.Stopping(), byTenant: map[string]*follower{}}
	var fixtures []string
	if c.Test != nil {
		fixtures = c.Test.Fixtures
	}
	for _, w := range c.Workflows {
		s.workflows[w.ID] = w
	}
	var err error
	if s.discovery, err = newDocument(spec.Discover(c.Version, c.RetentionDays, fixtures)); err != nil {
		return nil, err
	}
	if s.openAPI, err = newDocument(json.RawMessage(openAPI)); err != nil {
		return nil, err
	}
	s.mux = c.Door.NewMux(door.Format{
		MediaTypes: []string{"application/json"}, HandlersCheckJSON: true, WriteRefusal: writeRefusal, Headers: []string{caseHeader},
		Idempotency: door.Idempotency{ReplayedHeader: "openwop-Idempotent-Replay", CheckKey: func(key string) error { return refusalOf(spec.CheckKey(key)) }, PerRoute: true, IsFinal: isFinal},
	})
	s.mux.HandlePublic("GET "+DiscoveryPath, s.discovery)
	s.mux.HandlePublic("GET "+Prefix+"/openapi.json", s.openAPI)
	for _, o := range s.operations() {
		s.handle(o)
	}
	return s, nil
}

// operation is a request that the door answers.
type operation struct {
	pattern string // method and path
	action  access.Action
	do      func(http.ResponseWriter, request) error
}

// forkSegment is the last segment of the path that a request for /v1/runs/{runId}:fork is routed to: a
// pattern of http.ServeMux has no parameter within a segment.
const forkSegment = ":fork"

func (s *Server) operations() []operation {
	all := []operation{
		{"POST " + runs, access.Submit, s.create},
		{"GET " + runs + "/{run}", access.Read, s.read},
		{"GET " + runs + "/{run}/events/poll", access.Read, s.poll},
		{"GET " + runs + "/{run}/events", access.Read, s.stream},
		{"POST " + runs + "/{run}/" + forkSegment, access.Fork, s.fork},
		{"POST " + runs + "/{run}/cancel", access.Cancel, s.cancel},
		{"GET " + Prefix + "/workflows/{workflow}", access.Read, s.workflow},
	}
	if s.Test != nil {
		all = append(all, operation{"POST " + ExhaustPath, access.Submit, s.exhaust})
	}
	return all
}

func (s *Server) handle(o operation) {
	s.mux.Handle(o.pattern, door.Route{Action: o.action, MaxBody: maxBody}, func(w http.ResponseWriter, r *http.Request, c door.Caller, body []byte) error {
		return refusalOf(o.do(w, request{r, c, body, s.Service.As(c.Tenant, c.Principal)}))
	})
}

// ServeHTTP serves every path of the door.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if id, is := strings.CutSuffix(r.URL.Path, forkSegment); is && !strings.HasSuffix(id, "/") {
		routed := r.Clone(r.Context())
		routed.URL.Path, routed.URL.RawPath = id+"/"+forkSegment, ""
		r = routed
	}
	if !strings.HasPrefix(r.URL.Path, Prefix+"/") && r.URL.Path != DiscoveryPath {
		s.mux.ServeRefusal(w, r, refusalOf(spec.Invalid(spec.Problem{Problem: "the path has no version: it begins with " + Prefix})))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// inReadSlot runs f in a slot of the tenant's reads.
func (s *Server) inReadSlot(ctx context.Context, tenant string, f func() error) error {
	var err error
	if waited := s.Door.Read(ctx, tenant, func() { err = f() }); waited != nil {
		return waited
	}
	return err
}

// write writes an answer.
func (s *Server) write(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.WriteHeader(status)
	if _, err := w.Write(append(text, '\n')); err != nil {
		s.Log.Debug("failed to write an answer", zap.Error(err))
	}
	return nil
}

// absolute returns the URL of a path as the client of a request reaches it.
func absolute(r *http.Request, path string) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host + path
}

package ojs

import (
	"context"
	"net/http"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// Prefix is the path prefix of the door.
const Prefix = "/ojs"

// CaseHeader is the header of answers about one job that names its case, whose receipts /api/v1 shows.
const CaseHeader = "Recourse-Case"

const (
	root        = Prefix + "/v1"
	deadLetters = root + "/dead-letter"
	adminPath   = root + "/admin/dead-letter" // the same operations, as the admin document has them
)

// Config holds what a Server needs.
type Config struct {
	Service *postadjudication.Service // with Config.Jobs
	Door    *door.Door
	Log     *zap.Logger
	Version string         // of the program
	Test    *door.TestMode // nil: none
}

// Server serves /ojs. It is safe for concurrent use.
type Server struct {
	service *postadjudication.Service
	door    *door.Door
	log     *zap.Logger
	version string
	test    *door.TestMode
	began   time.Time
	store   storeCheck
	mux     *door.Mux
	oneDuty *expirable.LRU[string, struct{}] // principals that fetch from a payment queue, and decide nothing
}

// New returns a server of the jobs of a service.
func New(c Config) *Server {
	s := &Server{service: c.Service, door: c.Door, log: c.Log, version: c.Version, test: c.Test, began: time.Now(), oneDuty: expirable.NewLRU[string, struct{}](4096, nil, time.Minute)}
	s.mux = c.Door.NewMux(door.Format{MediaTypes: []string{"application/json", mediaType}, HandlersCheckJSON: true, Headers: []string{CaseHeader}, WriteRefusal: s.writeRefusal})
	s.mux.HandlePublic("GET "+Prefix+"/manifest", http.HandlerFunc(s.manifest))
	s.mux.HandlePublic("GET "+root+"/health", http.HandlerFunc(s.health))
	for _, o := range s.operations() {
		s.handle(o)
	}
	return s
}

// operation is a request that the door answers.
type operation struct {
	pattern    string // method and path
	action     access.Action
	also       access.Action // required too; empty: none
	repeatable bool          // safe to repeat without an Idempotency-Key: no answer is stored
	do         func(request) (answer, error)
}

// request is a request whose caller may make it.
type request struct {
	*http.Request
	caller   door.Caller
	body     []byte
	jobs     jobs.Jobs // of the caller's tenant, in the caller's name
	breakers postadjudication.TenantBreakers
}

// parsed returns what parse reads in the body of a request, in the tenant's turn if it is long.
func parsed[T any](q request, parse func(body []byte) (T, error)) (out T, err error) {
	if waited := tenantlimit.InTurn(q.Context(), q.caller.Tenant, len(q.body), func() { out, err = parse(q.body) }); waited != nil {
		return out, waited
	}
	return out, err
}

// answer is the answer to a request that is not refused.
type answer struct {
	status   int // 0: 200
	body     []byte
	location string
	caseID   background.CaseID // of the job that the answer is about: sent as CaseHeader; zero: none
}

func (s *Server) operations() []operation {
	all := []operation{
		{pattern: "GET " + root + "/queues", action: access.Read, do: listQueues},
		{pattern: "GET " + root + "/queues/{queue}/stats", action: access.List, do: queueStats},
		{pattern: "POST " + root + "/queues/{queue}/pause", action: access.Breaker, do: pauseQueue},
		{pattern: "POST " + root + "/queues/{queue}/resume", action: access.Breaker, do: resumeQueue},
		{pattern: "POST " + root + "/jobs/batch", action: access.Submit, do: enqueueBatch},
		{pattern: "POST " + root + "/jobs", action: access.Submit, do: s.enqueue},
		{pattern: "GET " + root + "/jobs/{id}", action: access.Read, do: getJob},
		{pattern: "DELETE " + root + "/jobs/{id}", action: access.Cancel, do: cancelJob},
		{pattern: "POST " + root + "/jobs/{id}/activate", action: access.Submit, do: activateJob},
		{pattern: "POST " + root + "/workers/fetch", action: access.Work, repeatable: true, do: s.fetchJobs},
		{pattern: "POST " + root + "/workers/ack", action: access.Work, repeatable: true, do: ackJob},
		{pattern: "POST " + root + "/workers/nack", action: access.Work, repeatable: true, do: nackJob},
		{pattern: "POST " + root + "/workers/heartbeat", action: access.Work, repeatable: true, do: s.heartbeat},
		{pattern: "GET " + root + "/events", action: access.Read, do: listEvents},
		{pattern: "GET " + deadLetters, action: access.List, do: listLetters},
		{pattern: "GET " + adminPath, action: access.List, do: listLettersByAdmin},
		{pattern: "POST " + root + "/admin/jobs/bulk/retry", action: access.BulkPlan, also: access.BulkRun, do: s.bulkRetry},
		{pattern: "POST " + deadLetters + "/purge", action: access.Purge, do: s.purgeByCommandLine},
	}
	for _, path := range []string{deadLetters, adminPath} {
		remove := removeLetter
		if path == adminPath {
			remove = removeLetterByAdmin
		}
		all = append(all,
			operation{pattern: "GET " + path + "/stats", action: access.List, do: letterStats},
			operation{pattern: "POST " + path + "/retry", action: access.BulkPlan, also: access.BulkRun, do: s.bulkRetry},
			operation{pattern: "DELETE " + path, action: access.Purge, do: s.purge},
			operation{pattern: "GET " + path + "/replay-rules", action: access.Read, do: s.rules},
			operation{pattern: "POST " + path + "/replay-rules", action: access.Rules, do: s.setRule},
			operation{pattern: "DELETE " + path + "/replay-rules/{rule}", action: access.Rules, do: s.deleteRule},
			operation{pattern: "GET " + path + "/{id}", action: access.Read, do: getLetter},
			operation{pattern: "POST " + path + "/{id}/retry", action: access.Fork, do: s.retryLetter},
			operation{pattern: "DELETE " + path + "/{id}", action: access.Purge, do: remove},
		)
	}
	return all
}

// handle registers an operation. Those that read share the reads of their tenant.
func (s *Server) handle(o operation) {
	route := door.Route{Action: o.action, Also: o.also, MaxBody: spec.MaxBody, Repeatable: o.repeatable}
	s.mux.Handle(o.pattern, route, func(w http.ResponseWriter, r *http.Request, c door.Caller, body []byte) error {
		of := s.service.As(c.Tenant, c.Principal)
		q := request{r, c, body, of.Jobs, of.Breakers}
		out, err := s.do(r.Context(), o, q)
		if err != nil {
			return refusalOf(err)
		}
		if out.location != "" {
			w.Header().Set("Location", out.location)
		}
		if !out.caseID.IsZero() {
			w.Header().Set(CaseHeader, out.caseID.String())
		}
		s.write(w, out.status, out.body)
		return nil
	})
}

func (s *Server) do(ctx context.Context, o operation, q request) (out answer, err error) {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		return o.do(q)
	}
	if waited := s.door.Read(ctx, q.caller.Tenant, func() { out, err = o.do(q) }); waited != nil {
		return out, waited
	}
	return out, err
}

// ServeHTTP serves every path under Prefix.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID(r)
	setFrame(w.Header(), id)
	for _, given := range r.Header.Values(versionHeader) {
		if err := spec.CheckVersion(versionHeader, given); err != nil {
			s.mux.ServeRefusal(w, r, refusalOf(err))
			return
		}
	}
	s.mux.ServeHTTP(w, r)
}

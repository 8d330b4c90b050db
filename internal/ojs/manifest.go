package ojs

import (
	"context"
	"net/http"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

// manifest answers GET /ojs/manifest. It needs no key.
func (s *Server) manifest(w http.ResponseWriter, _ *http.Request) {
	s.write(w, 0, marshal(spec.Manifest{
		SpecVersion: spec.Version, OJSVersion: spec.Version,
		Implementation:   spec.Implementation{Name: "recourse", Version: s.version, Language: "go"},
		ConformanceLevel: 1, Protocols: []string{"http"}, Backend: backend,
		Capabilities: spec.Capabilities{DeadLetter: true, DelayedJobs: true, JobTTL: true, PriorityQueues: true, UniqueJobs: true},
		Extensions:   spec.Extensions{Official: []spec.Extension{spec.DeadLetterExtension()}, Experimental: []spec.Extension{}},
		Endpoints: map[string]string{
			"manifest": Prefix + "/manifest", "health": root + "/health", "jobs": root + "/jobs", "queues": root + "/queues", "events": root + "/events", "dead_letter": deadLetters,
			"fetch": root + "/workers/fetch", "ack": root + "/workers/ack", "nack": root + "/workers/nack", "heartbeat": root + "/workers/heartbeat",
		},
		Limits: spec.Limits(),
	}))
}

const backend = "postgres"

// healthWait bounds the check of the store.
const healthWait = 2 * time.Second

// health answers GET /health. It needs no key, and does not tell why the store fails.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthWait)
	defer cancel()
	began := time.Now()
	_, err := s.service.Health().DatabaseRole(ctx)
	out := spec.Health{
		Status: "ok", Version: spec.Version, UptimeSeconds: int64(time.Since(s.began).Seconds()),
		Backend: spec.BackendHealth{Type: backend, Status: "connected", LatencyMS: time.Since(began).Milliseconds()},
	}
	status := http.StatusOK
	if err != nil {
		status, out.Status, out.Backend.Status, out.Backend.Error = http.StatusServiceUnavailable, "degraded", "disconnected", "the store is not reachable"
	}
	s.write(w, status, marshal(out))
}

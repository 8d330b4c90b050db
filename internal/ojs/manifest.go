package ojs

import (
	"net/http"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

// manifest answers GET /ojs/manifest. It needs no key.
func (s *Server) manifest(w http.ResponseWriter, _ *http.Request) {
	s.write(w, 0, marshal(spec.Manifest{
		SpecVersion: spec.Version, OJSVersion: spec.Version,
		Implementation:   spec.Implementation{Name: "recourse", Version: s.version, Language: "go"},
		ConformanceLevel: 1, Protocols: []string{"http"}, Backend: backend,
		Capabilities: spec.Capabilities{BatchEnqueue: true, DeadLetter: true, DelayedJobs: true, JobTTL: true, PriorityQueues: true, UniqueJobs: true, PauseResume: true},
		Extensions:   spec.Extensions{Official: []spec.Extension{spec.DeadLetterExtension()}, Experimental: []spec.Extension{}},
		Endpoints: map[string]string{
			"manifest": Prefix + "/manifest", "health": root + "/health", "jobs": root + "/jobs", "queues": root + "/queues", "events": root + "/events", "dead_letter": deadLetters,
			"fetch": root + "/workers/fetch", "ack": root + "/workers/ack", "nack": root + "/workers/nack", "heartbeat": root + "/workers/heartbeat",
		},
		Limits: spec.Limits(),
	}))
}

const backend = "postgres"

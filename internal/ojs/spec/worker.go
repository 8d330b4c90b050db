package spec

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// The limits of what workers send.
const (
	maxFetch     = 100  // jobs of one fetch; a higher count is cut to it
	maxQueues    = 50   // queues of one fetch
	maxHeartbeat = 1000 // jobs of one heartbeat
	maxWorkerID  = 128  // bytes
	maxResult    = 64 << 10
)

// The states that the answer to a heartbeat may ask of a worker.
const (
	WorkerRunning   = "running"
	WorkerQuiet     = "quiet"     // it fetches no more
	WorkerTerminate = "terminate" // it ends as soon as it can
)

// Fetch is what a worker asks for.
type Fetch struct {
	Queues     []string // in this order, each once
	Count      int
	Worker     string        // empty: it gave no name
	Visibility time.Duration // 0: as the jobs or the server say
}

type fetchNames struct {
	Queues     json.RawMessage `json:"queues"`
	Count      json.RawMessage `json:"count"`
	BatchSize  json.RawMessage `json:"batch_size"`
	Worker     json.RawMessage `json:"worker_id"`
	Visibility json.RawMessage `json:"visibility_timeout_ms"`
}

// ParseFetch reads the body of a fetch. Only queues is required; one client says batch_size for count.
// Other members are ignored. The error is an *Error.
func ParseFetch(body []byte) (Fetch, error) {
	r, wrong := parseBody(body, fetchNames{})
	if wrong != nil {
		return Fetch{}, wrong
	}
	f := Fetch{Count: 1, Worker: r.worker()}
	queues, _ := r.texts("queues", maxQueues, MaxBody)
	if len(queues) == 0 {
		r.wrong("queues", "must be a list of 1 to %d queues", maxQueues)
	}
	for _, q := range queues {
		if !ValidQueue(q) {
			r.wrong("queues", "must be names of queues")
		}
		if !slices.Contains(f.Queues, q) {
			f.Queues = append(f.Queues, q)
		}
	}
	if n, _, given := one([]place{{r, "count"}, {r, "batch_size"}}, func(at place) (int64, bool) { return at.whole(at.name, 1, 1<<31-1) }, equal[int64]); given {
		f.Count = int(min(n, maxFetch))
	}
	f.Visibility, _ = r.milliseconds("visibility_timeout_ms", time.Millisecond, MaxTimeout)
	return f, r.failed()
}

// worker reads the name of a worker. An empty one is none.
func (r reader) worker() string {
	name, _ := r.text("worker_id", maxWorkerID)
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.wrong("worker_id", "must have no control characters")
	}
	return name
}

// Heartbeat names the jobs that a worker still executes.
type Heartbeat struct {
	Worker     string // empty: it gave no name
	Jobs       []string
	Visibility time.Duration // 0: each lease has its length again
}

type heartbeatNames struct {
	Worker     json.RawMessage `json:"worker_id"`
	JobID      json.RawMessage `json:"job_id"`
	JobIDs     json.RawMessage `json:"job_ids"`
	Active     json.RawMessage `json:"active_jobs"`
	ActiveIDs  json.RawMessage `json:"active_job_ids"`
	Visibility json.RawMessage `json:"visibility_timeout_ms"`
}

// ParseHeartbeat reads the body of a heartbeat. It is lenient, since the documents and clients differ:
// active_jobs is a list of ids in HTTP and a number in the worker protocol, which has active_job_ids; the
// API document has job_id, and one client job_ids. Ids are taken from all of them, each once. Ids that are
// none are left out: no worker holds them. Other members are ignored. A heartbeat without a worker must
// name a job. The error is an *Error.
func ParseHeartbeat(body []byte) (Heartbeat, error) {
	r, wrong := parseBody(body, heartbeatNames{})
	if wrong != nil {
		return Heartbeat{}, wrong
	}
	h := Heartbeat{Worker: r.worker()}
	seen := map[string]bool{}
	for _, name := range []string{"active_jobs", "active_job_ids", "job_ids", "job_id"} {
		raw, given := r.get(name)
		if !given {
			continue
		}
		all := elements(raw)
		if raw[0] == '"' {
			all = []json.RawMessage{raw}
		}
		for _, one := range all {
			if id, _ := unquote(one); ValidID(id) && !seen[id] {
				seen[id] = true
				h.Jobs = append(h.Jobs, id)
			}
		}
	}
	switch {
	case h.Worker == "" && len(h.Jobs) == 0:
		r.wrong("worker_id", "is missing")
	case len(h.Jobs) > maxHeartbeat:
		r.wrong("active_jobs", "must be at most %d jobs", maxHeartbeat)
	}
	h.Visibility, _ = r.milliseconds("visibility_timeout_ms", time.Millisecond, MaxTimeout)
	return h, r.failed()
}

// DirectiveOf returns what the job asks the heartbeat that names it to answer, for tests of workers: quiet
// or terminate, else nothing. No document has it, strict checkers do: options.metadata.test_directive.
func DirectiveOf(stored json.RawMessage) string {
	meta, _ := members(stored).get("meta")
	raw, _ := members(meta).get("test_directive")
	switch s, _ := unquote(raw); s {
	case WorkerQuiet, WorkerTerminate:
		return s
	}
	return ""
}

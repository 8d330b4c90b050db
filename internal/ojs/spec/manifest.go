package spec

// Manifest says what a server does. It has the names of all documents that describe it.
type Manifest struct {
	SpecVersion      string            `json:"specversion"` // of the API and extension documents
	OJSVersion       string            `json:"ojs_version"` // of HTTP
	Implementation   Implementation    `json:"implementation"`
	ConformanceLevel int               `json:"conformance_level"`
	Protocols        []string          `json:"protocols"`
	Backend          string            `json:"backend"`
	Capabilities     Capabilities      `json:"capabilities"`
	Extensions       Extensions        `json:"extensions"`
	Endpoints        map[string]string `json:"endpoints,omitempty"`
	Limits           map[string]int    `json:"limits,omitempty"` // an addition of ours
}

// Implementation names the program.
type Implementation struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Language string `json:"language"`
	Homepage string `json:"homepage,omitempty"`
}

// Capabilities are what a server can do. One is claimed only when all of it holds; all are written.
type Capabilities struct {
	BatchEnqueue     bool `json:"batch_enqueue"`
	CronJobs         bool `json:"cron_jobs"`
	DeadLetter       bool `json:"dead_letter"`
	DelayedJobs      bool `json:"delayed_jobs"`
	JobTTL           bool `json:"job_ttl"`
	PriorityQueues   bool `json:"priority_queues"`
	RateLimiting     bool `json:"rate_limiting"`
	SchemaValidation bool `json:"schema_validation"`
	UniqueJobs       bool `json:"unique_jobs"`
	Workflows        bool `json:"workflows"`
	PauseResume      bool `json:"pause_resume"`
}

// Extensions are those that a server has completely. Neither list may be nil: it would be null.
type Extensions struct {
	Official     []Extension `json:"official"`
	Experimental []Extension `json:"experimental"`
}

// Extension is a part of the specification with a version of its own.
type Extension struct {
	Name    string `json:"name"`
	URI     string `json:"uri"`
	Version string `json:"version"`
}

// DeadLetterExtension returns the extension for dead letters.
func DeadLetterExtension() Extension {
	return Extension{"dead-letter", "urn:ojs:ext:dead-letter", "1.0.0-rc.1"}
}

// Limits returns the limits of this package, for Manifest.Limits.
func Limits() map[string]int {
	return map[string]int{
		"max_body_bytes": MaxBody, "max_meta_bytes": maxMeta, "max_type_bytes": maxType, "max_queue_bytes": maxQueue, "max_result_bytes": maxResult,
		"max_timeout_ms": int(MaxTimeout.Milliseconds()), "max_fetch_count": maxFetch, "max_fetch_queues": maxQueues, "max_heartbeat_jobs": maxHeartbeat, "max_batch_jobs": maxBatch,
		"max_list_limit": maxLimit, "max_backtrace_frames": maxFrames,
	}
}

// Health is how a server is.
type Health struct {
	Status        string        `json:"status"` // ok with 200, degraded with 503
	Version       string        `json:"version"`
	UptimeSeconds int64         `json:"uptime_seconds"`
	Backend       BackendHealth `json:"backend"`
}

// BackendHealth is how the store of a server is.
type BackendHealth struct {
	Type      string `json:"type"`
	Status    string `json:"status"` // connected or disconnected
	LatencyMS int64  `json:"latency_ms"`
	Error     string `json:"error,omitempty"` // without secrets
}

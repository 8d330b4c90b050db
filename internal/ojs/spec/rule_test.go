package spec_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func TestReplayRules(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]spec.Rule{
		`{"name":"retry-connection-errors","filter":{"error_type":"ConnectionError"},"delay":"PT1H","max_replays":3,"enabled":true}`: {Name: "retry-connection-errors", Filter: spec.Filter{ErrorType: "ConnectionError"}, Delay: time.Hour, MaxReplays: 3, Enabled: true},
		`{"name":"A.b_c-1","filter":{},"delay":"PT0S","max_replays":1}`:                                                              {Name: "A.b_c-1", MaxReplays: 1},
		`{"name":"a","filter":{"type":"a.*"},"delay":"P1D","max_replays":100,"enabled":false}`:                                       {Name: "a", Filter: spec.Filter{Type: "a.*"}, Delay: 24 * time.Hour, MaxReplays: 100},
	} {
		got, err := spec.ParseRule([]byte(body))
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	rule := func(replace, by string) string {
		return strings.Replace(`{"name":"a","filter":{},"delay":"PT1H","max_replays":3,"enabled":true}`, replace, by, 1)
	}
	for body, field := range map[string]string{
		rule(`"name":"a",`, ``): "name", rule(`"a"`, `""`): "name", rule(`"a"`, `" a"`): "name", rule(`"a"`, `"-a"`): "name", rule(`"a"`, `7`): "name", rule(`"a"`, `null`): "name", rule(`"a"`, `"`+strings.Repeat("a", 65)+`"`): "name",
		rule(`"filter":{},`, ``): "filter", rule(`{},`, `null,`): "filter", rule(`{},`, `[],`): "filter", rule(`{},`, `{"x":1},`): "filter.x", rule(`{},`, `{"queue":""},`): "filter.queue", rule(`{},`, `{"args":"x"},`): "filter.args",
		rule(`"delay":"PT1H",`, ``): "delay", rule(`"PT1H"`, `"1h"`): "delay", rule(`"PT1H"`, `3600`): "delay", rule(`"PT1H"`, `"-PT1H"`): "delay", rule(`"PT1H"`, `""`): "delay", rule(`"PT1H"`, `null`): "delay",
		rule(`,"max_replays":3`, ``): "max_replays", rule(`3`, `0`): "max_replays", rule(`3`, `101`): "max_replays", rule(`3`, `"3"`): "max_replays", rule(`3`, `1.5`): "max_replays", rule(`3`, `null`): "max_replays",
		rule(`true`, `"true"`): "enabled", rule(`true`, `1`): "enabled", rule(`true`, `null`): "enabled", rule(`"enabled"`, `"Enabled"`): "Enabled", rule(`"enabled"`, `"active"`): "active",
	} {
		_, err := spec.ParseRule([]byte(body))
		refused(t, body, err, 400, "invalid_request", field)
	}
}

func TestManifestAndHealth(t *testing.T) {
	t.Parallel()
	m := spec.Manifest{
		SpecVersion: spec.Version, OJSVersion: spec.Version, Implementation: spec.Implementation{Name: "recourse", Version: "1.2.3", Language: "go"}, ConformanceLevel: 1, Protocols: []string{"http"}, Backend: "postgres",
		Capabilities: spec.Capabilities{DeadLetter: true, DelayedJobs: true},
		Extensions:   spec.Extensions{Official: []spec.Extension{spec.DeadLetterExtension()}, Experimental: []spec.Extension{}},
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{m, `{"specversion":"1.0","ojs_version":"1.0","implementation":{"name":"recourse","version":"1.2.3","language":"go"},"conformance_level":1,"protocols":["http"],"backend":"postgres",` +
			`"capabilities":{"batch_enqueue":false,"cron_jobs":false,"dead_letter":true,"delayed_jobs":true,"job_ttl":false,"priority_queues":false,"rate_limiting":false,"schema_validation":false,"unique_jobs":false,` +
			`"workflows":false,"pause_resume":false},"extensions":{"official":[{"name":"dead-letter","uri":"urn:ojs:ext:dead-letter","version":"1.0.0-rc.1"}],"experimental":[]}}`},
		{spec.Health{Status: "ok", Version: spec.Version, UptimeSeconds: 86400, Backend: spec.BackendHealth{Type: "postgres", Status: "connected", LatencyMS: 0}},
			`{"status":"ok","version":"1.0","uptime_seconds":86400,"backend":{"type":"postgres","status":"connected","latency_ms":0}}`},
		{spec.Health{Status: "degraded", Version: spec.Version, Backend: spec.BackendHealth{Type: "postgres", Status: "disconnected", LatencyMS: 3000, Error: "connection refused"}},
			`{"status":"degraded","version":"1.0","uptime_seconds":0,"backend":{"type":"postgres","status":"disconnected","latency_ms":3000,"error":"connection refused"}}`},
	} {
		got, err := json.Marshal(c.v)
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want %s", got, err, c.want)
		}
	}
	want := map[string]int{
		"max_body_bytes": spec.MaxBody, "max_meta_bytes": maxMeta, "max_type_bytes": maxType, "max_queue_bytes": maxQueue, "max_result_bytes": maxResult, "max_timeout_ms": 86_400_000,
		"max_fetch_count": maxFetch, "max_fetch_queues": maxQueues, "max_heartbeat_jobs": maxHeartbeat, "max_batch_jobs": 200, "max_list_limit": maxLimit, "max_backtrace_frames": maxFrames,
	}
	if got := spec.Limits(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

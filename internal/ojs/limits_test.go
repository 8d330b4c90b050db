package ojs

import (
	"fmt"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// The manifest promises no more than the engine takes: internal/ojs/spec has its limits without it.
func TestTheLimitsOfTheManifestAreThoseOfTheEngine(t *testing.T) {
	t.Parallel()
	limits := spec.Limits()
	for name, engine := range map[string]int{"max_fetch_count": jobs.MaxFetch, "max_fetch_queues": jobs.MaxQueues, "max_heartbeat_jobs": jobs.MaxHeartbeat, "max_result_bytes": background.MaxOutput} {
		if limits[name] != engine {
			t.Errorf("%s is %d, the engine has %d", name, limits[name], engine)
		}
	}
	for priority, taken := range map[int]bool{jobs.MaxPriority: true, -jobs.MaxPriority: true, jobs.MaxPriority + 1: false, -jobs.MaxPriority - 1: false} {
		body := fmt.Sprintf(`{"type":"a","args":[],"priority":%d}`, priority)
		if _, err := spec.ParseJob([]byte(body), time.Now()); (err == nil) != taken {
			t.Errorf("priority %d: %v", priority, err)
		}
	}
	if limits["max_list_limit"] > deadletter.MaxLetters || limits["max_body_bytes"]+limits["max_meta_bytes"] > jobs.MaxPayload {
		t.Errorf("%v", limits)
	}
}

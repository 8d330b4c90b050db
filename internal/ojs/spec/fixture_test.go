package spec_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

const jobID = "0197a1c2-0000-7000-8000-000000000001"

// The limits, as manifests state them.
const (
	maxMeta, maxStored, maxResult               = 65536, 1<<20 + 65536, 65536
	maxType, maxQueue, maxWorkerID              = 255, 128, 128
	maxFetch, maxQueues, maxHeartbeat           = 100, 50, 1000
	maxLimit, maxPerPage, maxFrames, maxReplays = 200, 100, 50, 100
)

// withMembers returns a body that enqueues a job, with more members.
func withMembers(more string) string {
	return `{"type":"settlement.release","args":["tx_1"]` + strings.TrimSuffix(","+more, ",") + `}`
}

func parsed(t *testing.T, body string) spec.Job {
	t.Helper()
	job, err := spec.ParseJob([]byte(body), now)
	if err != nil {
		t.Fatalf("%.200s: %v", body, err)
	}
	return job
}

// refused checks a refusal: its status, its code, and the field that it names in message and details.
func refused(t *testing.T, what string, err error, status int, code, field string) {
	t.Helper()
	var e *spec.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v, want a refusal", what, err)
		return
	}
	if e.Status != status || e.Code != code || e.Field != field || field != "" && !strings.HasPrefix(e.Message, field+" ") {
		t.Errorf("%s: %d %s of %q (%s), want %d %s of %q", what, e.Status, e.Code, e.Field, e.Message, status, code, field)
	}
	body := object(t, e.Body("req_1"))["error"].(map[string]any)
	details, _ := body["details"].(map[string]any)
	if body["code"] != code || body["type"] != code || body["message"] == "" || body["retryable"] != false || body["request_id"] != "req_1" || field != "" && details["field"] != field {
		t.Errorf("%s: %v", what, body)
	}
}

// object decodes a JSON object.
func object(t *testing.T, raw []byte) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return out
}

// texts decodes a JSON object into the texts of its members.
func texts(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	out := map[string]string{}
	for name, value := range members {
		out[name] = string(value)
	}
	return out
}

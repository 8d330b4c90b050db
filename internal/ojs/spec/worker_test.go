package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func TestFetches(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]spec.Fetch{
		`{"queues":["a"]}`: {Queues: []string{"a"}, Count: 1},
		`{"queues":["b","a"],"count":5,"worker_id":"w1","visibility_timeout_ms":30000}`: {Queues: []string{"b", "a"}, Count: 5, Worker: "w1", Visibility: 30 * time.Second},
		`{"queues":["a","b","a"],"count":100}`:                                          {Queues: []string{"a", "b"}, Count: 100},
		`{"queues":["a"],"count":101,"worker_id":""}`:                                   {Queues: []string{"a"}, Count: maxFetch},
		`{"queues":["a"],"count":2147483647}`:                                           {Queues: []string{"a"}, Count: maxFetch},
		`{"queues":["a"],"batch_size":5}`:                                               {Queues: []string{"a"}, Count: 5}, // the Ruby client
		`{"queues":["a"],"hostname":"h","labels":null}`:                                 {Queues: []string{"a"}, Count: 1},
		`{"queues":["a"],"visibility_timeout_ms":1}`:                                    {Queues: []string{"a"}, Count: 1, Visibility: time.Millisecond},
	} {
		got, err := spec.ParseFetch([]byte(body))
		if err != nil || !slices.Equal(got.Queues, want.Queues) || got.Count != want.Count || got.Worker != want.Worker || got.Visibility != want.Visibility {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for body, field := range map[string]string{
		`{}`: "queues", `{"queues":[]}`: "queues", `{"queues":"a"}`: "queues", `{"queues":null}`: "queues", `{"queues":[1]}`: "queues", `{"queues":["A"]}`: "queues", `{"queues":[""]}`: "queues", `{"queues":[null]}`: "queues",
		`{"queues":[` + strings.Repeat(`"a",`, 50) + `"a"]}`: "queues",
		`{"queues":["a"],"count":0}`:                         "count", `{"queues":["a"],"count":-1}`: "count", `{"queues":["a"],"count":"1"}`: "count", `{"queues":["a"],"count":1.5}`: "count", `{"queues":["a"],"count":null}`: "count",
		`{"queues":["a"],"count":1,"batch_size":2}`: "batch_size",
		`{"queues":["a"],"worker_id":1}`:            "worker_id", `{"queues":["a"],"worker_id":null}`: "worker_id", `{"queues":["a"],"worker_id":"a\n"}`: "worker_id", `{"queues":["a"],"worker_id":"` + strings.Repeat("w", 129) + `"}`: "worker_id",
		`{"queues":["a"],"visibility_timeout_ms":0}`: "visibility_timeout_ms", `{"queues":["a"],"visibility_timeout_ms":"PT1S"}`: "visibility_timeout_ms", `{"queues":["a"],"visibility_timeout_ms":86400001}`: "visibility_timeout_ms",
		`{"queues":["a"],"Count":1}`: "Count", `{"queues":["a"],"queues":["b"]}`: "queues",
	} {
		_, err := spec.ParseFetch([]byte(body))
		refused(t, body, err, 400, "invalid_request", field)
	}
}

func TestAcks(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]spec.Ack{
		`{"job_id":"` + jobID + `"}`: {Answer: spec.Answer{JobID: jobID}},
		`{"job_id":"x"}`:             {Answer: spec.Answer{JobID: "x"}},
		`{"job_id":""}`:              {},
		`{"job_id":"x","worker_id":"w1","attempt":2,"result":{"a": 1e400}}`: {Answer: spec.Answer{JobID: "x", Worker: "w1", Attempt: 2}, Result: []byte(`{"a": 1e400}`)},
		`{"job_id":"x","result":null}`:                                      {Answer: spec.Answer{JobID: "x"}},
		`{"job_id":"x","result":false,"error":{},"own":1}`:                  {Answer: spec.Answer{JobID: "x"}, Result: []byte(`false`)},
		`{"job_id":"x","result":"ok"}`:                                      {Answer: spec.Answer{JobID: "x"}, Result: []byte(`"ok"`)},
		`{"job_id":"x","result":[]}`:                                        {Answer: spec.Answer{JobID: "x"}, Result: []byte(`[]`)},
	} {
		got, err := spec.ParseAck([]byte(body))
		if err != nil || got.Answer != want.Answer || string(got.Result) != string(want.Result) || (got.Result == nil) != (want.Result == nil) {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for body, field := range map[string]string{
		`{}`: "job_id", `{"job_id":null}`: "job_id", `{"job_id":1}`: "job_id", `{"id":"x"}`: "job_id", `{"job_id":"x","worker_id":1}`: "worker_id",
		`{"job_id":"x","attempt":0}`: "attempt", `{"job_id":"x","attempt":"1"}`: "attempt", `{"job_id":"x","attempt":1.5}`: "attempt", `{"job_id":"x","attempt":4294967296}`: "attempt", `{"job_id":"x","attempt":null}`: "attempt",
		`{"job_id":"x","result":{"a":1,"a":2}}`: "result.a", `{"job_id":"x","Result":1}`: "Result",
	} {
		_, err := spec.ParseAck([]byte(body))
		refused(t, body, err, 400, "invalid_request", field)
	}
	result := func(size int) []byte {
		return []byte(`{"job_id":"x","result":"` + strings.Repeat("r", size-2) + `"}`)
	}
	for _, size := range []int{maxResult, 4 * maxResult} { // what is kept of a longer one, the journal decides
		if a, err := spec.ParseAck(result(size)); err != nil || len(a.Result) != size {
			t.Error(err)
		}
	}
}

// What a worker did is not done again for a character that no store keeps.
func TestAnAnswerIsTakenWithCharactersThatNoStoreKeeps(t *testing.T) {
	t.Parallel()
	for said, kept := range map[string]string{
		`"a\u0000b"`: `"a\ufffdb"`, `"\ud83d"`: `"\ufffd"`, `"\uDE42x"`: `"\ufffdx"`, `"\ud83d\ud83d\ude42"`: `"\ufffd\ud83d\ude42"`, `"\ud83d\n\ude42"`: `"\ufffd\n\ufffd"`,
		"\"a\xff\xc3b\"": "\"a\uFFFDb\"", "\"\xed\xa0\x80\"": "\"\uFFFD\"", `"\ud83d\ude42"`: `"\ud83d\ude42"`, `"\\u0000 \\\\ud83d"`: `"\\u0000 \\\\ud83d"`, `{"\u0000":["\u0000"]}`: `{"\ufffd":["\ufffd"]}`,
		`"\u0041\u00e9"`: `"\u0041\u00e9"`, `"ü"`: `"ü"`,
	} {
		if a, err := spec.ParseAck([]byte(`{"job_id":"x","result":` + said + `}`)); err != nil || string(a.Result) != kept {
			t.Errorf("%q: %q, %v; want %q", said, a.Result, err, kept)
		}
		if n, err := spec.ParseNack([]byte(`{"job_id":"x","error":{"details":{"d":` + said + `}}}`)); err != nil || string(n.Details) != `{"d":`+kept+`}` {
			t.Errorf("%q: %q, %v", said, n.Details, err)
		}
	}
	n, err := spec.ParseNack([]byte(`{"job_id":"x","error":{"code":"` + strings.Repeat("é", 200) + `","type":"T` + strings.Repeat("é", 200) + `","message":"cut \ud83d","backtrace":"at a.go:1\n\n\tat b.go:2\u0000"}}`))
	if err != nil || n.Code != strings.Repeat("é", 127) || n.Type != "T"+strings.Repeat("é", 127) || n.Message != "cut \uFFFD" || !slices.Equal(n.Backtrace, []string{"at a.go:1", "at b.go:2\uFFFD"}) {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestNacks(t *testing.T) {
	t.Parallel()
	const prefix = `{"job_id":"x","error":`
	for body, want := range map[string]spec.Nack{
		`{}}`: {Code: "handler_error", Type: "handler_error", Message: "handler_error", Retryable: true},
		`{"code":"handler_error","message":"m"}}`:                                         {Code: "handler_error", Type: "handler_error", Message: "m", Retryable: true},  // the Go client
		`{"type":"TransientError","message":"m"}}`:                                        {Code: "handler_error", Type: "TransientError", Message: "m", Retryable: true}, // the Java client
		`{"code":"c","message":"m","details":{"error_class":"SMTPError","n": 1.0}}}`:      {Code: "c", Type: "SMTPError", Message: "m", Retryable: true, Details: []byte(`{"error_class":"SMTPError","n": 1.0}`)},
		`{"code":"c","type":"T","details":{"error_class":"SMTPError"}}}`:                  {Code: "c", Type: "T", Message: "c", Retryable: true, Details: []byte(`{"error_class":"SMTPError"}`)},
		`{"code":"c","details":{"error_class":7}}}`:                                       {Code: "c", Type: "c", Message: "c", Retryable: true, Details: []byte(`{"error_class":7}`)},
		`{"code":"c","message":"PaymentError: declined"}}`:                                {Code: "c", Type: "c", Message: "PaymentError: declined", Retryable: true},
		`{"code":"","type":"","message":"","retryable":false}}`:                           {Code: "handler_error", Type: "handler_error", Message: "handler_error"},
		`{"retryable":true,"backtrace":["at db.go:142","","at h.go:58"]},"requeue":true}`: {Code: "handler_error", Type: "handler_error", Message: "handler_error", Retryable: true, Backtrace: []string{"at db.go:142", "at h.go:58"}, Requeue: true},
		`{"code":"RETRY"},"requeue":false}`:                                               {Code: "RETRY", Type: "RETRY", Message: "RETRY", Retryable: true},
		`{"code":"DISCARD"}}`:                                                             {Code: "DISCARD", Type: "DISCARD", Message: "DISCARD", Retryable: true, Order: spec.OrderDiscard},
		`{"code":"FAIL","type":"T"}}`:                                                     {Code: "FAIL", Type: "T", Message: "FAIL", Retryable: true, Order: spec.OrderDiscard},
		`{"code":"DEAD_LETTER","retryable":true}}`:                                        {Code: "DEAD_LETTER", Type: "DEAD_LETTER", Message: "DEAD_LETTER", Retryable: true, Order: spec.OrderDeadLetter},
		`{"code":"dead_letter","type":"DEAD_LETTER"}}`:                                    {Code: "dead_letter", Type: "DEAD_LETTER", Message: "dead_letter", Retryable: true},
	} {
		got, err := spec.ParseNack([]byte(prefix + body))
		if err != nil || got.JobID != "x" || got.Requeue != want.Requeue || got.Code != want.Code || got.Type != want.Type || got.Message != want.Message || got.Retryable != want.Retryable ||
			string(got.Details) != string(want.Details) || !slices.Equal(got.Backtrace, want.Backtrace) || got.Order != want.Order {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	frames := strings.TrimSuffix(strings.Repeat(`"f",`, 51), ",")
	if n, err := spec.ParseNack([]byte(prefix + `{"backtrace":[` + frames + `]},"worker_id":"w1","attempt":3}`)); err != nil || len(n.Backtrace) != maxFrames || n.Worker != "w1" || n.Attempt != 3 {
		t.Errorf("%+v, %v", n, err)
	}
	long := strings.Repeat("m", 500_000)
	if n, err := spec.ParseNack([]byte(prefix + `{"message":"` + long + `"}}`)); err != nil || n.Message != long {
		t.Errorf("a long message: %v", err)
	}
	for body, field := range map[string]string{
		`{"job_id":"x"}`: "error", `{"job_id":"x","requeue":true}`: "error", `{"job_id":"x","error":null}`: "error", `{"job_id":"x","error":"m"}`: "error", `{"job_id":"x","error":[]}`: "error",
		`{"error":{}}`:             "job_id",
		prefix + `{},"requeue":1}`: "requeue", prefix + `{},"requeue":null}`: "requeue", prefix + `{},"attempt":-1}`: "attempt",
		prefix + `{"code":1}}`: "error.code", prefix + `{"code":null}}`: "error.code",
		prefix + `{"type":{}}}`: "error.type", prefix + `{"message":1}}`: "error.message", prefix + `{"message":null}}`: "error.message",
		prefix + `{"retryable":"no"}}`: "error.retryable", prefix + `{"retryable":null}}`: "error.retryable", prefix + `{"details":[]}}`: "error.details", prefix + `{"details":"d"}}`: "error.details", prefix + `{"details":null}}`: "error.details",
		prefix + `{"backtrace":[1]}}`: "error.backtrace", prefix + `{"backtrace":{}}}`: "error.backtrace",
		prefix + `{"Message":"m"}}`: "error.Message", prefix + `{"message":"m","message":"n"}}`: "error.message",
	} {
		_, err := spec.ParseNack([]byte(body))
		refused(t, body, err, 400, "invalid_request", field)
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	id := func(n int) string { return fmt.Sprintf("0197a1c2-0000-7000-8000-%012x", n) }
	a, b, c := id(1), id(2), id(3)
	for body, want := range map[string]spec.Heartbeat{
		`{"worker_id":"w1"}`: {Worker: "w1"},
		`{"worker_id":"w1","active_jobs":["` + a + `","` + b + `"],"visibility_timeout_ms":5}`:                                  {Worker: "w1", Jobs: []string{a, b}, Visibility: 5 * time.Millisecond}, // HTTP
		`{"worker_id":"w1","state":"running","active_jobs":2,"active_job_ids":["` + a + `","` + b + `"],"pid":1,"labels":null}`: {Worker: "w1", Jobs: []string{a, b}},                                   // the worker protocol
		`{"worker_id":"w1","job_id":"` + a + `"}`:                                                                               {Worker: "w1", Jobs: []string{a}},                                      // the API document
		`{"job_ids":["` + a + `"]}`: {Jobs: []string{a}}, // the Ruby client
		`{"job_id":"` + a + `","active_jobs":["` + b + `","` + a + `"],"job_ids":["` + c + `"]}`:               {Jobs: []string{b, a, c}},
		`{"worker_id":"w1","active_jobs":0}`:                                                                   {Worker: "w1"},
		`{"worker_id":"w1","active_jobs":1.5,"active_job_ids":null,"job_id":7}`:                                {Worker: "w1"},
		`{"worker_id":"w1","active_jobs":"` + a + `"}`:                                                         {Worker: "w1", Jobs: []string{a}},
		`{"worker_id":"w1","active_jobs":[1,null,["` + a + `"],"x","` + strings.ToUpper(a) + `","` + b + `"]}`: {Worker: "w1", Jobs: []string{b}},
		`{"worker_id":"w1","active_jobs":{"a":"` + a + `"}}`:                                                   {Worker: "w1"},
	} {
		got, err := spec.ParseHeartbeat([]byte(body))
		if err != nil || got.Worker != want.Worker || !slices.Equal(got.Jobs, want.Jobs) || got.Visibility != want.Visibility {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	many := func(n int) string {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = `"` + id(i) + `"`
		}
		return `{"worker_id":"w","active_jobs":[` + strings.Join(ids, ",") + `]}`
	}
	if h, err := spec.ParseHeartbeat([]byte(many(maxHeartbeat))); err != nil || len(h.Jobs) != maxHeartbeat {
		t.Error(err)
	}
	for body, field := range map[string]string{
		`{}`: "worker_id", `{"worker_id":""}`: "worker_id", `{"active_jobs":3}`: "worker_id", `{"job_id":"x"}`: "worker_id", `{"worker_id":7}`: "worker_id", `{"worker_id":null}`: "worker_id",
		`{"worker_id":"w","visibility_timeout_ms":0}`: "visibility_timeout_ms", `{"worker_id":"w","visibility_timeout_ms":"1"}`: "visibility_timeout_ms",
		`{"worker_id":"w","Job_id":"x"}`: "Job_id", `{"worker_id":"w","worker_id":"v"}`: "worker_id", many(maxHeartbeat + 1): "active_jobs",
	} {
		_, err := spec.ParseHeartbeat([]byte(body))
		refused(t, fmt.Sprintf("%.60s", body), err, 400, "invalid_request", field)
	}
}

func TestTheDirectiveOfATestJob(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`"options":{"metadata":{"test_directive":"quiet"}}`: "quiet", `"options":{"metadata":{"test_directive":"terminate"}}`: "terminate", `"meta":{"test_directive":"quiet"}`: "quiet",
		`"options":{"metadata":{"test_directive":"running"}}`: "", `"options":{"metadata":{"test_directive":1}}`: "", `"meta":{}`: "", ``: "",
	} {
		if got := spec.DirectiveOf(parsed(t, withMembers(body)).Stored); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	if got := spec.DirectiveOf(nil); got != "" {
		t.Error(got)
	}
}

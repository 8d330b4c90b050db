package conformance_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// client waits longer than any poll.
var client = &http.Client{Timeout: 2 * time.Minute}

// object is a JSON object, with numbers as json.Number.
type object map[string]any

func (o object) text(name string) string {
	v, _ := o[name].(string)
	return v
}

func (o object) object(name string) object {
	v, _ := o[name].(map[string]any)
	return v
}

func (o object) integer(t *testing.T, name string) int {
	t.Helper()
	n, is := o[name].(json.Number)
	i, err := n.Int64()
	if !is || err != nil {
		t.Fatalf("%s is %v, want an integer", name, o[name])
	}
	return int(i)
}

// answer is what a host answered.
type answer struct {
	status int
	header http.Header
	raw    string
	object object
}

// code returns the code of a refusal.
func (a answer) code() string { return a.object.text("error") }

// ask sends a request with the key of the host. Headers are names, each with its value; an empty value
// removes one.
func (h *host) ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if h.key != "" {
		r.Header.Set("Authorization", "Bearer "+h.key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: got.StatusCode, header: got.Header, raw: string(text)}
	if strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") && len(text) > 0 {
		a.object = decode(t, string(text))
	}
	if a.status >= 400 {
		checkEnvelope(t, method+" "+path, a)
	}
	return a
}

func decode(t *testing.T, text string) (out object) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// checkEnvelope requires what the schema of errors has: error and message, details or not, nothing else.
func checkEnvelope(t *testing.T, name string, a answer) {
	t.Helper()
	for member, value := range a.object {
		switch member {
		case "error", "message":
			if s, is := value.(string); !is || s == "" {
				t.Errorf("%s: %s is %v", name, member, value)
			}
		case "details":
			if _, is := value.(map[string]any); !is {
				t.Errorf("%s: details is %v", name, value)
			}
		default:
			t.Errorf("%s: the envelope has %s: %s", name, member, a.raw)
		}
	}
	if a.code() == "" || a.object.text("message") == "" {
		t.Errorf("%s: %d %s", name, a.status, a.raw)
	}
}

// want sends a request whose answer has a status.
func (h *host) want(t *testing.T, status int, method, path, body string, headers ...string) answer {
	t.Helper()
	a := h.ask(t, method, path, body, headers...)
	if a.status != status {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.status, a.raw, status)
	}
	return a
}

// refused sends a request that is refused with a status and a code.
func (h *host) refused(t *testing.T, status int, code, method, path, body string, headers ...string) answer {
	t.Helper()
	a := h.want(t, status, method, path, body, headers...)
	if a.code() != code {
		t.Errorf("%s %s %s: %s, want the code %s", method, path, body, a.raw, code)
	}
	return a
}

func (h *host) discovery(t *testing.T) object {
	t.Helper()
	return h.want(t, http.StatusOK, "GET", "/.well-known/openwop", "").object
}

func (h *host) fixturesOf(t *testing.T) (out []string) {
	t.Helper()
	all, _ := h.discovery(t)["fixtures"].([]any)
	for _, f := range all {
		out = append(out, fmt.Sprint(f))
	}
	return out
}

// serial makes transactions that no other test has.
var serial atomic.Int64

// adjudication returns the body that creates a settlement which the escrow service for demonstrations
// answers as simulate says.
func adjudication(simulate string) string {
	n := fmt.Sprintf("%d_%d", time.Now().UnixNano(), serial.Add(1))
	return `{"workflowId":"settlement","inputs":{"transaction_receipt_id":"txr_` + n + `","submission_receipt_id":"sub_` + n + `","adjudication_id":"adj_` + n + `","escrow_reference":"esc_` + n +
		`","outcome":"release","amount":{"minor":12500,"currency":"USD"},"held":{"minor":12500,"currency":"USD"},"simulate":` + simulate + `}}`
}

// The ways in which a settlement goes.
const (
	pays         = `"ok"`
	fails        = `"retryable"`
	paysWhenFork = `"retryable,retryable,retryable,ok"` // after three attempts, which are all that a run has
)

// create creates a run and returns its id.
func (h *host) create(t *testing.T, body string) string {
	t.Helper()
	return h.want(t, http.StatusCreated, "POST", "/v1/runs", body).object.text("runId")
}

// log reads the log of a run until it is complete.
func (h *host) log(t *testing.T, run string) (out []object) {
	t.Helper()
	for last := -1; ; {
		a := h.want(t, http.StatusOK, "GET", fmt.Sprintf("/v1/runs/%s/events/poll?lastSequence=%d", run, last), "")
		found, _ := a.object["events"].([]any)
		for _, e := range found {
			out = append(out, object(e.(map[string]any)))
			last = out[len(out)-1].integer(t, "sequence")
		}
		if complete, is := a.object["isComplete"].(bool); !is {
			t.Fatalf("%s", a.raw)
		} else if complete {
			return out
		}
		if len(found) == 0 {
			t.Fatalf("run %s has no news", run)
		}
	}
}

// dead returns a run that has been dead-lettered, and its log.
func (h *host) dead(t *testing.T) (run string, log []object) {
	t.Helper()
	run = h.create(t, adjudication(fails))
	return run, h.log(t, run)
}

// completed returns a run that has completed.
func (h *host) completed(t *testing.T) string {
	t.Helper()
	run := h.create(t, adjudication(pays))
	h.log(t, run)
	return run
}

func types(log []object) string {
	var out []string
	for _, e := range log {
		out = append(out, e.text("type"))
	}
	return strings.Join(out, " ")
}

// stream reads the stream of a run until the host closes it.
func (h *host) stream(t *testing.T, run, query, last string) (out []testkit.SentEvent) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/v1/runs/"+run+"/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h.key != "" {
		r.Header.Set("Authorization", "Bearer "+h.key)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if kind := got.Header.Get("Content-Type"); got.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("%d %s", got.StatusCode, kind)
	}
	err = testkit.ReadSentEvents(got.Body, func(one testkit.SentEvent) bool {
		out = append(out, one)
		return false
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

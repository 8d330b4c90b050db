package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const (
	root      = "/ojs/v1"
	mediaType = "application/openjobspec+json"
	version   = "1.0"
)

// transport keeps enough connections for all tests that run at once.
var transport = &http.Client{
	Timeout:   2 * time.Minute,
	Transport: &http.Transport{MaxIdleConnsPerHost: 128},
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("a server of Open Job Spec redirects nobody")
	},
}

// request is what is sent.
type request struct {
	method string
	path   string // with the query
	body   any    // nil: none; text and bytes are sent as they are, anything else as JSON
	header map[string]string
}

// answer is what came back. Its object has numbers as json.Number, so that their form can be compared.
type answer struct {
	t      *testing.T
	name   string // of the request
	status int    // 0: none came
	header http.Header
	raw    []byte
	object object
}

func (s server) authorize(r *http.Request) {
	if key := s.keyFor(r); key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
}

// requiresKeys reports whether requests without a key are refused.
func (s server) requiresKeys() bool { return s.key != "" || s.keys != nil }

func get(t *testing.T, path string) *answer {
	t.Helper()
	return send(t, request{method: http.MethodGet, path: path})
}

func post(t *testing.T, path string, body any) *answer {
	t.Helper()
	return send(t, request{method: http.MethodPost, path: path, body: body})
}

func remove(t *testing.T, path string) *answer {
	t.Helper()
	return send(t, request{method: http.MethodDelete, path: path})
}

// send sends a request to the specification's routes, and checks what section 2 demands of every answer. It
// may be called from any goroutine.
func send(t *testing.T, r request) *answer {
	t.Helper()
	s := serverOf(t)
	a := exchange(t, s, s.base, r)
	if a.status != 0 {
		a.checkFrame(r)
	}
	return a
}

// exchange sends a request to a path below base, and reads the answer.
func exchange(t *testing.T, s server, base string, r request) *answer {
	t.Helper()
	a := &answer{t: t, name: r.method + " " + r.path}
	a.object = object{t: t, name: a.name}
	raw, isJSON := encode(t, r.body)
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), r.method, base+r.path, body)
	if err != nil {
		t.Errorf("%s: %v", a.name, err)
		return a
	}
	s.authorize(req)
	if r.body != nil {
		req.Header.Set("Content-Type", mediaType)
	}
	for name, value := range r.header {
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	if isJSON {
		a.name += " " + shortened(raw)
	}
	resp, err := transport.Do(req)
	if err != nil {
		t.Errorf("%s: %v", a.name, err)
		return a
	}
	defer resp.Body.Close()
	a.raw, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v", a.name, err)
		return a
	}
	a.status, a.header, a.object.name = resp.StatusCode, resp.Header, a.name
	return a
}

// encode returns the bytes of a body, and whether they are JSON that a message may show.
func encode(t *testing.T, body any) (raw []byte, isJSON bool) {
	t.Helper()
	switch body := body.(type) {
	case nil:
		return nil, false
	case []byte:
		return body, false
	case string:
		return []byte(body), utf8.ValidString(body)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Errorf("the body: %v", err)
	}
	return raw, true
}

func shortened(raw []byte) string {
	const most = 300
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

// checkFrame checks what every answer has, and reads its body.
func (a *answer) checkFrame(r request) {
	a.t.Helper()
	if got := a.header.Get("OJS-Version"); got != version {
		a.t.Errorf("%s: OJS-Version %q, want %q", a.name, got, version)
	}
	id := a.header.Get("X-Request-Id")
	if id == "" {
		a.t.Errorf("%s: no X-Request-Id", a.name)
	}
	if a.status == http.StatusNoContent {
		if len(a.raw) > 0 {
			a.t.Errorf("%s: 204 with a body", a.name)
		}
		return
	}
	if got := a.header.Get("Content-Type"); got != mediaType {
		a.t.Errorf("%s: Content-Type %q, want %q", a.name, got, mediaType)
	}
	if r.method == http.MethodHead {
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(a.raw))
	decoder.UseNumber()
	err := decoder.Decode(&a.object.members)
	if _, more := decoder.Token(); err != nil || !errors.Is(more, io.EOF) || a.object.members == nil || !utf8.Valid(a.raw) {
		a.t.Errorf("%s: %d, the body is no JSON object: %s", a.name, a.status, shortened(a.raw))
		a.object.members = members{}
		return
	}
	if a.status < 400 {
		return
	}
	problem, _ := a.object.members["error"].(members)
	for _, name := range []string{"code", "message", "request_id"} {
		if text, _ := problem[name].(string); text == "" {
			a.t.Errorf("%s: %d, error.%s is missing: %s", a.name, a.status, name, shortened(a.raw))
		}
	}
	if _, is := problem["retryable"].(bool); !is {
		a.t.Errorf("%s: %d, error.retryable is missing: %s", a.name, a.status, shortened(a.raw))
	}
	if problem["request_id"] != id {
		a.t.Errorf("%s: error.request_id is %v, the header says %q", a.name, problem["request_id"], id)
	}
}

// must returns the object of an answer that must have a status. It ends the test if it has another one.
func (a *answer) must(status int) object {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d, want %d: %s", a.name, a.status, status, shortened(a.raw))
	}
	return a.object
}

// refused checks that the answer is a refusal with one of the codes, which repeating the request does not
// mend, and returns its error.
func (a *answer) refused(status int, codes ...string) object {
	a.t.Helper()
	problem := a.must(status).object("error")
	if code := problem.text("code"); !slices.Contains(codes, code) {
		a.t.Errorf("%s: code %q, want one of %q", a.name, code, codes)
	}
	if problem.flag("retryable") {
		a.t.Errorf("%s: the refusal says that it is retryable", a.name)
	}
	return problem
}

// naming checks that a refusal names a member or parameter, in details.field or in its message.
func (o object) naming(field string) object {
	o.t.Helper()
	message := o.text("message")
	details, _ := o.members["details"].(members)
	named, _ := details["field"].(string)
	if !strings.Contains(message, field) && !strings.Contains(named, field) {
		o.t.Errorf("%s: neither details.field %q nor the message %q names %s", o.name, named, message, field)
	}
	return o
}

// field checks that details.field of a refusal names a parameter.
func (o object) field(name string) {
	o.t.Helper()
	if got := o.object("details").text("field"); got != name && !strings.HasSuffix(got, "."+name) {
		o.t.Errorf("%s: details.field %q, want %s", o.name, got, name)
	}
}

// reset makes the world of the server empty. Only tests that are not parallel may call it.
func reset(t *testing.T) {
	t.Helper()
	ofTestMode(t, "/test/reset", nil)
}

// advance moves the clock of the server forward, with a round of retention at the new time. Only tests that
// are not parallel may call it.
func advance(t *testing.T, by string) {
	t.Helper()
	ofTestMode(t, "/test/clock", members{"advance": by})
}

func ofTestMode(t *testing.T, path string, body any) {
	t.Helper()
	s := serverOf(t)
	a := exchange(t, s, s.reset, request{method: http.MethodPost, path: path, body: body, header: map[string]string{"Content-Type": "application/json"}})
	if a.status < 200 || a.status > 299 {
		t.Fatalf("%s: %d %s", a.name, a.status, shortened(a.raw))
	}
}

// merged returns the members of all, of which later ones win. A member that is dropped is left out.
func merged(all ...members) members {
	out := members{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	maps.DeleteFunc(out, func(_ string, value any) bool { return value == dropped{} })
	return out
}

// dropped takes the place of a member that merged leaves out.
type dropped struct{}

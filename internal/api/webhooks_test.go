package api_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// sendsWebhooks are the options of a process that sends webhooks, also to this machine.
func sendsWebhooks(o *app.Options) {
	o.WebhookKey = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	o.WebhooksAllow = []string{"127.0.0.0/8"}
}

// receiver is the receiver of a webhook.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	got    []received
}

// received is a request that a receiver got.
type received struct {
	header http.Header
	body   string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	out := &receiver{status: http.StatusNoContent}
	out.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		out.mu.Lock()
		defer out.mu.Unlock()
		out.got = append(out.got, received{r.Header.Clone(), string(body)})
		w.WriteHeader(out.status)
	}))
	t.Cleanup(out.Close)
	return out
}

// all returns what the receiver got.
func (v *receiver) all() []received {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]received{}, v.got...)
}

// answer sets the status of the answers from now on.
func (v *receiver) answer(status int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status = status
}

// verifies reports whether a request is signed with a secret.
func (one received) verifies(t *testing.T, secret string) bool {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return verifier.Verify([]byte(one.body), one.header) == nil
}

func TestAWebhookIsCreatedChangedAndDeletedByAdmins(t *testing.T) {
	t.Parallel()
	r := newRig(t, sendsWebhooks).work()
	admin, to := r.key("acme", access.Admin), newReceiver(t)
	const path = "/api/v1/webhooks"
	made := r.ask(admin, http.MethodPost, path, `{"url":"`+to.URL+`","types":["run.created","run.completed"],"description":"the ledger","reason":"books"}`).is(http.StatusCreated)
	secret, id := made["secret"].(string), made["id"].(string)
	if made["state"] != "active" || made["created_by"] != "user:admin@acme" || made["reason"] != "books" || made["description"] != "the ledger" || !strings.HasPrefix(secret, "whsec_") {
		t.Errorf("%v", made)
	}
	r.ask(r.key("acme", access.Submitter), http.MethodPost, "/api/v1/adjudications", adjudication(1, `"ok"`)).is(http.StatusCreated)
	poll.Until(t, "both events arrived", func() bool { return len(to.all()) == 2 })
	for i, kind := range []string{"run.created", "run.completed"} {
		if one := to.all()[i]; !one.verifies(t, secret) || !strings.Contains(one.body, `"type":"dev.recourse.`+kind+`"`) || one.header.Get("Content-Type") != webhooks.ContentType {
			t.Errorf("%+v", one)
		}
	}
	poll.Until(t, "both deliveries are counted", func() bool {
		return r.ask(admin, http.MethodGet, path+"/"+id, "").is(http.StatusOK)["delivered"] == 2.0
	})
	if trial := r.ask(admin, http.MethodPost, path+"/"+id+"/test", "").is(http.StatusOK); trial["delivered"] != true || trial["event_id"] != to.all()[2].header.Get("Webhook-Id") {
		t.Errorf("%v", trial)
	}
	to.answer(http.StatusTeapot)
	if trial := r.ask(admin, http.MethodPost, path+"/"+id+"/test", "").is(http.StatusOK); trial["delivered"] != false || trial["failure"] != "the receiver answered 418" {
		t.Errorf("%v", trial)
	}
	to.answer(http.StatusOK)
	rotated := r.ask(admin, http.MethodPost, path+"/"+id+"/rotate", `{"reason":"quarterly","overlap":"7d"}`).is(http.StatusOK)
	if rotated["secret"] == secret || rotated["former_secret_until"] == nil {
		t.Errorf("%v", rotated)
	}
	r.ask(admin, http.MethodPost, path+"/"+id+"/test", "").is(http.StatusOK)
	if last := to.all()[4]; !last.verifies(t, secret) || !last.verifies(t, rotated["secret"].(string)) {
		t.Errorf("%+v", last)
	}
	third := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("3", 24)))
	if ended := r.ask(admin, http.MethodPost, path+"/"+id+"/rotate", `{"reason":"lost","overlap":"0s","secret":"`+third+`"}`).is(http.StatusOK); ended["secret"] != third || ended["former_secret_until"] != nil {
		t.Errorf("%v", ended)
	}
	r.ask(admin, http.MethodPost, path+"/"+id+"/test", "").is(http.StatusOK)
	if last := to.all()[5]; !last.verifies(t, third) || last.verifies(t, rotated["secret"].(string)) {
		t.Errorf("%+v", last)
	}
	if paused := r.ask(admin, http.MethodPost, path+"/"+id+"/pause", `{"reason":"maintenance"}`).is(http.StatusOK); paused["state"] != "paused" || paused["changed_by"] != "user:admin@acme" {
		t.Errorf("%v", paused)
	}
	if again := r.ask(admin, http.MethodPost, path+"/"+id+"/replay", `{"reason":"the ledger was restored","after":0}`).is(http.StatusOK); again["position"] != 0.0 || again["state"] != "paused" {
		t.Errorf("%v", again)
	}
	r.ask(admin, http.MethodPost, path+"/"+id+"/resume", `{"reason":"over"}`).is(http.StatusOK)
	poll.Until(t, "every event arrived again", func() bool { return len(to.all()) == 8 })
	if all := to.all(); all[6].header.Get("Webhook-Id") != all[0].header.Get("Webhook-Id") || all[6].body != all[0].body {
		t.Errorf("%+v is not %+v", all[6], all[0])
	}
	if list := r.ask(admin, http.MethodGet, path, "").is(http.StatusOK)["webhooks"].([]any); len(list) != 1 || list[0].(map[string]any)["id"] != id || list[0].(map[string]any)["secret"] != nil {
		t.Errorf("%v", list)
	}
	if gone := r.ask(admin, http.MethodDelete, path+"/"+id+"?reason=closed", "").is(http.StatusOK); gone["state"] != "deleted" {
		t.Errorf("%v", gone)
	}
	r.ask(admin, http.MethodGet, path+"/"+id, "").refused(http.StatusNotFound, "not_found", "")
	r.ask(admin, http.MethodDelete, path+"/"+id+"?reason=closed", "").refused(http.StatusNotFound, "not_found", "")
	if list := r.ask(admin, http.MethodGet, path, "").is(http.StatusOK)["webhooks"].([]any); len(list) != 0 {
		t.Errorf("%v", list)
	}
	checkWebhookHistory(t, r, id)
	for _, sent := range to.all() {
		if strings.Contains(sent.body, "whsec_") {
			t.Errorf("%+v", sent)
		}
	}
	if report, err := audit.Run(t.Context(), r.main.Service.AuditReader(), r.main.Service.AuditQuery()); err != nil || !report.OK() {
		t.Errorf("%v, %v", report, err)
	}
}

// checkWebhookHistory checks the history of the webhook of the test above.
func checkWebhookHistory(t *testing.T, r *rig, id string) {
	t.Helper()
	var did []string
	for _, e := range r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/webhooks/history", "").is(http.StatusOK)["entries"].([]any) {
		entry := e.(map[string]any)
		if entry["webhook"] != id || entry["actor"] != "user:admin@acme" || entry["key"] != nil || entry["reason"] == "" {
			t.Errorf("%v", entry)
		}
		did = append(did, entry["asked_for"].(string))
	}
	if got := strings.Join(did, " "); got != "create rotate rotate pause replay resume delete" {
		t.Errorf("%s", got)
	}
}

func TestAWebhookThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, sendsWebhooks)
	admin := r.key("acme", access.Admin)
	const path = "/api/v1/webhooks"
	for body, field := range map[string]string{
		`{"url":"https://example.com/"}`:                                                               "reason",
		`{"reason":"x"}`:                                                                               "url",
		`{"reason":"x","url":"ftp://example.com/"}`:                                                    "url",
		`{"reason":"x","url":"http://[::1"}`:                                                           "url",
		`{"reason":"x","url":"https://user:pw@example.com/"}`:                                          "url",
		`{"reason":"x","url":"https://10.0.0.1/"}`:                                                     "url",
		`{"reason":"x","url":"https://example.com:0/"}`:                                                "url",
		`{"reason":"x","url":"https://example.com:65536/"}`:                                            "url",
		`{"reason":"x","url":"http://8.8.8.8/"}`:                                                       "url",
		`{"reason":"x","url":"https://example.com/` + strings.Repeat("a", 2048) + `"}`:                 "url",
		`{"reason":"x","url":"https://example.com/\u0000"}`:                                            "url",
		`{"reason":"x\u0000","url":"https://example.com/"}`:                                            "reason",
		`{"reason":"x","url":"https://example.com/","description":"\u0000"}`:                           "description",
		`{"reason":"x","url":"https://example.com/","types":["run.created","run.exploded"]}`:           "types",
		`{"reason":"x","url":"https://example.com/","types":["run.created","run.created"]}`:            "types",
		`{"reason":"x","url":"https://example.com/","types":null}`:                                     "types",
		`{"reason":"x","url":"https://example.com/","after":-1}`:                                       "after",
		`{"reason":"x","url":"https://example.com/","after":1.5}`:                                      "after",
		`{"reason":"x","url":"https://example.com/","after":1000000000}`:                               "after",
		`{"reason":"x","url":"https://example.com/","secret":"whsec_c2hvcnQ="}`:                        "secret",
		`{"reason":"x","url":"https://example.com/","secret":"` + strings.Repeat("a", 44) + `"}`:       "secret",
		`{"reason":"x","url":"https://example.com/","secret":""}`:                                      "secret",
		`{"reason":"x","url":"https://example.com/","url_":"x"}`:                                       "url_",
		`{"reason":"x","url":"https://example.com/","URL":"https://example.com/"}`:                     "URL",
		`{"reason":"x","url":"https://example.com/","description":"` + strings.Repeat("a", 257) + `"}`: "description",
	} {
		r.ask(admin, http.MethodPost, path, body).refused(http.StatusUnprocessableEntity, "invalid", field)
	}
	r.ask(admin, http.MethodPost, path, `{"reason":"x","reason":"y","url":"https://example.com/"}`).refused(http.StatusBadRequest, "malformed", "reason")
	r.ask(admin, http.MethodPost, path, "{\"reason\":\"\xff\",\"url\":\"https://example.com/\"}").refused(http.StatusBadRequest, "malformed", "")
	if n := r.count(`SELECT count(*) FROM recourse.webhooks`); n != 0 {
		t.Errorf("%d webhooks", n)
	}
	id := r.ask(admin, http.MethodPost, path, `{"reason":"x","url":"https://example.com/"}`).is(http.StatusCreated)["id"].(string)
	before := r.contents("acme")["webhooks"]
	for _, c := range []struct{ verb, body, field string }{
		{"pause", `{}`, "reason"}, {"resume", `{"reason":""}`, "reason"}, {"rotate", `{"secret":"x"}`, "reason"}, {"rotate", `{"reason":"x","secret":"x"}`, "secret"},
		{"rotate", `{"reason":"x","overlap":"soon"}`, "overlap"}, {"rotate", `{"reason":"x","overlap":"-1s"}`, "overlap"}, {"rotate", `{"reason":"x","overlap":"31d"}`, "overlap"},
		{"rotate", `{"reason":"x","overlap":24}`, "overlap"}, {"replay", `{"reason":"x"}`, "after"}, {"replay", `{"reason":"x","after":-1}`, "after"}, {"replay", `{"reason":"x","after":1000000000}`, "after"},
		{"replay", `{"after":0,"reason":null}`, "reason"},
	} {
		r.ask(admin, http.MethodPost, path+"/"+id+"/"+c.verb, c.body).refused(http.StatusUnprocessableEntity, "invalid", c.field)
	}
	r.ask(admin, http.MethodDelete, path+"/"+id, "").refused(http.StatusUnprocessableEntity, "invalid", "reason")
	r.ask(admin, http.MethodPost, path+"/"+id+"/test", `{"reason":"x"}`).refused(http.StatusUnprocessableEntity, "invalid", "reason")
	if now := r.contents("acme")["webhooks"]; now != before {
		t.Errorf("%s\nwas\n%s", now, before)
	}
	for _, other := range []struct{ tenant, id string }{{"acme", uuid.NewString()}, {"other", id}} {
		key, at := r.key(other.tenant, access.Admin), path+"/"+other.id
		r.ask(key, http.MethodGet, at, "").refused(http.StatusNotFound, "not_found", "")
		r.ask(key, http.MethodDelete, at+"?reason=x", "").refused(http.StatusNotFound, "not_found", "")
		for _, verb := range []string{"pause", "resume", "rotate"} {
			r.ask(key, http.MethodPost, at+"/"+verb, `{"reason":"x"}`).refused(http.StatusNotFound, "not_found", "")
		}
		r.ask(key, http.MethodPost, at+"/replay", `{"reason":"x","after":0}`).refused(http.StatusNotFound, "not_found", "")
		r.ask(key, http.MethodPost, at+"/test", "").refused(http.StatusNotFound, "not_found", "")
	}
	r.ask(admin, http.MethodGet, path+"/nonsense", "").refused(http.StatusUnprocessableEntity, "invalid", "webhook")
}

func TestATenantHasALimitedNumberOfWebhooks(t *testing.T) {
	t.Parallel()
	r := newRig(t, sendsWebhooks)
	admin := r.key("acme", access.Admin)
	create := func(n int) answer {
		return r.ask(admin, http.MethodPost, "/api/v1/webhooks", fmt.Sprintf(`{"url":"https://example.com/%d","reason":"x"}`, n))
	}
	for n := range webhooks.MaxWebhooks {
		create(n).is(http.StatusCreated)
	}
	create(-1).refused(http.StatusConflict, "too_many_webhooks", "")
	r.ask(r.key("other", access.Admin), http.MethodPost, "/api/v1/webhooks", `{"url":"https://example.com/","reason":"x"}`).is(http.StatusCreated)
}

// A process without a key still shows, pauses and deletes what others created.
func TestWithoutAKeyNoWebhookIsCreated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.key("acme", access.Admin)
	r.ask(admin, http.MethodPost, "/api/v1/webhooks", `{"url":"https://example.com/","reason":"x"}`).refused(http.StatusServiceUnavailable, "no_webhook_key", "")
	if n := r.count(`SELECT count(*) FROM recourse.webhooks`); n != 0 {
		t.Errorf("%d webhooks", n)
	}
	r.ask(admin, http.MethodGet, "/api/v1/webhooks", "").is(http.StatusOK)
}

// A secret is shown once: neither a repeated answer nor any table has it.
func TestTheSecretOfAWebhookIsNotStoredWithTheAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, sendsWebhooks)
	admin := r.key("acme", access.Admin)
	path, body := "/api/v1/webhooks", `{"url":"https://example.com/","reason":"x"}`
	for _, status := range []int{http.StatusCreated, http.StatusOK} { // a webhook is created, then its secret is rotated
		first := r.ask(admin, http.MethodPost, path, body, idempotency, path).is(status)
		second := r.ask(admin, http.MethodPost, path, body, idempotency, path)
		if again := second.is(status); again["secret"] != nil || again["id"] != first["id"] || first["secret"] == nil || second.header.Get(door.ReplayedHeader) != "true" {
			t.Errorf("%v, %v", first, again)
		}
		path, body = path+"/"+first["id"].(string)+"/rotate", `{"reason":"x"}`
	}
	if n := r.count(`SELECT count(*) FROM recourse.webhooks`); n != 1 {
		t.Errorf("%d webhooks", n)
	}
	for table, rows := range r.contents("acme") {
		if strings.Contains(rows, "whsec_") {
			t.Errorf("%s has a secret: %s", table, rows)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.requests WHERE convert_from(body, 'UTF8') LIKE '%whsec_%'`); n != 0 {
		t.Error("a secret is stored")
	}
}

// A request with a body may work for longer than its body may take to arrive.
func TestAWebhookIsTestedWithASlowReceiver(t *testing.T) {
	t.Parallel()
	r := newRig(t, sendsWebhooks)
	admin := r.key("acme", access.Admin)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-q.Context().Done():
		case <-time.After(6 * time.Second):
		}
	}))
	t.Cleanup(slow.Close)
	id := r.ask(admin, http.MethodPost, "/api/v1/webhooks", `{"url":"`+slow.URL+`","reason":"x"}`).is(http.StatusCreated)["id"].(string)
	for _, body := range []string{"", "{}"} {
		if trial := r.ask(admin, http.MethodPost, "/api/v1/webhooks/"+id+"/test", body).is(http.StatusOK); trial["delivered"] != true {
			t.Errorf("%v", trial)
		}
	}
}

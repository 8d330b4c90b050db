package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
)

// logLines returns the fields of the logged lines whose message contains text.
func (r *rig) logLines(text string) (out []map[string]any) {
	for _, l := range r.logs.FilterMessageSnippet(text).All() {
		out = append(out, l.ContextMap())
	}
	return out
}

func TestWhoFailsToShowAKeyIsLoggedOnceAndThenCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	forged, prefix, _ := access.Mint()
	r.ask(forged, http.MethodGet, "/api/v1/breakers?x="+forged, "").refused(http.StatusUnauthorized, "key_invalid", "")
	for range 30 {
		r.ask("", http.MethodGet, "/api/v1/breakers", "")
	}
	first := r.logLines("first request without a valid key")
	if len(first) != 1 || first[0]["address"] != "127.0.0.1" || first[0]["code"] != "key_invalid" || first[0]["key"] != prefix || first[0]["request"] != "GET /api/v1/breakers" {
		t.Errorf("%v", first)
	}
	if n := len(r.logLines("more requests")); n != 0 {
		t.Errorf("%d lines within the minute", n)
	}
	page := r.ask("", http.MethodGet, "/metrics", "").text
	if !strings.Contains(page, `recourse_http_refusals_total{code="key_invalid"} 1`) || strings.Contains(page, `recourse_http_refusals_total{code="too_many_failures"} 0`) || strings.Contains(page, `recourse_http_refusals_total{code="key_missing"} 0`) {
		t.Errorf("%s", page)
	}
	if err := r.main.Close(); err != nil {
		t.Fatal(err)
	}
	if more := r.logLines("more requests"); len(more) != 1 || more[0]["count"] != int64(30) || more[0]["total"] != int64(31) {
		t.Errorf("%v", more)
	}
	for _, l := range r.logs.All() {
		for name, value := range l.ContextMap() {
			if text, is := value.(string); is && strings.Contains(text, forged[17:]) {
				t.Errorf("the secret is logged: %s, %s %s", l.Message, name, text)
			}
		}
	}
}

func TestWhatIsExportedIsLoggedWithWhoAndHowMuch(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	r.letter("acme", 1, `"refused"`)
	token := r.keyOf("user:ada", time.Time{}, access.Auditor)
	r.ask(token, http.MethodGet, "/api/v1/dead-letters/export?format=jsonl&reason_code=final&error_text=4111111111111111", "")
	prefix, _ := access.Prefix(token)
	said := r.logLines("exported")
	if len(said) != 1 || said[0]["principal"] != "user:ada" || said[0]["tenant"] != "acme" || said[0]["key"] != prefix || said[0]["letters"] != int64(0) || said[0]["complete"] != true ||
		!strings.Contains(said[0]["filter"].(string), "final") || strings.Contains(said[0]["filter"].(string), "4111111111111111") {
		t.Errorf("%v", said)
	}
	r.ask(token, http.MethodGet, "/api/v1/dead-letters/export?format=csv", "")
	if said := r.logLines("exported"); len(said) != 2 || said[1]["letters"] != int64(1) {
		t.Errorf("%v", said)
	}
}

func TestEachRequestIsLoggedWithItsPrincipalAtTheLevelThatIsSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.RequestLog = "info" })
	token := r.keyOf("user:ada", time.Time{}, access.Auditor)
	r.ask(token, http.MethodGet, "/api/v1/breakers", "").is(http.StatusOK)
	r.ask(token, http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`).refused(http.StatusForbidden, "role_missing", "")
	r.ask("", http.MethodGet, "/api/v1/keys/"+token, "").refused(http.StatusUnauthorized, "key_missing", "")
	if err := r.main.Close(); err != nil { // a line is logged after the answer
		t.Fatal(err)
	}
	found := map[string]map[string]any{}
	for _, l := range r.logs.FilterMessage("request").All() {
		if l.LoggerName != "access" || l.Level.String() != "info" {
			t.Errorf("%+v", l)
		}
		found[l.ContextMap()["request"].(string)] = l.ContextMap()
	}
	if len(found) != 3 || found["GET /api/v1/breakers"]["principal"] != "user:ada" || found["GET /api/v1/breakers"]["status"] != int64(200) || found["POST /api/v1/breakers/open"]["status"] != int64(403) {
		t.Errorf("%v", found)
	}
	for request := range found {
		if strings.Contains(request, token[17:]) {
			t.Errorf("the secret is logged: %s", request)
		}
	}
}

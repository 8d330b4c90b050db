package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/postadjudication"
)

func TestWithoutAKeyNothingIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	no := r.ask("", http.MethodGet, "/api/v1/breakers", "")
	no.refused(http.StatusUnauthorized, "key_missing", "")
	if !strings.Contains(no.header.Get("WWW-Authenticate"), "Bearer") || no.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", no.header)
	}
	r.ask("rck_nonsense", http.MethodGet, "/api/v1/breakers", "").refused(http.StatusUnauthorized, "key_invalid", "")
	forged, _, _ := access.Mint()
	r.ask(forged, http.MethodGet, "/api/v1/breakers", "").refused(http.StatusUnauthorized, "key_invalid", "")
	good := r.key("acme", access.Auditor)
	r.ask(good[:len(good)-1]+"-", http.MethodGet, "/api/v1/no-such", "").refused(http.StatusUnauthorized, "key_invalid", "")
	r.ask(good, http.MethodGet, "/api/v1/breakers", "").is(http.StatusOK)
}

func TestWhoFailsTooOftenWaitsAndAGoodKeyDoesNot(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failed := 0
	for {
		a := r.ask("", http.MethodGet, "/api/v1/breakers", "")
		if a.status == http.StatusTooManyRequests {
			a.refused(http.StatusTooManyRequests, "too_many_failures", "")
			if a.header.Get("Retry-After") == "" {
				t.Errorf("%v", a.header)
			}
			break
		}
		a.refused(http.StatusUnauthorized, "key_missing", "")
		if failed++; failed > 1000 {
			t.Fatal("no 429 after a thousand failures")
		}
	}
	if failed < 20 {
		t.Errorf("429 after only %d failures", failed)
	}
	r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/breakers", "").is(http.StatusOK)
}

// Only a key that may read receipts gets those of a dead letter; the rest is for every key that knows the id.
func TestASubmitterReadsADeadLetterWithoutItsReceipts(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	run := r.letter("acme", 1, `"refused"`)
	for role, some := range map[access.Role]bool{access.Submitter: false, access.Operator: true, access.Auditor: true} {
		found := r.ask(r.key("acme", role), http.MethodGet, "/api/v1/dead-letters/"+run, "").is(http.StatusOK)
		if shown, is := found["receipts"].([]any); !is || (len(shown) > 0) != some || len(found["attempts"].([]any)) == 0 {
			t.Errorf("%s: %v", role, found)
		}
	}
}

func TestARefusalAboutARunIsRecordedInItsCase(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made := r.ask(r.key("acme", access.Submitter), http.MethodPost, "/api/v1/adjudications", adjudication(1, `"ok"`)).is(http.StatusCreated)
	run, caseID := made["run_id"].(string), made["case_id"].(string)
	p := r.ask(r.key("acme", access.Submitter), http.MethodPost, "/api/v1/dead-letters/"+run+"/fork", `{"reason":"I can"}`).refused(http.StatusForbidden, "role_missing", "")
	if needs := p["needs_one_of"].([]any); len(needs) != 1 || needs[0] != "operator" {
		t.Errorf("%v", p)
	}
	r.ask(r.key("other", access.Submitter), http.MethodPost, "/api/v1/dead-letters/"+run+"/fork", `{"reason":"I can"}`).refused(http.StatusForbidden, "role_missing", "")
	r.ask(r.key("acme", access.Submitter), http.MethodGet, "/api/v1/cases/"+caseID+"/receipts", "").refused(http.StatusForbidden, "role_missing", "")
	trail := r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/cases/"+caseID+"/receipts?verify=true", "").is(http.StatusOK)
	recorded := trail["receipts"].([]any)
	if len(recorded) != 3 {
		t.Fatalf("%v", recorded)
	}
	first := recorded[1].(map[string]any)
	if first["subtype"] != "refused" || first["actor"] != "user:submitter@acme" || first["run_id"] != run || first["payload"].(map[string]any)["asked_for"] != "fork" {
		t.Errorf("%v", first)
	}
	if recorded[2].(map[string]any)["payload"].(map[string]any)["asked_for"] != "receipts" {
		t.Errorf("%v", recorded[2])
	}
	if v := trail["verification"].(map[string]any); v["ok"] != true || v["receipts"] != 3.0 || len(v["not_checked"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND tenant = 'other'`); n != 1 {
		t.Errorf("%d receipts of the other tenant", n)
	}
}

func TestOnLoopbackWithTheEmbeddedServiceNoKeyIsNeeded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.RequireKeys = false })
	if r.main.KeysRequired {
		t.Error("reports that keys are needed")
	}
	r.ask("", http.MethodGet, "/api/v1/breakers", "").refused(http.StatusBadRequest, "tenant_missing", "")
	r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "\xff").refused(http.StatusBadRequest, "tenant_invalid", "")
	r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, strings.Repeat("x", 129)).refused(http.StatusBadRequest, "tenant_invalid", "")
	r.ask("", http.MethodPost, "/api/v1/breakers/open", `{"reason":"test"}`, door.TenantHeader, "acme").is(http.StatusOK)
	found := r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "acme").is(http.StatusOK)["breakers"].([]any)
	if len(found) != 1 || found[0].(map[string]any)["actor"] != door.Local {
		t.Errorf("%v", found)
	}
	if n := len(r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "other").is(http.StatusOK)["breakers"].([]any)); n != 0 {
		t.Errorf("another tenant has %d", n)
	}
	r.ask("", http.MethodPost, "/api/v1/keys", `{"principal":"user:ada","roles":["auditor"],"reason":"x"}`, door.TenantHeader, "acme").refused(http.StatusForbidden, "key_needed", "")
	if n := r.count(`SELECT count(*) FROM recourse.keys WHERE principal = 'user:ada'`); n != 0 {
		t.Errorf("%d keys made without one", n)
	}
	// A page in a browser is refused, under another host name and across origins.
	r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "acme", "Host", "evil.example").refused(http.StatusForbidden, "host_unknown", "")
	if a := r.ask("", http.MethodPost, "/api/v1/breakers/release", `{"reason":"x"}`, door.TenantHeader, "acme", "Sec-Fetch-Site", "cross-site"); a.refused(http.StatusForbidden, "cross_origin", "") == nil {
		t.Error("no problem")
	}
	r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "acme", "Sec-Fetch-Site", "cross-site").refused(http.StatusForbidden, "cross_origin", "")
	r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "acme", "Sec-Fetch-Site", "same-origin").is(http.StatusOK)
	// A key that is shown is verified.
	r.ask("rck_wrong", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "acme").refused(http.StatusUnauthorized, "key_invalid", "")
	r.ask(r.key("acme", access.Auditor), http.MethodPost, "/api/v1/breakers/release", `{"reason":"x"}`).refused(http.StatusForbidden, "role_missing", "")
	r.ask(r.key("acme", access.Auditor), http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "other").refused(http.StatusForbidden, "tenant_mismatch", "")
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND tenant = 'acme' AND body LIKE '%tenant_mismatch%'`); n != 1 {
		t.Errorf("%d receipts", n)
	}
	if a := r.ask("", http.MethodGet, "/asynqmon", ""); a.status != http.StatusOK {
		t.Errorf("asynqmon: %d", a.status)
	}
}

// A circuit breaker over all tenants can be moved only with a key of the tenant that stands for
// all.
func TestABreakerOverAllTenantsNeedsAKeyOfAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all, acme := r.key(postadjudication.AllTenants, access.Operator), r.key("acme", access.Operator)
	if b := r.ask(all, http.MethodPost, "/api/v1/breakers/open", `{"reason":"maintenance"}`).is(http.StatusOK); b["tenant"] != "*" || b["state"] != "open" || b["by_hand"] != true {
		t.Errorf("%v", b)
	}
	r.ask(acme, http.MethodPost, "/api/v1/breakers/release", `{"reason":"x"}`).refused(http.StatusConflict, "breaker_not_open", "")
	if found := r.ask(acme, http.MethodGet, "/api/v1/breakers", "").is(http.StatusOK)["breakers"].([]any); len(found) != 1 || found[0].(map[string]any)["tenant"] != "*" {
		t.Errorf("a tenant sees %v", found)
	}
	if b := r.ask(all, http.MethodPost, "/api/v1/breakers/release", `{"reason":"done"}`).is(http.StatusOK); b["state"] != "half_open" {
		t.Errorf("%v", b)
	}
}

func TestWithARealEscrowServiceAKeyIsNeededOnLoopbackToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) {
		o.RequireKeys, o.Embedded, o.EscrowURL, o.KeyLifetime = false, false, "http://127.0.0.1:1", app.Lifetime{Given: true}
	})
	if !r.main.KeysRequired {
		t.Error("reports that no key is needed")
	}
	r.ask("", http.MethodGet, "/api/v1/breakers", "", door.TenantHeader, "acme").refused(http.StatusUnauthorized, "key_missing", "")
}

func TestAsynqmonAsksForAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	no := r.ask("", http.MethodGet, "/asynqmon", "")
	no.refused(http.StatusUnauthorized, "key_missing", "")
	if !strings.Contains(strings.Join(no.header.Values("WWW-Authenticate"), " "), "Basic") {
		t.Errorf("%v", no.header)
	}
	r.ask(r.key("acme", access.Submitter), http.MethodGet, "/asynqmon", "").refused(http.StatusForbidden, "role_missing", "")
	for _, role := range access.Roles() {
		r.ask(r.key("acme", role), http.MethodGet, "/asynqmon/api/queues", "").refused(http.StatusForbidden, "role_missing", "")
	}
	platform := r.key("acme", access.Platform)
	r.ask(platform, http.MethodGet, "/api/v1/breakers", "").refused(http.StatusForbidden, "role_missing", "")
	if a := r.ask(platform, http.MethodGet, "/asynqmon", ""); a.status != http.StatusOK || !strings.Contains(a.text, "<html") {
		t.Errorf("%d %.100s", a.status, a.text)
	}
	req := r.request(t.Context(), "", http.MethodGet, "/asynqmon", "")
	req.SetBasicAuth("anybody", platform)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("key as the password of basic auth: %d, %v", resp.StatusCode, err)
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if a := r.ask("", http.MethodGet, path, ""); a.status != http.StatusOK {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

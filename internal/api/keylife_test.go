package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
)

func TestAKeyIsMadeUsedAndRevokedOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.key("acme", access.Admin)
	made := r.ask(admin, http.MethodPost, "/api/v1/keys", `{"principal":"user:ada","roles":["operator","auditor"],"reason":"on call","expires_at":"2999-01-01T00:00:00Z"}`).is(http.StatusCreated)
	token, prefix := made["token"].(string), made["prefix"].(string)
	if made["created_by"] != "admin@acme" || made["tenant"] != "acme" {
		t.Errorf("%v", made)
	}
	if b := r.ask(token, http.MethodPost, "/api/v1/brakes/pull", `{"reason":"test"}`).is(http.StatusOK); b["actor"] != "user:ada" {
		t.Errorf("%v", b)
	}
	r.until("its use is noted", `SELECT last_used_at IS NOT NULL FROM recourse.keys WHERE prefix = $1`, prefix)
	gone := r.ask(admin, http.MethodDelete, "/api/v1/keys/"+prefix+"?reason=left", "").is(http.StatusOK)
	if gone["revoked_by"] != "admin@acme" {
		t.Errorf("%v", gone)
	}
	r.ask(admin, http.MethodDelete, "/api/v1/keys/"+prefix+"?reason=again", "").is(http.StatusOK)
	begin := time.Now()
	for {
		a := r.ask(token, http.MethodGet, "/api/v1/brakes", "")
		if a.status == http.StatusUnauthorized {
			a.refused(http.StatusUnauthorized, "key_revoked", "")
			break
		}
		if a.status != http.StatusOK || time.Since(begin) > time.Minute {
			t.Fatalf("after %s: %d %s", time.Since(begin), a.status, a.text)
		}
	}
	listed := r.ask(admin, http.MethodGet, "/api/v1/keys", "")
	for _, k := range listed.is(http.StatusOK)["keys"].([]any) {
		if k := k.(map[string]any); k["prefix"] == prefix && (k["revoked_at"] == nil || k["token"] != nil || k["digest"] != nil) {
			t.Errorf("%v", k)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype IN ('key-created', 'key-revoked') AND actor = 'admin@acme'`); n != 2 {
		t.Errorf("%d receipts", n)
	}
}

package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

func TestAKeyIsMadeUsedAndRevokedOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	admin := r.keyOf("admin@acme", time.Time{}, access.Admin, access.Operator)
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

// keyOf is a token of acme with some roles.
func (r *rig) keyOf(principal string, until time.Time, roles ...access.Role) string {
	r.t.Helper()
	token, _, err := r.main.Service.CreateKey(r.t.Context(), postadjudication.NewKey{
		Tenant: "acme", Principal: principal, Roles: roles, ExpiresAt: until, Actor: "test", Reason: "test",
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// Each cell of whose key makes a key of which role: what reaches further than the maker
// is refused with a receipt, and no key is made.
func TestNobodyMakesAKeyThatReachesFurther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	made, refusals := 0, 0
	for _, also := range append([]access.Role{""}, access.Roles()...) {
		own := []access.Role{access.Admin}
		if also != "" && also != access.Admin {
			own = append(own, also)
		}
		token := r.keyOf("maker:"+string(also), time.Time{}, own...)
		made++
		for _, role := range access.Roles() {
			body := `{"principal":"p","roles":["` + string(role) + `"],"reason":"x"}`
			if role == also || role == access.Auditor || role == access.Admin {
				r.ask(token, http.MethodPost, "/api/v1/keys", body).is(http.StatusCreated)
				made++
				continue
			}
			r.ask(token, http.MethodPost, "/api/v1/keys", body).refused(http.StatusForbidden, "beyond_reach", "roles")
			refusals++
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.keys WHERE tenant = 'acme'`); n != made {
		t.Errorf("%d keys, %d were made", n, made)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'access-refused' AND body LIKE '%"refused_by":"beyond_reach"%' AND body LIKE '%"asked_for":"keys"%'`); n != refusals || refusals != 15 {
		t.Errorf("%d receipts of %d refusals", n, refusals)
	}
}

func TestAKeyThatEndsMakesNoneThatOpensLonger(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	end := time.Now().UTC().Add(time.Hour).Truncate(time.Second)
	token := r.keyOf("user:ada", end, access.Admin)
	body := func(until string) string { return `{"principal":"p","roles":["admin"],"reason":"x"` + until + `}` }
	r.ask(token, http.MethodPost, "/api/v1/keys", body("")).refused(http.StatusForbidden, "beyond_reach", "expires_at")
	r.ask(token, http.MethodPost, "/api/v1/keys", body(`,"expires_at":"2999-01-01T00:00:00Z"`)).refused(http.StatusForbidden, "beyond_reach", "expires_at")
	r.ask(token, http.MethodPost, "/api/v1/keys", body(`,"expires_at":"`+end.Format(time.RFC3339)+`"`)).is(http.StatusCreated)
}

package api_test

import (
	"net/http"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

func TestARuleIsTriedSetChangedAndDeletedByAdmins(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	r.letter("acme", 1, `"refused"`)
	admin := r.key("acme", access.Admin)
	const path = "/api/v1/rules/refusals"
	const rule = `"rule":{"enabled":false,"filter":{"error_type":"http.refused"},"delay":"0s","max_replays":2}`
	if trial := r.ask(admin, http.MethodPost, path+"/try", `{`+rule+`}`).is(http.StatusOK); trial["matched"] != 1.0 {
		t.Errorf("%v", trial)
	}
	if n := len(r.ask(admin, http.MethodGet, "/api/v1/rules", "").is(http.StatusOK)["rules"].([]any)); n != 0 {
		t.Errorf("a trial made %d rules", n)
	}
	for body, field := range map[string]string{
		`{` + rule + `}`: "reason",
		`{"reason":"x","rule":{"enabled":true,"filter":{"error_typ":"x"},"delay":"1h","max_replays":2}}`:                                 "error_typ",
		`{"reason":"x","rule":{"enabled":true,"filter":{"error_type":"x"},"delay":"soon","max_replays":2}}`:                              "delay",
		`{"reason":"x","rule":{"enabled":true,"filter":{"error_type":"x"},"delay":"1h","max_replays":2,"policy":{"base_delay":"soon"}}}`: "policy.base_delay",
		`{"reason":"x","rule":{"enabled":true,"filter":{"error_type":"x"},"delay":"1h","max_replays":2,"enable":true}}`:                  "rule.enable",
		`{"reason":"x","rule":{"enabled":true,"delay":"1h","max_replays":2}}`:                                                            "filter",
		`{"reason":"x","rule":{"enabled":true,"filter":{"error_type":"x"},"delay":"1h","max_replays":101}}`:                              "rule.max_replays",
		`{"reason":"x","rule":{"enabled":true,"filter":{"error_type":"x"},"delay":"1h","mark":{"manual_review_required":true}}}`:         "rule.mark.reason",
		`{"reason":"x","rule":{"enabled":true,"all":true,"filter":{"error_type":"x"},"delay":"1h","max_replays":2}}`:                     "all",
	} {
		r.ask(admin, http.MethodPost, path, body).refused(http.StatusUnprocessableEntity, "invalid", field)
	}
	set := r.ask(admin, http.MethodPost, path, `{"reason":"they open again at night","if_version":0,`+rule+`}`).is(http.StatusOK)
	if set["version"] != 1.0 || set["name"] != "refusals" || set["actor"] != "user:admin@acme" || set["max_replays"] != 2.0 {
		t.Errorf("%v", set)
	}
	r.ask(admin, http.MethodPost, path, `{"reason":"x","if_version":0,"rule":{"enabled":true,"all":true,"delay":"1h","max_replays":2}}`).refused(http.StatusConflict, "rule_version", "")
	r.ask(r.key("acme", access.Operator), http.MethodPost, path, `{"reason":"x",`+rule+`}`).refused(http.StatusForbidden, "role_missing", "")
	if n := len(r.ask(r.key("other", access.Admin), http.MethodGet, "/api/v1/rules", "").is(http.StatusOK)["rules"].([]any)); n != 0 {
		t.Errorf("the other tenant has %d", n)
	}
	r.ask(r.key("other", access.Admin), http.MethodPost, path+"/delete", `{"reason":"x"}`).refused(http.StatusNotFound, "not_found", "")
	r.ask(admin, http.MethodPost, path+"/delete", `{"reason":"x","if_version":7}`).refused(http.StatusConflict, "rule_version", "")
	r.ask(admin, http.MethodPost, path+"/delete", `{"reason":"no longer"}`).is(http.StatusOK)
	if n := len(r.ask(admin, http.MethodGet, "/api/v1/rules", "").is(http.StatusOK)["rules"].([]any)); n != 0 {
		t.Errorf("%d rules are left", n)
	}
	answer := r.ask(r.key("acme", access.Auditor), http.MethodGet, path+"/history", "").is(http.StatusOK)["versions"].([]any)
	if len(answer) != 2 {
		t.Fatalf("%v", answer)
	}
	made, gone := answer[0].(map[string]any), answer[1].(map[string]any)
	if made["version"] != 1.0 || made["changes"] != "made" || made["reason"] != "they open again at night" || made["max_replays"] != 2.0 || made["actor"] != "user:admin@acme" || made["receipt_id"] == "" {
		t.Errorf("%v", made)
	}
	if gone["version"] != 2.0 || gone["deleted"] != true || gone["reason"] != "no longer" {
		t.Errorf("%v", gone)
	}
	for query, want := range map[string]int{"?limit=1": 1, "?after=1": 1, "?after=2": 0} {
		if n := len(r.ask(admin, http.MethodGet, path+"/history"+query, "").is(http.StatusOK)["versions"].([]any)); n != want {
			t.Errorf("%s: %d versions", query, n)
		}
	}
	r.ask(admin, http.MethodGet, path+"/history?limit=0", "").refused(http.StatusUnprocessableEntity, "invalid", "limit")
	for tenant, name := range map[string]string{"other": "refusals", "acme": "refusal"} {
		if n := len(r.ask(r.key(tenant, access.Auditor), http.MethodGet, "/api/v1/rules/"+name+"/history", "").is(http.StatusOK)["versions"].([]any)); n != 0 {
			t.Errorf("%s of %s has %d versions", name, tenant, n)
		}
	}
}

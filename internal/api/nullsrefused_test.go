package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// A null member is refused by name: read as absent, a value that a script lacked would make
// the request wider than was meant.
func TestNullIsNotTakenForAbsent(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	letter := r.letter("acme", 1, `"refused"`)
	roles := map[string]access.Role{"bulk": access.Operator, "dead-letters": access.Operator, "breakers": access.Operator, "rules": access.Admin, "policies": access.Admin, "keys": access.Admin}
	for _, c := range []struct{ path, body, field string }{
		{"bulk", `{"action":"fork","reason":"x","filter":{"outcome":"release"},"where":null}`, "where"},
		{"bulk", `{"action":"fork","reason":"x","all":true,"filter":null}`, "filter"},
		{"bulk", `{"action":"fork","reason":"x","where":"true","filter":null}`, "filter"},
		{"bulk", `{"action":"fork","reason":"x","filter":{"outcome":"release","error_type":null}}`, "filter.error_type"},
		{"bulk", `{"action":"fork","reason":"x","all":true,"limit":null}`, "limit"},
		{"bulk", `{"action":"fork","reason":"x","all":true,"throttle":null}`, "throttle"},
		{"bulk", `{"action":"fork","reason":"x","all":true,"policy":null}`, "policy"},
		{"bulk", `{"action":"fork","reason":"x","all":true,"policy":{"max_retry_attempts":null}}`, "policy.max_retry_attempts"},
		{"dead-letters/" + letter + "/fork", `{"reason":"x","policy":null}`, "policy"},
		{"dead-letters/" + letter + "/fork", `{"reason":"x","queue":null}`, "queue"},
		{"dead-letters/" + letter + "/mark", `{"reason":"x","reprocess_eligible":null,"manual_review_required":true}`, "reprocess_eligible"},
		{"rules/night", `{"reason":"x","rule":{"enabled":true,"all":true,"filter":null,"delay":"1h","max_replays":2}}`, "rule.filter"},
		{"rules/night", `{"reason":"x","rule":{"enabled":true,"all":true,"mark":null,"delay":"1h","max_replays":2}}`, "rule.mark"},
		{"rules/night", `{"reason":"x","if_version":null,"rule":{"enabled":true,"all":true,"delay":"1h","max_replays":2}}`, "if_version"},
		{"policies/settlement", `{"reason":"x","policy":{"non_retryable":[null]}}`, "policy.non_retryable"},
		{"keys", `{"principal":"user:p","roles":["auditor"],"expires_at":null}`, "expires_at"},
		{"breakers/open", `{"reason":"x","target":null}`, "target"},
	} {
		where, _, _ := strings.Cut(c.path, "/")
		r.ask(r.key("acme", roles[where]), http.MethodPost, "/api/v1/"+c.path, c.body).refused(http.StatusUnprocessableEntity, "invalid", c.field)
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.bulks) + (SELECT count(*) FROM recourse.rules) + (SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL)`); n != 0 {
		t.Errorf("%d plans, rules and forks were made", n)
	}
	r.ask(r.key("acme", access.Operator), http.MethodPost, "/api/v1/bulk", `{"action":"fork","reason":"null","filter":{"error_text":"null"}}`).refused(http.StatusUnprocessableEntity, "nothing_selected", "")
	r.ask(r.key("acme", access.Submitter), http.MethodPost, "/api/v1/adjudications", adjudication(2, `"ok"`)[:len(adjudication(2, `"ok"`))-1]+`,"payload":{"note":null}}`).is(http.StatusCreated)
}

package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/postadjudication/audit"
)

// The owners of the objects that the test requests.
const (
	own     = "own"
	foreign = "foreign"
	absent  = "absent"
)

// resources has the ids of objects for each path parameter, by owner: the tenant of the key,
// another tenant, and nobody. What belongs to no tenant is the same for all.
type resources map[string]map[string]string

// requestBodies has the bodies of operations for which a minimal valid value of the schema is
// refused.
var requestBodies = map[string]string{
	"plan-bulk":             `{"action":"hold","all":true,"reason":"a"}`,
	"mark-dead-letter":      `{"reason":"a","reprocess_eligible":true}`,
	"reconcile-dead-letter": `{"finding":"not_executed","call_outstanding":true,"reason":"a","reference":"a"}`,
	"set-rule":              ruleBody,
	"create-webhook":        `{"url":"https://127.0.0.1:1/","reason":"a"}`,
	"try-rule":              `{"rule":{"enabled":false,"filter":{"error_type":"http.refused"},"delay":"1h","max_replays":2}}`,
}

const ruleBody = `{"reason":"a","rule":{"enabled":false,"filter":{"error_type":"http.refused"},"delay":"1h","max_replays":2}}`

// newResources creates one object of each kind for two tenants.
func (r *rig) newResources() resources {
	r.t.Helper()
	all := resources{
		"family": {own: "settlement"}, "target": {own: "escrow"},
		"run": {absent: uuid.NewString()}, "case": {absent: uuid.NewString()}, "bulk": {absent: uuid.NewString()}, "webhook": {absent: uuid.NewString()},
		"prefix": {absent: "aaaaaaaaaaaa"}, "transaction": {absent: "txr_none"}, "rule": {absent: "none"},
	}
	for n, of := range []struct{ tenant, owner, transaction, rule string }{{"acme", own, "txr_1", "ours"}, {"other", foreign, "txr_2", "theirs"}} {
		run := r.letter(of.tenant, n+1, `"refused"`)
		all["run"][of.owner], all["transaction"][of.owner], all["rule"][of.owner] = run, of.transaction, of.rule
		all["case"][of.owner] = r.ask(r.key(of.tenant, access.Auditor), http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)["case_id"].(string)
		all["bulk"][of.owner] = r.ask(r.key(of.tenant, access.Operator), http.MethodPost, "/api/v1/bulk", requestBodies["plan-bulk"]).is(http.StatusCreated)["id"].(string)
		all["prefix"][of.owner] = r.ask(r.key(of.tenant, access.Admin), http.MethodPost, "/api/v1/keys", `{"principal":"user:admin.`+of.owner+`","roles":["auditor"],"reason":"a"}`).is(http.StatusCreated)["prefix"].(string)
		r.ask(r.key(of.tenant, access.Admin), http.MethodPost, "/api/v1/rules/"+of.rule, ruleBody).is(http.StatusOK)
		hook := r.ask(r.key(of.tenant, access.Admin), http.MethodPost, "/api/v1/webhooks", requestBodies["create-webhook"]).is(http.StatusCreated)["id"].(string)
		r.ask(r.key(of.tenant, access.Admin), http.MethodPost, "/api/v1/webhooks/"+hook+"/pause", `{"reason":"a"}`).is(http.StatusOK) // its position stays as it is
		all["webhook"][of.owner] = hook
	}
	return all
}

// path returns the path of an operation for the objects of an owner, their ids, and whether
// the operation can name an object of that owner.
func (all resources) path(t *testing.T, d described, owner string) (path string, names []string, ok bool) {
	t.Helper()
	path, ok = d.path, owner == own
	for parameter, values := range all {
		if !strings.Contains(path, "{"+parameter+"}") {
			continue
		}
		name := values[owner]
		if name == "" {
			name = values[own]
		} else {
			ok = true
		}
		path = strings.ReplaceAll(path, "{"+parameter+"}", name)
		names = append(names, name)
	}
	if strings.Contains(path, "{") {
		t.Fatalf("%s: the test has no object for it", d)
	}
	return path, names, ok
}

// tryOperation requests an operation, and closes a stream at once.
func (r *rig) tryOperation(token string, all description, d described, path string) (status int, text string) {
	r.t.Helper()
	query := url.Values{}
	for _, p := range d.required {
		value, is := all.example(p.schema).(string)
		if !is {
			r.t.Fatalf("%s: the test has no value for %s", d, p.name)
		}
		query.Set(p.name, value)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body := requestBodies[d.id]
	if body == "" && d.body != nil {
		text, err := json.Marshal(all.example(d.body))
		if err != nil {
			r.t.Fatal(err)
		}
		body = string(text)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	resp, err := http.DefaultClient.Do(r.request(ctx, token, d.method, path, body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, ""
	}
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(read)
}

// contents returns the rows of a tenant in every table that has tenants.
func (r *rig) contents(tenant string) map[string]string {
	r.t.Helper()
	rows, err := r.db.Query(`SELECT table_name FROM information_schema.columns WHERE table_schema = 'recourse' AND column_name = 'tenant' ORDER BY 1`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var table, text string
		if err := rows.Scan(&table); err != nil {
			r.t.Fatal(err)
		}
		if err := r.db.QueryRow(`SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM recourse.`+table+` t WHERE tenant = $1`, tenant).Scan(&text); err != nil {
			r.t.Fatal(err)
		}
		out[table] = text
	}
	if err := rows.Err(); err != nil || len(out) < 8 {
		r.t.Fatalf("%d tables, %v", len(out), err)
	}
	return out
}

// Requests every described operation with a key of every role and with none, for objects of
// the key's tenant, of another, and of nobody. A role of the table reaches the operation; any
// other is refused with the reason and leaves a receipt. An object of another tenant is
// answered like an unknown one, and nothing of it is shown or changed.
func TestEveryRoleOfEveryOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.TimeLimit = 5 * time.Second }, sendsWebhooks).work()
	all, about := r.description(), r.newResources()
	if err := r.main.Service.DrainEvents(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.waitFor("the letters are listed", `SELECT (SELECT max(last) FROM recourse.event_log) = last FROM recourse.projected WHERE name = 'letters'`)
	before, asked := r.contents("other"), map[access.Action]bool{}
	refusals, began := 0, r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype IN ('access-refused', 'refused') AND body LIKE '%role_missing%'`)
	for _, d := range all.operations {
		asked[d.action] = true
		if !slices.Equal(d.roles, access.Allowed(d.action)) || len(d.roles) == 0 {
			t.Errorf("%s: of %v, the action %q is of %v", d, d.roles, d.action, access.Allowed(d.action))
		}
		for _, role := range append(access.Roles(), access.Platform) {
			answers := map[string]string{}
			for _, owner := range []string{own, foreign, absent} {
				path, names, ok := about.path(t, d, owner)
				if !ok {
					continue
				}
				status, text := r.tryOperation(r.keyAbout(role, owner), all, d, path)
				if !slices.Contains(d.roles, role) {
					refusals++
					if status != http.StatusForbidden || !strings.Contains(text, `"code":"role_missing"`) || !strings.Contains(text, string(d.roles[0])) {
						t.Errorf("%s may not %s, of an object that is %s: %d %s", role, d, owner, status, text)
					}
					continue
				}
				r.checkAnswer(d, role, owner, status, text)
				if owner != own {
					answers[owner] = http.StatusText(status)
				}
				if owner != own && status >= 400 {
					for _, name := range names {
						text = strings.ReplaceAll(text, name, "NAME")
					}
					answers[owner] += text
				}
				for parameter, values := range about {
					if theirs := values[foreign]; theirs != "" && parameter != "rule" && !slices.Contains(names, theirs) && strings.Contains(text, theirs) {
						t.Errorf("%s by %s shows %s of another tenant: %s", d, role, theirs, text)
					}
				}
			}
			if answers[foreign] != answers[absent] {
				t.Errorf("%s by %s answers differently for another's object and an unknown one:\n%s\n%s", d, role, answers[foreign], answers[absent])
			}
		}
		if status, text := r.tryOperation("", all, d, strings.NewReplacer("{", "", "}", "").Replace(d.path)); status != http.StatusUnauthorized && status != http.StatusTooManyRequests ||
			!strings.Contains(text, `"code":"key_missing"`) && !strings.Contains(text, `"code":"too_many_failures"`) {
			t.Errorf("%s without a key: %d %s", d, status, text)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype IN ('access-refused', 'refused') AND body LIKE '%role_missing%'`) - began; n != refusals || refusals < 200 {
		t.Errorf("%d receipts for %d refusals", n, refusals)
	}
	asked[access.Work], asked[access.Purge] = true, true // operations of jobs are not of this door
	for _, a := range access.Actions() {
		if !asked[a] && !slices.Equal(access.Allowed(a), []access.Role{access.Platform}) { // pages that show all tenants are no operations
			t.Errorf("no operation has the action %s", a)
		}
	}
	for table, rows := range r.contents("other") {
		if rows != before[table] {
			t.Errorf("%s of another tenant was\n%s\nand is\n%s", table, before[table], rows)
		}
	}
	if report, err := audit.Run(t.Context(), r.main.Service.AuditReader(), r.main.Service.AuditQuery()); err != nil || !report.OK() {
		t.Errorf("%v, %v", report, err)
	}
}

// keyAbout returns a key of acme with a role. Refusals are counted by key, so there is a key
// for each owner of objects. The submitter submitted those of its tenant.
func (r *rig) keyAbout(role access.Role, owner string) string {
	r.t.Helper()
	name := string(role) + " about " + owner
	if role == access.Submitter && owner == own {
		return r.key("acme", role)
	}
	if r.keys[name] == "" {
		r.keys[name] = r.keyNamed("acme", "user:"+string(role)+"."+owner, role)
	}
	return r.keys[name]
}

// checkAnswer checks that a role reached an operation, and found only objects of its tenant.
func (r *rig) checkAnswer(d described, role access.Role, owner string, status int, text string) {
	r.t.Helper()
	refused := status == http.StatusForbidden && !strings.Contains(text, `"code":"beyond_reach"`)
	if refused || status == http.StatusUnauthorized || status == http.StatusTooManyRequests || status >= 500 {
		r.t.Errorf("%s may %s, of an object that is %s: %d %s", role, d, owner, status, text)
	}
	byID := slices.ContainsFunc([]string{"{run}", "{case}", "{bulk}", "{prefix}", "{transaction}", "{webhook}"}, func(p string) bool { return strings.Contains(d.path, p) })
	switch {
	case owner == own && d.method == http.MethodGet && status != http.StatusOK:
		r.t.Errorf("%s by %s: %d %s", d, role, status, text)
	case owner != own && byID && status != http.StatusNotFound:
		r.t.Errorf("%s by %s, of an object that is %s: %d %s", d, role, owner, status, text)
	}
}

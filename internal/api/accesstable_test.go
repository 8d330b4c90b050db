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
)

// Whose the things are that an operation is asked about.
const (
	own     = "own"
	foreign = "foreign"
	absent  = "absent"
)

// resources are what the paths name, by the parameter: one of the tenant that asks, one of
// another, and one that nobody has. What belongs to no tenant is the same for all.
type resources map[string]map[string]string

// requestBodies are what an operation is asked with where the least that its schema requires makes
// no sense.
var requestBodies = map[string]string{
	"plan-bulk":             `{"action":"hold","all":true,"reason":"a"}`,
	"mark-dead-letter":      `{"reason":"a","reprocess_eligible":true}`,
	"reconcile-dead-letter": `{"finding":"not_executed","call_outstanding":true,"reason":"a","reference":"a"}`,
	"clear-dead-letters":    `{"family":"settlement","confirm":"settlement","reason":"a"}`,
	"set-rule":              ruleBody,
	"try-rule":              `{"rule":{"enabled":false,"filter":{"error_type":"http.refused"},"delay":"1h","max_replays":2}}`,
}

const ruleBody = `{"reason":"a","rule":{"enabled":false,"filter":{"error_type":"http.refused"},"delay":"1h","max_replays":2}}`

// newResources gives two tenants one of each, so that what is asked about is there.
func (r *rig) newResources() resources {
	r.t.Helper()
	all := resources{
		"family": {own: "settlement"}, "target": {own: "escrow"},
		"run": {absent: uuid.NewString()}, "case": {absent: uuid.NewString()}, "bulk": {absent: uuid.NewString()},
		"prefix": {absent: "aaaaaaaaaaaa"}, "transaction": {absent: "txr_none"}, "rule": {absent: "none"},
	}
	for n, of := range []struct{ tenant, whose, transaction, rule string }{{"acme", own, "txr_1", "ours"}, {"other", foreign, "txr_2", "theirs"}} {
		run := r.letter(of.tenant, n+1, `"refused"`)
		all["run"][of.whose], all["transaction"][of.whose], all["rule"][of.whose] = run, of.transaction, of.rule
		all["case"][of.whose] = r.ask(r.key(of.tenant, access.Auditor), http.MethodGet, "/api/v1/runs/"+run, "").is(http.StatusOK)["case_id"].(string)
		all["bulk"][of.whose] = r.ask(r.key(of.tenant, access.Operator), http.MethodPost, "/api/v1/bulk", requestBodies["plan-bulk"]).is(http.StatusCreated)["id"].(string)
		all["prefix"][of.whose] = r.ask(r.key(of.tenant, access.Admin), http.MethodPost, "/api/v1/keys", `{"principal":"user:leaves","roles":["auditor"],"reason":"a"}`).is(http.StatusCreated)["prefix"].(string)
		r.ask(r.key(of.tenant, access.Admin), http.MethodPost, "/api/v1/rules/"+of.rule, ruleBody).is(http.StatusOK)
	}
	return all
}

// path gives the path of an operation about things, which of them it names, and whether it
// can name any of those.
func (all resources) path(t *testing.T, d described, whose string) (path string, names []string, ok bool) {
	t.Helper()
	path, ok = d.path, whose == own
	for parameter, values := range all {
		if !strings.Contains(path, "{"+parameter+"}") {
			continue
		}
		name := values[whose]
		if name == "" {
			name = values[own]
		} else {
			ok = true
		}
		path = strings.ReplaceAll(path, "{"+parameter+"}", name)
		names = append(names, name)
	}
	if strings.Contains(path, "{") {
		t.Fatalf("%s: the test has no such thing", d)
	}
	return path, names, ok
}

// tryOperation asks for an operation, and leaves a stream at once.
func (r *rig) tryOperation(token string, all description, d described, path string) (status int, text string) {
	r.t.Helper()
	query := url.Values{}
	for _, p := range d.required {
		value, is := all.example(p.schema).(string)
		if !is {
			r.t.Fatalf("%s: the test can't write %s", d, p.name)
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

// contents are the rows of a tenant, by the table: of all tables that have tenants.
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

// Every operation that is described, asked with a key of every role and with none, about
// what is the tenant's own, another's, and nobody's. A role of the table comes to the
// operation; any other is refused with the reason and leaves a receipt. What is another's is
// answered as what is nobody's, and nothing of it is told or changed.
func TestEveryRoleOfEveryOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.TimeLimit = 5 * time.Second }).work()
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
			for _, whose := range []string{own, foreign, absent} {
				path, names, ok := about.path(t, d, whose)
				if !ok {
					continue
				}
				status, text := r.tryOperation(r.keyAbout(role, whose), all, d, path)
				if !slices.Contains(d.roles, role) {
					refusals++
					if status != http.StatusForbidden || !strings.Contains(text, `"code":"role_missing"`) || !strings.Contains(text, string(d.roles[0])) {
						t.Errorf("%s may not %s, asked of what is %s: %d %s", role, d, whose, status, text)
					}
					continue
				}
				r.checkAnswer(d, role, whose, status, text)
				if whose != own {
					answers[whose] = http.StatusText(status)
				}
				if whose != own && status >= 400 {
					for _, name := range names {
						text = strings.ReplaceAll(text, name, "NAME")
					}
					answers[whose] += text
				}
				for parameter, values := range about {
					if theirs := values[foreign]; theirs != "" && parameter != "rule" && !slices.Contains(names, theirs) && strings.Contains(text, theirs) {
						t.Errorf("%s of %s tells %s of another tenant: %s", d, role, theirs, text)
					}
				}
			}
			if answers[foreign] != answers[absent] {
				t.Errorf("%s of %s tells another's from what is not there:\n%s\n%s", d, role, answers[foreign], answers[absent])
			}
		}
		if status, text := r.tryOperation("", all, d, strings.NewReplacer("{", "", "}", "").Replace(d.path)); status != http.StatusUnauthorized && status != http.StatusTooManyRequests ||
			!strings.Contains(text, `"code":"key_missing"`) && !strings.Contains(text, `"code":"too_many_failures"`) {
			t.Errorf("%s without a key: %d %s", d, status, text)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype IN ('access-refused', 'refused') AND body LIKE '%role_missing%'`) - began; n != refusals || refusals < 200 {
		t.Errorf("%d receipts of %d refusals", n, refusals)
	}
	for _, a := range access.Actions() {
		if !asked[a] && !slices.Equal(access.Allowed(a), []access.Role{access.Platform}) { // what shows all tenants is no operation
			t.Errorf("no operation asks for %s", a)
		}
	}
	for table, rows := range r.contents("other") {
		if rows != before[table] {
			t.Errorf("%s of another tenant was\n%s\nand is\n%s", table, before[table], rows)
		}
	}
	if audit, err := r.main.Service.Audit(t.Context()); err != nil || !audit.OK() {
		t.Errorf("%v, %v", audit, err)
	}
}

// keyAbout is a key of acme with a role. What is refused is counted by the key, so that there is
// one for each of those whom it is asked about.
func (r *rig) keyAbout(role access.Role, whose string) string {
	r.t.Helper()
	name := string(role) + " about " + whose
	if r.keys[name] == "" {
		r.keys[name] = r.keyNamed("acme", "user:"+string(role)+"."+whose, role)
	}
	return r.keys[name]
}

// checkAnswer checks that a role came to an operation, and found only what is its tenant's.
func (r *rig) checkAnswer(d described, role access.Role, whose string, status int, text string) {
	r.t.Helper()
	refused := status == http.StatusForbidden && !strings.Contains(text, `"code":"beyond_reach"`)
	if refused || status == http.StatusUnauthorized || status == http.StatusTooManyRequests || status >= 500 {
		r.t.Errorf("%s may %s, asked of what is %s: %d %s", role, d, whose, status, text)
	}
	byID := slices.ContainsFunc([]string{"{run}", "{case}", "{bulk}", "{prefix}", "{transaction}"}, func(p string) bool { return strings.Contains(d.path, p) })
	switch {
	case whose == own && d.method == http.MethodGet && status != http.StatusOK:
		r.t.Errorf("%s of %s: %d %s", d, role, status, text)
	case whose != own && byID && status != http.StatusNotFound:
		r.t.Errorf("%s of %s, asked of what is %s: %d %s", d, role, whose, status, text)
	}
}

package conformance_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Keys, of which the specification says only that they are sent as Bearer: who may do what, and that a refusal
// gives nothing away.

// ofKeys begins the names of the tests of the server with keys.
const ofKeys = "TestKEY_"

const (
	submitter = "submitter"
	worker    = "worker"
	operator  = "operator"
	approver  = "approver"
	both      = "operator,approver"
	auditor   = "auditor"
	admin     = "admin"
	foreign   = "submitter,worker,operator,approver,auditor,admin" // of another tenant
)

// rolesOfKeys are the roles of the keys, in the order in which they are made.
var rolesOfKeys = []string{submitter, worker, operator, approver, both, auditor, admin, foreign}

// serveWithKeys starts a server as production has it: with named servers, here a Postgres and a Redis that
// cmd/sandbox starts and removes, with a role that owns nothing, and with keys that the command line made.
// Every test is of jobs, so that no call reaches the escrow service. $0 is the program; the arguments are the
// roles of the keys.
const serveWithKeys = `set -e
RECOURSE_DATABASE_URL=$RECOURSE_OWNER_DATABASE_URL "$0" migrate --app-role recourse_app >&2
tenant=acme
for roles; do
  [ "$roles" = '` + foreign + `' ] && tenant=umbrella
  "$0" keys create --tenant $tenant --principal "service:$(echo "$roles" | tr , -)" --roles "$roles" --actor user:ada --reason 'the conformance test' --json
done
exec "$0" serve --escrow http://127.0.0.1:9 --key-lifetime none --listen 127.0.0.1:0 --json`

// withKeys starts the server with keys, once.
var withKeys = sync.OnceValues(func() (server, error) {
	p, err := programs.Launch("keys", programs.Path("sandbox"), append([]string{"-durable=false", "/bin/sh", "-c", serveWithKeys, programs.Path("recourse")}, rolesOfKeys...)...)
	if err != nil {
		return server{}, err
	}
	if len(p.Tokens) != len(rolesOfKeys) {
		return server{}, fmt.Errorf("%d keys were made, want %d", len(p.Tokens), len(rolesOfKeys))
	}
	s := server{base: p.URL, keys: map[string]string{}}
	for i, roles := range rolesOfKeys {
		s.keys[roles] = p.Tokens[i]
	}
	return s, nil
})

// keyFor returns the key with which a request is sent: that of the program, or of the person, that makes such
// requests.
func (s server) keyFor(r *http.Request) string {
	if s.keys == nil {
		return s.key
	}
	path, get := r.URL.Path, r.Method == http.MethodGet
	switch {
	case get && (path == "/ojs/manifest" || path == root+"/health"):
		return ""
	case strings.HasPrefix(path, root+"/workers/"):
		return s.keys[worker]
	case strings.Contains(path, "/replay-rules") && !get:
		return s.keys[admin]
	case strings.HasSuffix(path, "/dead-letter/retry"), path == root+"/admin/jobs/bulk/retry":
		return s.keys[both]
	case strings.Contains(path, "/dead-letter") && (r.Method == http.MethodDelete || path == letters+"/purge"):
		return s.keys[approver]
	case strings.Contains(path, "/dead-letter"), strings.HasPrefix(path, root+"/queues/"), r.Method == http.MethodDelete:
		return s.keys[operator]
	}
	return s.keys[submitter]
}

// as sends a request with the key that has some roles, or with no key.
func as(t *testing.T, roles string, r request) *answer {
	t.Helper()
	if r.header == nil {
		r.header = map[string]string{"Authorization": ""}
		if roles != "" {
			r.header["Authorization"] = "Bearer " + serverOf(t).keys[roles]
		}
	}
	return send(t, r)
}

// aboutJob are the requests about one job, none of which has an effect if it is refused.
func aboutJob(id string) []request {
	return []request{
		{method: "GET", path: root + "/jobs/" + id}, {method: "DELETE", path: root + "/jobs/" + id}, {method: "POST", path: root + "/jobs/" + id + "/activate"},
		{method: "POST", path: root + "/workers/ack", body: members{"job_id": id}}, {method: "POST", path: root + "/workers/nack", body: members{"job_id": id, "error": failure()}},
		{method: "GET", path: letters + "/" + id}, {method: "POST", path: letters + "/" + id + "/retry", body: members{}}, {method: "DELETE", path: letters + "/" + id},
	}
}

// aboutMany are requests that name no job.
func aboutMany(q *queue) []request {
	filter := members{"filter": members{"queue": q.name}, "confirm": true}
	return []request{
		{method: "POST", path: root + "/jobs", body: q.body()}, {method: "GET", path: root + "/queues"}, {method: "GET", path: root + "/events?queues=" + q.name},
		{method: "POST", path: root + "/workers/fetch", body: members{"queues": []string{q.name}}}, {method: "POST", path: root + "/workers/heartbeat", body: members{"worker_id": q.worker}},
		{method: "GET", path: letters + "?queue=" + q.name}, {method: "GET", path: letters + "/stats"}, {method: "POST", path: letters + "/retry", body: filter},
		{method: "DELETE", path: letters + "?confirm=true&queue=" + q.name}, {method: "POST", path: letters + "/replay-rules", body: members{"name": q.name, "filter": members{"queue": q.name}, "delay": "PT0S", "max_replays": 1}},
	}
}

// twins sends the same requests about a job that exists and about one that does not, and checks that nothing
// but the id tells their refusals apart. It returns those about the job that exists.
func twins(t *testing.T, id string, do func(request) *answer) (refusals []*answer) {
	t.Helper()
	none := newID()
	others := aboutJob(none)
	for i, r := range aboutJob(id) {
		a, b := do(r), do(others[i])
		refusals = append(refusals, a)
		if a.status != b.status || anonymous(a, id) != anonymous(b, none) || len(a.header) != len(b.header) || a.header.Get("Recourse-Case") != "" {
			t.Errorf("%s: %d %s %v, of no job: %d %s %v", a.name, a.status, a.raw, a.header, b.status, b.raw, b.header)
		}
	}
	return refusals
}

// anonymous returns the body of a refusal without the ids of its request and its job.
func anonymous(a *answer, id string) string {
	return strings.NewReplacer(a.header.Get("X-Request-Id"), "REQUEST", id, "JOB").Replace(string(a.raw))
}

// unchanged checks at the end that a job is as it was.
func unchanged(t *testing.T, id string) (check func()) {
	t.Helper()
	before := text(find(t, id).members)
	return func() {
		t.Helper()
		if after := text(find(t, id).members); after != before {
			t.Errorf("the job was %s, and is %s", before, after)
		}
	}
}

// A few of the requests only: a server that is shown too many wrong keys refuses to look at more.
func TestKEY_02_WithoutAValidKeyThereIsNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	check := unchanged(t, id)
	s := serverOf(t)
	altered := []byte(s.keys[submitter])
	altered[len(altered)-1] ^= 1
	bodies := map[string]bool{}
	for code, key := range map[string]string{"x_key_missing": "", "x_key_invalid": "Bearer " + string(altered)} {
		for _, r := range []request{
			{method: "GET", path: root + "/jobs/" + id}, {method: "GET", path: root + "/jobs/" + newID()}, {method: "DELETE", path: root + "/jobs/" + id},
			{method: "POST", path: root + "/jobs", body: q.body()}, {method: "POST", path: root + "/workers/fetch", body: members{"queues": []string{q.name}}}, {method: "GET", path: letters},
		} {
			r.header = map[string]string{"Authorization": key}
			a := send(t, r)
			a.refused(401, code)
			if a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", a.name)
			}
			bodies[anonymous(a, id)] = true
		}
	}
	if len(bodies) != 2 {
		t.Errorf("the refusals differ by more than the key: %v", bodies)
	}
	check()
}

func TestKEY_03_ManifestAndHealthNeedNoKey(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ojs/manifest", root + "/health"} {
		as(t, "", request{method: "GET", path: path}).must(200)
	}
}

// What each key may do is all that it may do: every other request is refused, whatever it names.
func TestKEY_04_AKeyDoesWhatItsRolesAllow(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id, dead := q.another().alone().enqueue().text("id"), q.dead().text("id")
	check, checkDead := unchanged(t, id), unchanged(t, dead)
	for roles, may := range map[string][]string{ // by method and path without an id
		submitter: {"GET /jobs/", "POST /jobs/activate", "GET /dead-letter/", "POST /jobs", "GET /queues", "GET /events"},
		worker:    {"POST /workers/ack", "POST /workers/nack", "POST /workers/fetch", "POST /workers/heartbeat"},
		operator:  {"GET /jobs/", "DELETE /jobs/", "GET /dead-letter/", "POST /dead-letter/retry one", "GET /queues", "GET /events", "GET /dead-letter", "GET /dead-letter/stats"},
		approver:  {"GET /jobs/", "GET /dead-letter/", "DELETE /dead-letter/", "GET /queues", "GET /events", "GET /dead-letter", "GET /dead-letter/stats", "DELETE /dead-letter"},
		auditor:   {"GET /jobs/", "GET /dead-letter/", "GET /queues", "GET /events", "GET /dead-letter", "GET /dead-letter/stats"},
		admin:     {"GET /jobs/", "GET /dead-letter/", "GET /queues", "GET /events", "GET /dead-letter", "GET /dead-letter/stats", "POST /dead-letter/replay-rules"},
	} {
		refuse := func(r request) *answer {
			a := as(t, roles, r)
			if a.status != 403 {
				t.Errorf("%s: %s: %d, want 403: %s", roles, a.name, a.status, shortened(a.raw))
				return a
			}
			details := a.refused(403, "x_role_missing").object("details")
			if slices.Contains(strings.Split(details.text("needs_one_of"), ", "), roles) {
				t.Errorf("%s: %s: %s", roles, a.name, text(details.members))
			}
			return a
		}
		for _, each := range [...]string{id, dead} {
			none := newID()
			others := aboutJob(none)
			for i, r := range aboutJob(each) {
				if !slices.Contains(may, pattern(r, each)) {
					if a, b := refuse(r), refuse(others[i]); anonymous(a, each) != anonymous(b, none) {
						t.Errorf("%s: %s, of no job %s", a.name, a.raw, b.raw)
					}
				}
			}
		}
		for _, r := range aboutMany(q) {
			if !slices.Contains(may, pattern(r, "")) {
				refuse(r)
			}
		}
	}
	check()
	checkDead()
	q.isEmpty()
}

// pattern returns the method and the path of a request, without the id of its job.
func pattern(r request, id string) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(r.path, root), "?")
	if id != "" && strings.HasSuffix(path, "/"+id+"/retry") {
		return r.method + " /dead-letter/retry one"
	}
	if id != "" {
		path = strings.Replace(strings.Replace(path, id+"/", "", 1), id, "", 1)
	}
	return r.method + " " + path
}

func TestKEY_05_AJobOfAnotherTenantIsNotFound(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			mine := *q
			mine.t = t
			id := s.make(&mine)
			check := unchanged(t, id)
			for _, a := range twins(t, id, func(r request) *answer { return as(t, foreign, r) }) {
				a.refused(404, "not_found")
				if details, given := a.object.object("error").members["details"].(members); given && details["current_state"] != nil {
					t.Errorf("%s: %s", a.name, a.raw)
				}
			}
			extended := as(t, foreign, request{method: "POST", path: root + "/workers/heartbeat", body: members{"worker_id": mine.worker, "active_jobs": []string{id}}}).must(200).list("jobs_extended")
			if len(extended) != 0 {
				t.Errorf("extended %v", extended)
			}
			check()
		})
	}
}

func TestKEY_06_AnotherTenantSeesAndChangesNothingOfAQueue(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	dead := q.dead().text("id")
	waiting := q.enqueue(byArgs()).text("id")
	check, checkDead := unchanged(t, waiting), unchanged(t, dead)
	ask := func(method, path string, body any) object {
		t.Helper()
		return as(t, foreign, request{method: method, path: path, body: body}).must(200)
	}
	ask("POST", root+"/workers/fetch", members{"queues": []string{q.name}, "count": 10}).is("jobs", []any{})
	ask("GET", letters+"?queue="+q.name, nil).are(members{"jobs": []any{}, "total": 0})
	ask("GET", root+"/events?queues="+q.name, nil).is("events", []any{})
	ask("POST", letters+"/retry", members{"filter": members{"queue": q.name}, "confirm": true}).is("matched", 0)
	ask("DELETE", letters+"?confirm=true&queue="+q.name, nil).is("deleted", 0)
	for path, names := range map[string]func(object) string{
		root + "/queues?limit=1000": func(o object) string { return text(o.list("queues")) }, letters + "/stats": func(o object) string { return text(o.object("by_queue").members) },
	} {
		if seen := names(ask("GET", path, nil)); strings.Contains(seen, q.name) {
			t.Errorf("%s names the queue: %s", path, seen)
		}
	}
	if queues := ask("GET", root+"/queues", nil).objects("queues"); queues[0].text("name") != "default" {
		t.Errorf("a tenant without jobs has no default queue, but %s", queues[0].text("name"))
	}
	// Neither an id nor the place of a unique job is taken in another tenant.
	made := as(t, foreign, request{method: "POST", path: root + "/jobs", body: q.body(byArgs(), members{"id": dead})}).must(201).object("job")
	made.are(members{"id": dead, "state": "available"})
	check()
	checkDead()
	if got := q.fetch().text("id"); got != waiting {
		t.Errorf("fetched %s, want %s", got, waiting)
	}
	q.isEmpty()
}

// A key is of one tenant: a request can't choose another one.
func TestKEY_07_AKeyIsOfOneTenant(t *testing.T) {
	t.Parallel()
	id := newQueue(t).enqueue().text("id")
	for roles, named := range map[string]string{foreign: "acme", submitter: "umbrella"} {
		header := map[string]string{"Authorization": "Bearer " + serverOf(t).keys[roles], "Recourse-Tenant": named}
		send(t, request{method: "GET", path: root + "/jobs/" + id, header: header}).refused(403, "x_tenant_mismatch")
	}
	t.Run("its own", func(t *testing.T) {
		header := map[string]string{"Authorization": "Bearer " + serverOf(t).keys[submitter], "Recourse-Tenant": "acme"}
		send(t, request{method: "GET", path: root + "/jobs/" + id, header: header}).must(200)
	})
}

// What people and programs do is recorded under the names of their keys.
func TestKEY_08_EventsNameWhoseKeyItWas(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	remove(t, root+"/jobs/"+id).must(200)
	found := eventsOf(q, "job.cancelled")
	found[len(found)-1].object("data").is("cancelled_by", "service:"+operator)
}

// DLQ-004 names the limits of a server that has no rules of its own.
func TestKEY_09_DeadLettersAreKeptByTheRulesOfTheSpecification(t *testing.T) {
	t.Parallel()
	get(t, letters+"/stats").must(200).object("retention").are(members{"max_age": "P180D", "max_count": 10_000})
}

package conformance_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Section 1: endpoints.

func TestEND_01_EachRouteAnswersWithItsStatus(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	held := func() string {
		id := q.enqueue(patient).text("id")
		q.fetch()
		return id
	}
	dead := func() string { return q.dead().text("id") }
	for _, c := range []struct {
		name, method string
		path         func() string
		body         func() any
		want         int
	}{
		{"manifest", "GET", fixed("/ojs/manifest"), nil, 200},
		{"health", "GET", fixed(root + "/health"), nil, 200},
		{"enqueue", "POST", fixed(root + "/jobs"), func() any { return q.body(members{"queue": q.name + "-new"}) }, 201},
		{"get", "GET", func() string { return root + "/jobs/" + q.enqueue(members{"queue": q.name + "-get"}).text("id") }, nil, 200},
		{"cancel", "DELETE", func() string { return root + "/jobs/" + q.enqueue(members{"queue": q.name + "-cancel"}).text("id") }, nil, 200},
		{"fetch", "POST", fixed(root + "/workers/fetch"), func() any { return members{"queues": []string{q.name + "-none"}} }, 200},
		{"ack", "POST", fixed(root + "/workers/ack"), func() any { return members{"job_id": held()} }, 200},
		{"nack", "POST", fixed(root + "/workers/nack"), func() any { return members{"job_id": held(), "error": failure()} }, 200},
		{"heartbeat", "POST", fixed(root + "/workers/heartbeat"), func() any { return members{"worker_id": q.worker, "active_jobs": []string{}} }, 200},
		{"events", "GET", fixed(root + "/events"), nil, 200},
		{"queues", "GET", fixed(root + "/queues"), nil, 200},
		{"list", "GET", fixed(letters), nil, 200},
		{"stats", "GET", fixed(letters + "/stats"), nil, 200},
		{"letter", "GET", func() string { return letters + "/" + dead() }, nil, 200},
		{"retry", "POST", func() string { return letters + "/" + dead() + "/retry" }, func() any { return members{} }, 200},
		{"delete", "DELETE", func() string { return letters + "/" + dead() }, nil, 200},
		{"bulk retry", "POST", fixed(letters + "/retry"), func() any { return members{"filter": members{"queue": q.name + "-none"}, "confirm": true} }, 200},
		{"purge", "DELETE", fixed(letters + "?confirm=true&queue=" + q.name + "-none"), nil, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			var body any
			if c.body != nil {
				body = c.body()
			}
			a := send(t, request{method: c.method, path: c.path(), body: body})
			if a.status != c.want {
				t.Errorf("%s: %d, want %d: %s", a.name, a.status, c.want, shortened(a.raw))
			}
			// The next row needs an empty queue: what was retried or handed back is taken out.
			for _, job := range q.take(members{"count": 10}) {
				q.ack(job.text("id"))
			}
		})
	}
}

func fixed(path string) func() string { return func() string { return path } }

func TestEND_02_AJobThatWasMadeHasALocation(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	a := post(t, root+"/jobs", q.body())
	id := a.must(201).object("job").text("id")
	location := a.header.Get("Location")
	if !strings.HasSuffix(location, root+"/jobs/"+id) {
		t.Fatalf("Location %q, want the path of job %s", location, id)
	}
	get(t, root+location[strings.Index(location, "/jobs/"):]).must(200).object("job").is("id", id)
}

// A path that is no id must not be taken for one: lowercase UUIDv7 cannot collide with these.
func TestEND_03_StaticPathsAreNoIDs(t *testing.T) {
	t.Parallel()
	get(t, letters+"/stats").must(200).whole("total")
	post(t, letters+"/retry", members{"filter": members{"queue": token()}}).refused(400, "invalid_request").naming("confirm")
	post(t, letters+"/purge", nil).refused(400, "invalid_request").naming("confirm")
}

func TestEND_04_QueuesAreListedAndDefaultAlwaysExists(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.enqueue()
	names := []string{}
	for offset := 0; ; {
		page := get(t, root+"/queues?limit=100&offset="+text(offset)).must(200)
		queues := page.objects("queues")
		for _, each := range queues {
			names = append(names, each.text("name"))
			if each.text("name") == q.name {
				each.is("status", "active")
				each.instant("created_at")
			}
		}
		pages := page.object("pagination")
		pages.are(members{"offset": offset})
		pages.whole("total")
		pages.whole("limit")
		if offset += len(queues); !pages.flag("has_more") || len(queues) == 0 {
			break
		}
	}
	for _, want := range []string{"default", q.name} {
		if !slices.Contains(names, want) {
			t.Errorf("queue %s is not listed", want)
		}
	}
}

func TestEND_05_APendingJobIsActivatedOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(members{"options": members{"pending": true}}).text("id")
	q.isEmpty()
	job := post(t, root+"/jobs/"+id+"/activate", nil).must(200).object("job")
	job.are(members{"id": id, "type": q.kind, "state": "available", "previous_state": "pending"})
	job.instant("activated_at")
	post(t, root+"/jobs/"+id+"/activate", nil).refused(409, "conflict").object("details").is("current_state", "available")
	post(t, root+"/jobs/"+newID()+"/activate", nil).refused(404, "not_found")
	if got := q.fetch().text("id"); got != id {
		t.Errorf("fetched %s, want %s", got, id)
	}
}

func TestEND_06_UnknownIDsAreNotFound(t *testing.T) {
	t.Parallel()
	id := newID()
	for _, r := range []request{
		{method: "GET", path: root + "/jobs/" + id},
		{method: "DELETE", path: root + "/jobs/" + id},
		{method: "POST", path: root + "/jobs/" + id + "/activate"},
		{method: "POST", path: root + "/workers/ack", body: members{"job_id": id}},
		{method: "POST", path: root + "/workers/nack", body: members{"job_id": id, "error": failure()}},
		{method: "GET", path: letters + "/" + id},
		{method: "POST", path: letters + "/" + id + "/retry", body: members{}},
		{method: "DELETE", path: letters + "/" + id},
	} {
		send(t, r).refused(404, "not_found")
	}
}

// The reference has no word on unknown paths and methods, but for the frame of every answer.
func TestEND_07_UnknownPathsAndMethodsAreRefusedInTheSameFormat(t *testing.T) {
	t.Parallel()
	for _, r := range []request{
		{method: "GET", path: root + "/nothing"},
		{method: "GET", path: root},
		{method: "GET", path: "/ojs/"},
		{method: "GET", path: "/ojs"},
		{method: "GET", path: root + "//queues"},
		{method: "POST", path: "/ojs//v1/jobs", body: members{}},
		{method: "GET", path: root + "/x/../queues"},
		{method: "GET", path: "/ojs/v2/jobs"},
		{method: "PUT", path: root + "/jobs", body: members{}},
		{method: "GET", path: root + "/workers/fetch"},
		{method: "PATCH", path: letters, body: members{}},
		{method: "DELETE", path: "/ojs/manifest"},
	} {
		if a := send(t, r); a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d, want 404 or 405", a.name, a.status)
		}
	}
}

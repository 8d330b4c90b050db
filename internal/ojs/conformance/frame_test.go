package conformance_test

import (
	"regexp"
	"strings"
	"testing"
)

// Section 2: the HTTP frame. Every request of every test checks OJS-Version, Content-Type, X-Request-Id and
// error.request_id as well: see checkFrame.

func TestFRA_01_AnswersHaveTheMediaTypeWhateverIsAccepted(t *testing.T) {
	t.Parallel()
	for _, accepted := range []string{mediaType, "application/json", "text/html", "*/*"} {
		send(t, request{method: "GET", path: "/ojs/manifest", header: map[string]string{"Accept": accepted}}).must(200)
		send(t, request{method: "GET", path: root + "/jobs/" + newID(), header: map[string]string{"Accept": accepted}}).refused(404, "not_found")
	}
}

func TestFRA_02_BothMediaTypesAreTakenWithAndWithoutACharset(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, sent := range []string{mediaType, "application/json", mediaType + "; charset=utf-8", "application/json; charset=utf-8", "application/json;charset=UTF-8"} {
		send(t, request{method: "POST", path: root + "/jobs", body: q.body(), header: map[string]string{"Content-Type": sent}}).must(201)
	}
}

func TestFRA_03_AnotherMediaTypeIsRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, sent := range []string{"text/plain", "application/xml", "application/x-www-form-urlencoded", "application/jsonx", "multipart/form-data; boundary=x"} {
		send(t, request{method: "POST", path: root + "/jobs", body: q.body(), header: map[string]string{"Content-Type": sent}}).refused(400, "invalid_request")
	}
	send(t, request{method: "POST", path: root + "/jobs", body: q.body(), header: map[string]string{"Content-Encoding": "gzip"}}).refused(400, "invalid_request").naming("Content-Encoding")
	q.isEmpty()
}

func TestFRA_04_AnEmptyBodyNeedsNoMediaType(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.dead().text("id")
	post(t, letters+"/"+id+"/retry", nil).must(200).object("job").is("state", "available")
}

var requestID = regexp.MustCompile(`^req_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestFRA_05_RequestIDsAreEchoedOrMade(t *testing.T) {
	t.Parallel()
	for _, path := range []string{root + "/health", root + "/jobs/" + newID()} {
		own := "check-" + token()
		a := send(t, request{method: "GET", path: path, header: map[string]string{"X-Request-Id": own}})
		if got := a.header.Get("X-Request-Id"); got != own {
			t.Errorf("%s: X-Request-Id %q, want the client's %q", a.name, got, own)
		}
		first, second := get(t, path).header.Get("X-Request-Id"), get(t, path).header.Get("X-Request-Id")
		if !requestID.MatchString(first) || !requestID.MatchString(second) || first == second {
			t.Errorf("%s: X-Request-Id %q and %q, want two of the form req_<uuidv7>", path, first, second)
		}
	}
}

func TestFRA_06_TheFamilyOfVersion1_0IsTaken(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{"1.0", "1.0.0", "1.0.0-rc.1"} {
		send(t, request{method: "GET", path: root + "/health", header: map[string]string{"OJS-Version": sent}}).must(200)
	}
	q := newQueue(t)
	for _, sent := range []string{"2.0", "0.9", "10.0", "x"} {
		send(t, request{method: "POST", path: root + "/jobs", body: q.body(), header: map[string]string{"OJS-Version": sent}}).refused(422, "unsupported")
	}
	q.isEmpty()
}

func TestFRA_07_BodiesAreJSONObjects(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, sent := range []string{"{", "{}}", `{"type":}`, "nonsense", `{"type":"a","args":[]`, "{'type':'a'}", `{"type":"a","args":[],}`} {
		post(t, root+"/jobs", sent).refused(400, "invalid_payload")
	}
	send(t, request{method: "POST", path: root + "/jobs", body: ""}).refused(400, "invalid_payload")
	send(t, request{method: "POST", path: root + "/jobs"}).refused(400, "invalid_payload")
	// JSON that is no object is refused; the reference does not say by which of the two codes.
	for _, path := range []string{"/jobs", "/workers/fetch", "/workers/ack", "/workers/nack", "/workers/heartbeat", "/dead-letter/retry"} {
		for _, sent := range []string{"[]", `"text"`, "5", "true", "null", `[{"type":"a","args":[]}]`} {
			post(t, root+path, sent).refused(400, "invalid_payload", "invalid_request")
		}
	}
	q.isEmpty()
}

func TestFRA_08_TimesNeedAZoneAndComeBackInUTC(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	job := q.enqueue()
	job.instant("created_at")
	job.instant("enqueued_at")
	for _, name := range []string{"scheduled_at", "expires_at"} {
		for _, sent := range []string{"2099-01-01T00:00:00", "2099-01-01", "tomorrow", "", "01/02/2099", "2099-01-01 00:00:00Z", "4070908800"} {
			post(t, root+"/jobs", q.body(members{name: sent})).refused(400, "invalid_request").naming(name)
		}
	}
	for _, sent := range []string{"2099-01-01T00:00:00Z", "2099-01-01T02:00:00+02:00", "2099-01-01T00:00:00.125Z"} {
		q.enqueue(members{"scheduled_at": sent}).is("state", "scheduled")
	}
}

func TestFRA_09_IDsAreUUIDv7InLowerCase(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	own := newID()
	q.enqueue(members{"id": own}).is("id", own)
	if made := q.enqueue().text("id"); !requestID.MatchString("req_" + made) {
		t.Errorf("the server made the id %s, want a UUIDv7 in lower case", made)
	}
	other := newQueue(t)
	for _, sent := range []string{
		"", "x", strings.ToUpper(newID()), strings.ReplaceAll(newID(), "-", ""), "{" + newID() + "}", "urn:uuid:" + newID(), newID() + " ",
		"9b2f0c1e-4a5d-4c3b-8f6e-0a1b2c3d4e5f", // of version 4
		"00000000-0000-0000-0000-000000000000",
	} {
		other.refuses(400, "invalid_request", other.body(members{"id": sent})).naming("id")
	}
}

// HTTP has no bodies of DELETE; the admin document uses them. The query counts.
func TestFRA_10_ABodyOfDELETEIsTaken(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	send(t, request{method: "DELETE", path: root + "/jobs/" + id, body: members{}}).must(200)
	q.dead()
	send(t, request{method: "DELETE", path: letters + "?confirm=true&queue=" + q.name, body: members{}}).must(200).is("deleted", 1)
}

// Authentication is out of the scope of the specification; 401 is its recommended form.
func TestFRA_11_AWrongKeyIsRefusedWhereOneIsRequired(t *testing.T) {
	t.Parallel()
	required := serverOf(t).requiresKeys()
	a := send(t, request{method: "GET", path: letters, header: map[string]string{"Authorization": "Bearer " + token()}})
	if required && a.status != 401 {
		t.Errorf("%s with a wrong key: %d, want 401", a.name, a.status)
	}
	if a := send(t, request{method: "GET", path: letters, header: map[string]string{"Authorization": ""}}); required != (a.status == 401) {
		t.Errorf("%s without a key: %d; this server requires one: %v", a.name, a.status, required)
	}
}

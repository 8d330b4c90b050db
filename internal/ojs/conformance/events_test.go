package conformance_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Section 12: events, metrics, manifest and health.

// eventsOf waits until the events of a queue end with one of a type, and returns them.
func eventsOf(q *queue, last string) (found []object) {
	q.t.Helper()
	wait(q.t, last+" can be read", func() bool {
		found = readEvents(q.t, "limit=1000&queues="+q.name)
		return len(found) > 0 && found[len(found)-1].text("type") == last
	})
	return found
}

// readEvents returns the events that a query finds, page by page.
func readEvents(t *testing.T, query string) (found []object) {
	t.Helper()
	for after := ""; ; {
		page := get(t, root+"/events?"+query+after).must(200)
		found = append(found, page.objects("events")...)
		if !page.flag("has_more") {
			return found
		}
		after = "&after=" + url.QueryEscape(page.text("cursor"))
	}
}

var eventID = regexp.MustCompile(`^evt_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestEVT_01_EventsSayWhatBecomesOfAJob(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(quick(2)).text("id")
	q.fail()
	q.fail()
	retry(t, id)
	q.fetch()
	q.ack(id, members{"result": literal(`{"amount":1.50,"to":"<ada>"}`)})
	found := eventsOf(q, "job.completed")
	var kinds []string
	seen := map[string]bool{}
	for _, e := range found {
		kinds = append(kinds, e.text("type"))
		e.are(members{"specversion": "1.0", "subject": id})
		e.instant("time")
		data := e.object("data")
		data.are(members{"job_id": id, "job_type": q.kind, "queue": q.name})
		data.text("state")
		if !eventID.MatchString(e.text("id")) || seen[e.text("id")] || !strings.HasPrefix(e.text("source"), "ojs://") {
			t.Errorf("%s", text(e.members))
		}
		seen[e.text("id")] = true
	}
	want := []string{
		"job.enqueued", "job.started", "job.failed", "job.retrying", "job.started", "job.failed", "job.discarded", "dead_letter.added", "dead_letter.retried", "job.started", "job.completed",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("%v", kinds)
	}
	found[1].object("data").are(members{"attempt": 1, "worker_id": q.worker})
	found[2].object("data").is("attempt", 1)
	found[2].object("data").object("error").are(members{"type": "TestError", "message": "it failed"})
	found[3].object("data").are(members{"attempt": 1, "max_attempts": 2})
	found[3].object("data").instant("next_retry_at")
	found[6].object("data").is("total_attempts", 2)
	found[6].object("data").object("last_error").is("code", "handler_error")
	found[7].object("data").instant("discarded_at")
	found[10].object("data").whole("duration_ms")
	found[10].object("data").is("result", literal(`{"amount":1.50,"to":"<ada>"}`))
	again := eventsOf(q, "job.completed")
	if !slices.EqualFunc(found, again, func(a, b object) bool { return text(a.members) == text(b.members) }) {
		t.Error("a second reading differs")
	}
}

func TestEVT_02_EndsHaveTheirEvents(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue().text("id")
	remove(t, root+"/jobs/"+id).must(200)
	e := eventsOf(q, "job.cancelled")
	data := e[len(e)-1].object("data")
	data.text("cancelled_by")
	data.text("reason")
	q = newQueue(t)
	id = q.dead().text("id")
	remove(t, letters+"/"+id).must(200)
	eventsOf(q, "dead_letter.deleted")
	q = newQueue(t)
	q.enqueue(members{"scheduled_at": "+PT0.2S", "expires_at": "+PT0.1S"})
	wait(t, "the job has expired", func() bool { return len(q.take()) == 0 && hasEvent(q, "job.expired") })
}

func hasEvent(q *queue, kind string) bool {
	q.t.Helper()
	return len(readEvents(q.t, "types="+kind+"&queues="+q.name)) > 0
}

func TestEVT_03_PagesContinueAfterTheirCursor(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.dead()
	all := eventsOf(q, "dead_letter.added")
	for _, limit := range []string{"1", "2", "3"} {
		var got, want []string
		for _, e := range readEvents(t, "limit="+limit+"&queues="+q.name) {
			got = append(got, e.text("id"))
		}
		for _, e := range all {
			want = append(want, e.text("id"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %s: %v, want %v", limit, got, want)
		}
	}
	rest := readEvents(t, "queues="+q.name+"&after="+all[2].text("id"))
	if len(rest) != len(all)-3 || rest[0].text("id") != all[3].text("id") {
		t.Errorf("%d events after the third of %d", len(rest), len(all))
	}
	if only := readEvents(t, "types=job.failed,job.discarded&queues="+q.name); len(only) != 2 {
		t.Errorf("%d of two types", len(only))
	}
	if none := readEvents(t, "job_types=a.b&queues="+q.name); len(none) != 0 {
		t.Errorf("%d of another type of job", len(none))
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=x": "limit", "after=x": "after", "after=evt_0197a1c2-0000-7000-8000-000000000001": "after", "types=job.begun": "types", "type=job.failed": "type"} {
		get(t, root+"/events?"+query).refused(400, "invalid_request").field(field)
	}
}

// However large the results are, each is in the event of its job, and a job without one has none.
func TestEVT_04_CompletedJobsHaveTheirResults(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	const jobs = 60
	want := map[string]string{}
	for n := range jobs {
		id := q.enqueue().text("id")
		want[id] = "null"
		if n%10 > 0 {
			want[id] = text(fmt.Sprint(strings.Repeat("x", 60<<10), " ", n)) // not the id: its digits may be those of a card
		}
	}
	for range jobs {
		id := q.fetch().text("id")
		result := members{}
		if want[id] != "null" {
			result["result"] = literal(want[id])
		}
		q.ack(id, result)
	}
	var found []object
	wait(t, "all events can be read", func() bool {
		found = readEvents(t, "types=job.completed&limit=1000&queues="+q.name)
		return len(found) >= jobs
	})
	for _, e := range found {
		data := e.object("data")
		if got := text(data.members["result"]); got != want[e.text("subject")] || got == "null" && data.has("result") {
			t.Errorf("%s: %.80s", e.text("subject"), got)
		}
		delete(want, e.text("subject"))
	}
	if len(found) != jobs || len(want) > 0 {
		t.Errorf("%d events, and none of %d jobs", len(found), len(want))
	}
}

func TestMAN_01_TheManifestClaimsWhatHolds(t *testing.T) {
	t.Parallel()
	m := get(t, "/ojs/manifest").must(200)
	m.are(members{"specversion": "1.0", "ojs_version": "1.0", "conformance_level": 1, "backend": "postgres", "protocols": []any{"http"}})
	for _, name := range []string{"name", "version", "language"} {
		m.object("implementation").text(name)
	}
	m.object("capabilities").are(members{
		"batch_enqueue": true, "cron_jobs": false, "dead_letter": true, "delayed_jobs": true, "job_ttl": true, "priority_queues": true, "rate_limiting": false, "schema_validation": false,
		"unique_jobs": true, "workflows": false, "pause_resume": true,
	})
	m.object("extensions").are(members{"official": []any{members{"name": "dead-letter", "uri": "urn:ojs:ext:dead-letter", "version": "1.0.0-rc.1"}}, "experimental": []any{}})
}

func TestMAN_02_Health(t *testing.T) {
	t.Parallel()
	h := get(t, root+"/health").must(200)
	h.are(members{"status": "ok", "version": "1.0"})
	h.whole("uptime_seconds")
	h.object("backend").are(members{"type": "postgres", "status": "connected"})
	h.object("backend").whole("latency_ms")
}

// Metrics are in the form of Prometheus, with underscores for the dots of the documents.
// Not parallel: labels that clients choose are bounded, and those of the first queues are named.
func TestMET_01_MetricsOfDeadLetters(t *testing.T) {
	reset(t)
	q := newQueue(t)
	id := q.dead().text("id")
	retry(t, id)
	q.fail()
	var page string
	wait(t, "the metrics name the queue", func() bool {
		page = metrics(t)
		return strings.Contains(page, `ojs_dead_letter_total{queue="`+q.name+`"} 1`)
	})
	for _, want := range []string{`ojs_dead_letter_depth{queue="` + q.name + `"} 1`, `ojs_dead_letter_added_total{queue="` + q.name + `",type="` + q.kind + `"} 2`, `ojs_dead_letter_retried_total{queue="` + q.name + `"} 1`, `ojs_dead_letter_pruned_total{queue="` + q.name + `"} 0`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	post(t, letters+"/retry", members{"filter": members{"queue": q.name}, "confirm": true}).must(200).is("succeeded", 1)
	q.fail()
	advance(t, "P181D")
	page = metrics(t)
	for _, want := range []string{`ojs_dead_letter_retried_total{queue="` + q.name + `"} 2`, `ojs_dead_letter_pruned_total{queue="` + q.name + `"} 1`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(page, id) {
		t.Error("the metrics name a job")
	}
}

func metrics(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, serverOf(t).base+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	serverOf(t).authorize(r)
	a, err := transport.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%d %v", a.StatusCode, err)
	}
	return string(text)
}

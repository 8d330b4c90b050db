package conformance_test

import (
	"strings"
	"testing"
)

// Section 8: errors on a job.

func TestJER_01_EachFailedAttemptIsKept(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(quick(3)).text("id")
	for _, word := range []string{"one", "two", "three"} {
		q.fail(members{"message": word, "type": "T" + word, "details": members{"n": word}, "backtrace": []string{"a:1", "b:2"}})
	}
	job := find(t, id)
	all := job.failures()
	if len(all) != 3 {
		t.Fatalf("%d errors", len(all))
	}
	for i, word := range []string{"one", "two", "three"} {
		all[i].are(members{"attempt": i + 1, "message": word, "type": "T" + word, "code": "handler_error", "details": members{"n": word}, "backtrace": []any{"a:1", "b:2"}})
		all[i].instant("occurred_at")
	}
	job.object("error").are(members{"message": "three", "type": "Tthree", "attempt": 3})
}

func TestJER_02_TheTypeIsThatOfTheErrorItsClassOrItsCode(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, c := range []struct {
		failed members
		want   members
	}{
		{members{"code": "c", "type": "T", "message": "m", "details": members{"error_class": "E"}}, members{"code": "c", "type": "T", "message": "m"}},
		{members{"code": "c", "message": "m", "details": members{"error_class": "E"}}, members{"code": "c", "type": "E", "message": "m"}},
		{members{"code": "c", "message": "SomeError: m"}, members{"code": "c", "type": "c", "message": "SomeError: m"}},
		{members{"message": "m"}, members{"code": "handler_error", "type": "handler_error", "message": "m"}},
		{members{"code": "c"}, members{"code": "c", "type": "c", "message": "c"}},
	} {
		id := q.enqueue(patient).text("id")
		q.fetch()
		q.nack(id, c.failed)
		find(t, id).object("error").are(c.want)
	}
}

func TestJER_03_BacktracesAreCutAtFiftyFrames(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(patient).text("id")
	q.fail(members{"backtrace": strings.Split(strings.Repeat("frame,", 60)+"last", ",")})
	if n := len(find(t, id).object("error").list("backtrace")); n != 50 {
		t.Errorf("%d frames", n)
	}
}

func TestJER_04_SecretsInErrorsAreNotKept(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.enqueue(oneRun()).text("id")
	secret := "s3cr3t" + token()
	q.fail(members{"message": "failed with password=" + secret})
	for _, path := range []string{root + "/jobs/" + id, letters + "/" + id, letters + "?queue=" + q.name, root + "/events"} {
		if a := get(t, path); a.status != 200 || strings.Contains(string(a.raw), secret) {
			t.Errorf("%s: %d, and shows the secret: %v", path, a.status, strings.Contains(string(a.raw), secret))
		}
	}
}

package conformance_test

import (
	"testing"
	"time"
)

// Section 10: bulk retry, purge, replay rules. Retention is in retention_test.go.

func TestDLQ_R001_BulkRetry(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.deadMany(12)
	q.deadOf(failure(members{"type": "Other"}))
	answer := post(t, letters+"/retry", members{"filter": members{"queue": q.name, "error_type": "TestError"}, "confirm": true}).must(200)
	answer.are(members{"action": "retry", "matched": 12, "succeeded": 12, "failed": 0, "errors": []any{}, "retried": 12, "total_matched": 12})
	if list := listed(t, "queue="+q.name); len(list) != 1 {
		t.Errorf("%d are left", len(list))
	}
	if jobs := q.take(members{"count": 50}); len(jobs) != 12 {
		t.Errorf("%d can be fetched", len(jobs))
	}
}

// One of the letters can't be retried: another job has taken the place of a unique one.
func TestDLQ_R001_BulkRetryReportsWhatFailed(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	unique := members{"unique": members{"keys": []string{"type", "args"}}}
	blocked := q.dead(unique, members{"args": []any{"u"}}).text("id")
	q.dead()
	holder := q.enqueue(unique, members{"args": []any{"u"}, "scheduled_at": "+PT1H"}).text("id")
	answer := post(t, letters+"/retry", members{"filter": members{"queue": q.name}, "confirm": true}).must(200)
	answer.are(members{"matched": 2, "succeeded": 1, "failed": 1})
	failed := answer.objects("errors")
	if len(failed) != 1 {
		t.Fatal(text(answer.members))
	}
	failed[0].is("job_id", blocked)
	failed[0].text("error")
	letter(t, blocked)
	post(t, letters+"/"+blocked+"/retry", nil).refused(409, "conflict").object("details").is("existing_job_id", holder)
	remove(t, root+"/jobs/"+holder).must(200)
	retry(t, blocked)
}

func TestDLQ_R001_BulkRetryNeedsToBeConfirmed(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.dead().text("id")
	filter := members{"queue": q.name}
	for _, path := range []string{letters + "/retry", root + "/admin/jobs/bulk/retry"} {
		for _, body := range []any{
			members{"filter": filter}, members{"filter": filter, "confirm": false}, members{"filter": filter, "confirm": "true"}, members{"confirm": true}, members{"filter": members{"que": q.name}, "confirm": true},
			members{"filter": members{"queue": q.name, "since": "x"}, "confirm": true}, members{"filter": filter, "confirm": true, "limit": 1}, members{}, nil,
		} {
			if a := post(t, path, body); a.status != 400 {
				t.Errorf("%s: %d", a.name, a.status)
			}
		}
	}
	letter(t, id)
}

func TestBLK_01_AnEmptyFilterMeansEverything(t *testing.T) {
	reset(t)
	q, other := newQueue(t), newQueue(t)
	q.dead()
	other.dead()
	post(t, root+"/admin/jobs/bulk/retry", members{"filter": members{}, "confirm": true}).must(200).is("succeeded", 2)
	get(t, letters).must(200).is("total", 0)
}

func TestBLK_02_APurgeDeletesWhatItsFilterSelects(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	first := q.dead().text("id")
	<-time.After(5 * time.Millisecond)
	second := q.deadOf(failure(members{"type": "Other"}))
	for _, query := range []string{"queue=" + q.name, "queue=" + q.name + "&confirm=false", "queue=" + q.name + "&confirm=true&colour=red", "queue=" + q.name + "&confirm=true&older_than=x"} {
		remove(t, letters+"?"+query).refused(400, "invalid_request")
	}
	letter(t, first)
	remove(t, letters+"?confirm=true&queue="+q.name+"&older_than="+second.text("discarded_at")).must(200).is("deleted", 1)
	get(t, root+"/jobs/"+first).refused(404, "not_found")
	remove(t, letters+"?confirm=true&queue="+q.name+"&older_than=7d").must(200).is("deleted", 0)
	letter(t, second.text("id"))
	remove(t, letters+"?confirm=true&queue="+q.name+"&error_type=Other").must(200).is("deleted", 1)
	remove(t, letters+"?confirm=true&queue="+q.name).must(200).is("deleted", 0)
}

// The public command line purges without a confirmation; it is taken with older_than.
func TestBLK_03_ThePurgeOfTheCommandLine(t *testing.T) {
	reset(t)
	q := newQueue(t)
	q.dead()
	post(t, letters+"/purge", nil).refused(400, "invalid_request").naming("confirm")
	post(t, letters+"/purge?older_than=7d", nil).must(200).is("deleted", 0)
	get(t, letters).must(200).is("total", 1)
	advance(t, "P8D")
	post(t, letters+"/purge?older_than=7d", nil).must(200).is("deleted", 1)
}

func TestDLQ_R003_ARuleReplaysUpToItsLimit(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	rule := token()
	id := q.dead(members{"meta": members{"mine": 1}}).text("id")
	body := members{"name": rule, "filter": members{"queue": q.name}, "delay": "PT0S", "max_replays": 2, "enabled": true}
	post(t, letters+"/replay-rules", body).must(201)
	defer remove(t, letters+"/replay-rules/"+rule)
	for n := 1; n <= 2; n++ {
		job := q.fetch()
		job.are(members{"id": id, "attempt": 1, "state": "active"})
		q.nack(id, failure())
		wait(t, "the replay is counted", func() bool {
			count, _ := find(t, id).object("meta").members["ojs.replay_count"]
			return text(count) == text(n)
		})
		meta := find(t, id).object("meta")
		meta.are(members{"mine": 1, "ojs.replay_rule": rule})
		meta.instant("ojs.last_replayed_at")
	}
	<-time.After(5 * time.Second) // longer than rules take to come round
	letter(t, id)
	if n := len(readEvents(t, "types=dead_letter.replayed&queues="+q.name)); n != 2 {
		t.Errorf("%d events of replays", n)
	}
	retry(t, id) // a person may, and it does not count
	q.fail()
	find(t, id).object("meta").is("ojs.replay_count", 2)
}

func TestBLK_04_RulesNeedALimit(t *testing.T) {
	t.Parallel()
	good := members{"name": token(), "filter": members{"queue": "q"}, "delay": "PT1H", "max_replays": 2}
	for field, with := range map[string]members{
		"max_replays": {"max_replays": dropped{}}, "delay": {"delay": "1h"}, "filter": {"filter": dropped{}}, "name": {"name": ""}, "filter.colour": {"filter": members{"colour": 1}}, "colour": {"colour": 1},
	} {
		post(t, letters+"/replay-rules", merged(good, with)).refused(400, "invalid_request").naming(field)
	}
	post(t, letters+"/replay-rules", good).must(201).object("replay_rule").are(members{"name": good["name"], "enabled": false, "max_replays": 2, "delay": "PT1H"})
	post(t, letters+"/replay-rules", merged(good, members{"max_replays": 3})).must(200)
	remove(t, letters+"/replay-rules/"+good["name"].(string)).must(200)
	remove(t, letters+"/replay-rules/"+good["name"].(string)).refused(404, "not_found")
}

package conformance_test

import (
	"testing"
	"time"
)

// Section 4 and the second reading: other names of members, and times that clients give.

func TestENV_12_OptionsAreTakenUnderEveryName(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	const later = "2099-12-31T23:59:59Z"
	for name, with := range map[string]members{
		"scheduled_at": {"scheduled_at": later}, "options.scheduled_at": {"options": members{"scheduled_at": later}}, "options.delay_until": {"options": members{"delay_until": later}},
	} {
		job := q.enqueue(with)
		if job.is("state", "scheduled"); job.text("scheduled_at") != later {
			t.Errorf("%s: scheduled_at is %s", name, job.text("scheduled_at"))
		}
	}
	policy := members{"max_attempts": 5}
	for _, with := range []members{{"retry": policy}, {"options": members{"retry": policy}}, {"options": members{"retry_policy": policy}}} {
		q.enqueue(with).is("max_attempts", 5)
	}
	other := token()
	job := q.enqueue(members{"queue": dropped{}, "options": members{"queue": other, "priority": 7, "tags": []string{"a"}, "expires_at": later}})
	job.are(members{"queue": other, "priority": 7, "tags": []string{"a"}, "expires_at": later})
}

func TestENV_13_MetadataMergesIntoMeta(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	job := q.enqueue(members{"meta": members{"a": 1}, "options": members{"metadata": members{"b": literal("2.0")}}})
	job.is("meta", literal(`{"a":1,"b":2.0}`))
	find(t, job.text("id")).is("meta", literal(`{"a":1,"b":2.0}`))
	q.enqueue(members{"options": members{"metadata": members{"only": "this"}}}).is("meta", members{"only": "this"})
}

// The length of a lease has three spellings; how each works is tested with the leases.
func TestENV_14_LeasesHaveThreeSpellings(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for name, with := range leaseSpellings("PT45S", 45) {
		job := q.enqueue(with)
		job.is("visibility_timeout_ms", 45000)
		if t.Failed() {
			t.Fatalf("as %s", name)
		}
	}
}

// leaseSpellings returns every way in which a job says how long its leases are.
func leaseSpellings(duration string, seconds int) map[string]members {
	return map[string]members{
		"options.visibility_timeout_ms":       {"options": members{"visibility_timeout_ms": seconds * 1000}},
		"options.visibility_timeout, a text":  {"options": members{"visibility_timeout": duration}},
		"visibility_timeout, a number":        {"visibility_timeout": seconds},
		"visibility_timeout, a text":          {"visibility_timeout": duration},
		"options.visibility_timeout, seconds": {"options": members{"visibility_timeout": seconds}},
	}
}

func TestENV_15_AbsoluteTimesComeBackAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, written := range []string{"2099-12-31T23:59:59Z", "2099-12-31T23:59:59.5Z", "2099-12-31T23:59:59.123456Z", "2099-12-31T23:59:59+02:00"} {
		id := q.enqueue(members{"scheduled_at": written, "expires_at": written}).text("id")
		find(t, id).are(members{"scheduled_at": written, "expires_at": written})
	}
}

func TestENV_16_RelativeTimesComeBackAsTheTimesThatTheyMeant(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for given, length := range map[string]time.Duration{"+PT5M": 5 * time.Minute, "+PT1H30M": 90 * time.Minute, "+P1D": 24 * time.Hour} {
		before := now(t)
		job := q.enqueue(members{"scheduled_at": given, "expires_at": given})
		after := now(t)
		for _, name := range []string{"scheduled_at", "expires_at"} {
			at := job.instant(name)
			if at.Before(before.Add(length)) || at.After(after.Add(length+time.Second)) {
				t.Errorf("%s %s came back as %v, asked between %v and %v", name, given, at, before, after)
			}
		}
	}
}

func TestENV_17_OtherRelativeTimesAreRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for _, given := range []string{"-PT5S", "+-PT5S", "+P", "+PT", "+", "+5s", "+P1W"} {
		for _, name := range []string{"scheduled_at", "expires_at"} {
			q.refuses(400, "invalid_request", q.body(members{name: given})).naming(name)
		}
	}
	q.refuses(400, "invalid_request", q.body(members{"options": members{"delay_until": "-PT5S"}})).naming("delay_until")
}

package spec_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func TestAnEventIDHoldsItsPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(0, 1<<47).Draw(t, "at"))
		position, place := rapid.Int64Range(0, 1<<50-1).Draw(t, "position"), rapid.IntRange(0, 15).Draw(t, "place")
		id := spec.EventID(at, position, place)
		gotPosition, gotPlace, err := spec.ParseEventID(id)
		if err != nil || gotPosition != position || gotPlace != place {
			t.Fatalf("%s: %d, %d, %v", id, gotPosition, gotPlace, err)
		}
	})
}

func TestOnlyIDsOfEventsAreCursors(t *testing.T) {
	good := spec.EventID(time.Unix(1_780_000_000, 0), 4711, 1)
	for _, bad := range []string{
		"", "evt_", "evt_x", strings.ToUpper(good), good[4:], good + "0", "evt_01890a5d-ac96-774b-bcce-b302099a8057", "evt_00000000-0000-0000-0000-000000000000",
		strings.Replace(good, "-7", "-4", 1), good[:len(good)-1] + "f",
	} {
		if _, _, err := spec.ParseEventID(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestEventsAreAskedForByTypeQueueAndJobType(t *testing.T) {
	after := spec.EventID(time.Unix(1_780_000_000, 0), 4711, 1)
	q, err := spec.ParseEvents(url.Values{"types": {"job.enqueued,dead_letter.added"}, "queues": {"mail"}, "job_types": {"a.b"}, "after": {after}, "limit": {"5000"}})
	if err != nil || q.After != 4711 || q.Place != 1 || q.Limit != 1000 {
		t.Fatalf("%+v, %v", q, err)
	}
	e := func(kind, queue, jobType string) spec.Event {
		return spec.Event{Type: kind, Data: map[string]any{"queue": queue, "job_type": jobType}}
	}
	for _, c := range []struct {
		event spec.Event
		want  bool
	}{
		{e("job.enqueued", "mail", "a.b"), true},
		{e("dead_letter.added", "mail", "a.b"), true},
		{e("job.started", "mail", "a.b"), false},
		{e("job.enqueued", "mails", "a.b"), false},
		{e("job.enqueued", "mail", "a"), false},
	} {
		if q.Wants(c.event) != c.want {
			t.Errorf("%+v: %v", c.event, !c.want)
		}
	}
	all, err := spec.ParseEvents(nil)
	if err != nil || all.After != -1 || all.Limit != 100 || !all.Wants(e("job.started", "q", "t")) {
		t.Errorf("%+v, %v", all, err)
	}
	for name, values := range map[string]url.Values{
		"types": {"types": {"job.begun"}}, "after": {"after": {"evt_1"}}, "limit": {"limit": {"0"}}, "queues": {"queues": {"a,,b"}}, "job_types": {"job_types": {"a", "b"}}, "queue": {"queue": {"a"}},
	} {
		if _, err := spec.ParseEvents(values); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", values, err)
		}
	}
}

package journal_test

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// What was agreed at a time is not written over what somebody has set since, also if it comes twice.
func TestANumberOfPeopleIsSetUnlessSomebodySetItSince(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	for _, step := range []struct {
		people    int
		at, since time.Time
		want      int
	}{
		{1, at(1), at(0), 1}, // nobody has ever set it
		{2, at(5), time.Time{}, 2},
		{1, at(6), at(4), 2},
		{1, at(7), at(5), 1},
		{1, at(8), at(5), 1},
		{2, at(9), time.Time{}, 2},
		{1, at(10), at(5), 2},
	} {
		next := journal.People{Tenant: "acme", People: step.people, Actor: "user:ada", Reason: "test", At: step.at}
		now, err := j.People.Set(t.Context(), next, step.since, receipts.Draft{Actor: "user:ada", At: step.at, Payload: receipts.Payload{People: step.people, Reason: "test"}})
		if err != nil || now.People != step.want {
			t.Errorf("%d at %s, if unchanged since %s: %d, %v", step.people, step.at, step.since, now.People, err)
		}
	}
}

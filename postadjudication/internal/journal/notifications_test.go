package journal_test

import (
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// A notification gets its number once, and only while its run is live and nobody has given the next one: that of a run
// that has ended would call it again.
func TestWhichNotificationsGetTheirNextNumber(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	waiting, ended, locked := journaltest.Submit(t, j).Run, journaltest.Submit(t, j).Run, journaltest.Submit(t, j).Run
	applyUntilRecorded(t, j, journaltest.Transition(receipts.Cancelled, ended))
	stale := locked
	stale.NotificationNumber--
	for round, want := range []int{1, 0} {
		got, err := j.Notifications.AdvanceNotifications(t.Context(), []background.Run{waiting, ended, stale})
		if err != nil || len(got) != want {
			t.Fatalf("round %d: %+v, %v", round, got, err)
		}
		if want == 1 && (got[0].ID != waiting.ID || got[0].NotificationNumber != waiting.NotificationNumber+1) {
			t.Errorf("%+v", got[0])
		}
	}
}

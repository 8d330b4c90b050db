package journal_test

import (
	"slices"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// What a failover may contradict is counted by tenant: attempts whose outcome is unknown, and no others.
func TestWhatAFailoverMayContradict(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	for class, attempts := range map[background.Class]int{background.Unknown: 2, background.NotExecuted: 3} {
		for range attempts {
			run := applyUntilRecorded(t, j, journaltest.Transition(receipts.AttemptStarted, journaltest.Submit(t, j).Run))
			ended := journaltest.Transition(receipts.RetryScheduled, run)
			ended.Result.Class = class
			applyUntilRecorded(t, j, ended)
		}
	}
	got, err := j.Database.FailoverExposures(t.Context(), time.Now().Add(-time.Minute), time.Now().Add(time.Minute))
	if err != nil || !slices.Equal(got, []journal.FailoverExposure{{Tenant: "acme", Unknown: 2}}) {
		t.Errorf("%+v, %v", got, err)
	}
}

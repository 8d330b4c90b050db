package journal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// A run that this program can't read, as during a rolling upgrade, does not affect other
// runs.
func TestAnUnreadableRunIsSkipped(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, other := journaltest.Open(t, url), journaltest.Open(t, url)
	good, bad := journaltest.Submit(t, j), journaltest.Submit(t, j)
	if _, err := testkit.OpenAsOwner(t, url).Exec(`UPDATE recourse.runs SET policy = '{"from":"the future"}' WHERE id = $1`, bad.Run.ID.String()); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	// Both are due: another process may be able to read the run.
	if waiting, err := other.Notifications.DueRuns(ctx, background.Cursor{}, time.Now().Add(time.Second), 10); err != nil || len(waiting) != 2 {
		t.Errorf("%v, %v", waiting, err)
	}
	claim := journaltest.Transition(receipts.AttemptStarted, good.Run)
	if _, err := other.CommitTransition(ctx, good.Run.ID, claim.ID, journaltest.Decide(claim)); err != nil {
		t.Error(err)
	}
	claim = journaltest.Transition(receipts.AttemptStarted, bad.Run)
	after, err := other.CommitTransition(ctx, bad.Run.ID, claim.ID, journaltest.Decide(claim))
	if !errors.Is(err, background.ErrUnreadable) {
		t.Error("claimed an unreadable run: ", err)
	}
	if after.Run.ID != bad.Run.ID || after.Case.ID != bad.Case.ID {
		t.Errorf("the error is about run %s of case %s", after.Run.ID, after.Case.ID)
	}
}

package journal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// waitForLock calls Step until the sequencer has the lock.
func waitForLock(t *testing.T, s *journal.Sequencer, limit time.Duration) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		step, err := s.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if step.Holds {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline.C:
			t.Fatalf("no lock after %s", limit)
		}
	}
}

// A holder that is idle, like a hung process, loses the lock.
func TestAnIdleLockHolderLosesTheLock(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j := journaltest.Open(t, url)
	frozen, other := j.Outbox.Sequencer(), journaltest.Open(t, url).Outbox.Sequencer()
	waitForLock(t, frozen, time.Second)
	journaltest.Submit(t, j)
	waitForLock(t, other, journal.SequencerIdle+20*time.Second)
	if _, err := frozen.Step(context.Background()); err == nil {
		t.Error("the idle holder can still step")
	}
	if step, err := frozen.Step(context.Background()); err != nil || step.Holds {
		t.Errorf("%+v, %v", step, err)
	}
	if err := errors.Join(frozen.Release(), other.Release()); err != nil {
		t.Error(err)
	}
}

func TestReleaseLetsAnotherHold(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	a, b := journaltest.Open(t, url).Outbox.Sequencer(), journaltest.Open(t, url).Outbox.Sequencer()
	for _, s := range []*journal.Sequencer{a, b, a} {
		waitForLock(t, s, 10*time.Second)
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

// The event log can't be changed.
func TestTheOrderOfEventsIsAppendOnly(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	journaltest.Submit(t, j)
	if err := j.Outbox.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`UPDATE recourse.event_log SET last = 7`, `DELETE FROM recourse.event_log`, `TRUNCATE recourse.event_log`} {
		if _, err := db.Exec(q); err == nil {
			t.Errorf("%s succeeded", q)
		}
	}
}

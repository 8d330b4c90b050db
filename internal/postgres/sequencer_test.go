package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// waitForLock calls Step until the sequencer has the lock.
func waitForLock(t *testing.T, s *postgres.Sequencer, limit time.Duration) {
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
	j := open(t, url)
	frozen, other := j.Outbox.Sequencer(), open(t, url).Outbox.Sequencer()
	waitForLock(t, frozen, time.Second)
	submit(t, j)
	waitForLock(t, other, postgres.SequencerIdle+20*time.Second)
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
	a, b := open(t, url).Outbox.Sequencer(), open(t, url).Outbox.Sequencer()
	for _, s := range []*postgres.Sequencer{a, b, a} {
		waitForLock(t, s, 10*time.Second)
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

// Errors in the order of events are found: a receipt without a place, one with two, a place
// without a receipt, receipts of a case in the wrong order, a missing number.
func TestAWrongOrderOfEventsIsFound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, damage := range map[string]string{
		"no place":    `DELETE FROM recourse.event_log`,
		"two places":  `INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, case_ids, seqs FROM recourse.event_log`,
		"no receipt":  `INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, case_ids, '{9}' FROM recourse.event_log`,
		"other owner": `INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) SELECT 2, 'bank', case_ids, seqs FROM recourse.event_log`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testkit.Migrated(t)
			j, db := open(t, url), database(t, url)
			submit(t, j)
			if err := j.Outbox.Drain(ctx); err != nil {
				t.Fatal(err)
			}
			tenant := "acme"
			if name == "other owner" {
				tenant = "bank"
			}
			misplaced := func() (what []string) {
				if err := j.Audit.EachEventOrderError(ctx, tenant, func(_ postgres.TrailPosition, w string) { what = append(what, w) }); err != nil {
					t.Fatal(err)
				}
				return what
			}
			if what := misplaced(); len(what) != 0 {
				t.Fatalf("before: %q", what)
			}
			testkit.Tamper(t, db, damage)
			if what := misplaced(); len(what) == 0 {
				t.Error("not found")
			}
		})
	}
	t.Run("gap", func(t *testing.T) {
		t.Parallel()
		url := testkit.Migrated(t)
		j, db := open(t, url), database(t, url)
		submit(t, j)
		if err := j.Outbox.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		gaps := func() (at []int64) {
			if err := j.Audit.EachEventGap(ctx, func(from, _ int64) { at = append(at, from) }); err != nil {
				t.Fatal(err)
			}
			return at
		}
		if at := gaps(); len(at) != 0 {
			t.Fatalf("before: %d", at)
		}
		if _, err := db.Exec(`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) SELECT 3, tenant, case_ids, seqs FROM recourse.event_log`); err != nil {
			t.Fatal(err)
		}
		if at := gaps(); len(at) != 1 || at[0] != 2 {
			t.Errorf("%d", at)
		}
	})
}

// The event log can't be changed.
func TestTheOrderOfEventsIsAppendOnly(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := open(t, url), database(t, url)
	submit(t, j)
	if err := j.Outbox.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`UPDATE recourse.event_log SET last = 7`, `DELETE FROM recourse.event_log`, `TRUNCATE recourse.event_log`} {
		if _, err := db.Exec(q); err == nil {
			t.Errorf("%s succeeded", q)
		}
	}
}

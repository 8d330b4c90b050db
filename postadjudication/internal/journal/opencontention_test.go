package journal_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/settlement"
)

// withPayloadAndEscrow returns a submission whose run has a payload of a length, and which states how much its escrow holds.
func withPayloadAndEscrow(s journal.Submission, length int, held int64) journal.Submission {
	ch, err := s.Open()
	ch.After.Run.Payload = []byte(`"` + strings.Repeat("x", length) + `"`)
	ch.OpeningEscrow.Held = held
	s.Open = func() (journal.Change, error) { return ch, err }
	return s
}

// submitLater submits in the background, and returns where the error comes.
func submitLater(t *testing.T, j *journal.Journal, s journal.Submission) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := j.Submit(context.WithoutCancel(t.Context()), s)
		done <- err
	}()
	return done
}

// A case that another transaction opens while a submission of it waits takes the whole escrow. The submission finds the
// case; it is not refused for the room that its own case took, or for the sum that its own case stated.
func TestASubmissionFindsTheCaseThatWasOpenedWhileItWaited(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	for name, payload := range map[string]int{"shares a statement": 10, "has its own statement": 70 << 10} {
		for reason, held := range map[string]int64{"no room": 10, "another sum": 20} {
			t.Run(name+", "+reason, func(t *testing.T) {
				escrow := name + reason
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := j.SubmitTx(t.Context(), tx, reservation(escrow, escrow, 10)); err != nil {
					t.Fatal(err)
				}
				submitted := submitLater(t, j, withPayloadAndEscrow(reservation(escrow, escrow, 10), payload, held))
				waitUntilBlocked(t, db)
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				if err := <-submitted; !errors.Is(err, errThere) {
					t.Error(err)
				}
			})
		}
	}
}

// A submission that waits for an escrow takes the room that was freed while it waited.
func TestASubmissionTakesRoomThatWasFreedWhileItWaited(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	first := mustReserve(t, j, "esc", "first", 10)
	release := holdLocks(t, db, `SELECT FROM recourse.escrows FOR UPDATE`)
	defer release()
	submitted := submitLater(t, j, reservation("esc", "second", 5))
	waitUntilBlocked(t, db)
	applyState(t, j, first, func(s *settlement.State) { s.Reserved = 0 })
	release()
	if err := <-submitted; err != nil {
		t.Error(err)
	}
}

// A case that is committed after a statement in the caller's transaction took its snapshot, and before it locks the
// escrow, is found. The statement calls a function of the test's schema in place of the server's, which waits.
func TestASubmissionInATransactionFindsTheCaseThatWasOpenedDuringItsStatement(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA delayed;
CREATE FUNCTION delayed.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock(1, 1);
    RETURN pg_catalog.pg_try_advisory_xact_lock($1);
END $$`); err != nil {
		t.Fatal(err)
	}
	for reason, held := range map[string]int64{"no room": 10, "another sum": 20} {
		t.Run(reason, func(t *testing.T) {
			mustReserve(t, j, reason, reason+" other", 1)
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), `SET LOCAL search_path = delayed, pg_catalog`); err != nil {
				t.Fatal(err)
			}
			release := holdLocks(t, db, `SELECT pg_advisory_xact_lock(1, 1)`)
			defer release()
			submitted := make(chan error, 1)
			go func() {
				_, err := j.SubmitTx(context.WithoutCancel(t.Context()), tx, withPayloadAndEscrow(reservation(reason, reason, 9), 10, held))
				submitted <- err
			}()
			waitUntilBlocked(t, db)
			mustReserve(t, j, reason, reason, 9)
			release()
			if err := <-submitted; !errors.Is(err, errThere) {
				t.Error(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		})
	}
}

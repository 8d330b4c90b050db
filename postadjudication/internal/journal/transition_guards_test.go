package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// A fact that leaves the run as it is changes only the head of its case. A transition
// decided on the older head is decided again, and both are in the chain: with the narrow
// statement and with the wide one.
func TestATransitionDecidedOnAnOlderHeadIsDecidedAgain(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	ctx := context.Background()
	for name, more := range map[string]int{"narrow": 0, "wide": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, other := journaltest.Open(t, url), journaltest.Open(t, url)
			s := journaltest.Submit(t, j)
			claim := journaltest.Transition(receipts.AttemptStarted, s.Run)
			claimed, err := j.CommitTransition(ctx, s.Run.ID, claim.ID, journaltest.Decide(claim)) // cached by j
			if err != nil {
				t.Fatal(err)
			}
			notice := journaltest.Transition(receipts.OutOfBandChangeDetected, claimed.Run)
			if _, err := other.CommitTransition(ctx, s.Run.ID, notice.ID, journaltest.Decide(notice)); err != nil {
				t.Fatal(err)
			}
			end := journaltest.Transition(receipts.AttemptSucceeded, claimed.Run)
			decided := 0
			after, err := j.CommitTransition(ctx, s.Run.ID, end.ID, func(s *journal.Snapshot) (journal.Change, error) {
				decided++
				ch, err := journaltest.Decide(end)(s)
				for range more {
					ch.Drafts = append(ch.Drafts, receipts.Draft{Run: s.Run.ID, Subtype: receipts.OutOfBandChangeDetected, Actor: "test", At: end.At})
				}
				return ch, err
			})
			if err != nil || decided != 2 || after.Run.State != background.Succeeded || after.Case.Head.Seq != int64(4+more) {
				t.Errorf("decided %d times: %+v, %v", decided, after.Run, err)
			}
			auditPlain(t, j, s)
		})
	}
}

// A claim under a session that is lost or does not exist is refused: other processes
// recover the runs of the former, and would never find those of the latter.
func TestAClaimNeedsItsSessionAlive(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	ctx := context.Background()
	for name, more := range map[string]int{"narrow": 0, "wide": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := journaltest.Open(t, url)
			lost := background.Session{ID: uuid.New(), Worker: "w"}
			if err := j.Sessions.Register(ctx, lost); err != nil {
				t.Fatal(err)
			}
			if ok, err := j.Sessions.MarkLost(ctx, lost); !ok || err != nil {
				t.Fatal(ok, err)
			}
			s := journaltest.Submit(t, j)
			claim := func(under background.SessionID) error {
				m := journaltest.Transition(receipts.AttemptStarted, s.Run)
				m.Session = under
				_, err := j.CommitTransition(ctx, s.Run.ID, m.ID, func(s *journal.Snapshot) (journal.Change, error) {
					ch, err := journaltest.Decide(m)(s)
					for range more {
						ch.Drafts = append(ch.Drafts, receipts.Draft{Run: s.Run.ID, Subtype: receipts.OutOfBandChangeDetected, Actor: "test", At: m.At})
					}
					return ch, err
				})
				return err
			}
			for name, under := range map[string]background.SessionID{"lost": lost.ID, "unknown": uuid.New()} {
				if err := claim(under); !errors.Is(err, background.ErrSessionLost) {
					t.Errorf("%s session: %v", name, err)
				}
			}
			if err := claim(journaltest.Session); err != nil {
				t.Errorf("live session: %v", err)
			}
		})
	}
}

// Receipts can only be added.
func TestReceiptsAreNeverChanged(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	s := journaltest.Submit(t, journaltest.Open(t, url))
	db := testkit.OpenAsOwner(t, url)
	for _, statement := range []string{
		"UPDATE recourse.receipts SET actor = 'nobody' WHERE case_id = $1", "DELETE FROM recourse.receipts WHERE case_id = $1",
		"UPDATE recourse.receipts SET at = at WHERE case_id = $1",
	} {
		_, err := db.Exec(statement, fmt.Sprint(s.Case.ID))
		var refused *pq.Error
		if !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("%s: %v, want a refusal", statement, err)
		}
	}
}

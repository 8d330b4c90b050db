package journal_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// Retention purges no dead letter that is on hold, and none of a settlement that may have moved money without a known outcome.
func TestWhichDeadLettersRetentionMayPurge(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	names := map[background.RunID]string{}
	want := []string{"not executed", "was on hold"}
	for name, statements := range map[string][]string{
		"not executed":             nil,
		"was on hold":              {`INSERT INTO recourse.annotations (run_id, tenant, held) VALUES ($1, 'acme', false)`},
		"on hold":                  {`INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason) VALUES ($1, 'acme', true, 'asked')`},
		"its outcome is unknown":   {`UPDATE recourse.runs SET class = 'unknown' WHERE id = $1`},
		"another run's is unknown": {`UPDATE recourse.cases SET unknown_open = 1 WHERE run_id = $1`},
		"closed":                   {`UPDATE recourse.runs SET letter = 'reconciled', active = false WHERE id = $1`},
	} {
		s := mustReserve(t, j, "esc_"+name, name, 1)
		names[s.Run.ID] = name
		for _, statement := range append([]string{
			`UPDATE recourse.runs SET state = 'dead_lettered', live = false, letter = 'open', class = 'not_executed', dead_at = now() - interval '1 d', attempt_count = 1 WHERE id = $1`,
		}, statements...) {
			if _, err := db.Exec(statement, s.Run.ID.String()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	scope := journal.RetentionScope{Family: "plain"}
	found, _, err := j.Letters.Older(t.Context(), scope, time.Now(), journal.LetterRowCursor{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range found {
		got = append(got, names[r.Run.ID])
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("purgeable: %q", got)
	}
	if n, err := j.Letters.CountExpired(t.Context(), scope, time.Now()); err != nil || n != int64(len(want)) {
		t.Errorf("%d are expired, %v", n, err)
	}
}

// Erasing takes the payload of a purged letter of a plain family only: that of one that stays open is needed for its fork,
// and that of a settlement for a payment that is found later.
func TestWhichPayloadsAreErased(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	for name, c := range map[string]struct {
		submitted background.Run
		letter    background.LetterStatus
		kept      bool
	}{
		"open":                    {journaltest.Submit(t, j).Run, background.LetterOpen, true},
		"purged":                  {journaltest.Submit(t, j).Run, background.LetterPurged, false},
		"purged, of a settlement": {mustReserve(t, j, "esc", "subject", 1).Run, background.LetterPurged, true},
	} {
		run := applyUntilRecorded(t, j, journaltest.Transition(receipts.AttemptStarted, c.submitted))
		applyUntilRecorded(t, j, journaltest.Transition(receipts.DeadLettered, run))
		seen, err := j.Cases.Snapshot(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		after := seen
		after.Run.Letter, after.Run.LastTransition = c.letter, uuid.New()
		change := journal.Change{Transition: after.Run.LastTransition, Before: &seen, After: &after, SideEffect: journal.Erasure{Run: run.ID},
			Drafts: []receipts.Draft{{Run: run.ID, Subtype: receipts.Purged, Actor: "test", At: time.Now().UTC()}}}
		if done, err := j.ApplyLetterBatch(t.Context(), []journal.Change{change}); err != nil || !done[0] {
			t.Fatal(done, err)
		}
		now, err := j.Cases.Snapshot(t.Context(), run.ID)
		if err != nil || (len(now.Run.Payload) > 0) != c.kept {
			t.Errorf("%s: the payload is %q, %v", name, now.Run.Payload, err)
		}
	}
}

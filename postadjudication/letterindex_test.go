package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// damagedList returns a letter index with missing, differing and superfluous rows.
func damagedList(r *rig.Rig, letters int) []postadjudication.Submitted {
	r.T.Helper()
	ctx := context.Background()
	all := r.DeadLetters(0, letters, rig.Refuses)
	r.MustFork(all[0])
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, all[1].Run, holdReason); err != nil {
		r.T.Fatal(err)
	}
	r.WaitNoneLive()
	r.MustAudit()
	if err := errors.Join(r.DrainEvents(ctx), r.Index().CatchUp(ctx)); err != nil {
		r.T.Fatal(err)
	}
	of := func(n int) string { return ` = '` + all[n].Run.String() + `'` }
	testkit.Tamper(r.T, r.DB, `DELETE FROM recourse.letters WHERE run_id`+of(2), `DELETE FROM recourse.letters WHERE run_id`+of(3),
		`UPDATE recourse.letters SET amount = 1, at_risk = 7, dead_at = dead_at - interval '1 year' WHERE run_id`+of(4),
		`UPDATE recourse.letters SET transaction = 'txr_other' WHERE run_id`+of(5),
		`INSERT INTO recourse.letters (run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text)
			SELECT gen_random_uuid(), tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text FROM recourse.letters WHERE run_id`+of(6),
		`UPDATE recourse.facet_groups SET queue = 'nobody' WHERE id = (SELECT facet_group FROM recourse.letters WHERE run_id`+of(1)+`)`)
	return all
}

func rebuild(r *rig.Rig, ctx context.Context, progress func(postadjudication.Rebuilt)) (postadjudication.Rebuilt, error) {
	return r.As("acme", "user:ada").DeadLetters.Rebuild(ctx, "rows are missing", progress)
}

// A damaged index is rebuilt while workers run: only rows that differ are written, with receipts
// of the counts, and a second rebuild writes nothing.
func TestAListThatLostRowsIsMadeAnew(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	const letters = 12
	damagedList(r, letters)
	if a, err := r.Audit(ctx); err != nil || len(a.Breaks) < 5 {
		t.Fatalf("%+v, %v", a, err)
	}
	var working sync.WaitGroup
	working.Go(func() { r.DeadLetters(letters, letters+20, rig.Refuses) })
	done, err := rebuild(r, ctx, nil)
	working.Wait()
	if err != nil || done.Inserted != 2 || done.Updated != 2 || done.Removed != 1 || done.FacetGroups < 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	r.MustAudit()
	r.Wait("all letters are listed", func() bool { return r.CountRows("letters") == letters+20 })
	report := ""
	if err := r.DB.QueryRow(`SELECT string_agg(actor || ' ' || body, '; ') FROM recourse.receipts WHERE subtype = 'dead-letters-rebuilt' AND tenant = 'acme'`).Scan(&report); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"user:ada", "rows are missing", "2 rows inserted, 2 changed, 0 removed", "0 rows inserted, 0 changed, 1 removed"} {
		if !strings.Contains(report, words) {
			t.Errorf("no receipt says %q: %s", words, report)
		}
	}
	receipts := r.CountRows("receipts")
	if done, err := rebuild(r, ctx, nil); err != nil || done.Inserted+done.Updated+done.Removed+done.FacetGroups != 0 || done.Scanned < letters {
		t.Errorf("again: %+v, %v", done, err)
	}
	if n := r.CountRows("receipts"); n != receipts {
		t.Errorf("%d receipts although nothing changed", n-receipts)
	}
}

// A rebuild that is interrupted anywhere keeps the steps it committed, each with its receipt; the
// next one does the rest.
func TestARebuildThatIsStoppedIsCarriedOn(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	damagedList(r, 8)
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithCancel(context.Background())
		steps := 0
		done, err := rebuild(r, ctx, func(postadjudication.Rebuilt) {
			if steps++; steps > tries {
				cancel()
			}
		})
		cancel()
		if err == nil {
			if tries == 0 {
				t.Error("the rebuild was not interrupted")
			}
			if done.Inserted+done.Updated+done.Removed+done.FacetGroups != 0 {
				t.Errorf("left for the last: %+v", done)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	r.MustAudit()
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.DeadLettersRebuilt}); n < 2 {
		t.Errorf("%d receipts", n)
	}
}

// Counts of days that are wrong, missing, or of days without a letter are repaired by a rebuild.
func TestARebuildRepairsTheCountsOfDays(t *testing.T) {
	t.Parallel()
	for what, harm := range map[string]string{
		"wrong sums":    `UPDATE recourse.facet_group_days SET letters = letters + 2, at_risk = 0, attempts = 0`,
		"a missing day": `DELETE FROM recourse.facet_group_days`,
		"an extra day":  `INSERT INTO recourse.facet_group_days SELECT facet_group, day + 1, letters, at_risk, attempts FROM recourse.facet_group_days`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t).StartWorkers()
			r.DeadLetters(0, 4, rig.Refuses)
			if err := errors.Join(r.DrainEvents(t.Context()), r.Index().CatchUp(t.Context())); err != nil {
				t.Fatal(err)
			}
			r.MustAudit()
			testkit.Tamper(t, r.DB, harm)
			if a, err := r.Audit(t.Context()); err != nil || len(a.Breaks) == 0 {
				t.Fatalf("the audit does not find it: %+v, %v", a, err)
			}
			done, err := rebuild(r, t.Context(), nil)
			if err != nil || done.FacetGroups == 0 || done.Inserted+done.Updated+done.Removed != 0 {
				t.Errorf("%+v, %v", done, err)
			}
			r.MustAudit()
		})
	}
}

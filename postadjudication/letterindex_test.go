package postadjudication

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// damagedList returns a letter index with missing, differing and superfluous rows.
func (r *rig) damagedList(letters int) []Submitted {
	r.t.Helper()
	ctx := context.Background()
	all := r.deadLetters(0, letters, func(escrow.Call) escrow.Answer { return refused() })
	r.mustFork(all[0])
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, all[1].Run, holdReason); err != nil {
		r.t.Fatal(err)
	}
	r.untilNoneLive()
	r.mustAudit()
	if err := errors.Join(r.DrainEvents(ctx), r.index.CatchUp(ctx)); err != nil {
		r.t.Fatal(err)
	}
	of := func(n int) string { return ` = '` + all[n].Run.String() + `'` }
	testkit.Tamper(r.t, r.db, `DELETE FROM recourse.letters WHERE run_id`+of(2), `DELETE FROM recourse.letters WHERE run_id`+of(3),
		`UPDATE recourse.letters SET amount = 1, at_risk = 7, dead_at = dead_at - interval '1 year' WHERE run_id`+of(4),
		`UPDATE recourse.letters SET transaction = 'txr_other' WHERE run_id`+of(5),
		`INSERT INTO recourse.letters (run_id, tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text)
			SELECT gen_random_uuid(), tenant, facet_group, transaction, submission, escrow, dead_at, last_seen_at, amount, at_risk, attempts, replays, notification_number, error_text FROM recourse.letters WHERE run_id`+of(6),
		`UPDATE recourse.facet_groups SET queue = 'nobody' WHERE id = (SELECT facet_group FROM recourse.letters WHERE run_id`+of(1)+`)`)
	return all
}

func (r *rig) rebuild(ctx context.Context, progress func(Rebuilt)) (Rebuilt, error) {
	return r.RebuildLetters(ctx, RebuildRequest{Tenant: "acme", Actor: "user:ada", Reason: "rows are missing", Progress: progress})
}

// A damaged index is rebuilt while workers run: only rows that differ are written, with receipts
// of the counts, and a second rebuild writes nothing.
func TestAListThatLostRowsIsMadeAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	const letters = 12
	r.damagedList(letters)
	if a, err := r.Audit(ctx); err != nil || len(a.Breaks) < 5 {
		t.Fatalf("%+v, %v", a, err)
	}
	var working sync.WaitGroup
	working.Go(func() { r.deadLetters(letters, letters+20, func(escrow.Call) escrow.Answer { return refused() }) })
	done, err := r.rebuild(ctx, nil)
	working.Wait()
	if err != nil || done.Inserted != 2 || done.Updated != 2 || done.Removed != 1 || done.FacetGroups < 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	r.mustAudit()
	r.until("its receipts add up to what was done", `SELECT count(*) = $1 FROM recourse.letters WHERE tenant = 'acme'`, letters+20)
	report := ""
	if err := r.db.QueryRow(`SELECT string_agg(actor || ' ' || body, '; ') FROM recourse.receipts WHERE subtype = 'dead-letters-rebuilt' AND tenant = 'acme'`).Scan(&report); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"user:ada", "rows are missing", "2 rows made, 2 changed, 0 removed", "0 rows made, 0 changed, 1 removed"} {
		if !strings.Contains(report, words) {
			t.Errorf("no receipt says %q: %s", words, report)
		}
	}
	receipts := r.count(`SELECT count(*) FROM recourse.receipts`)
	if done, err := r.rebuild(ctx, nil); err != nil || done.Inserted+done.Updated+done.Removed+done.FacetGroups != 0 || done.Scanned < letters {
		t.Errorf("again: %+v, %v", done, err)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts`); n != receipts {
		t.Errorf("%d receipts although nothing changed", n-receipts)
	}
}

// A rebuild that is interrupted anywhere keeps the steps it committed, each with its receipt; the
// next one does the rest.
func TestARebuildThatIsStoppedIsCarriedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.damagedList(8)
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithCancel(context.Background())
		steps := 0
		done, err := r.rebuild(ctx, func(Rebuilt) {
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
	r.mustAudit()
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'dead-letters-rebuilt'`); n < 2 {
		t.Errorf("%d receipts", n)
	}
}

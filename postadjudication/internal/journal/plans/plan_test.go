package plans_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/receipts"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// A process has the plans of a database over connections of its own.
type process struct {
	*plans.Store
	journal *journal.Journal
}

func join(t *testing.T, url string) process {
	t.Helper()
	j := journaltest.Open(t, url)
	index, err := search.Open(url, j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(index.Close)
	return process{plans.New(j, index), j}
}

// start returns a process with dead letters of the tenant acme, oldest first, which are indexed.
func start(t *testing.T, n int) (p process, letters []background.Run, db *sql.DB) {
	t.Helper()
	url := testkit.Migrated(t)
	p = join(t, url)
	for range n {
		run := journaltest.Submit(t, p.journal).Run
		for _, fact := range []receipts.Subtype{receipts.AttemptStarted, receipts.DeadLettered} {
			m := journaltest.Transition(fact, run)
			after, err := p.journal.CommitTransition(t.Context(), run.ID, m.ID, journaltest.Decide(m))
			if err != nil {
				t.Fatal(err)
			}
			run = after.Run
		}
		letters = append(letters, run)
	}
	if err := p.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p, letters, testkit.OpenAsOwner(t, url)
}

// draft returns a plan of acme that is not stored yet.
func draft() plans.Plan {
	return plans.Plan{ID: uuid.Must(uuid.NewV7()), Tenant: "acme", Action: "hold", Request: "{}", Actor: "user:ada", Reason: "test", Parallel: 1, PlannedAt: now()}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// all returns the scope of all dead letters. The third is refused by a gate.
func all() plans.Scope {
	n := 0
	return plans.Scope{
		BatchSize: 2,
		GateOf: func(*plans.Letter) string {
			if n++; n == 3 {
				return "held"
			}
			return ""
		},
		Hash: func() [32]byte { return [32]byte{1} },
	}
}

func (p process) create(t *testing.T, scope plans.Scope) plans.Plan {
	t.Helper()
	b, err := p.Create(t.Context(), draft(), scope)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// checkChanges checks the changes of state in the receipts of acme's plans, oldest first.
func checkChanges(t *testing.T, p process, want ...string) {
	t.Helper()
	id, _, err := p.journal.Operations.Log(t.Context(), "acme", plans.Log)
	if err != nil {
		t.Fatal(err)
	}
	found, err := p.journal.Receipts.OfCase(t.Context(), "acme", id, receipts.BulkChanged)
	if err != nil || len(found) != len(want) {
		t.Fatalf("%d receipts instead of %v, %v", len(found), want, err)
	}
	for i, r := range found {
		if payload, err := r.Payload(); err != nil || payload.Changes != want[i] {
			t.Errorf("receipt %d is of %q instead of %q, %v", i, payload.Changes, want[i], err)
		}
	}
}

// rows counts what is stored of plans: plans, items, counts.
func rows(t *testing.T, db *sql.DB) (n [3]int) {
	t.Helper()
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM recourse.bulks), (SELECT count(*) FROM recourse.bulk_items), (SELECT count(*) FROM recourse.bulk_counts)`).
		Scan(&n[0], &n[1], &n[2]); err != nil {
		t.Fatal(err)
	}
	return n
}

// A plan has its letters in order, each with the head of its case and the gate that refuses it;
// only its tenant finds it.
func TestAPlanIsStoredWithItsItems(t *testing.T) {
	t.Parallel()
	p, letters, _ := start(t, 5)
	made := p.create(t, all())
	checkChanges(t, p, "none to planned")
	found, err := p.Find(t.Context(), "acme", made.ID)
	if err != nil || found != made || found.Items != 5 || found.State != plans.Planned || found.HasSettlements {
		t.Errorf("%+v instead of %+v, %v", found, made, err)
	}
	if _, err := p.Find(t.Context(), "globex", made.ID); !errors.Is(err, background.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	items, err := p.PendingItems(t.Context(), made.ID, 0, 10)
	if err != nil || len(items) != 5 {
		t.Fatalf("%+v, %v", items, err)
	}
	for i, item := range items {
		s, err := p.journal.Cases.Snapshot(t.Context(), letters[i].ID)
		if err != nil || item.Position != int64(i+1) || item.Run != letters[i].ID || item.Case != s.Case.ID || item.Head != s.Case.Head || (item.Gate == "held") != (i == 2) {
			t.Errorf("item %d: %+v, %v", i, item, err)
		}
	}
	counts, err := p.Counts(t.Context(), made.ID)
	if err != nil || len(counts) != 2 || counts[0] != (plans.Count{Items: 4}) || counts[1] != (plans.Count{Label: "held", Items: 1}) {
		t.Errorf("%+v, %v", counts, err)
	}
}

// A plan that selects nothing, or whose planning fails midway, leaves no row and no receipt.
func TestAPlanThatFailsIsNotStored(t *testing.T) {
	t.Parallel()
	p, _, db := start(t, 4)
	nothing, fails := all(), all()
	nothing.Filter = search.Filter{Transaction: "txr_unknown"}
	refused, seen := errors.New("refused"), 0
	fails.Matches = func(context.Context, search.Letter) (bool, error) {
		if seen++; seen == 3 {
			return false, refused
		}
		return true, nil
	}
	for scope, want := range map[*plans.Scope]error{&nothing: plans.ErrNothingPlanned, &fails: refused} {
		if _, err := p.Create(t.Context(), draft(), *scope); !errors.Is(err, want) {
			t.Errorf("%v instead of %v", err, want)
		}
	}
	if n := rows(t, db); n != [3]int{} {
		t.Errorf("%v plans, items and counts are stored", n)
	}
	checkChanges(t, p)
}

// Items of a plan that was never stored, because its process died in between, are deleted with the
// next plan; what is younger stays, as it may become a plan yet.
func TestItemsWithoutAPlanAreDeletedWithTheNext(t *testing.T) {
	t.Parallel()
	p, _, db := start(t, 1)
	died, younger := draft(), draft()
	for _, b := range []plans.Plan{died, younger} {
		made, err := p.Create(t.Context(), b, all())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`DELETE FROM recourse.bulks WHERE id = $1`, made.ID); err != nil {
			t.Fatal(err)
		}
	}
	// The ids contain the time in milliseconds; the two were made in the same one, or nearly.
	if _, err := db.Exec(`UPDATE recourse.bulk_items SET bulk_id = '00000000-0000-7000-8000-000000000000' WHERE bulk_id = $1`, died.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE recourse.bulk_counts SET bulk_id = '00000000-0000-7000-8000-000000000000' WHERE bulk_id = $1`, died.ID); err != nil {
		t.Fatal(err)
	}
	next := all()
	next.StaleBefore = now().Add(-time.Hour)
	made := p.create(t, next)
	if n := rows(t, db); n != [3]int{1, 2, 2} {
		t.Errorf("%v plans, items and counts are stored", n)
	}
	if items, err := p.PendingItems(t.Context(), made.ID, 0, 10); err != nil || len(items) != 1 {
		t.Errorf("%+v, %v", items, err)
	}
}

// A letter whose case has a receipt that the index does not include yet is planned without a head,
// so that nothing is done with it; the others keep theirs.
func TestALetterThatChangedSinceItWasIndexedHasNoHead(t *testing.T) {
	t.Parallel()
	p, letters, _ := start(t, 3)
	changed := letters[1]
	if err := p.journal.Operations.RecordRefusal(t.Context(), "acme", changed.Case, changed.ID,
		receipts.Draft{Actor: "user:eve", At: now(), Payload: receipts.Payload{AskedFor: "fork", RefusedBy: "role"}}); err != nil {
		t.Fatal(err)
	}
	items, err := p.PendingItems(t.Context(), p.create(t, all()).ID, 0, 10)
	if err != nil || len(items) != 3 {
		t.Fatalf("%+v, %v", items, err)
	}
	for i, item := range items {
		if (item.Head == receipts.Head{}) != (item.Run == changed.ID) {
			t.Errorf("item %d: %+v", i, item)
		}
	}
}

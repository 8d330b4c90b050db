package journal_test

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// The trail of a tenant's own operations is no case of a settlement that has the same subject.
func TestACaseOfASettlementIsNoTrailOfOperations(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	mustReserve(t, j, "esc", "rule:late", 1)
	if id, found, err := j.Operations.Case(t.Context(), "acme", "rule:late"); found || err != nil {
		t.Errorf("%s, %v", id, err)
	}
}

// A refusal stands in the trail of the case that it is about. If that is a log of operations, or a case of another
// tenant, it stands in the tenant's log of refusals.
func TestWhereARefusalStands(t *testing.T) {
	t.Parallel()
	j, ctx := journaltest.Open(t, testkit.Migrated(t)), t.Context()
	refuse := func(tenant string, id receipts.CaseID, run receipts.RunID) {
		t.Helper()
		if err := j.Operations.RecordRefusal(ctx, tenant, id, run, receipts.Draft{Actor: "test", At: time.Now().UTC()}); err != nil {
			t.Fatal(err)
		}
	}
	s := mustReserve(t, j, "esc", "subject", 1)
	refuse("acme", receipts.CaseID{}, receipts.RunID{}) // begins the log
	log, found, err := j.Operations.Log(ctx, "acme", journal.RefusalLog)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	refuse("acme", log, receipts.RunID{})
	refuse("acme", s.Case.ID, s.Run.ID)
	refuse("globex", s.Case.ID, s.Run.ID)
	theirs, found, err := j.Operations.Log(ctx, "globex", journal.RefusalLog)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	for id, want := range map[receipts.CaseID][]receipts.Subtype{
		s.Case.ID: {receipts.Submitted, receipts.Refused},
		log:       {receipts.AccessRefused, receipts.AccessRefused},
		theirs:    {receipts.AccessRefused},
	} {
		tenant := "acme"
		if id == theirs {
			tenant = "globex"
		}
		trail, err := j.Receipts.Trail(ctx, tenant, id, journal.TrailCursor{}, 10)
		if err != nil || len(trail) != len(want) {
			t.Fatalf("%d receipts, want %q, %v", len(trail), want, err)
		}
		for i, r := range trail {
			if r.Subtype != want[i] {
				t.Errorf("receipt %d is %s, want %s", i, r.Subtype, want[i])
			}
		}
	}
}

package journal_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
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

// Of changes that were decided on the same newest receipt one is written, and the others write nothing.
func TestOneChangeFollowsTheReceiptThatItWasDecidedOn(t *testing.T) {
	t.Parallel()
	j, ctx := journaltest.Open(t, testkit.Migrated(t)), t.Context()
	const log = journal.OperationLog(stored.ReferenceLog)
	draft := func(actor string) receipts.Draft {
		return receipts.Draft{Subtype: receipts.ReferencesChanged, Actor: actor, At: time.Now().UTC(), Payload: receipts.Payload{References: "{}"}}
	}
	if _, found, err := j.Operations.Newest(ctx, "acme", log); found || err != nil {
		t.Fatalf("a log without receipts: %v, %v", found, err)
	}
	if appended, err := j.Operations.AppendAfter(ctx, "acme", log, 1, draft("user:early")); appended || err != nil {
		t.Errorf("a change of what nobody wrote: %v, %v", appended, err)
	}
	for newest := range int64(3) {
		var done sync.WaitGroup
		var written atomic.Int64
		for _, actor := range []string{"user:ada", "user:bob", "user:cleo"} {
			done.Go(func() {
				appended, err := j.Operations.AppendAfter(ctx, "acme", log, newest, draft(actor))
				if err != nil {
					t.Error(err)
				} else if appended {
					written.Add(1)
				}
			})
		}
		done.Wait()
		r, found, err := j.Operations.Newest(ctx, "acme", log)
		if err != nil || !found || r.Seq != newest+1 || written.Load() != 1 {
			t.Fatalf("%d of three changes after receipt %d are written, the newest is %d, %v", written.Load(), newest, r.Seq, err)
		}
	}
	if err := j.Operations.Append(ctx, "acme", log, draft("user:dora")); err != nil {
		t.Fatal(err)
	}
	if r, _, err := j.Operations.Newest(ctx, "acme", log); err != nil || r.Seq != 4 || r.Actor != "user:dora" {
		t.Errorf("the newest receipt is %d of %s, %v", r.Seq, r.Actor, err)
	}
	if _, found, err := j.Operations.Newest(ctx, "globex", log); found || err != nil {
		t.Errorf("another tenant reads the log: %v", err)
	}
}

package journal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// submitRemote submits a run of remote workers on a queue, which edit may change.
func submitRemote(t *testing.T, j *journal.Journal, queue string, edit func(*background.Run)) background.Run {
	t.Helper()
	run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
	run.Remote, run.Queue = true, queue
	if edit != nil {
		edit(&run)
	}
	s, err := j.Submit(t.Context(), submissionOf(run, journaltest.Submitted(run)))
	if err != nil {
		t.Fatal(err)
	}
	return s.Run
}

// fetch claims runs of a queue for a worker.
func fetch(t *testing.T, j *journal.Journal, queue string, key lease.FetchKey) []background.Claimed {
	t.Helper()
	got, err := j.Leases.ClaimDue(t.Context(), &journal.Claim{
		Want: lease.Want{Tenant: "acme", Queues: []string{queue}, Count: 10, Worker: "w", Actor: "service:w", Key: key}, At: time.Now().UTC(),
		Start: func(r background.Run) background.Transition {
			m := journaltest.Transition(receipts.AttemptStarted, r)
			m.Lease = &lease.Lease{Run: r.ID, Tenant: r.Tenant, Worker: "w", Principal: "service:w", Attempt: 1, Length: time.Minute, Limit: time.Hour}
			return m
		},
		Decide: func(m background.Transition, s *journal.Snapshot) (journal.Change, error) {
			ch, err := journaltest.Decide(m)(s)
			ch.Drafts[0].Actor = "service:w"
			return ch, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A worker that fetches from a queue that pays gets calls of an operation key only, and no such call from another queue.
func TestOnlyAQueueThatPaysGivesCallsThatPay(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	j.Leases.PaymentQueue = func(queue string) bool { return queue == "pays" }
	for _, queue := range []string{"pays", "other"} {
		pays := submitRemote(t, j, queue, func(r *background.Run) { r.Operation = [32]byte{1, queue[0]} })
		plain := submitRemote(t, j, queue, nil)
		want := plain.ID
		if queue == "pays" {
			want = pays.ID
		}
		if got := fetch(t, j, queue, lease.FetchKey{}); len(got) != 1 || got[0].Err != nil || got[0].Run.ID != want {
			t.Errorf("queue %s: %+v, want %s", queue, got, want)
		}
	}
}

// Leases of a fetch with a key keep it; those of a fetch without one have none.
func TestALeaseHasTheKeyOfItsFetch(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	j.Leases.PaymentQueue = func(string) bool { return false }
	for queue, key := range map[string]lease.FetchKey{"with": {7}, "without": {}} {
		run := submitRemote(t, j, queue, nil)
		if got := fetch(t, j, queue, key); len(got) != 1 {
			t.Fatalf("%s: %+v", queue, got)
		}
		var stored []byte
		if err := db.QueryRow(`SELECT fetch_key FROM recourse.leases WHERE run_id = $1`, run.ID.String()).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		if (stored == nil) != (key == lease.FetchKey{}) || stored != nil && stored[0] != key[0] {
			t.Errorf("%s: %x", queue, stored)
		}
	}
}

// An attempt belongs to the principal that started it, whoever wrote a receipt after it or at the same time. That of a lease
// that a process of the version before wrote is in the receipt only.
func TestAnAttemptBelongsToWhoStartedIt(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db := journaltest.Open(t, url), testkit.OpenAsOwner(t, url)
	j.Leases.PaymentQueue = func(string) bool { return false }
	run := submitRemote(t, j, "q", nil)
	got := fetch(t, j, "q", lease.FetchKey{})
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	if err := j.Operations.RecordRefusal(t.Context(), "acme", run.Case, run.ID, receipts.Draft{Actor: "test", At: got[0].Lease.At}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE recourse.leases SET principal = ''`); err != nil {
		t.Fatal(err)
	}
	if _, l, err := j.Leases.FindLease(t.Context(), "acme", run.ID); err != nil || l.Principal != "service:w" {
		t.Errorf("the lease is that of %q, %v", l.Principal, err)
	}
	for principal, others := range map[string]int{"service:w": 0, "test": 1} {
		if ids, err := j.Leases.StartedByOthers(t.Context(), "acme", principal, []background.RunID{run.ID}); err != nil || len(ids) != others {
			t.Errorf("others than %s started %v, %v", principal, ids, err)
		}
	}
}

// Jobs of a queue are counted once, those that wait apart from those that have ended.
func TestAJobThatWaitsIsNotCountedAmongThoseThatEnded(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	submitRemote(t, j, "q", nil)
	cancelled := submitRemote(t, j, "q", nil)
	applyUntilRecorded(t, j, journaltest.Transition(receipts.Cancelled, cancelled))
	got, err := j.Cases.JobCounts(t.Context(), "acme", "q", time.Now())
	if err != nil || got["active"] != 0 || got["discarded"] != 0 || got["available"] != 1 || got["cancelled"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// A unique job whose run has ended does not keep a dead letter with its fingerprint from being forked; one that is live does.
func TestOnlyALiveJobKeepsAForkFromItsFingerprint(t *testing.T) {
	t.Parallel()
	j, ctx := journaltest.Open(t, testkit.Migrated(t)), context.Background()
	for fingerprint, ends := range map[byte]bool{1: true, 2: false} {
		var seen []*journal.Snapshot
		for range 2 {
			run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
			run.Remote = true
			opened, _, err := j.SubmitAll(ctx, []journal.UniqueSubmission{{
				Submission: submissionOf(run, journaltest.Submitted(run)), Fingerprint: [32]byte{fingerprint}, At: run.DueAt,
				Resolve: func([]journal.Snapshot) ([]journal.Change, bool, error) { return nil, false, nil },
			}})
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, opened[0])
		}
		if ends {
			applyUntilRecorded(t, j, journaltest.Transition(receipts.Cancelled, seen[1].Run))
		}
		after, fork := *seen[0], journaltest.PlainRun(seen[0].Run.Case, "acme")
		fork.Remote, fork.Parent = true, seen[0].Run.ID
		after.Run.State, after.Run.Letter, after.Run.DeadAt, after.Case.ActiveRun = background.DeadLettered, background.LetterForked, fork.DueAt, fork.ID
		change := journal.Change{Before: seen[0], After: &after, NewRun: &fork, Drafts: []receipts.Draft{journaltest.Submitted(fork)}}
		switch _, err := j.ApplyLetterBatch(ctx, []journal.Change{change}); {
		case ends && err != nil:
			t.Errorf("beside a job that has ended: %v", err)
		case !ends && !errors.Is(err, journal.ErrFingerprintHeld):
			t.Errorf("beside a live job: %v", err)
		}
	}
}

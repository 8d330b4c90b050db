package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// settlementOf is a submission that takes one unit of an escrow of ten.
func settlementOf(escrow, subject string) journal.Submission {
	run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
	run.Operation = [32]byte(append(run.ID[:], run.Case[:]...))
	ch := journaltest.Opening(run, journaltest.Submitted(run))
	ch.After.Case.Kind, ch.After.Case.Subject = journal.KindSettlement, subject
	ch.After.Case.State = settlement.State{Outcome: settlement.Release, Progression: settlement.ApprovedForSettlement, Asked: 1, Reserved: 1, Generation: 1}
	ch.OpeningEscrow, ch.Reserve = journal.OpeningEscrow{Reference: escrow, Currency: "EUR", Held: 10}, true
	return journal.Submission{
		Tenant: "acme", Kind: journal.KindSettlement, Subject: subject, Run: run.ID,
		Open:   func() (journal.Change, error) { return ch, nil },
		Decide: func(s *journal.Snapshot) (journal.Change, error) { return journal.Change{}, errThere },
	}
}

var errThere = fmt.Errorf("the case is there")

// Cases that name one new escrow at once, in the same batch and in another process, are all
// opened, and the sum of the escrow is right.
func TestManyCasesBeginOneEscrow(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	journals := []*journal.Journal{journaltest.Open(t, url), journaltest.Open(t, url)}
	const rounds, each = 20, 5
	for round := range rounds {
		escrow := fmt.Sprintf("esc_%d", round)
		var all sync.WaitGroup
		for n, j := range journals {
			for i := range each {
				all.Go(func() {
					if _, err := j.Submit(context.Background(), settlementOf(escrow, fmt.Sprintf("txr_%d_%d_%d", round, n, i))); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		committed, sum, err := journals[0].Escrows.Sums(context.Background(), "acme", escrow)
		if err != nil || committed != 2*each || sum != 2*each {
			t.Fatalf("%s: committed %d, sum of its cases %d, want %d: %v", escrow, committed, sum, 2*each, err)
		}
	}
}

// submissionOf is a submission of a run of a new plain case.
func submissionOf(run background.Run, drafts ...receipts.Draft) journal.Submission {
	return journal.Submission{
		Tenant: run.Tenant, Kind: journal.KindPlain, Subject: "case:" + run.Case.String(), Run: run.ID,
		Open: func() (journal.Change, error) { return journaltest.Opening(run, drafts...), nil },
	}
}

// A submitted run is cached for its first claim, unless its payload is large.
func TestASubmittedRunWithALargePayloadIsNotCached(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	for size, want := range map[int]bool{100: true, 16 << 10: true, 17 << 10: false, 60 << 10: false} {
		run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
		run.Payload = []byte(`"` + strings.Repeat("x", size-2) + `"`)
		if _, err := j.Submit(t.Context(), submissionOf(run, journaltest.Submitted(run))); err != nil {
			t.Fatal(err)
		}
		if got := j.Caches(run.ID); got != want {
			t.Errorf("a run with %d bytes is cached: %v", size, got)
		}
	}
}

// A value that Postgres refuses makes a submission unrecordable, also one that is too long for a batch.
func TestASubmissionWithARefusedValueIsUnrecordable(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j := journaltest.Open(t, url)
	for _, size := range []int{100, 70 << 10} {
		run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
		run.Queue, run.Payload = "no\x00text", []byte(`"`+strings.Repeat("x", size)+`"`)
		s := submissionOf(run, journaltest.Submitted(run))
		if _, err := j.Submit(t.Context(), s); !errors.Is(err, background.ErrUnrecordable) {
			t.Errorf("%d bytes: %v", size, err)
		}
		tx, err := testkit.OpenAsOwner(t, url).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.SubmitTx(t.Context(), tx, s); !errors.Is(err, background.ErrUnrecordable) {
			t.Errorf("%d bytes in a transaction: %v", size, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

// A submission whose receipt can't be written is refused for good, as a transition is.
func TestASubmissionThatCanNotBeRecordedIsRefused(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j := journaltest.Open(t, url)
	run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
	draft := journaltest.Submitted(run)
	draft.Subtype = "no subtype"
	s := submissionOf(run, draft)
	if _, err := j.Submit(t.Context(), s); !errors.Is(err, background.ErrUnrecordable) {
		t.Error(err)
	}
	tx, err := testkit.OpenAsOwner(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.SubmitTx(t.Context(), tx, s); !errors.Is(err, background.ErrUnrecordable) {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
}

// A fork whose case has changed leaves the fingerprint of its job as it was, though others of its batch are
// written.
func TestAForkThatIsNotWrittenChangesNoFingerprint(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j := journaltest.Open(t, url)
	var changes []journal.Change
	for n := range byte(2) {
		run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
		run.Remote = true
		opened, _, err := j.SubmitAll(t.Context(), []journal.UniqueSubmission{{
			Submission: submissionOf(run, journaltest.Submitted(run)), Fingerprint: [32]byte{n}, At: run.DueAt,
			Resolve: func([]journal.Snapshot) ([]journal.Change, bool, error) { return nil, false, nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		seen := opened[0]
		after, fork := *seen, journaltest.PlainRun(run.Case, "acme")
		fork.Remote, fork.Parent = true, run.ID
		after.Run.State, after.Run.Letter, after.Run.DeadAt, after.Case.ActiveRun = background.DeadLettered, background.LetterForked, fork.DueAt, fork.ID
		changes = append(changes, journal.Change{Before: seen, After: &after, NewRun: &fork, Fingerprint: &[32]byte{100 + n}, Drafts: []receipts.Draft{journaltest.Submitted(fork)}})
	}
	changes[0].Before.Case.Head.Link[0]++
	done, err := j.ApplyLetterBatch(t.Context(), changes)
	if err != nil || done[0] || !done[1] {
		t.Fatal(done, err)
	}
	for n, want := range []byte{0, 101} {
		var got []byte
		if err := testkit.OpenAsOwner(t, url).QueryRow(`SELECT fingerprint FROM recourse.unique_jobs WHERE case_id = $1`, changes[n].After.Case.ID.String()).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got[0] != want {
			t.Errorf("case %d has the fingerprint %d, want %d", n, got[0], want)
		}
	}
}

// A batch whose COMMIT was sent may be written, whatever the error is: only before that it is certain that nothing was.
func TestABatchOfLettersMayBeWrittenOnceItsCommitWasSent(t *testing.T) {
	t.Parallel()
	p, through := testkit.NewLossyPostgres(t, testkit.Migrated(t))
	j := journaltest.Open(t, through)
	for statement, certain := range map[string]bool{"COMMIT": false, "BEGIN": true} {
		seen := journaltest.Submit(t, j)
		after := seen
		m := journaltest.Transition(receipts.Cancelled, seen.Run)
		change := journal.Change{Transition: m.ID, Before: &seen, After: &after, Drafts: []receipts.Draft{{Run: seen.Run.ID, Subtype: receipts.Cancelled, Actor: "test", At: m.At}}}
		p.LoseAnswerTo(statement, true)
		_, err := j.ApplyLetterBatch(t.Context(), []journal.Change{change})
		if err == nil || journal.NotCommitted(err) != certain || p.Lost() == 0 {
			t.Errorf("without the answer to %s: %v, certainly not written: %t", statement, err, journal.NotCommitted(err))
		}
		now, err := j.Cases.Snapshot(t.Context(), seen.Run.ID)
		if err != nil || (now.Case.Head.Seq == seen.Case.Head.Seq) != certain {
			t.Errorf("without the answer to %s: the head is %d, %v", statement, now.Case.Head.Seq, err)
		}
	}
}

// If several processes open one case at once, each with another escrow, one succeeds, and
// no money is committed in the other escrows.
func TestOneOfManyOpensACase(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	journals := []*journal.Journal{journaltest.Open(t, url), journaltest.Open(t, url), journaltest.Open(t, url)}
	for round := range 20 {
		subject := fmt.Sprintf("txr_%d", round)
		errs := make([]error, len(journals))
		var all sync.WaitGroup
		for n, j := range journals {
			all.Go(func() {
				_, errs[n] = j.Submit(context.Background(), settlementOf(fmt.Sprintf("esc_%d_%d", round, n), subject))
			})
		}
		all.Wait()
		won, sums := 0, int64(0)
		for n, err := range errs {
			if err == nil {
				won++
			}
			committed, sum, err := journals[0].Escrows.Sums(context.Background(), "acme", fmt.Sprintf("esc_%d_%d", round, n))
			if err == nil && committed != sum {
				t.Errorf("round %d, escrow %d: committed %d, sum of its cases %d", round, n, committed, sum)
			}
			sums += committed
		}
		if won != 1 || sums != 1 {
			t.Fatalf("round %d: case opened %d times, committed %d: %v", round, won, sums, errs)
		}
	}
}

// A submission whose answer was lost is executed again by database/sql if the connection was closed, and finds the
// run that it has made. If the connection was reset the outcome is unknown. A submission of the same subject
// with another run finds the case in either way.
func TestASubmissionWhoseAnswerWasLostIsWrittenOnce(t *testing.T) {
	t.Parallel()
	p, through := testkit.NewLossyPostgres(t, testkit.Migrated(t))
	j := journaltest.Open(t, through)
	for resets, want := range map[bool]error{false: nil, true: syscall.ECONNRESET} {
		run := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
		s := submissionOf(run, journaltest.Submitted(run))
		s.Decide = func(*journal.Snapshot) (journal.Change, error) { return journal.Change{}, errThere }
		p.LoseAnswerTo(string(run.Case[:]), resets)
		snap, err := j.Submit(t.Context(), s)
		if !errors.Is(err, want) || err == nil && snap.Run.ID != run.ID {
			t.Errorf("reset: %t: run %s, %v", resets, snap.Run.ID, err)
		}
		next := s
		next.Run = background.RunID(uuid.New())
		if seen, err := j.Submit(t.Context(), next); !errors.Is(err, errThere) || seen.Run.ID != run.ID {
			t.Errorf("reset: %t, again: run %s, %v", resets, seen.Run.ID, err)
		}
	}
	if n := p.Lost(); n != 2 {
		t.Errorf("%d answers were lost", n)
	}
}

// A run of an existing case whose answer was lost is found as that of the submission.
func TestARunOfAnExistingCaseWhoseAnswerWasLostIsWrittenOnce(t *testing.T) {
	t.Parallel()
	p, through := testkit.NewLossyPostgres(t, testkit.Migrated(t))
	j := journaltest.Open(t, through)
	first := journaltest.PlainRun(receipts.CaseID(uuid.New()), "acme")
	if _, err := j.Submit(t.Context(), submissionOf(first, journaltest.Submitted(first))); err != nil {
		t.Fatal(err)
	}
	next := journaltest.PlainRun(first.Case, "acme")
	s := submissionOf(next, journaltest.Submitted(next))
	s.Open = nil
	s.Decide = func(seen *journal.Snapshot) (journal.Change, error) {
		after := *seen
		after.Run.State, after.Case.ActiveRun = background.Succeeded, next.ID
		return journal.Change{Before: seen, After: &after, NewRun: &next, Drafts: []receipts.Draft{journaltest.Submitted(next)}}, nil
	}
	p.LoseAnswerTo(next.ID.String(), false)
	snap, err := j.Submit(t.Context(), s)
	if err != nil || snap.Run.ID != next.ID || p.Lost() != 1 {
		t.Errorf("%d answers were lost: run %s, want %s: %v", p.Lost(), snap.Run.ID, next.ID, err)
	}
}

package bulk_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
)

// archiveLimit is for how long an archive may take no file in a test.
const archiveLimit = 100 * time.Millisecond

// hangingArchive takes files for ever.
type hangingArchive struct {
	retention.Archive
	begun chan struct{}
}

func (a hangingArchive) Put(ctx context.Context, _ string, _ []byte) error {
	a.begun <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// hangingRig is a process with an archive that hangs, and a number of dead letters.
func hangingRig(r *rig.Rig, letters int) (*rig.Pruner, hangingArchive) {
	r.DeadLetters(0, letters, rig.Refuses)
	away := hangingArchive{begun: make(chan struct{}, 1000)}
	return r.NewPruner(rig.WithArchive(r.T), func(c *postadjudication.Config) { away.Archive, c.Archive = c.Archive, away }), away
}

// An archive that does not answer pauses a purge at its first files, with the cause.
func TestAPurgeIntoAnArchiveThatHangsIsPaused(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	k, away := hangingRig(r, 8)
	k.As("", "").Bulk.LimitArchive(archiveLimit)
	b, err := k.Purge(context.Background(), deadletter.Filter{ErrorType: "http.refused"})
	checkBulkState(r, b, err, bulk.Paused)
	if b.Progress.Pending != 8 || !strings.Contains(b.ChangedReason, context.DeadlineExceeded.Error()) || len(away.begun) > 2 {
		t.Errorf("%+v after %d files", b, len(away.begun))
	}
	if n := r.CountLetters(background.LetterOpen); n != 8 {
		t.Errorf("%d letters are open", n)
	}
	r.MustAudit()
}

// While the archive hangs, other plans and retention go on.
func TestAnArchiveThatHangsBlocksNoOtherPlanAndNoPruner(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	k, away := hangingRig(r, 2)
	k.StartWorkers()
	plan := k.MustPlan(bulk.Request{Action: bulk.Purge, Reason: "old", Filter: deadletter.Filter{Transaction: "txr_0"}})
	if _, err := k.As("acme", "user:bob").Bulk.Run(context.Background(), plan.ID, plan.Hash); err != nil {
		t.Fatal(err)
	}
	<-away.begun
	other := k.MustPlan(bulk.Request{Action: bulk.Hold, Reason: "the auditors asked for it", Filter: deadletter.Filter{Transaction: "txr_1"}})
	if b := k.RunPlan(other); b.Progress.Done != 1 {
		t.Errorf("%+v", b)
	}
	if report, err := r.NewPruner().At(174 * day).Prune(context.Background()); err != nil || report.Announced != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	b, err := k.As("acme", "").Bulk.Get(context.Background(), plan.ID)
	checkBulkState(r, b, err, bulk.Running)
}

// A caller that leaves while the archive hangs leaves a plan that is paused.
func TestAPurgeWhoseCallerLeavesIsPaused(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	k, away := hangingRig(r, 3)
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		<-away.begun
		leave()
	}()
	b, err := k.Purge(ctx, deadletter.Filter{ErrorType: "http.refused"})
	if !errors.Is(err, context.Canceled) || b.State != bulk.Paused || b.ChangedBy != "user:ada" || b.Progress.Pending != 3 {
		t.Errorf("%+v, %v", b, err)
	}
	untilNoPlanLocked(r)
	r.MustAudit()
}

// A file that the archive refuses fails its letters only, if it takes others.
func TestALetterThatTheArchiveRefusesFailsAlone(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 4, rig.Refuses)
	picky := &rig.RejectingArchive{Text: `"txr_2"`}
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) { picky.Archive, c.Archive = c.Archive, picky })
	k.As("", "").Bulk.LimitArchive(archiveLimit)
	b, err := k.Purge(context.Background(), deadletter.Filter{ErrorType: "http.refused"})
	checkBulkState(r, b, err, bulk.Done)
	failed := k.BulkItems(b.ID, "failed")
	if b.Progress.Done != 3 || len(failed) != 1 || !strings.Contains(failed[0].Error, rig.ErrRejected.Error()) {
		t.Errorf("%+v, %+v", b.Progress, failed)
	}
	r.MustAudit()
}

// countingArchive counts the files that it is given.
type countingArchive struct {
	retention.Archive
	retention.Remover
	puts atomic.Int64
}

func (a *countingArchive) Put(ctx context.Context, name string, content []byte) error {
	a.puts.Add(1)
	return a.Archive.Put(ctx, name, content)
}

// A letter that the journal refuses to purge fails after the last try, and leaves no file behind. Once the
// journal takes it, there is one file, and its receipt names it.
func TestAPurgeOfALetterThatTheJournalRefusesLeavesNoFile(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	counted := &countingArchive{}
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) {
		counted.Archive, counted.Remover, c.Archive = c.Archive, c.Archive.(retention.Remover), counted
	})
	const tries = 4
	k.As("", "").Bulk.LimitTries(tries)
	mend := rig.RefusePurges(r, `TRIGGER stubborn BEFORE UPDATE ON recourse.runs`)
	b, err := k.Purge(context.Background(), deadletter.Filter{Family: postadjudication.Family})
	checkBulkState(r, b, err, bulk.Done)
	if failed := k.BulkItems(b.ID, "failed"); b.Progress.Failed != 1 || len(failed) != 1 || !strings.Contains(failed[0].Error, "not this one") {
		t.Errorf("%+v, %+v", b.Progress, failed)
	}
	if left := k.Files(); len(left) != 0 || counted.puts.Load() != tries {
		t.Errorf("of %d files, %v are left", counted.puts.Load(), left)
	}
	mend()
	k.MustPurge(deadletter.Filter{Family: postadjudication.Family}, 1)
	if payloads := r.Payloads(letter, receipts.Purged); len(payloads) != 1 || !slices.Equal(k.Files(), []string{payloads[0].Archive}) {
		t.Errorf("%v for %+v", k.Files(), payloads)
	}
	r.MustAudit()
}

// failingArchive takes no file while it is away.
type failingArchive struct {
	retention.Archive
	away atomic.Bool
}

func (a *failingArchive) Put(ctx context.Context, name string, content []byte) error {
	if a.away.Load() {
		return rig.ErrRejected
	}
	return a.Archive.Put(ctx, name, content)
}

// Many processes that run one plan at once, beside a process that runs what is running, do
// everything once, and all of it is in an archive.
func TestManyWhoRunOnePurgeAtOnceDoItOnce(t *testing.T) {
	t.Parallel()
	dir := rig.WithArchive(t)
	r := rig.New(t, dir).StartWorkers()
	const n = 300 // more than a chunk
	r.DeadLetters(0, n, rig.Refuses)
	plan := r.MustPlan(refusedLetters())
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			b, err := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, dir).As("acme", "user:bob").Bulk.RunHere(context.Background(), plan.ID, plan.Hash)
			if err != nil || b.State != bulk.Done && b.State != bulk.Running {
				t.Errorf("%d: %+v, %v", i, b, err)
			}
		})
	}
	all.Wait()
	if b := r.WaitPlan(plan.ID); b.Progress.Done != n {
		t.Errorf("%+v", b.Progress)
	}
	if got := r.Count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'purged' AND body::json->'payload'->>'archive' <> ''`); got != n {
		t.Errorf("%d receipts of %d letters", got, n)
	}
	checkPlanReceipts(r, plan, "user:ada none to planned", "user:bob planned to running", "system:bulk running to done")
	r.MustAudit()
}

// A plan whose process died after it took the lock, or after it started the plan, is run by the
// next one: also where no process runs.
func TestAPurgeWhoseProcessDiedIsRunByTheNext(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 3, rig.Refuses)
	k := r.NewPruner(rig.WithArchive(t))
	ctx := context.Background()
	plan := k.MustPlan(refusedLetters())
	stored, err := k.As("", "").Bulk.Stored().Find(ctx, "acme", plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := k.As("", "").Bulk.Stored().Lock(ctx, stored) // before the start
	if err != nil || lock == nil {
		t.Fatalf("%v, %v", lock, err)
	}
	impatient, cancel := context.WithTimeout(ctx, archiveLimit)
	defer cancel()
	if b, err := k.As("acme", "user:bob").Bulk.RunHere(impatient, plan.ID, plan.Hash); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside the lock of another: %+v, %v", b, err)
	}
	if err := lock.Release(ctx); err != nil { // as the database does when the process is gone
		t.Fatal(err)
	}
	started, err := k.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash) // and after it
	checkBulkState(r, started, err, bulk.Running)
	b, err := k.As("acme", "user:bob").Bulk.RunHere(ctx, plan.ID, plan.Hash)
	if checkBulkState(r, b, err, bulk.Done); b.Progress.Done != 3 {
		t.Errorf("%+v", b.Progress)
	}
	if kept := k.ArchivedLetters("acme", postadjudication.Family); len(kept) != 3 {
		t.Errorf("%d letters are archived", len(kept))
	}
	r.MustAudit()
}

// A plan that was made with an archive removes nothing without one. It is paused if a process
// without an archive takes it, and continued by one command of a process with an archive.
func TestAPurgePlannedWithAnArchiveRemovesNothingWithoutOne(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.DeadLetters(0, 3, rig.Refuses)
	k := r.NewPruner(rig.WithArchive(t))
	plan := k.MustPlan(refusedLetters())
	ctx := context.Background()
	var field *refusal.FieldError
	if b, err := r.As("acme", "user:bob").Bulk.RunHere(ctx, plan.ID, plan.Hash); !errors.As(err, &field) || field.Field != "archive" {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); err != nil {
		t.Fatal(err)
	}
	if err := r.As("acme", "").Bulk.Work(ctx, plan.ID); err != nil {
		t.Fatal(err)
	}
	b, err := r.As("acme", "").Bulk.Get(ctx, plan.ID)
	if checkBulkState(r, b, err, bulk.Paused); b.Progress.Pending != 3 || !strings.Contains(b.ChangedReason, "has none") {
		t.Errorf("%+v", b)
	}
	b, err = k.As("acme", "user:bob").Bulk.RunHere(ctx, plan.ID, plan.Hash)
	if checkBulkState(r, b, err, bulk.Done); b.Progress.Done != 3 || len(k.ArchivedLetters("acme", postadjudication.Family)) != 3 {
		t.Errorf("%+v", b.Progress)
	}
	r.MustAudit()
}

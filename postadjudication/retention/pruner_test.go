package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
	"github.com/recourse-dev/recourse/settlement"
)

func TestALetterIsAnnouncedArchivedAndPurged(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	taskinspector.WaitArchived(r, taskinspector.New(r), 1, rig.OnlyQueue)
	k := r.NewPruner(rig.WithArchive(t))
	k.At(172 * day).MustPrune(retention.Report{})
	k.At(174 * day).MustPrune(retention.Report{Announced: 1})
	k.MustPrune(retention.Report{})
	if l, err := k.Health().Levels(context.Background()); err != nil || l.Expiring[postadjudication.Family] != 1 || l.Held != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	k.At(180 * day).MustPrune(retention.Report{}) // announced late, it still has its seven days
	k.At(182 * day).MustPrune(retention.Report{Pruned: 1})
	k.MustPrune(retention.Report{})

	ending, expired := r.Payloads(letter, receipts.RetentionEnding), r.Payloads(letter, receipts.RetentionExpired)
	if len(ending) != 1 || len(expired) != 1 || !ending[0].ExpiresAt.Equal(expired[0].ExpiresAt) || expired[0].ReasonCode != "max_age" {
		t.Fatalf("%+v, %+v", ending, expired)
	}
	kept, ok := k.ArchivedLetters("acme", postadjudication.Family)[letter.Run]
	if !ok || kept.Transaction != "txr_1" || kept.Error == nil || kept.Error.Message != "account closed" || kept.Settlement.Reserved != 1000 || !json.Valid(kept.Request) {
		t.Errorf("archived %+v", kept)
	}
	if !strings.HasPrefix(expired[0].Archive, "acme/settlement/") {
		t.Errorf("the receipt names %q", expired[0].Archive)
	}
	if st, err := r.Status(context.Background(), "acme", letter.Run); err != nil || st.Letter != background.LetterPurged {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, rig.ForkRequest); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("fork of a purged letter: %v", err)
	}
	if _, err := r.As("acme", "").DeadLetters.Annotations(context.Background(), letter.Run); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("annotation of a purged letter: %v", err)
	}
	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.DisputeReady || c.Reserved != 1000 {
		t.Errorf("case %+v", c)
	}
	r.Wait("the archived task is removed", func() bool { // the next scan removes one that a second notification left meanwhile
		info, err := taskinspector.New(r).GetTaskInfo(rig.OnlyQueue, letter.Run.String()+".1")
		return errors.Is(err, asynq.ErrTaskNotFound) || err == nil && info.State != asynq.TaskStateArchived
	})
	if n := r.CountRows("annotations"); n != 0 {
		t.Errorf("%d rows of annotations", n)
	}
	r.MustAudit()
	if types := eventTypes(r, letter.Run); !slices.Contains(types, events.LetterExpiring) || types[len(types)-1] != events.RunPurged {
		t.Errorf("events %v", types)
	}
}

// eventTypes returns the types of a run's events, in order.
func eventTypes(r *rig.Rig, run background.RunID) (types []events.Type) {
	r.T.Helper()
	var after postadjudication.Position
	for {
		page, next, err := r.Events(context.Background(), "acme", after, 1000)
		if err != nil {
			r.T.Fatal(err)
		}
		for _, e := range page {
			if e.Run == run {
				types = append(types, e.Type)
			}
		}
		if len(page) == 0 {
			return types
		}
		after = next
	}
}

func TestHeldLettersAndUnknownMoneyOutliveTheirRetention(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	held, unknown := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.GivesNoAnswer)
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	k := r.NewPruner(rig.WithArchive(t)).At(4000 * day)
	k.MustPrune(retention.Report{})
	if l, err := k.Health().Levels(ctx); err != nil || l.Expiring[postadjudication.Family] != 0 || l.Held != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := r.As("acme", "").DeadLetters.Fork(ctx, held.Run, deadletter.Fork{}); err == nil {
		t.Error("forked by nobody")
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Release(ctx, held.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(ctx, "acme", unknown.Run, deadletter.Finding{Reason: "asked the bank", Class: escrow.NotExecuted, Reference: "stmt-7"}); err != nil {
		t.Fatal(err)
	}
	k.MustPrune(retention.Report{Announced: 2})
	k.At(4006 * day).MustPrune(retention.Report{})
	k.At(4008 * day).MustPrune(retention.Report{Pruned: 2})
	if n := len(k.ArchivedLetters("acme", postadjudication.Family)); n != 2 {
		t.Errorf("%d archived", n)
	}
	r.MustAudit()
}

func TestWithoutAnArchiveMoneyStaysAndTasksGo(t *testing.T) {
	t.Parallel()
	chores := postadjudication.PlainFamily{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
		return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
	}}
	with := func(c *postadjudication.Config) { c.Families = []postadjudication.PlainFamily{chores} }
	r := rig.New(t, with).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	task, err := r.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "chores", Payload: json.RawMessage(`{"dust":true}`)})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	k := r.NewPruner(with).At(181 * day)
	k.MustPrune(retention.Report{Announced: 2, Unarchived: 1})
	k.At(189 * day).MustPrune(retention.Report{Pruned: 1, Unarchived: 1})
	if st := k.Health().Stats().Retention; st.Rounds != 2 || st.Pruned != 1 || st.Announced != 2 || st.Unarchived != 1 {
		t.Errorf("%+v", st)
	}
	if d, err := r.As("acme", "").DeadLetters.Annotations(context.Background(), letter.Run); err != nil || d.ExpiresAt == nil {
		t.Errorf("%+v, %v", d, err)
	}
	if r.CountRuns(rig.Runs{ID: task.Run}) != 1 || r.CountRuns(rig.Runs{ID: task.Run, WithPayload: true}) != 0 {
		t.Error("the payload of a purged task was not removed")
	}
	if payloads := r.Payloads(task, receipts.RetentionExpired); len(payloads) != 1 || payloads[0].Archive != "" {
		t.Errorf("%+v", payloads)
	}
	r.MustAudit()
}

func TestTheNewestOfEachTenantAreKeptByCount(t *testing.T) {
	t.Parallel()
	with := func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	few := func(c *postadjudication.Config) {
		c.Retention = []retention.Rule{{Family: "chores", MaxCount: 3}}
	}
	r := rig.New(t, with).StartWorkers()
	ctx := context.Background()
	var mine []postadjudication.Submitted
	for i := range 6 {
		s, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores"})
		if err != nil {
			t.Fatal(err)
		}
		r.WaitNoneLive()
		if mine = append(mine, s); i < 2 {
			if _, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "other", Family: "chores"}); err != nil {
				t.Fatal(err)
			}
			r.WaitNoneLive()
		}
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, mine[1].Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	r.NewPruner(with, few).MustPrune(retention.Report{Pruned: 2})
	for i, s := range mine {
		st, err := r.Status(ctx, "acme", s.Run)
		if want := map[bool]background.LetterStatus{true: background.LetterPurged, false: background.LetterOpen}[i == 0 || i == 2]; err != nil || st.Letter != want {
			t.Errorf("letter %d is %s, %v", i, st.Letter, err)
		}
	}
	if n := r.CountRuns(rig.Runs{Tenant: "other", Letter: background.LetterOpen}); n != 2 {
		t.Errorf("%d letters of another tenant are left", n)
	}
	if payloads := r.Payloads(mine[0], receipts.RetentionExpired); len(payloads) != 1 || payloads[0].ReasonCode != "max_count" {
		t.Errorf("%+v", payloads)
	}
	r.MustAudit()
}

// observedArchive calls a function before it takes a file.
type observedArchive struct {
	retention.Archive
	taking func()
}

func (a *observedArchive) Put(ctx context.Context, name string, content []byte) error {
	a.taking()
	return a.Archive.Put(ctx, name, content)
}

// Letters that are retried while a round prunes leave older ones among the newest: these are kept.
func TestLettersRetriedDuringARoundLeaveOthersWithinTheCount(t *testing.T) {
	t.Parallel()
	const page, kept, letters = 500, 10, 520
	with := func(c *postadjudication.Config) {
		c.Policy.MaxRetryAttempts = 1
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	r := rig.New(t, with).StartWorkers()
	ctx := context.Background()
	for range letters {
		if _, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "chores"}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitNoneLive()
	newest, err := r.As("acme", "user:ada").DeadLetters.List(ctx, deadletter.Query{Filter: deadletter.Filter{}, Limit: kept})
	if err != nil {
		t.Fatal(err)
	}
	observed := &observedArchive{}
	p := r.NewPruner(with, rig.WithArchive(t), func(c *postadjudication.Config) {
		c.Retention = []retention.Rule{{Family: "chores", MaxCount: kept}}
		observed.Archive, c.Archive = c.Archive, observed
	})
	observed.taking = sync.OnceFunc(func() { // while the first page is pruned
		for _, l := range newest.Letters {
			if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, l.Run, rig.ForkRequest); err != nil {
				t.Error(err)
			}
		}
	})
	p.MustPrune(retention.Report{Pruned: page})
	if n := r.CountLetters(background.LetterOpen); n != letters-page-kept {
		t.Errorf("%d letters are kept", n)
	}
	r.MustAudit()
}

// crashingArchive is an archive whose process dies after a file was written, before it
// learns of that.
type crashingArchive struct {
	retention.Archive
	left int
}

var errCrashed = errors.New("the process died")

func (a *crashingArchive) Put(ctx context.Context, name string, content []byte) error {
	if err := a.Archive.Put(ctx, name, content); err != nil || a.left == 0 {
		return err
	}
	a.left--
	return errCrashed
}

func TestADeathBetweenArchiveAndJournalLosesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	const n = 5
	var last postadjudication.Submitted
	for i := range n {
		last = r.DeadLetter(i, rig.Refuses)
	}
	away := &crashingArchive{left: 1000}
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) { away.Archive, c.Archive = c.Archive, away }).At(200 * day)
	k.MustPrune(retention.Report{Announced: n})
	k.At(208 * day)
	for range 2 {
		if _, err := k.Prune(context.Background()); !errors.Is(err, errCrashed) {
			t.Fatalf("%v", err)
		}
		if open := r.CountLetters(background.LetterOpen); open != n {
			t.Fatalf("%d letters are open", open)
		}
	}
	away.left = 0
	yes := true
	if _, err := r.As("acme", "user:ada").DeadLetters.Mark(context.Background(), last.Run, deadletter.Mark{Reason: "after it was archived once", ReprocessEligible: &yes}); err != nil {
		t.Fatal(err)
	}
	k.MustPrune(retention.Report{Pruned: n})
	kept := k.ArchivedLetters("acme", postadjudication.Family)
	if len(kept) != n || kept[last.Run].MarkReason != "after it was archived once" {
		t.Errorf("%d archived, the last as %+v", len(kept), kept[last.Run])
	}
	r.MustAudit()
}

// Only one process prunes at a time; if the lock was lost, two rounds at once do no harm.
func TestPrunersThatMeetTakeEachLetterOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	const n = 60
	all := make([]postadjudication.Adjudication, n)
	for i := range all {
		all[i] = rig.Release(i)
	}
	r.Escrow.Answer(rig.Refuses)
	if _, errs := r.SubmitBatch(context.Background(), all); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	r.WaitNoneLive()
	archive := rig.WithArchive(t)
	a, b := r.NewPruner(archive).At(181*day), r.NewPruner(archive).At(181*day)
	taken := make(chan int, 8)
	meet := func(ahead time.Duration) {
		var both sync.WaitGroup
		defer both.Wait()
		for _, k := range []*rig.Pruner{a.At(ahead), b.At(ahead), a, b} {
			both.Go(func() {
				report, err := k.As("", "").DeadLetters.PruneUnlocked(context.Background())
				if err != nil {
					t.Error(err)
				}
				taken <- report.Pruned
			})
		}
	}
	meet(181 * day)
	meet(189 * day)
	close(taken)
	sum := 0
	for t := range taken {
		sum += t
	}
	rest, err := a.Prune(context.Background())
	if err != nil || sum+rest.Pruned != n {
		t.Errorf("%d and %+v, %v", sum, rest, err)
	}
	if found := r.CountReceipts(rig.Receipts{Subtype: receipts.RetentionExpired}); found != n {
		t.Errorf("%d receipts", found)
	}
	if found := r.CountReceipts(rig.Receipts{Subtype: receipts.RetentionEnding}); found != n {
		t.Errorf("%d announcements", found)
	}
	if kept := a.ArchivedLetters("acme", postadjudication.Family); len(kept) != n {
		t.Errorf("%d archived", len(kept))
	}
	held := make(chan struct{})
	alone := make(chan bool, 1)
	_, err = a.As("", "").DeadLetters.Schedule.Journal().Letters.Exclusive(context.Background(), func() error {
		go func() { defer close(held); got, _ := b.Prune(context.Background()); alone <- got.Ran }()
		<-held
		return nil
	})
	if err != nil || <-alone {
		t.Errorf("two pruned at a time, %v", err)
	}
	if got, err := b.Prune(context.Background()); err != nil || !got.Ran {
		t.Errorf("the lock was kept: %+v, %v", got, err)
	}
	r.MustAudit()
}

// Run prunes at intervals by itself.
func TestRunPrunesByItself(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.StartWorkers()
	r.DeadLetter(1, rig.Refuses)
	r.StopWorkers()
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) {
		c.PruneEvery = 20 * time.Millisecond
		c.Sweep = 50 * time.Millisecond
	}).At(181 * day)
	k.StartWorkers()
	r.WaitRetentionEnds()
	k.At(189 * day)
	r.WaitRuns(1, rig.Runs{Letter: background.LetterPurged})
	k.StopWorkers()
	r.MustAudit()
}

// A process that is restarted more often than the interval prunes all the same.
func TestTheFirstRoundDoesNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.StartWorkers()
	r.DeadLetter(1, rig.Refuses)
	k := r.NewPruner(rig.WithArchive(t), func(c *postadjudication.Config) { c.PruneEvery = 24 * time.Hour }).At(181 * day)
	k.StartWorkers()
	r.WaitRetentionEnds()
	k.StopWorkers()
	r.MustAudit()
}

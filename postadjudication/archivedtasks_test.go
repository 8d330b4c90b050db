package postadjudication_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
)

// With so many old tasks, asynq's own trimming fails permanently in its script, and with it the
// archiving of every later death.
func TestRunsAreDeadLetteredWhenTheArchiveIsFullOfOldTasks(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	d.InsertArchivedTasks(t, rig.OnlyQueue, 9000, time.Now().Add(-91*24*time.Hour))
	r.Escrow.Answer(rig.Refuses)
	r.StartWorkers()
	_, taskID := archivedTask(r, d, 1)
	info, err := d.GetTaskInfo(rig.OnlyQueue, taskID)
	if err != nil || !strings.Contains(info.LastErr, "http.refused") || strings.Contains(info.LastErr, "account closed") {
		t.Errorf("the archived task: %+v, %v", info, err)
	}
	r.MustAudit()
}

func TestTheArchiveKeepsTheNewestLettersAndTheJournalAll(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	r.Escrow.Answer(rig.Refuses)
	const deaths, older, kept = 250, 4900, 5000
	d.InsertArchivedTasks(t, rig.OnlyQueue, older, time.Now().Add(-time.Hour))
	r.StartWorkers()
	dieTogether(r, deaths)
	taskinspector.WaitArchived(r, d, kept, rig.OnlyQueue)
	r.Wait("the archived tasks of the letters are kept", func() bool { return archivedSince(t, d, time.Now().Add(-30*time.Minute)) == deaths })
	if open := r.CountLetters(background.LetterOpen); open != deaths {
		t.Errorf("%d open letters of %d deaths", open, deaths)
	}
	if found := tamperingReceipts(r); found != 0 {
		t.Errorf("%d receipts report tampering", found)
	}
	r.MustAudit()
}

// dieTogether submits adjudications in one batch, and waits until all their runs have ended.
func dieTogether(r *rig.Rig, n int) []postadjudication.Submitted {
	r.T.Helper()
	all := make([]postadjudication.Adjudication, n)
	for i := range all {
		all[i] = rig.Release(i)
	}
	letters, errs := r.SubmitBatch(context.Background(), all)
	if err := errors.Join(errs...); err != nil {
		r.T.Fatal(err)
	}
	r.WaitNoneLive()
	return letters
}

// archivedSince returns how many archived tasks died after a time.
func archivedSince(t *testing.T, d taskinspector.Inspector, since time.Time) int {
	t.Helper()
	n, err := d.Redis.ZCount(t.Context(), "asynq:{"+rig.OnlyQueue+"}:archived", strconv.FormatInt(since.Unix(), 10), "+inf").Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func TestArchivedTasksOfClosedLettersAreRemoved(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Request == nil || !strings.Contains(string(c.Request), `"generation":1`) {
			return r.Escrow.Pay(c, c.Amount.Minor)
		}
		return rig.Refused()
	})
	r.StartWorkers()
	r.MustSubmit(rig.Release(1))
	r.MustSubmit(rig.Release(2))
	r.WaitNoneLive()
	taskinspector.WaitArchived(r, d, 2, rig.OnlyQueue)
	again := rig.Release(1)
	again.Generation = 2
	if s := r.MustSubmit(again); s.Reply != postadjudication.Created {
		t.Fatalf("%+v", s)
	}
	r.WaitNoneLive()
	taskinspector.WaitArchived(r, d, 1, rig.OnlyQueue)
	if found := tamperingReceipts(r); found != 0 {
		t.Errorf("%d receipts report tampering", found)
	}
	r.MustAudit()
}

func TestSeveralProcessesRemoveArchivedTasksSafely(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	d.InsertArchivedTasks(t, rig.OnlyQueue, 5600, time.Now().Add(-time.Hour))
	var others []*rig.Rig
	for range 2 {
		others = append(others, rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, rig.OneQueue))
	}
	var started sync.WaitGroup
	for _, o := range append(others, r) {
		started.Go(func() { o.StartWorkers() })
	}
	started.Wait()
	taskinspector.WaitArchived(r, d, 5000, rig.OnlyQueue)
	r.MustAudit()
}

// asynq keeps at most 10,000 archived tasks, for 90 days, and may lose all of them; letters
// don't depend on it.
func TestEveryLetterCanBeForkedWhateverBecameOfItsArchivedTask(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	r.Escrow.Answer(rig.Refuses)
	const deaths, newer = 250, 5000 // as many newer ones as the archive keeps
	r.StartWorkers()
	letters := dieTogether(r, deaths)
	r.Wait("the letters are archived", func() bool { return d.Archived(t, rig.OnlyQueue) == deaths })
	d.InsertArchivedTasks(t, rig.OnlyQueue, newer, time.Now().Add(time.Hour))
	taskinspector.WaitArchived(r, d, newer, rig.OnlyQueue)
	if left := d.Archived(t, rig.OnlyQueue) - archivedSince(t, d, time.Now().Add(30*time.Minute)); left != 0 {
		t.Fatalf("%d letters have their archived task", left)
	}
	if found := tamperingReceipts(r); found != 0 {
		t.Errorf("%d receipts report tampering with tasks that were pruned", found)
	}
	r.Escrow.Script(nil)
	ctx := context.Background()
	fork := func(l postadjudication.Submitted) {
		t.Helper()
		if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, l.Run, rig.ForkRequest); err != nil {
			t.Fatal(err)
		}
	}
	fork(letters[0])
	r.WaitSettled(1)

	if err := d.Redis.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	d.InsertArchivedTasks(t, rig.OnlyQueue, 9000, time.Now().Add(-91*24*time.Hour))
	n, forkable := 0, 0
	for q := (deadletter.Query{Filter: deadletter.Filter{Status: background.LetterOpen}, Limit: 100}); ; {
		page, err := r.As("acme", "").DeadLetters.List(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Letters {
			if n++; l.CanFork {
				forkable++
			}
		}
		if !page.More {
			break
		}
		q.After = page.Next
	}
	if n != deaths-1 || forkable != n {
		t.Errorf("%d open letters, %d can be forked", n, forkable)
	}
	const some = 60
	for i := range some {
		fork(letters[1+i*(deaths-2)/some])
	}
	r.WaitSettled(1 + some)
	r.WaitNoneLive()
	r.MustAudit()
}

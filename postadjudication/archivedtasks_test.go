package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// With so many old tasks, asynq's own trimming fails permanently in its script, and with it the
// archiving of every later death.
func TestRunsAreDeadLetteredWhenTheArchiveIsFullOfOldTasks(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := rig.NewInspector(r)
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
	d := rig.NewInspector(r)
	r.Escrow.Answer(rig.Refuses)
	const deaths, kept = 6000, 5000
	r.StartWorkers()
	all := make([]postadjudication.Adjudication, deaths)
	for i := range all {
		all[i] = rig.Release(i)
	}
	_, errs := r.SubmitBatch(context.Background(), all)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	r.WaitNoneLive()
	rig.WaitArchivedTasks(r, d, kept, rig.OnlyQueue)
	if open := r.Count(`SELECT count(*) FROM recourse.runs WHERE letter = 'open'`); open != deaths {
		t.Errorf("%d open letters of %d deaths", open, deaths)
	}
	if found := tamperingReceipts(r); found != 0 {
		t.Errorf("%d receipts report tampering", found)
	}
	r.MustAudit()
}

func TestArchivedTasksOfClosedLettersAreRemoved(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := rig.NewInspector(r)
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
	rig.WaitArchivedTasks(r, d, 2, rig.OnlyQueue)
	again := rig.Release(1)
	again.Generation = 2
	if s := r.MustSubmit(again); s.Reply != postadjudication.Created {
		t.Fatalf("%+v", s)
	}
	r.WaitNoneLive()
	rig.WaitArchivedTasks(r, d, 1, rig.OnlyQueue)
	if found := tamperingReceipts(r); found != 0 {
		t.Errorf("%d receipts report tampering", found)
	}
	r.MustAudit()
}

func TestSeveralProcessesRemoveArchivedTasksSafely(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := rig.NewInspector(r)
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
	rig.WaitArchivedTasks(r, d, 5000, rig.OnlyQueue)
	r.MustAudit()
}

// asynq keeps at most 10,000 archived tasks, for 90 days, and may lose all of them; letters
// don't depend on it.
func TestEveryLetterCanBeForkedWhateverBecameOfItsArchivedTask(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := rig.NewInspector(r)
	r.Escrow.Answer(rig.Refuses)
	const deaths = 12_000
	r.StartWorkers()
	var letters []postadjudication.Submitted
	for from := 0; from < deaths; from += 2000 {
		some := make([]postadjudication.Adjudication, 2000)
		for i := range some {
			some[i] = rig.Release(from + i)
		}
		out, errs := r.SubmitBatch(context.Background(), some)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		letters = append(letters, out...)
		r.WaitNoneLive()
	}
	r.Wait("the archived tasks are within their limit", func() bool { n := d.Archived(t, rig.OnlyQueue); return n > 0 && n <= 5000 })
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
	for q := (deadletter.Query{Filter: deadletter.Filter{Status: background.LetterOpen}, Limit: 1000}); ; {
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
	const some = 200
	for i := range some {
		fork(letters[1+i*(deaths-2)/some])
	}
	r.WaitSettled(201)
	r.WaitNoneLive()
	r.MustAudit()
}

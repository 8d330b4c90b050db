package postadjudication_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
)

// A task says of which type it is, and only the journal of which family its run is. Whoever may write to
// Redis can let a task name a run of another family: that family neither calls nor ends it.
func TestATaskOfAnotherFamilyNeitherCallsNorEndsARun(t *testing.T) {
	t.Parallel()
	const ofChores, forged = "chores:0", "errands:0"
	var chores atomic.Int64
	r := rig.New(t, rig.OneQueue, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: func(ctx context.Context, a background.Attempt) background.Result {
			chores.Add(1)
			return rig.SucceedTask(ctx, a)
		}}, {Name: "errands", Handle: rig.SucceedTask}}
	})
	d := taskinspector.New(r)
	for _, queue := range []string{rig.OnlyQueue, ofChores} {
		if err := d.PauseQueue(queue); err != nil {
			t.Fatal(err)
		}
	}
	r.StartWorkers()
	money := r.MustNotify(r.MustSubmit(rig.Release(1)))
	chore, err := r.SubmitTask(t.Context(), postadjudication.Task{Tenant: "acme", Family: "chores", RetryKey: "sweep"})
	if err != nil {
		t.Fatal(err)
	}
	forger := asynq.NewClient(r.Redis)
	defer func() { _ = forger.Close() }()
	forge := func(family string, run background.RunID) {
		t.Helper()
		task := run.String() + ".0"
		if _, err := forger.Enqueue(asynq.NewTask(family, []byte(run.String())), asynq.Queue(forged), asynq.TaskID(task)); err != nil {
			t.Fatal(err)
		}
		r.Wait("the forged task is done", func() bool {
			info, err := d.GetTaskInfo(forged, task)
			return errors.Is(err, asynq.ErrTaskNotFound) || err == nil && info.State == asynq.TaskStateRetry
		})
	}
	forge("chores", money.Run)
	forge("errands", money.Run)
	forge("settlement", chore.Run)
	for _, queue := range []string{rig.OnlyQueue, ofChores} {
		if err := d.UnpauseQueue(queue); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitNoneLive()
	if st := r.CaseOf(rig.Release(1)); st.Progression != "settled" || chores.Load() != 1 || r.Escrow.TotalCalls() != 1 {
		t.Errorf("%+v; %d chores; %d calls", st, chores.Load(), r.Escrow.TotalCalls())
	}
	r.MustAudit()
}

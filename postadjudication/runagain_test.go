package postadjudication_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// withEcho has a plain family whose tasks complete.
func withEcho(c *postadjudication.Config) {
	c.Families = []postadjudication.PlainFamily{{Name: "echo", Handle: func(context.Context, background.Attempt) background.Result {
		return background.Result{Class: background.Executed}
	}}}
}

func TestATaskThatEndedRunsAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withEcho)
	r.StartWorkers()
	ctx := context.Background()
	first, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "echo", RetryKey: "k", Payload: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitState(first.Run, background.Succeeded)
	ann := r.As("acme", "user:ann")
	second, err := ann.Cases.RunAgain(ctx, first.Run, postadjudication.Repetition{Reason: "once more"})
	if err != nil || second.Reply != postadjudication.Created || second.Case != first.Case || second.Run == first.Run {
		t.Fatalf("%+v, %v", second, err)
	}
	r.WaitState(second.Run, background.Succeeded)
	task, err := r.Task(ctx, "acme", second.Run)
	if err != nil || string(task.Payload) != `{"n":1}` || task.RetryKey != "k" || task.Family != "echo" {
		t.Errorf("%+v, %v", task, err)
	}
	line, err := r.Lineage(ctx, "acme", first.Run)
	if err != nil || line.Root != first.Run || line.Newest != second.Run {
		t.Errorf("%+v, %v", line, err)
	}
	if a, err := ann.Cases.RunAgain(ctx, first.Run, postadjudication.Repetition{Reason: "again"}); err != nil || a.Reply != postadjudication.Superseded || a.Run != second.Run {
		t.Errorf("a run that is not the newest: %+v, %v", a, err)
	}
	third, err := ann.Cases.RunAgain(ctx, second.Run, postadjudication.Repetition{Reason: "again"})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitState(third.Run, background.Succeeded)
	if status, err := r.Status(ctx, "acme", third.Run); err != nil || len(status.Parents) != 2 || status.Parents[1] != second.Run {
		t.Errorf("%+v, %v", status.Parents, err)
	}
	r.MustAudit()
}

// Of many who repeat a task at once one wins.
func TestATaskRunsAgainOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withEcho)
	ctx := context.Background()
	r.StartWorkers()
	first, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitState(first.Run, background.Succeeded)
	r.StopWorkers()
	answers := make([]postadjudication.Submitted, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			var err error
			if answers[i], err = r.As("acme", "user:ann").Cases.RunAgain(ctx, first.Run, postadjudication.Repetition{Reason: "once more"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	won := 0
	for _, a := range answers {
		if a.Reply == postadjudication.Created {
			won++
		} else if a.Reply != postadjudication.Deduplicated {
			t.Errorf("%s", a.Reply)
		}
		if a.Run != answers[0].Run {
			t.Errorf("the answers name the runs %s and %s", a.Run, answers[0].Run)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d made a run", won, len(answers))
	}
	r.MustAudit()
}

func TestOnlyTasksOfPlainFamiliesRunAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withEcho)
	ctx := context.Background()
	settlement := r.MustSubmit(rig.Release(1))
	ann := r.As("acme", "user:ann")
	if _, err := ann.Cases.RunAgain(ctx, settlement.Run, postadjudication.Repetition{Reason: "why"}); !errors.Is(err, background.ErrUnknownFamily) {
		t.Errorf("a settlement: %v", err)
	}
	if _, err := r.As("other", "user:ann").Cases.RunAgain(ctx, settlement.Run, postadjudication.Repetition{Reason: "why"}); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant's: %v", err)
	}
	var field *refusal.FieldError
	if _, err := ann.Cases.RunAgain(ctx, settlement.Run, postadjudication.Repetition{Reason: ""}); !errors.As(err, &field) || field.Field != "reason" {
		t.Errorf("without a reason: %v", err)
	}
}

// A task that is submitted once for good is answered by the one that has ended.
func TestATaskThatIsOnceIsNotReplaced(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withEcho)
	r.StartWorkers()
	ctx := context.Background()
	once := postadjudication.Task{Tenant: "acme", Family: "echo", RetryKey: "k", Once: true}
	first, err := r.SubmitTask(ctx, once)
	if err != nil || first.Reply != postadjudication.Created {
		t.Fatalf("%+v, %v", first, err)
	}
	r.WaitState(first.Run, background.Succeeded)
	if again, err := r.SubmitTask(ctx, once); err != nil || again.Reply != postadjudication.AlreadyExecuted || again.Run != first.Run {
		t.Errorf("%+v, %v", again, err)
	}
	once.Once = false
	if again, err := r.SubmitTask(ctx, once); err != nil || again.Reply != postadjudication.Created || again.Run == first.Run {
		t.Errorf("without Once: %+v, %v", again, err)
	}
}

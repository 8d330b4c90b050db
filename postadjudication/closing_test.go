package postadjudication_test

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
)

// A submission that waits for the lock of its escrow when Close is called is written and notified of before
// the connections are closed. A later one is refused.
func TestCloseWaitsForSubmissions(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	inspector := taskinspector.New(r)
	ctx := context.Background()
	tx := inTransaction(r, sharedEscrow(1))
	submitted, closed := make(chan error, 1), make(chan error, 1)
	var got postadjudication.Submitted
	go func() {
		var err error
		got, err = r.Submit(ctx, sharedEscrow(2))
		submitted <- err
	}()
	r.WaitBlocked(1)
	go func() { closed <- r.Close() }()
	r.Wait("no submission begins", func() bool {
		_, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "none"})
		return !errors.Is(err, background.ErrUnknownFamily)
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-submitted; err != nil || got.Reply != postadjudication.Created {
		t.Errorf("the submission that waited: %v, %v", got, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if n := inspector.PendingNotifications(t); n != 1 {
		t.Errorf("%d notifications, want 1", n)
	}
	for what, submit := range map[string]func() error{
		"Submit":   func() error { _, err := r.Submit(ctx, rig.Release(3)); return err },
		"SubmitTx": func() error { _, err := r.SubmitTx(ctx, nil, rig.Release(3)); return err },
		"SubmitBatch": func() error {
			_, errs := r.SubmitBatch(ctx, []postadjudication.Adjudication{rig.Release(3)})
			return errs[0]
		},
		"SubmitTask": func() error { _, err := r.SubmitTask(ctx, postadjudication.Task{}); return err },
		"RunAgain": func() error {
			_, err := r.As("acme", "user:ada").Cases.RunAgain(ctx, got.Run, postadjudication.Repetition{})
			return err
		},
		"Run": func() error { return r.Run(ctx) },
	} {
		if err := submit(); !errors.Is(err, postadjudication.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

// An attempt that ends within the grace of Close may still submit.
func TestAnAttemptSubmitsWhileCloseWaitsForIt(t *testing.T) {
	t.Parallel()
	var r *rig.Rig
	began, submitted := make(chan struct{}), make(chan error, 1)
	r = rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "chores", Handle: rig.SucceedTask}, {Name: "parent", Handle: func(ctx context.Context, _ background.Attempt) background.Result {
			close(began)
			<-ctx.Done() // the attempt is told to stop
			_, err := r.SubmitTask(context.WithoutCancel(ctx), postadjudication.Task{Tenant: "acme", Family: "chores"})
			submitted <- err
			return background.Result{Class: escrow.Executed}
		}}}
	}).StartWorkers()
	if _, err := r.SubmitTask(t.Context(), postadjudication.Task{Tenant: "acme", Family: "parent"}); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-submitted; err != nil {
		t.Errorf("the task of an attempt that was stopped: %v", err)
	}
}

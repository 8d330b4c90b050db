package background_test

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/backgroundtest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

// A manager runs the handler of a family until each run has succeeded or died. What happened is in a journal, which
// is in memory here. Redis only says which run is due.
func ExampleManager() {
	t := testkit.NewExample()
	defer t.Stop()
	_, redis := testkit.Redis(t)
	ctx, cancel := context.WithCancel(context.Background())

	journal := backgroundtest.NewJournal(1)
	mail := &backgroundtest.Family{
		Journal: journal, FamilyName: "mail", AttemptLimit: time.Second,
		HandleFunc: func(_ context.Context, a background.Attempt) background.Result {
			if a.Number == 1 {
				return background.Result{Class: background.NotExecuted, Retry: true, Failure: &background.Failure{Type: "smtp", Message: "greylisted"}}
			}
			return background.Result{Class: background.Executed}
		},
	}
	manager, err := background.New(background.Config{Redis: redis, Store: journal, Families: []background.Family{mail}})
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- manager.Run(ctx) }()

	run := journal.Submit(background.Run{Family: "mail", RetryKey: "mail-1", Queue: manager.Queue("mail", "mail-1"), NotificationNumber: 1})
	fmt.Println(manager.Notify(ctx, run)) // optional: without it the sweeper finds the run
	done, err := journal.Await(ctx, run.ID, func(r background.Run) bool { return !r.State.Live() })
	fmt.Println(done.State, done.Attempt, err)
	for _, transition := range journal.Transitions(run.ID) {
		fmt.Println(transition.Subtype)
	}

	cancel()
	fmt.Println(<-ended, manager.Close())
	// Output:
	// <nil>
	// succeeded 2 <nil>
	// attempt-started
	// retry-scheduled
	// attempt-started
	// attempt-succeeded
	// <nil> <nil>
}

package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func enabled(c *postadjudication.Config) { c.Jobs = true }

// A client enqueues a job, and a remote worker fetches it, says that it is still at work, and acknowledges it.
func ExampleJobs_Fetch() {
	svc, stop := rig.Example(enabled) // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()
	shop, worker := svc.As("acme", "service:shop").Jobs, svc.As("acme", "service:mailer").Jobs

	job := jobs.Job{ID: "mail-1", Type: "mail.send", Queue: "mail", Payload: json.RawMessage(`{"args":["ada"]}`)}
	enqueued, err := shop.Enqueue(ctx, job)
	fmt.Println(enqueued.State, err)
	_, err = shop.Enqueue(ctx, job) // an id is taken for good, so that an uncertain client enqueues again
	var duplicate *jobs.DuplicateError
	fmt.Println("again:", errors.As(err, &duplicate), duplicate.Existing.ID)

	fetched, err := worker.Fetch(ctx, jobs.Fetch{Queues: []string{"mail"}, Count: 10, Worker: "w1", Visibility: time.Minute})
	if err != nil {
		panic(err)
	}
	for _, f := range fetched {
		fmt.Println(f.ID, f.Attempt, string(f.Payload), f.Visibility)
		extended, err := worker.Heartbeat(ctx, "w1", []string{f.ID}, 0) // before the minute is over
		fmt.Println(extended, err)
		done, err := worker.Ack(ctx, jobs.Answer{ID: f.ID, Worker: "w1", Attempt: f.Attempt}, json.RawMessage(`{"sent":true}`))
		fmt.Println(done.State, err)
	}

	found, err := shop.Find(ctx, "mail-1")
	fmt.Println(found.State, string(found.Output), err)
	output, _, err := shop.Outputs(ctx, []background.RunID{found.Run}, 1<<20)
	fmt.Println(string(output[found.Run]), err)
	if err := svc.DrainEvents(ctx); err != nil { // events get their places after their commit
		panic(err)
	}
	history, upTo, more, err := shop.Events(ctx, 0, jobs.MaxEvents)
	for _, e := range history {
		fmt.Println(e.ID, e.Subtype)
	}
	fmt.Println(upTo.Position > 0, more, err)
	// Output:
	// pending <nil>
	// again: true mail-1
	// mail-1 1 {"args":["ada"]} 1m0s
	// [mail-1] <nil>
	// succeeded <nil>
	// succeeded {"sent":true} <nil>
	// {"sent":true} <nil>
	// mail-1 submitted
	// mail-1 attempt-started
	// mail-1 attempt-succeeded
	// true false <nil>
}

// A job that fails is fetched again by its policy. A job that failed for good is a dead letter, which a person
// retries or deletes.
func ExampleJobs_Nack() {
	svc, stop := rig.Example(enabled)
	defer stop()
	ctx := context.Background()
	operator := svc.As("acme", "user:ada").Jobs
	once := retrypolicy.Policy{MaxRetryAttempts: 1, OnExhaustion: retrypolicy.DeadLetter}
	for _, id := range []string{"mail-1", "mail-2"} {
		if _, err := operator.Enqueue(ctx, jobs.Job{ID: id, Type: "mail.send", Queue: "mail", Policy: once, Payload: json.RawMessage(`{}`)}); err != nil {
			panic(err)
		}
	}

	fetched, err := operator.Fetch(ctx, jobs.Fetch{Queues: []string{"mail"}, Count: 2, Worker: "w1"})
	if err != nil {
		panic(err)
	}
	for _, f := range fetched {
		why := background.Failure{Type: "SmtpError", Message: "no such mailbox"}
		failed, err := operator.Nack(ctx, jobs.Answer{ID: f.ID, Worker: "w1"}, why, true, background.EndByPolicy)
		fmt.Println(failed.State, err)
	}

	letters := operator.DeadLetters()
	page, err := letters.List(ctx, jobs.Query{Filter: jobs.Filter{Queue: "mail"}, Limit: 10})
	fmt.Println(page.Total, page.Jobs[0].Failures[0].Message, err)
	found, err := letters.Search(ctx, jobs.Query{Limit: 10}, func(envelope json.RawMessage) bool { return bytes.Contains(envelope, []byte("no such argument")) })
	fmt.Println(len(found.Jobs), err)
	stats, err := letters.Stats(ctx)
	fmt.Println(stats.Total, stats.ByErrorType, err)
	retried, err := letters.Retry(ctx, "mail-1", jobs.Retry{Reason: "the mailbox exists now"})
	fmt.Println(retried.State, retried.Retried, err)
	fmt.Println(letters.Delete(ctx, "mail-2", "nobody waits for it"))

	// A worker that shuts down gives back what it has not begun: the attempt does not count.
	again, err := operator.Fetch(ctx, jobs.Fetch{Queues: []string{"mail"}, Count: 1, Worker: "w2"})
	if err != nil {
		panic(err)
	}
	back, err := operator.HandBack(ctx, jobs.Answer{ID: again[0].ID, Worker: "w2"}, background.Failure{Type: "shutdown"})
	fmt.Println(back.ID, back.State, back.Attempt, err)
	// Output:
	// dead_lettered <nil>
	// dead_lettered <nil>
	// 2 no such mailbox <nil>
	// 0 <nil>
	// 2 map[SmtpError:2] <nil>
	// pending true <nil>
	// <nil>
	// mail-1 scheduled 0 <nil>
}

// A job can wait for a time, or until it is activated. Until it ends it can be cancelled.
func ExampleJobs_Activate() {
	svc, stop := rig.Example(enabled)
	defer stop()
	ctx := context.Background()
	shop := svc.As("acme", "service:shop").Jobs
	fetch := func() {
		got, err := shop.Fetch(ctx, jobs.Fetch{Queues: []string{"mail"}, Count: 10, Worker: "w1"})
		fmt.Println(len(got), err)
	}

	pending := jobs.Job{ID: "mail-1", Type: "mail.send", Queue: "mail", Pending: true, Payload: json.RawMessage(`{}`), Request: "req_7"}
	tomorrow := jobs.Job{ID: "mail-2", Type: "mail.send", Queue: "mail", NotBefore: shop.Now().Add(24 * time.Hour), Payload: json.RawMessage(`{}`)}
	added, err := shop.EnqueueAll(ctx, []jobs.Job{pending, tomorrow}) // both, or neither
	if err != nil {
		panic(err)
	}
	first := added[0]
	counts, err := shop.Queues().Count(ctx, "mail")
	fmt.Println(counts.Pending, counts.Scheduled, err)
	fetch()
	activated, err := shop.Activate(ctx, "mail-1")
	fmt.Println(activated.AwaitsActivation, err)
	fetch()
	cancelled, err := shop.Cancel(ctx, "mail-2", "not needed")
	fmt.Println(cancelled.State, err)

	made, err := shop.MadeBy(ctx, first, "req_7") // what an API asks that does not know whether a request was carried out
	fmt.Println(made, err)
	if err := shop.Queues().Add(ctx, "reports"); err != nil {
		panic(err)
	}
	queues, total, err := shop.Queues().List(ctx, "default", 0, 10)
	for _, q := range queues {
		fmt.Println(q.Name)
	}
	fmt.Println(total, err)
	// Output:
	// 1 1 <nil>
	// 0 <nil>
	// false <nil>
	// 1 <nil>
	// cancelled <nil>
	// true <nil>
	// default
	// mail
	// reports
	// 3 <nil>
}

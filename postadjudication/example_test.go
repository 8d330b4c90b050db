package postadjudication_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
	"github.com/recourse-dev/recourse/settlement"
)

// bank is an escrow service that pays every call, and knows its operation keys for ever.
type bank struct{}

func (bank) KeyLifetime() time.Duration { return escrow.Forever }

func (bank) Execute(_ context.Context, c escrow.Call) escrow.Answer {
	return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "pay_1"}
}

// A program opens a service, executes what it or any other process submits, and follows what becomes of it.
func Example() {
	t := testkit.NewExample() // your program has a Postgres and a Redis of its own
	defer t.Stop()
	_, redis := testkit.Redis(t)
	ctx, cancel := context.WithCancel(context.Background())

	svc, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: testkit.Migrated(t), Redis: redis, Executor: bank{}})
	if err != nil {
		panic(err)
	}
	defer svc.Close()
	ended := make(chan error)
	go func() { ended <- svc.Run(ctx) }()

	submitted, err := svc.Submit(ctx, postadjudication.Adjudication{Instruction: settlement.Instruction{
		Tenant: "acme", TransactionReceiptID: "txr_1", SubmissionReceiptID: "sub_1", AdjudicationID: "adj_1",
		EscrowReference: "esc_1", Outcome: settlement.Release, Generation: 1,
		Amount: settlement.Money{Minor: 125_00, Currency: "EUR"}, Held: settlement.Money{Minor: 200_00, Currency: "EUR"},
	}})
	fmt.Println(submitted.Reply, err)

	after, over := postadjudication.Position(0), false
	for !over {
		var page []postadjudication.Event
		if page, after, err = svc.WaitEvents(ctx, "acme", after, 10); err != nil {
			panic(err)
		}
		for _, e := range page {
			fmt.Println(e.Type)
			over = over || e.Type == events.RunCompleted
		}
	}
	c, err := svc.Case(ctx, "acme", "txr_1")
	fmt.Println(c.Progression, c.Released, err)

	cancel() // the runs that are not done are left to other processes
	fmt.Println(<-ended)
	// Output:
	// created <nil>
	// run.created
	// run.started
	// node.started
	// node.completed
	// run.completed
	// settled 12500 <nil>
	// <nil>
}

// The same adjudication may be handed over again: it is executed once.
func ExampleService_Submit() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()

	adjudication := rig.Release(1) // releases 10.00 EUR for transaction txr_1 of tenant acme
	first, err := svc.Submit(ctx, adjudication)
	fmt.Println(first.Reply, err)
	svc.WaitSettled(1)
	again, err := svc.Submit(ctx, adjudication)
	fmt.Println(again.Reply, again.Reply.Accepted(), again.Run == first.Run, err)

	adjudication.Amount.Minor-- // with another amount it is another adjudication
	other, err := svc.Submit(ctx, adjudication)
	fmt.Println(other.Reply, other.Reply.Accepted(), err)
	// Output:
	// created <nil>
	// already_executed true true <nil>
	// case_ended false <nil>
}

// Each adjudication of a batch has a result and an error of its own.
func ExampleService_SubmitBatch() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()

	malformed := rig.Release(2)
	malformed.Amount.Currency = "euro"
	submitted, errs := svc.SubmitBatch(ctx, []postadjudication.Adjudication{rig.Release(1), malformed, rig.Release(3)})
	for i, s := range submitted {
		fmt.Printf("%q %v\n", s.Reply, errs[i])
	}
	svc.WaitSettled(2)
	status, err := svc.Status(ctx, "acme", submitted[2].Run)
	fmt.Println(status.RetryKey, status.State, err)
	// Output:
	// "created" <nil>
	// "" amount.currency is not an active ISO 4217 currency
	// "created" <nil>
	// txr_3:release succeeded <nil>
}

// The adjudication exists if and only if the caller's transaction commits.
func ExampleService_SubmitTx() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()

	tx, err := svc.DB.BeginTx(ctx, nil) // in the database of the service, READ COMMITTED
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	submitted, err := svc.SubmitTx(ctx, tx, rig.Release(1))
	fmt.Println(submitted.Reply, err)
	// Here the caller writes tables of its own.
	_, err = svc.Case(ctx, "acme", "txr_1")
	fmt.Println("before the commit:", errors.Is(err, refusal.ErrNotFound))
	if err := tx.Commit(); err != nil {
		panic(err)
	}
	fmt.Println("notified:", submitted.Notify(ctx)) // optional: a worker begins at once, and not with the next sweep

	svc.WaitSettled(1)
	c, err := svc.CaseByID(ctx, "acme", submitted.Case)
	fmt.Println(c.Progression, err)
	// Output:
	// created <nil>
	// before the commit: true
	// notified: <nil>
	// settled <nil>
}

// A task that moves no money has a family of the caller's own, with the same promises.
func ExampleService_SubmitTask() {
	sent := make(chan string, 1)
	mail := postadjudication.PlainFamily{Name: "mail", Handle: func(_ context.Context, a background.Attempt) background.Result {
		sent <- string(a.Run.Payload)
		return background.Result{Class: background.Executed}
	}}
	svc, stop := rig.Example(func(c *postadjudication.Config) { c.Families = []postadjudication.PlainFamily{mail} })
	defer stop()
	ctx := context.Background()

	task := postadjudication.Task{Tenant: "acme", Family: "mail", RetryKey: "txr_1:decided", Payload: json.RawMessage(`{"to":"ada"}`), Once: true}
	first, err := svc.SubmitTask(ctx, task)
	fmt.Println(first.Reply, <-sent, err)
	svc.WaitState(first.Run, background.Succeeded)
	again, err := svc.SubmitTask(ctx, task)
	fmt.Println(again.Reply, err)

	// A person has it done once more.
	repeated, err := svc.As("acme", "user:ada").Cases.RunAgain(ctx, first.Run, postadjudication.Repetition{Reason: "it went to spam"})
	fmt.Println(repeated.Reply, <-sent, err)
	done, err := svc.Task(ctx, "acme", repeated.Run)
	fmt.Println(done.RetryKey, err)
	// Output:
	// created {"to":"ada"} <nil>
	// already_executed <nil>
	// created {"to":"ada"} <nil>
	// txr_1:decided <nil>
}

// Every step of a case is a receipt, and some receipts are public events.
func ExampleService_Receipts() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()

	submitted, err := svc.Submit(ctx, rig.Release(1))
	if err != nil {
		panic(err)
	}
	svc.WaitSettled(1)
	chain, err := svc.Receipts(ctx, "acme", submitted.Case, 0, 100)
	if err != nil {
		panic(err)
	}
	for _, r := range chain {
		public, err := events.Of(r)
		if err != nil {
			panic(err)
		}
		fmt.Print(r.Seq, " ", r.Subtype, ":")
		for _, e := range public {
			fmt.Print(" ", e.Type)
		}
		fmt.Println()
	}

	// Receipts get their places in the order of events after their commit.
	if err := svc.DrainEvents(ctx); err != nil {
		panic(err)
	}
	all, _, err := svc.Events(ctx, "acme", 0, postadjudication.MaxEvents)
	fmt.Println(len(all), err)
	found, err := svc.FindReceipts(ctx, "acme", postadjudication.ReceiptFilter{Subtype: receipts.AttemptSucceeded}, 0, 100)
	fmt.Println(len(found.Receipts), "of", found.Scanned, found.Complete, err)
	tenants, err := svc.Tenants(ctx)
	fmt.Println(tenants, err)
	each, err := svc.StatsByTenant(ctx, deadletter.Filter{}) // of the open letters and the reserved money
	fmt.Println(each[0].Tenant, each[0].Open, each[0].Reserved.All.Cases, err)
	// Output:
	// 1 submitted: run.created
	// 2 attempt-started: run.started node.started
	// 3 attempt-succeeded: node.completed run.completed
	// 5 <nil>
	// 1 of 3 true <nil>
	// [acme] <nil>
	// acme 0 0 <nil>
}

// A process is called for every dead letter of any process from now on.
func ExampleService_OnDeadLetter() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()

	letters := make(chan postadjudication.DeadLetter, 1)
	unsubscribe := svc.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) { letters <- l })
	defer unsubscribe()

	svc.Escrow.Answer(rig.Refuses) // the account is closed
	if _, err := svc.Submit(ctx, rig.Release(1)); err != nil {
		panic(err)
	}
	l := <-letters
	fmt.Println(l.RetryKey, l.Attempts, l.Error.Message)
	// Output:
	// txr_1:release 1 account closed
}

// What must be done about every death, whatever happens to this process, is a task of its own: it is committed
// with the death. It may also be of a family that handles more than letters.
func ExampleLetterHandler() {
	paged := make(chan string, 1)
	page := postadjudication.PlainFamily{Name: "page", Handle: func(_ context.Context, a background.Attempt) background.Result {
		l, err := postadjudication.ReadDeadLetter(a)
		if err != nil {
			return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "no_letter", Message: err.Error()}}
		}
		paged <- l.Transaction + ": " + l.Error.Message
		return background.Result{Class: background.Executed}
	}}
	svc, stop := rig.Example(func(c *postadjudication.Config) {
		c.Families, c.OnDeath = []postadjudication.PlainFamily{page}, postadjudication.LetterHandler{Family: "page"}
	})
	defer stop()

	svc.Escrow.Answer(rig.Refuses)
	if _, err := svc.Submit(context.Background(), rig.Release(1)); err != nil {
		panic(err)
	}
	fmt.Println(<-paged)
	// Output:
	// txr_1: account closed
}

// An HTTP API answers a repeated request with the stored response. ID makes each effect of the request exist once.
func ExampleService_BeginRequest() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	digest := sha256.Sum256([]byte(`POST /orders {"n":1}`))

	begin := func() *postadjudication.IdempotentRequest {
		stored, request, err := svc.BeginRequest(ctx, "acme", "key-1", digest)
		if err != nil {
			panic(err)
		}
		if stored != nil {
			fmt.Println(stored.Status, string(stored.Body))
		}
		return request
	}
	first := begin()
	_, _, err := svc.BeginRequest(ctx, "acme", "key-1", digest)
	fmt.Println("meanwhile:", errors.Is(err, postadjudication.ErrRequestBusy))
	if err := first.Interrupt(ctx); err != nil { // the outcome is not known
		panic(err)
	}
	second := begin()
	fmt.Println("repeated:", second.ID() == first.ID(), !second.FirstBegan().IsZero())
	if err := second.Answer(ctx, postadjudication.StoredResponse{Status: 201, Body: []byte("order 1")}); err != nil {
		panic(err)
	}
	begin()
	_, _, err = svc.BeginRequest(ctx, "acme", "key-1", sha256.Sum256([]byte("another request")))
	fmt.Println("another request:", errors.Is(err, postadjudication.ErrRequestMismatch))
	used, err := svc.HasRequest(ctx, "acme", "key-1")
	fmt.Println("used:", used, err)

	_, refused, err := svc.BeginRequest(ctx, "acme", "key-2", digest)
	if err != nil {
		panic(err)
	}
	fmt.Println("dropped:", refused.Drop(ctx)) // it changed nothing, and may be sent again
	// Output:
	// meanwhile: true
	// repeated: true true
	// 201 order 1
	// another request: true
	// used: true <nil>
	// dropped: <nil>
}

// An empty database is migrated once, by its owner. Afterwards any process can open it.
func ExampleMigrate() {
	t := testkit.NewExample()
	defer t.Stop()
	ctx := context.Background()
	url := testkit.Database(t)

	_, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: url})
	fmt.Println("before:", errors.Is(err, postadjudication.ErrSchema))
	from, to, err := postadjudication.Migrate(ctx, url)
	fmt.Println(from, to > from, err)

	// Without an Executor and a Redis a process submits and reads, and leaves the work to others.
	svc, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: url, PaymentQueues: []string{"payouts"}})
	if err != nil {
		panic(err)
	}
	defer svc.Close()
	fmt.Println("after:", errors.Is(svc.Run(ctx), refusal.ErrNoExecutor))
	fmt.Println("payouts pays:", svc.PaymentQueue("payouts"))
	// Output:
	// before: true
	// 0 true <nil>
	// after: true
	// payouts pays: true
}

// A page of a process's health says whether it works, and what waits in all processes.
func ExampleHealth() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	svc.DeadLetter(1, rig.Refuses) // its account is closed

	health := svc.Health()
	svc.Wait("the process works", func() bool { return health.Check(ctx) == nil })
	levels, err := health.Levels(ctx)
	fmt.Println(levels.Runs[background.DeadLettered], levels.AtRisk, err)
	unserved, err := health.Unserved(ctx)
	fmt.Println(unserved, err)
	uncalled, err := health.Uncalled(ctx)
	fmt.Println(uncalled, err)
	fmt.Println(health.MayRun(), health.Failover(), health.Breaches())
	// Output:
	// 1 10.00 EUR <nil>
	// [] <nil>
	// [] <nil>
	// <nil> <nil> {0 0 0 0}
}

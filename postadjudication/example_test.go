package postadjudication_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// servers are a migrated database and a Redis of one example, which has no testing.T.
type servers struct {
	testing.TB  // nil: testkit calls the methods below, and no other
	databaseURL string
	redis       asynq.RedisConnOpt
	stops       []func()
}

func (s *servers) Helper()                        {}
func (s *servers) Name() string                   { return "Example" }
func (s *servers) Context() context.Context       { return context.Background() }
func (s *servers) Cleanup(f func())               { s.stops = append(s.stops, f) }
func (s *servers) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (s *servers) Error(a ...any)                 { panic(fmt.Sprint(a...)) }
func (s *servers) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (s *servers) Fatal(a ...any)                 { panic(fmt.Sprint(a...)) }

func startServers() *servers {
	s := &servers{}
	s.databaseURL = testkit.Migrated(s)
	_, s.redis = testkit.Redis(s)
	return s
}

// stop is what t.Cleanup does: the last first.
func (s *servers) stop() {
	for len(s.stops) > 0 {
		last := s.stops[len(s.stops)-1]
		s.stops = s.stops[:len(s.stops)-1]
		last()
	}
}

// bank is an escrow service that pays, but for accounts that are closed.
type bank struct{ closed atomic.Bool }

func (b *bank) KeyLifetime() time.Duration { return escrow.Forever }

func (b *bank) Execute(_ context.Context, c escrow.Call) escrow.Answer {
	if b.closed.Load() {
		return escrow.Answer{Class: escrow.NotExecuted, Type: "bank.refused", Message: "account closed"}
	}
	return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor, Reference: "pay_1"}
}

func adjudication() postadjudication.Adjudication {
	return postadjudication.Adjudication{Instruction: settlement.Instruction{
		Tenant: "acme", TransactionReceiptID: "txr_1", SubmissionReceiptID: "sub_1", AdjudicationID: "adj_1",
		EscrowReference: "esc_1", Outcome: settlement.Release, Generation: 1,
		Amount: settlement.Money{Minor: 125_00, Currency: "EUR"}, Held: settlement.Money{Minor: 200_00, Currency: "EUR"},
	}}
}

// work runs the workers of a service. It returns what stops them.
func work(svc *postadjudication.Service) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			panic(err)
		}
	}
}

// await polls a case until its settlement has a status.
func await(svc *postadjudication.Service, want settlement.Status) casestatus.Case {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		c, err := svc.Case(ctx, "acme", "txr_1")
		if err != nil {
			panic(err)
		}
		if c.Progression == want {
			return c
		}
		select {
		case <-ctx.Done():
			panic(fmt.Sprintf("the case is %s, not %s", c.Progression, want))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The same adjudication may be handed over again: it is executed once.
func ExampleService_Submit() {
	s := startServers()
	defer s.stop()
	ctx := context.Background()

	svc, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: s.databaseURL, Redis: s.redis, Executor: &bank{}})
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	first, err := svc.Submit(ctx, adjudication())
	fmt.Println(first.Reply, err)
	again, err := svc.Submit(ctx, adjudication())
	fmt.Println(again.Reply, again.Run == first.Run, err)

	defer work(svc)() // in any process with the same servers
	settled := await(svc, settlement.Settled)
	fmt.Println(settled.Progression, settled.Released)
	// Output:
	// created <nil>
	// deduplicated true <nil>
	// settled 12500
}

// Every step of a case is a receipt.
func ExampleService_Receipts() {
	s := startServers()
	defer s.stop()
	ctx := context.Background()

	svc, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: s.databaseURL, Redis: s.redis, Executor: &bank{}})
	if err != nil {
		panic(err)
	}
	defer svc.Close()
	defer work(svc)()

	if _, err := svc.Submit(ctx, adjudication()); err != nil {
		panic(err)
	}
	settled := await(svc, settlement.Settled)
	receipts, err := svc.Receipts(ctx, "acme", settled.Case, 0, 100)
	if err != nil {
		panic(err)
	}
	for _, r := range receipts {
		fmt.Println(r.Seq, r.Subtype)
	}
	// Output:
	// 1 submitted
	// 2 attempt-started
	// 3 attempt-succeeded
}

// An account is closed: the run dies. Its dead letter is forked once the account is open again.
func ExampleLetters_Fork() {
	s := startServers()
	defer s.stop()
	ctx := context.Background()

	escrow := &bank{}
	escrow.closed.Store(true)
	svc, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: s.databaseURL, Redis: s.redis, Executor: escrow})
	if err != nil {
		panic(err)
	}
	defer svc.Close()
	defer work(svc)()

	submitted, err := svc.Submit(ctx, adjudication())
	if err != nil {
		panic(err)
	}
	dead := await(svc, settlement.DisputeReady)
	fmt.Println(dead.Runs[0].State, dead.Runs[0].Letter)

	escrow.closed.Store(false)
	letters := svc.As("acme", "user:ada").DeadLetters
	fork := deadletter.Fork{Reason: "the account is open again"}
	forked, err := letters.Fork(ctx, submitted.Run, fork)
	fmt.Println(forked.State, err)
	await(svc, settlement.Settled)

	_, err = letters.Fork(ctx, submitted.Run, fork) // a dead letter has one fork at most
	var refused *refusal.RefusedError
	fmt.Println(errors.As(err, &refused), refused.Letter)
	// Output:
	// dead_lettered open
	// pending <nil>
	// true forked
}

// A process is called for every dead letter of any process from now on.
func ExampleService_OnDeadLetter() {
	s := startServers()
	defer s.stop()
	ctx := context.Background()

	escrow := &bank{}
	escrow.closed.Store(true)
	svc, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: s.databaseURL, Redis: s.redis, Executor: escrow})
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	letters := make(chan postadjudication.DeadLetter, 1)
	unsubscribe := svc.OnDeadLetter(func(_ context.Context, l postadjudication.DeadLetter) { letters <- l })
	defer unsubscribe()
	defer work(svc)()

	if _, err := svc.Submit(ctx, adjudication()); err != nil {
		panic(err)
	}
	l := <-letters
	fmt.Println(l.RetryKey, l.Attempts, l.Error.Message)
	// Output:
	// txr_1:release 1 account closed
}

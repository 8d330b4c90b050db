package escrow_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// ledger is an escrow service that pays each operation key once. It is behind a network that loses its answers.
type ledger struct {
	mu   sync.Mutex
	paid map[escrow.OperationKey]int64
}

// KeyLifetime says how long a key is recognised: so long a call of unknown outcome may be repeated.
func (l *ledger) KeyLifetime() time.Duration { return 24 * time.Hour }

// Execute implements escrow.Executor.
func (l *ledger) Execute(_ context.Context, c escrow.Call) escrow.Answer {
	if err := c.Fresh(); err != nil { // the last moment at which nothing was sent
		return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "stale", Message: err.Error()}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paid[c.OperationKey] = c.Amount.Minor
	return escrow.Answer{Class: escrow.Unknown, Type: "connection_reset", Message: "the answer was lost"} // never NotExecuted: it may have paid
}

// Lookup implements escrow.Lookuper: it says what became of a key.
func (l *ledger) Lookup(_ context.Context, c escrow.Call) escrow.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if minor := l.paid[c.OperationKey]; minor > 0 {
		return escrow.Answer{Class: escrow.Executed, Moved: minor, Reference: "entry 1"}
	}
	return escrow.Answer{Class: escrow.NotExecuted}
}

// An escrow service that can be asked saves a person the work: before a run of unknown outcome dies, it is asked.
func ExampleLookuper() {
	svc, stop := rig.Example(func(c *postadjudication.Config) { c.Executor = &ledger{paid: map[escrow.OperationKey]int64{}} })
	defer stop()
	ctx := context.Background()

	submitted, err := svc.Submit(ctx, rig.Release(1))
	if err != nil {
		panic(err)
	}
	svc.WaitSettled(1)
	chain, err := svc.Receipts(ctx, "acme", submitted.Case, 0, 100)
	for _, r := range chain {
		fmt.Println(r.Subtype)
	}
	fmt.Println(err)
	// Output:
	// submitted
	// attempt-started
	// attempt-succeeded
	// <nil>
}

// The calls of some targets are made by remote workers, which fetch them from a queue.
func ExampleRemoteQueue() {
	for _, target := range []string{escrow.DefaultTarget, escrow.RemotePrefix + "payouts", escrow.RemotePrefix + "Pay Outs"} {
		if !escrow.IsRemote(target) {
			fmt.Println(target, "is called by the service itself")
		} else if queue, valid := escrow.RemoteQueue(target); valid {
			fmt.Println(target, "is called by the workers of", queue)
		} else {
			fmt.Println(target, "is refused")
		}
	}
	// Output:
	// escrow is called by the service itself
	// queue:payouts is called by the workers of payouts
	// queue:Pay Outs is refused
}

package fakeescrow

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// Panicking is an executor that panics after a call whose word was panic, when the money
// has been moved. It counts the calls that go through it, so a new Panicking starts the
// words of a key again. All else is the wrapped executor's.
type Panicking struct {
	completeExecutor
	mu    sync.Mutex
	calls map[escrow.OperationKey]int // of keys that have the word
}

// completeExecutor is an executor with all optional interfaces: a wrapper that hid one would
// change the product's decisions.
type completeExecutor interface {
	escrow.Executor
	escrow.Lookuper
	escrow.InFlighter
	escrow.LookupLifetimer
	escrow.Asynchronous
}

// NewPanicking wraps an executor.
func NewPanicking(next completeExecutor) *Panicking {
	return &Panicking{completeExecutor: next, calls: map[escrow.OperationKey]int{}}
}

func (p *Panicking) Execute(ctx context.Context, c escrow.Call) escrow.Answer {
	a := p.completeExecutor.Execute(ctx, c)
	if p.due(c) {
		panic("fakeescrow: the executor panicked after its call, as payload.simulate asked")
	}
	return a
}

func (p *Panicking) due(c escrow.Call) bool {
	var r struct {
		Payload json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(c.Request, &r) != nil {
		return false
	}
	words, err := parseWords(r.Payload)
	if err != nil || !slices.Contains(words, wordPanic) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.calls[c.OperationKey]
	p.calls[c.OperationKey] = n + 1
	return wordAt(words, n) == wordPanic
}

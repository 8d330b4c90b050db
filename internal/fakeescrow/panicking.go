package fakeescrow

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/recourse-dev/recourse/postadjudication"
)

// Panicking wraps an executor: it panics after the call, when the money has been
// moved, if that call's word was panic. It counts the calls that go through it, so
// the words of a key start anew with a new wrapper. Lookups pass through.
func Panicking(next postadjudication.Executor) postadjudication.Executor {
	p := &panicking{Executor: next, calls: map[postadjudication.OperationKey]int{}}
	if l, ok := next.(postadjudication.Lookuper); ok {
		return panickingLookuper{p, l}
	}
	return p
}

type panicking struct {
	postadjudication.Executor
	mu    sync.Mutex
	calls map[postadjudication.OperationKey]int // of keys that have the word
}

type panickingLookuper struct {
	*panicking
	postadjudication.Lookuper
}

func (p *panicking) Execute(ctx context.Context, c postadjudication.Call) postadjudication.Answer {
	a := p.Executor.Execute(ctx, c)
	if p.due(c) {
		panic("fakeescrow: the executor panicked after its call, as payload.simulate asked")
	}
	return a
}

func (p *panicking) due(c postadjudication.Call) bool {
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

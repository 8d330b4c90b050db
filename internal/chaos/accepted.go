package main

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/postadjudication"
)

// accepted is every run that a submission was answered created for, every decision that
// was answered as accepted in whatever word, and every transaction that was ever named.
// It is safe for concurrent use.
type accepted struct {
	mu   sync.Mutex
	runs map[string]postadjudication.Adjudication // by run id
	seen map[transaction]bool                     // whether its executor lies
	more map[string]bool                          // runs of forks and of plain tasks

	decisions map[decision]postadjudication.Reply // what was answered as accepted, in which word
}

type transaction struct{ tenant, id string }

func newAccepted() *accepted {
	return &accepted{
		runs: map[string]postadjudication.Adjudication{}, seen: map[transaction]bool{}, more: map[string]bool{}, decisions: map[decision]postadjudication.Reply{},
	}
}

// name notes that a transaction is about to be handed over.
func (a *accepted) name(ad postadjudication.Adjudication) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := transaction{ad.Tenant, ad.TransactionReceiptID}
	a.seen[t] = a.seen[t] || bytes.Contains(ad.Payload, fmt.Appendf(nil, "%q", worker.Lies))
}

// note keeps what the submission was answered.
func (a *accepted) note(ad postadjudication.Adjudication, r worker.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Reply == postadjudication.Created {
		a.runs[r.Run] = ad
	}
	if r.Reply.Accepted() {
		a.decisions[decisionOf(ad)] = r.Reply
	}
}

// noteOther keeps what a fork, or a task that moves no money, was answered.
func (a *accepted) noteOther(r worker.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Reply == postadjudication.Created {
		a.more[r.Run] = true
	}
}

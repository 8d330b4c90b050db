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
	mu        sync.Mutex
	runs      map[string]postadjudication.Adjudication // by run id
	submitted map[transaction]bool                     // whether its executor lies
	otherRuns map[string]bool                          // runs of forks and of plain tasks

	decisions map[decision]postadjudication.Reply // what was answered as accepted, in which word
}

type transaction struct{ tenant, id string }

func newAccepted() *accepted {
	return &accepted{
		runs: map[string]postadjudication.Adjudication{}, submitted: map[transaction]bool{}, otherRuns: map[string]bool{}, decisions: map[decision]postadjudication.Reply{},
	}
}

// noteSubmitted notes that a transaction is about to be handed over.
func (a *accepted) noteSubmitted(ad postadjudication.Adjudication) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := transaction{ad.Tenant, ad.TransactionReceiptID}
	a.submitted[t] = a.submitted[t] || bytes.Contains(ad.Payload, fmt.Appendf(nil, "%q", worker.Misreports))
}

// noteReply keeps what the submission was answered.
func (a *accepted) noteReply(ad postadjudication.Adjudication, r worker.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Reply == postadjudication.Created {
		a.runs[r.Run] = ad
	}
	if r.Reply.Accepted() {
		a.decisions[decisionOf(ad)] = r.Reply
	}
}

// noteOtherRun keeps what a fork, or a task that moves no money, was answered.
func (a *accepted) noteOtherRun(r worker.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Reply == postadjudication.Created {
		a.otherRuns[r.Run] = true
	}
}

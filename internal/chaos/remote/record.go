package remote

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Enqueued is a job of the load, and what its caller was answered.
type Enqueued struct {
	ID         string
	Queue      string
	NotBefore  time.Time // zero: at once
	UniqueKey  string    // empty: it need not be unique
	Replaces   bool      // it is unique, and cancels another one in its way
	DeadLetter bool      // when it has failed for good
	Sent       time.Time // for the first time
	Received   time.Time // when the caller knew
	Accepted   bool
	Unknown    bool // no request was ever answered so that it is known
}

// Verbs of people.
const (
	Cancel   = "cancel"
	Activate = "activate"
	Retry    = "retry"
	Delete   = "delete"
	Purge    = "purge"
)

// Act is a request of a person or caller about a job, or for Purge about the dead letters of a queue.
type Act struct {
	Verb           string
	Job, Queue     string
	Sent, Received time.Time
	Status         int    // 0: no answer
	State          string // of the job, in the answer
	Unreadable     bool   // the process can't read the job
}

// done reports that the act had its effect, maybe that it may have had it.
func (a Act) done() bool  { return reply{status: a.Status}.ok() }
func (a Act) maybe() bool { return a.done() || reply{status: a.Status}.unknown() }

// Record is what the callers of jobs were answered. It is safe for concurrent use.
type Record struct {
	mu     sync.Mutex
	jobs   []Enqueued
	acts   []Act
	broken []string
}

func (r *Record) enqueued(e Enqueued) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs = append(r.jobs, e)
}

func (r *Record) act(a Act) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acts = append(r.acts, a)
}

// fail records an answer that is wrong by itself.
func (r *Record) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// someJob returns one of the newest accepted jobs; empty if there is none.
func (r *Record) someJob(draw func(int) int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 10 {
		if n := min(len(r.jobs), 60); n > 0 {
			if e := r.jobs[len(r.jobs)-1-draw(n)]; e.Accepted {
				return e.ID
			}
		}
	}
	return ""
}

func (r *Record) read() (jobs []Enqueued, acts []Act, broken []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs), slices.Clone(r.acts), slices.Clone(r.broken)
}

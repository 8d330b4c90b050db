package jobs

import (
	"context"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Queue is a queue of jobs.
type Queue = journal.JobQueue

// Counts are the jobs of a queue by state. Of the jobs that have ended, only the newest 100,000 are counted.
type Counts struct {
	Available int64 `json:"available"`
	Active    int64 `json:"active"`
	Scheduled int64 `json:"scheduled"`
	Retryable int64 `json:"retryable"`
	Pending   int64 `json:"pending"`
	Completed int64 `json:"completed"`
	Discarded int64 `json:"discarded"` // dead letters among them
	Cancelled int64 `json:"cancelled"`
}

// maxQueuePage bounds the queues of a page.
const maxQueuePage = 1000

// Queues are the queues of jobs.
type Queues struct{ Jobs }

// Queues returns the queues of the jobs. A queue is paused, and resumed, by the circuit breaker of the target that
// is escrow.RemotePrefix and its name: while that is open, Fetch gives no job of the queue.
func (j Jobs) Queues() Queues { return Queues{j} }

// List lists the queues of the tenant by name, and returns how many there are in all: those that jobs were
// enqueued to or that Add was called for, and the one that always exists.
func (q Queues) List(ctx context.Context, always string, offset, limit int) ([]Queue, int, error) {
	switch {
	case limit < 1 || limit > maxQueuePage:
		return nil, 0, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxQueuePage)}
	case offset < 0:
		return nil, 0, &refusal.FieldError{Field: "offset", Problem: "must not be negative"}
	case q.tenant == "":
		return nil, 0, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	return q.s.journal.Cases.JobQueues(ctx, q.tenant, always, offset, limit)
}

// Add makes a queue one of those that List lists. It may be repeated.
func (q Queues) Add(ctx context.Context, name string) error {
	key := queueName{q.tenant, name}
	if q.s.queues.Contains(key) {
		return nil
	}
	if err := q.s.journal.Cases.AddJobQueue(ctx, q.tenant, name, q.s.now()); err != nil {
		return err
	}
	q.s.queues.Add(key, struct{}{})
	return nil
}

// Count counts the jobs of a queue. A queue without jobs has none; it need not be listed.
//
// Errors: *refusal.FieldError for invalid input.
func (q Queues) Count(ctx context.Context, name string) (Counts, error) {
	if err := validate.Identifier("queue", name, 128); err != nil {
		return Counts{}, err
	}
	n, err := q.s.journal.Cases.JobCounts(ctx, q.tenant, name, q.s.now())
	return Counts{n["available"], n["active"], n["scheduled"], n["retryable"], n["pending"], n["completed"], n["discarded"], n["cancelled"]}, err
}

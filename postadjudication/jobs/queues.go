package jobs

import (
	"context"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Queue is a queue of jobs.
type Queue = journal.JobQueue

// maxQueuePage bounds the queues of a page.
const maxQueuePage = 1000

// Queues lists the queues of the tenant by name, and returns how many there are in all: those that jobs were
// enqueued to or that AddQueue was called for, and the one that always exists.
func (j Jobs) Queues(ctx context.Context, always string, offset, limit int) ([]Queue, int, error) {
	switch {
	case limit < 1 || limit > maxQueuePage:
		return nil, 0, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxQueuePage)}
	case offset < 0:
		return nil, 0, &refusal.FieldError{Field: "offset", Problem: "must not be negative"}
	case j.tenant == "":
		return nil, 0, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	return j.s.journal.Cases.JobQueues(ctx, j.tenant, always, offset, limit)
}

// AddQueue makes a queue one of those that Queues lists. It may be repeated.
func (j Jobs) AddQueue(ctx context.Context, name string) error {
	key := queueName{j.tenant, name}
	if j.s.queues.Contains(key) {
		return nil
	}
	if err := j.s.journal.Cases.AddJobQueue(ctx, j.tenant, name, j.s.now()); err != nil {
		return err
	}
	j.s.queues.Add(key, struct{}{})
	return nil
}

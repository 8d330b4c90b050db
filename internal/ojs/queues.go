package ojs

import (
	"errors"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// The status of a queue.
const (
	queueActive = "active"
	queuePaused = "paused"
)

func queueStatus(paused bool) string {
	if paused {
		return queuePaused
	}
	return queueActive
}

// pausedQueues returns the queues of the caller's tenant that are paused. A queue is paused by the circuit breaker of the
// target of its name.
func pausedQueues(q request) (func(name string) bool, error) {
	all, err := q.breakers.List(q.Context())
	paused := map[string]bool{}
	for _, b := range all {
		paused[b.Target] = paused[b.Target] || b.Since != nil
	}
	return func(name string) bool { return paused[escrow.RemotePrefix+name] }, err
}

// listQueues answers GET /queues. The default queue always exists.
func listQueues(q request) (answer, error) {
	page, err := spec.ParsePage(q.URL.Query())
	if err != nil {
		return answer{}, err
	}
	found, total, err := q.jobs.Queues().List(q.Context(), spec.DefaultQueue, page.Offset, page.Limit)
	if err != nil {
		return answer{}, err
	}
	paused, err := pausedQueues(q)
	if err != nil {
		return answer{}, err
	}
	type queue struct {
		Name      string `json:"name"`
		Status    string `json:"status"`
		Paused    bool   `json:"paused"`
		CreatedAt string `json:"created_at"`
	}
	out := struct {
		Queues     []queue    `json:"queues"`
		Pagination pagination `json:"pagination"`
	}{Queues: []queue{}}
	for _, f := range found {
		out.Queues = append(out.Queues, queue{f.Name, queueStatus(paused(f.Name)), paused(f.Name), spec.FormatTime(f.CreatedAt)})
	}
	out.Pagination = pagination{Total: int64(total), Limit: page.Limit, Offset: page.Offset, HasMore: page.Offset+len(found) < total}
	return answer{body: marshal(out)}, nil
}

// countedQueue is a queue with its counts.
type countedQueue struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
	jobs.Counts
}

// queueName reads the name of a queue in the path.
func queueName(q request) (string, error) {
	name := q.PathValue("queue")
	if !spec.ValidQueue(name) {
		return "", spec.NotFound("queue", "")
	}
	return name, spec.ParseNone(q.URL.Query())
}

// queueStats answers GET /queues/{queue}/stats. The documents and the clients have three forms of the answer: it has the
// members of all of them.
func queueStats(q request) (answer, error) {
	name, err := queueName(q)
	if err != nil {
		return answer{}, err
	}
	n, err := q.jobs.Queues().Count(q.Context(), name)
	if err != nil {
		return answer{}, err
	}
	paused, err := pausedQueues(q)
	if err != nil {
		return answer{}, err
	}
	counted := countedQueue{name, paused(name), n}
	return answer{body: marshal(struct {
		Queue countedQueue `json:"queue"`
		countedQueue
		Status     string      `json:"status"`
		Stats      jobs.Counts `json:"stats"`
		ComputedAt string      `json:"computed_at"`
	}{counted, counted, queueStatus(counted.Paused), counted.Counts, spec.FormatTime(q.jobs.Now())})}, nil
}

// pauseQueue answers POST /queues/{queue}/pause. Jobs that are held go on.
func pauseQueue(q request) (answer, error) {
	name, err := queueName(q)
	if err != nil {
		return answer{}, err
	}
	b, err := q.breakers.Open(q.Context(), escrow.RemotePrefix+name, reason("queue paused"))
	if err != nil {
		return answer{}, err
	}
	return pausing(name, true, "paused_at", spec.FormatTime(*b.Since)), nil
}

// resumeQueue answers POST /queues/{queue}/resume. A queue that is not paused stays so.
func resumeQueue(q request) (answer, error) {
	name, err := queueName(q)
	if err != nil {
		return answer{}, err
	}
	b, err := q.breakers.Release(q.Context(), escrow.RemotePrefix+name, reason("queue resumed"))
	if err != nil && !errors.Is(err, postadjudication.ErrBreakerNotOpen) {
		return answer{}, err
	}
	paused, err := pausedQueues(q)
	if err != nil {
		return answer{}, err
	}
	if paused(name) {
		return answer{}, spec.Conflict("the queue is paused for all tenants, by a circuit breaker")
	}
	at := b.At
	if at.IsZero() {
		at = q.jobs.Now()
	}
	return pausing(name, false, "resumed_at", spec.FormatTime(at)), nil
}

// pausing returns the answer to a change of a queue.
func pausing(name string, paused bool, changed, at string) answer {
	return answer{body: marshal(map[string]any{
		"queue": map[string]any{"name": name, "paused": paused, "status": queueStatus(paused)}, "status": queueStatus(paused), changed: at,
	})}
}

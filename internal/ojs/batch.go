package ojs

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// enqueueBatch answers POST /jobs/batch: all jobs are enqueued, or none.
func enqueueBatch(q request) (answer, error) {
	now := q.jobs.Now()
	batch, err := parsed(q, func(body []byte) ([]spec.Job, error) { return spec.ParseBatch(body, now) })
	if err != nil {
		return answer{}, err
	}
	asked := make([]jobs.Job, len(batch))
	for i, job := range batch {
		if job.Type == jobs.AdjudicationType {
			return answer{}, spec.Unsupported("type", "must not be that of adjudications, each of which is a request of its own").InBatch(i)
		}
		asked[i] = jobOf(job, now)
		if request := door.RequestID(q.Context()); request != "" {
			asked[i].Request = request + "/" + strconv.Itoa(i)
		}
		if asked[i].Unique != nil && job.Unique.OnConflict == spec.Ignore {
			asked[i].Unique.OnConflict = jobs.Ignore
		}
	}
	enqueued, err := q.jobs.EnqueueAll(q.Context(), asked)
	if enqueued, err = madeTogether(q, asked, enqueued, err); err != nil {
		return answer{}, batchError(q, err)
	}
	list := []byte{'['}
	for i, job := range enqueued {
		if i > 0 {
			list = append(list, ',')
		}
		body := spec.Render(job.Payload, statusOf(job, q.jobs.Now()))
		if job.ID != asked[i].ID {
			body = append(body[:len(body)-1], `,"deduplicated":true}`...)
		}
		list = append(list, body...)
	}
	return answer{status: http.StatusCreated, body: withJobs("jobs", append(list, ']'), struct {
		Count int `json:"count"`
	}{len(enqueued)})}, nil
}

// madeTogether returns the jobs of a batch that a handler of the same request made and that was interrupted.
func madeTogether(q request, asked []jobs.Job, enqueued []jobs.Status, err error) ([]jobs.Status, error) {
	var refused *jobs.BatchError
	if !errors.As(err, &refused) {
		return enqueued, err
	}
	made, readErr := madeBefore(q, refused.Err, asked[refused.Index].Request)
	if made == nil {
		return enqueued, errors.Join(readErr, err)
	}
	enqueued = make([]jobs.Status, len(asked))
	for i := range asked {
		if enqueued[i], readErr = q.jobs.Find(q.Context(), asked[i].ID); readErr != nil {
			return nil, readErr
		}
	}
	return enqueued, nil
}

// batchError returns the refusal of a batch, which names the job.
func batchError(q request, err error) error {
	var batch *jobs.BatchError
	var field *refusal.FieldError
	var own *spec.Error
	switch {
	case errors.Is(err, refusal.ErrBatchTooLong): // sent again, it would take as long
		own = spec.Unavailable("the batch takes longer than a transaction may take, and nothing was enqueued: send the jobs in smaller batches")
		own.Retryable = false
		return own
	case !errors.As(err, &batch):
		return err
	}
	if err = enqueueError(batch.Err, q.jobs.Now()); errors.As(err, &field) {
		err = spec.Invalid(inEnvelope(field.Field), "%s", field.Problem)
	}
	if errors.As(err, &own) {
		return own.InBatch(batch.Index)
	}
	return err
}

package ojs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// enqueue answers POST /jobs.
func (s *Server) enqueue(q request) (answer, error) {
	if len(q.body) == 0 {
		return answer{}, spec.InvalidPayload("is empty")
	}
	now := q.jobs.Now()
	job, err := parsed(q, func(body []byte) (spec.Job, error) { return spec.ParseJob(body, now) })
	if err != nil {
		return answer{}, err
	}
	if job.Type == jobs.AdjudicationType {
		return s.submit(q, job)
	}
	asked := jobOf(job, now)
	asked.Request = door.RequestID(q.Context())
	enqueued, err := q.jobs.Enqueue(q.Context(), asked)
	if made, readErr := madeBefore(q, err, asked.Request); readErr != nil {
		return answer{}, readErr
	} else if made != nil {
		enqueued, err = *made, nil
	}
	var duplicate *jobs.DuplicateError
	switch {
	case errors.As(err, &duplicate) && duplicate.Existing.ID != "" && duplicate.Unique && job.Unique.OnConflict == spec.Ignore:
		return s.existing(q, duplicate.Existing.ID)
	case err != nil:
		return answer{}, enqueueError(err, now)
	}
	return answer{http.StatusCreated, renderJob(enqueued, q.jobs.Now()), root + "/jobs/" + enqueued.ID, enqueued.Case}, nil
}

// madeBefore returns the job that refuses an equal one, if a handler of the same request made it and was interrupted.
func madeBefore(q request, err error, asked string) (*jobs.Status, error) {
	var duplicate *jobs.DuplicateError
	if !errors.As(err, &duplicate) || asked == "" {
		return nil, nil
	}
	made, err := q.jobs.MadeBy(q.Context(), duplicate.Existing, asked)
	if err != nil || !made {
		return nil, err
	}
	return &duplicate.Existing, nil
}

// enqueueError returns the refusal of a job that another one refuses. Other errors are returned as they are.
func enqueueError(err error, now time.Time) error {
	var duplicate *jobs.DuplicateError
	switch {
	case !errors.As(err, &duplicate):
		return err
	case duplicate.Existing.ID == "": // the caller may not read it
		return spec.Duplicate("", "", "a job that another principal enqueued has the id, or is unique in the same way")
	case duplicate.Unique:
		return spec.Duplicate(duplicate.Existing.ID, stateOf(duplicate.Existing, now), "another job is unique in the same way")
	}
	return spec.Duplicate(duplicate.Existing.ID, stateOf(duplicate.Existing, now), "the id is taken")
}

// existing returns the job that stands in the way of one that was not enqueued.
func (s *Server) existing(q request, id string) (answer, error) {
	found, err := q.jobs.Find(q.Context(), id)
	if err != nil {
		return answer{}, err
	}
	body := renderJob(found, q.jobs.Now())
	return answer{body: append(body[:len(body)-1], `,"deduplicated":true}`...), location: root + "/jobs/" + id, caseID: found.Case}, nil
}

// jobOf returns a job to enqueue.
func jobOf(job spec.Job, now time.Time) jobs.Job {
	out := jobs.Job{
		ID: job.ID, Type: job.Type, Queue: job.Queue, Priority: job.Priority, NotBefore: job.NotBefore, ExpiresAt: job.ExpiresAt, Pending: job.Pending,
		Policy: job.Policy, Payload: job.Stored,
	}
	if u := job.Unique; u != nil {
		out.Unique = &jobs.Unique{Fingerprint: u.Fingerprint, OnConflict: jobs.Reject, KeepSchedule: u.OnConflict == spec.ReplaceExceptSchedule}
		if u.Period > 0 {
			out.Unique.Until = now.Add(u.Period)
		}
		if u.OnConflict == spec.Replace || u.OnConflict == spec.ReplaceExceptSchedule {
			out.Unique.OnConflict = jobs.Replace
		}
		out.Unique.Conflicts = func(other jobs.Status) bool { return slices.Contains(u.States, stateOf(other, now)) }
	}
	return out
}

// find returns a job that is named in the path. An id that is not valid is answered with not found.
func find(ctx context.Context, of jobs.Jobs, id, kind string) (jobs.Status, error) {
	if !spec.ValidID(id) {
		return jobs.Status{}, spec.NotFound(kind, id)
	}
	found, err := of.Find(ctx, id)
	return found, notFound(err, kind, id)
}

// notFound names what is not found.
func notFound(err error, kind, id string) error {
	if errors.Is(err, refusal.ErrNotFound) {
		return spec.NotFound(kind, id)
	}
	return err
}

// getJob answers GET /jobs/{id}.
func getJob(q request) (answer, error) {
	found, err := find(q.Context(), q.jobs, q.PathValue("id"), spec.KindJob)
	if err != nil {
		return answer{}, err
	}
	return answer{body: renderJob(found, q.jobs.Now()), caseID: found.Case}, nil
}

// cancelJob answers DELETE /jobs/{id}.
func cancelJob(q request) (answer, error) {
	id := q.PathValue("id")
	before, err := find(q.Context(), q.jobs, id, spec.KindJob)
	if err != nil {
		return answer{}, err
	}
	_, err = q.jobs.Cancel(q.Context(), id, reason("job cancelled"))
	if err != nil {
		return answer{}, changeError(q, err, spec.RequestCancel, id)
	}
	after, err := q.jobs.Find(q.Context(), id)
	if err != nil {
		return answer{}, notFound(err, spec.KindJob, id)
	}
	now := q.jobs.Now()
	status := statusOf(after, now)
	status.PreviousState = stateOf(before, now)
	return answer{body: wrapJob(after, status), caseID: after.Case}, nil
}

// activateJob answers POST /jobs/{id}/activate.
func activateJob(q request) (answer, error) {
	id := q.PathValue("id")
	if !spec.ValidID(id) {
		return answer{}, spec.NotFound(spec.KindJob, id)
	}
	at := q.jobs.Now()
	if _, err := q.jobs.Activate(q.Context(), id); err != nil {
		return answer{}, changeError(q, err, spec.RequestActivate, id)
	}
	after, err := q.jobs.Find(q.Context(), id)
	if err != nil {
		return answer{}, notFound(err, spec.KindJob, id)
	}
	status := statusOf(after, q.jobs.Now())
	status.ActivatedAt, status.PreviousState = at, spec.Pending
	return answer{body: wrapJob(after, status), caseID: after.Case}, nil
}

// changeError returns the refusal of a request that the state of a job forbids.
func changeError(q request, err error, asked spec.Request, id string) error {
	var conflict *jobs.ConflictError
	if !errors.As(err, &conflict) {
		return adjudicationError(notFound(err, spec.KindJob, id))
	}
	state := stateOf(conflict.Status, q.jobs.Now())
	if conflict.Status.CancelRequested && asked == spec.RequestCancel {
		return spec.Conflict(conflict.Reason).With("job_id", id).With("current_state", string(state)).With("cancel_asked", true)
	}
	if refused := spec.CheckRequest(asked, id, state, isLetter(conflict.Status)); refused != nil {
		return refused
	}
	return spec.Conflict(conflict.Reason).With("job_id", id).With("current_state", string(state))
}

// reason returns the reason of a change for its receipt.
func reason(what string) string { return "Open Job Spec: " + what }

// pagination says which part of a list an answer has.
type pagination struct {
	Total      int64  `json:"total"`
	HasMore    bool   `json:"has_more"`
	Limit      int    `json:"limit"`
	Offset     int    `json:"offset"`
	NextCursor string `json:"next_cursor,omitempty"`
}

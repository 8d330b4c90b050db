package worker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// JobQueue is the queue of the jobs of workers.
const JobQueue = "chaos"

// job does a command about the job named by RetryKey, in the name of the remote worker Run.
func (p *process) job(ctx context.Context, c Command, r *Reply) (err error) {
	all := p.service.As(tenant, actor).Jobs
	answer := jobs.Answer{ID: c.RetryKey, Worker: c.Run, Attempt: c.Attempts}
	switch c.Do {
	case EnqueueJob, PendingJob, UniqueJob:
		err = p.enqueueJob(ctx, all, c)
	case ActivateJob:
		_, err = all.Activate(ctx, c.RetryKey)
	case FetchJob:
		var got []jobs.Fetched
		fetch := jobs.Fetch{Queues: []string{remote.PayQueue, JobQueue}, Count: 1, Worker: c.Run, Visibility: c.Offset}
		if c.Key != "" {
			fetch.Key = sha256.Sum256([]byte(c.Key))
		}
		if got, err = all.Fetch(ctx, fetch); len(got) > 0 {
			r.Run, r.Running = got[0].ID, got[0].Attempt
		}
	case BeatJob:
		_, err = all.Heartbeat(ctx, c.Run, []string{c.RetryKey}, 0)
	case AckJob:
		_, err = all.Ack(ctx, answer, json.RawMessage(`{"by":"`+c.Run+`"}`))
	case PaidJob:
		_, err = all.Ack(ctx, answer, fmt.Appendf(nil, `{"moved":{"minor":%d,"currency":%q},"reference":"chaos"}`, c.Adjudication.Amount.Minor, c.Adjudication.Amount.Currency))
	case NackJob:
		_, err = all.Nack(ctx, answer, background.Failure{Type: "chaos", Message: "refused"}, true, background.EndByPolicy)
	case DieJob:
		_, err = all.Nack(ctx, answer, background.Failure{Type: "chaos", Message: "refused"}, true, background.EndDeadLettered)
	case RetryJob:
		_, err = all.DeadLetters().Retry(ctx, c.RetryKey, jobs.Retry{Reason: reason})
	case CancelJob:
		_, err = all.Cancel(ctx, c.RetryKey, reason)
	}
	var conflict *jobs.ConflictError
	var duplicate *jobs.DuplicateError
	switch {
	case errors.As(err, &conflict):
		r.State, err = string(conflict.Status.State), nil
	case errors.As(err, &duplicate), errors.Is(err, refusal.ErrNotFound):
		err = nil // it was enqueued, or never was
	case err == nil:
		r.Reply = postadjudication.Created
	}
	return err
}

func (p *process) enqueueJob(ctx context.Context, all jobs.Jobs, c Command) error {
	j := jobs.Job{
		ID: c.RetryKey, Type: "chaos.work", Queue: JobQueue, Payload: fmt.Appendf(nil, `{"args":[%q]}`, c.RetryKey), Pending: c.Do == PendingJob,
		Policy: retrypolicy.Policy{MaxRetryAttempts: max(1, c.Attempts), BaseDelay: time.Millisecond, OnExhaustion: retrypolicy.Discard},
	}
	if c.Do == UniqueJob {
		j.Unique = &jobs.Unique{Fingerprint: sha256.Sum256(j.Payload), Conflicts: func(s jobs.Status) bool { return s.State.Live() }, OnConflict: jobs.Reject}
	}
	_, err := all.Enqueue(ctx, j)
	return err
}

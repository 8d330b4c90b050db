package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// MaxFetch bounds the jobs of one fetch, MaxQueues its queues, MaxHeartbeat the jobs of one
// heartbeat.
const (
	MaxFetch     = 100
	MaxQueues    = 50
	MaxHeartbeat = 1000
)

// Fetch is what a worker asks for.
type Fetch struct {
	Queues     []string // in this order
	Count      int
	Worker     string        // may be empty
	Visibility time.Duration // of the leases; 0: as the jobs say, or casework.DefaultLease; more than casework.MaxLease: that
	// Key identifies the fetch, so that its answer can be asked for again: the same jobs are returned
	// while the worker holds any of them, but no adjudication whose operation key nobody recognises, or may
	// have forgotten by now (Config.Remote). Zero: none.
	Key lease.FetchKey
}

// Fetched is a job that a worker holds until its lease ends.
type Fetched struct {
	Status
	Visibility time.Duration // of the lease
}

// Fetch gives due jobs to a worker: the leases are committed when it returns. It does not wait, and
// returns none if no job is due. After an error some jobs may be leased although no worker got them;
// these leases expire.
//
// Errors: *refusal.FieldError for invalid input.
func (j Jobs) Fetch(ctx context.Context, f Fetch) ([]Fetched, error) {
	if err := errors.Join(f.validate(), validate.Identifier("actor", j.actor, 128)); err != nil {
		return nil, err
	}
	claimed, err := j.s.applier.Fetcher.Fetch(ctx, lease.Want{
		Tenant: j.tenant, Queues: f.Queues, Count: f.Count, Worker: f.Worker, Actor: j.actor, Length: f.Visibility, Key: f.Key,
	})
	out := make([]Fetched, len(claimed))
	for i, c := range claimed {
		if isAdjudication(&c.Run) {
			out[i] = fetchedAdjudication(c)
			continue
		}
		j.s.runs.Add(jobName{j.tenant, c.Run.RetryKey}, c.Run.ID)
		out[i] = fetched(c)
	}
	return out, err
}

func fetched(c background.Claimed) Fetched {
	r := c.Run
	out := Fetched{Visibility: c.Lease.Length, Status: statusOf(r)}
	out.CreatedAt, out.EnqueuedAt, out.StartedAt, out.Retried = c.OpenedAt, c.SubmittedAt, c.Lease.At, !r.Parent.IsZero()
	if r.BudgetSpent > 0 && (r.Failure == nil || r.Failure.Type != string(lease.Expired)) {
		out.RetryDelay = r.Policy.JitteredDelay(r.ID, r.BudgetSpent)
	}
	return out
}

func (f Fetch) validate() error {
	var all []error
	wrong := func(is bool, field, problem string, args ...any) {
		if is {
			all = append(all, &refusal.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
		}
	}
	wrong(len(f.Queues) == 0 || len(f.Queues) > MaxQueues, "queues", "must be 1 to %d queues", MaxQueues)
	for _, q := range f.Queues {
		all = append(all, validate.Identifier("queues", q, 128))
	}
	wrong(f.Count < 1 || f.Count > MaxFetch, "count", "must be between 1 and %d", MaxFetch)
	all = append(all, checkVisibility(f.Visibility), checkWorker(f.Worker))
	return errors.Join(all...)
}

func checkVisibility(of time.Duration) error {
	if of < 0 {
		return &refusal.FieldError{Field: "visibility_timeout_ms", Problem: "must not be negative"}
	}
	return nil
}

func checkWorker(name string) error {
	if name == "" {
		return nil
	}
	return errors.Join(validate.Identifier("worker_id", name, 128), validate.NoSecret("worker_id", name))
}

// Answer is what a worker says of a job that it holds.
type Answer struct {
	ID      string
	Worker  string // empty: any worker of the actor that fetched it
	Attempt int    // as fetched; 0: any. An adjudication needs it where several can be meant
}

// Ack records that a job was done, with what the worker returns, as JSON. The job has succeeded when Ack returns. Only the
// actor that fetched it answers. Of an adjudication the output has to say what was paid: {"moved":{"minor","currency"},"reference"};
// anything else changes nothing. Status.Output is the output as it is kept: with "[redacted]" in place of each secret, and
// {"too_long":BYTES} for one of over background.MaxOutput bytes.
//
// Errors: refusal.ErrNotFound; *ConflictError if the job is not held, or is held by another worker of the actor;
// *refusal.RefusedError with refusal.GateNotTheHolder, of which the case has a receipt, if another actor fetched it;
// *refusal.FieldError. After any other error it is unknown whether the answer is recorded. What is
// answered for an adjudication after its lease is recorded as late, and is a *ConflictError all the same.
func (j Jobs) Ack(ctx context.Context, a Answer, output json.RawMessage) (Status, error) {
	if len(output) > 0 && !json.Valid(output) {
		return Status{}, &refusal.FieldError{Field: "result", Problem: "must be JSON"}
	}
	done, err := j.answer(ctx, a, "ack", func(f casework.Fetcher, adjudication *background.Run, held lease.Held) (background.Ended, error) {
		res := background.Result{Class: background.Executed, Output: output}
		if adjudication != nil {
			var err error
			if res, err = paymentOf(ctx, j.s.applier.Settlements.References, adjudication, output); err != nil {
				return background.Ended{}, err
			}
		}
		return f.Finish(ctx, held, res)
	})
	done.Output = casework.KeptOutput(output)
	return done, err
}

// Nack records that an attempt failed. What becomes of the job is decided by its policy, unless end
// orders otherwise. The outcome for an adjudication is unknown, unless why states that it was not
// executed: by a code that begins with x_not_executed, or by outcome_class not_executed in its details.
// Errors are those of Ack.
func (j Jobs) Nack(ctx context.Context, a Answer, why background.Failure, retryable bool, end background.EndOrder) (Status, error) {
	return j.answer(ctx, a, "nack", func(f casework.Fetcher, adjudication *background.Run, held lease.Held) (background.Ended, error) {
		if adjudication != nil {
			return f.Finish(ctx, held, failureOf(why, retryable, end))
		}
		return f.Finish(ctx, held, background.Result{Class: background.NotExecuted, Retry: retryable, Failure: &why, End: end})
	})
}

// HandBack returns a job that the worker will not do: it can be fetched at once, and the attempt does
// not count. An adjudication counts as handed back only if why states that it was not executed, as with
// Nack. Errors are those of Ack.
func (j Jobs) HandBack(ctx context.Context, a Answer, why background.Failure) (Status, error) {
	return j.answer(ctx, a, "hand-back", func(f casework.Fetcher, adjudication *background.Run, held lease.Held) (background.Ended, error) {
		if adjudication != nil && !statesNotExecuted(why) {
			return f.Finish(ctx, held, failureOf(why, true, background.EndByPolicy))
		}
		if adjudication != nil {
			return f.HandBack(ctx, held, &why) // by which it was not executed
		}
		return f.HandBack(ctx, held, nil)
	})
}

// endAttempt ends an attempt. The run is that of an adjudication; nil for any other job.
type endAttempt func(f casework.Fetcher, adjudication *background.Run, held lease.Held) (background.Ended, error)

// answer ends the lease of a job, as a worker asks for. The run of the job is cached: after a retry it is another one.
func (j Jobs) answer(ctx context.Context, a Answer, asked string, end endAttempt) (Status, error) {
	if err := checkWorker(a.Worker); err != nil {
		return Status{}, err
	}
	f := j.s.applier.Fetcher
	run, cached := j.s.runs.Get(jobName{j.tenant, a.ID})
	if !cached {
		switch snap, err := j.adjudications().find(ctx, a.ID); {
		case err == nil:
			return j.adjudications().answer(ctx, snap, a, asked, end)
		case !errors.Is(err, refusal.ErrNotFound):
			return Status{}, err
		}
	}
	for {
		if !cached {
			snap, err := j.snapshot(ctx, a.ID)
			if err != nil {
				return Status{}, err
			}
			run = snap.Run.ID
		}
		after, err := end(f, nil, lease.Held{Run: run, Tenant: j.tenant, Worker: a.Worker, Attempt: a.Attempt, Actor: j.actor})
		switch {
		case err == nil:
			j.s.runs.Remove(jobName{j.tenant, a.ID})
			return ended(after), nil
		case cached:
			cached = false
			j.s.runs.Remove(jobName{j.tenant, a.ID})
			if errors.Is(err, background.ErrNotFound) || errors.Is(err, background.ErrConflict) {
				continue
			}
			return Status{}, j.answerError(ctx, a.ID, asked, err)
		default:
			return Status{}, j.answerError(ctx, a.ID, asked, err)
		}
	}
}

// ended returns the status of a job after an attempt of it ended.
func ended(after background.Ended) Status {
	out := statusOf(after.Run)
	if !out.State.Live() {
		out.EndedAt, out.EndedByAttempt = after.At, true
	} else if out.DueAt.After(after.At) {
		out.RetryDelay = out.DueAt.Sub(after.At)
	}
	return out
}

// answerError returns the error of an answer that came too late, or from another worker or principal than the
// holder.
func (j Jobs) answerError(ctx context.Context, id, asked string, cause error) error {
	reason := ""
	switch {
	case errors.Is(cause, background.ErrNotHolder):
		reason = "another worker holds it, or another attempt of it runs"
	case errors.Is(cause, background.ErrNotFound), errors.Is(cause, background.ErrConflict):
		reason = "no worker holds it"
	default:
		return cause
	}
	snap, err := j.snapshot(ctx, id)
	if err != nil {
		return err
	}
	if err := refuseOthers(ctx, j, asked, snap.Run.ID); err != nil {
		return err
	}
	return &ConflictError{Status: statusOf(snap.Run), Reason: reason}
}

// Heartbeat extends the leases of jobs that a worker holds by their length from now on, or by another
// one unless it is 0, casework.MaxLease at most. It returns the ids of those that it extended; their leases are
// committed. A job that the worker does not hold is left out. Of one that another actor fetched, the case gets a
// receipt.
//
// Errors: *refusal.FieldError for invalid input; *refusal.RefusedError with refusal.GateNotTheHolder if the heartbeat
// extends nothing, and another actor fetched one of the jobs. After any other error some leases may be extended: repeat
// the heartbeat.
func (j Jobs) Heartbeat(ctx context.Context, worker string, ids []string, visibility time.Duration) ([]string, error) {
	if err := errors.Join(checkWorker(worker), checkVisibility(visibility)); err != nil {
		return nil, err
	}
	if len(ids) > MaxHeartbeat {
		return nil, &refusal.FieldError{Field: "active_jobs", Problem: fmt.Sprintf("must be at most %d jobs", MaxHeartbeat)}
	}
	visibility = min(visibility, casework.MaxLease)
	extended, err := j.extend(ctx, worker, ids, visibility, j.s.cachedRuns(j.tenant, ids))
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(extended, id) })
	if len(left) == 0 {
		return extended, nil
	}
	runs, err := j.runsOf(ctx, left) // not given by this process, or retried since
	if err != nil {
		return nil, err
	}
	more, err := j.extend(ctx, worker, left, visibility, runs)
	if extended = append(extended, more...); err != nil {
		return extended, err
	}
	maps.DeleteFunc(runs, func(id string, _ background.RunID) bool { return slices.Contains(more, id) })
	err = refuseOthers(ctx, j, "heartbeat", slices.Collect(maps.Values(runs))...)
	if len(extended) > 0 && errors.As(err, new(*refusal.RefusedError)) {
		err = nil // its own leases are extended
	}
	return extended, err
}

// extend extends the leases of jobs that are held as their given runs.
func (j Jobs) extend(ctx context.Context, worker string, ids []string, visibility time.Duration, runs map[string]background.RunID) ([]string, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	names := make(map[background.RunID]string, len(runs))
	held := make([]lease.Held, 0, len(runs))
	for _, id := range ids {
		run, known := runs[id]
		if !known || names[run] != "" {
			continue
		}
		names[run] = id
		held = append(held, lease.Held{Run: run, Tenant: j.tenant, Worker: worker, Actor: j.actor})
	}
	extended, err := j.s.applier.Fetcher.Extend(ctx, held, visibility)
	out := make([]string, len(extended))
	for i, l := range extended {
		out[i] = names[l.Run]
	}
	return out, err
}

// cachedRuns returns the runs in which this process gave jobs to workers, by id. Another process may
// have given a later one since.
func (s *Store) cachedRuns(tenant string, ids []string) map[string]background.RunID {
	out := make(map[string]background.RunID, len(ids))
	for _, id := range ids {
		if run, cached := s.runs.Get(jobName{tenant, id}); cached {
			out[id] = run
		}
	}
	return out
}

// runsOf reads the newest runs of jobs, by id. Jobs that do not exist are left out.
func (j Jobs) runsOf(ctx context.Context, ids []string) (map[string]background.RunID, error) {
	subjects := make([]string, len(ids))
	for i, id := range ids {
		subjects[i] = subject(id)
	}
	found, err := j.s.journal.Cases.ActiveRuns(ctx, j.tenant, journal.KindPlain, subjects)
	if err != nil {
		return nil, err
	}
	out := make(map[string]background.RunID, len(ids))
	for i, id := range ids {
		if run, isJob := found[subjects[i]]; isJob {
			out[id] = run
		} else if run, err := receipts.ParseRunID(id); err == nil { // an adjudication, if it is leased
			out[id] = run
		}
	}
	return out, nil
}

package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Enqueue adds a job. It is committed when Enqueue returns, and can be fetched from its time on.
//
// Errors: *refusal.FieldError for invalid input (joined, one for each field); *DuplicateError if the
// tenant has a job with the id, or one that stands in the way of a unique job: then nothing has changed, but
// Queues may list the queue of the refused job. After any other error
// it is unknown whether the job was added: enqueue it again with the same id.
//
// The *DuplicateError says nothing of a job that the caller may not read: its Existing is zero.
func (j Jobs) Enqueue(ctx context.Context, job Job) (Status, error) {
	if err := prepare(ctx, j, &job); err != nil {
		return Status{}, readable(ctx, j, err)
	}
	if job.Unique != nil {
		out, err := enqueueTogether(ctx, j, []Job{job})
		if refused := (*BatchError)(nil); errors.As(err, &refused) {
			return Status{}, readable(ctx, j, refused.Err)
		} else if err != nil {
			return Status{}, err
		}
		return out[0], nil
	}
	snap, err := j.s.journal.Submit(ctx, j.submission(&job))
	if err != nil {
		return Status{}, readable(ctx, j, duplicate(snap, err, false))
	}
	return statusOf(snap.Run), nil
}

// EnqueueAll adds jobs in one commit: all of them, or none. It gives each that has no id one. Where a job has the
// OnConflict Ignore and another one stands in its way, that one is returned in its place.
//
// Errors: *BatchError with an error of Enqueue, or refusal.ErrBatchTooLong: nothing has changed. After any other error it is unknown whether the
// jobs were added: enqueue them again with the same ids.
func (j Jobs) EnqueueAll(ctx context.Context, all []Job) ([]Status, error) {
	for i := range all {
		if err := prepare(ctx, j, &all[i]); err != nil {
			return nil, &BatchError{i, readable(ctx, j, err)}
		}
	}
	out, err := enqueueTogether(ctx, j, all)
	if refused := (*BatchError)(nil); errors.As(err, &refused) {
		refused.Err = readable(ctx, j, refused.Err)
	}
	return out, err
}

// BatchError means that a job of EnqueueAll is refused, and so all of them.
type BatchError struct {
	Index int // of the job
	Err   error
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("jobs: job %d of the batch: %s", e.Index, e.Err)
}

// Unwrap returns the error of the job.
func (e *BatchError) Unwrap() error { return e.Err }

// readable returns an error of Enqueue without what the caller may not read.
func readable(ctx context.Context, j Jobs, err error) error {
	var duplicate *DuplicateError
	if !errors.As(err, &duplicate) {
		return err
	}
	may, readErr := casework.Permitted(ctx, j.s.journal, j.tenant, []background.RunID{duplicate.Existing.Run})
	if readErr != nil {
		return readErr
	}
	if !may(duplicate.Existing.Run) {
		err = &DuplicateError{Unique: duplicate.Unique}
	}
	return err
}

// prepare checks a job, and gives it its id and its queue.
func prepare(ctx context.Context, j Jobs, job *Job) error {
	if err := j.problems(ctx, *job); err != nil {
		return err
	}
	if err := checkForm(ctx, j, job); err != nil {
		return err
	}
	if err := j.s.applier.Engine.MeasureClock(ctx); err != nil {
		return err
	}
	switch {
	case job.ID == "" && job.Request != "":
		job.ID = idOf(job.Request)
	case job.ID == "":
		job.ID = uuid.Must(uuid.NewV7()).String()
	default: // adjudications are jobs, too, by the id of their run
		switch taken, err := j.adjudications().takes(job.ID); {
		case err == nil:
			return &DuplicateError{Existing: statusOf(taken.Run)}
		case !errors.Is(err, refusal.ErrNotFound):
			return err
		}
	}
	// Before the job is committed, so that its queue is listed whatever happens to this process.
	return j.Queues().Add(ctx, job.Queue)
}

// checkForm refuses ids that can be taken for another one, but those of a tenant or a job that exists: earlier versions
// accepted them.
func checkForm(ctx context.Context, j Jobs, job *Job) error {
	tenant, id := validate.IDForm("tenant", j.tenant), validate.IDForm("id", job.ID)
	if tenant == nil && id == nil {
		return nil
	}
	knownTenant, knownJob, _, err := j.s.journal.Cases.KnownIDs(ctx, journal.SubmittedIDs{Tenant: j.tenant, Kind: journal.KindPlain, Subject: subject(job.ID)})
	switch {
	case err != nil:
		return err
	case knownTenant && knownJob:
		return nil
	case knownTenant:
		return id
	}
	return errors.Join(tenant, id)
}

// idOf returns the id of the job that a request makes: the same each time that the request is carried out.
func idOf(request string) string {
	sum := sha256.Sum256([]byte("recourse job 1\n" + request))
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8: made by a rule of our own
	return id.String()
}

// errDuplicate refuses a job whose id is taken, or that conflicts with another one by its Unique.
var errDuplicate = errors.New("jobs: another job has the same id, or a live one the same fingerprint")

// duplicate returns the error of a submission, with the job that exists.
func duplicate(seen *journal.Snapshot, err error, unique bool) error {
	if errors.Is(err, errDuplicate) {
		return &DuplicateError{Existing: statusOf(seen.Run), Unique: unique}
	}
	return err
}

// submission returns the submission of a job, whose case is new. The job is read when it is opened.
func (j Jobs) submission(job *Job) journal.Submission {
	id := background.RunID(casework.NewIDAt(j.s.now()))
	return journal.Submission{
		Tenant: j.tenant, Kind: journal.KindPlain, Subject: subject(job.ID), Run: id,
		Open: func() (journal.Change, error) {
			now := j.s.now() // a unique job begins after those that it replaces have ended
			run, submitted := job.run(j.tenant, id, now)
			newCase := journal.Case{ID: run.Case, Tenant: j.tenant, Kind: journal.KindPlain, Subject: subject(job.ID), Content: sha256.Sum256(job.Payload), ActiveRun: id}
			return journal.Change{Transition: run.LastTransition, After: &journal.Snapshot{Case: newCase, Run: run},
				Drafts: []receipts.Draft{{Run: id, Subtype: receipts.Submitted, Actor: j.actor, At: now, Payload: submitted}}}, nil
		},
		Decide: func(*journal.Snapshot) (journal.Change, error) { return journal.Change{}, errDuplicate },
	}
}

// run returns the first run of a job, and what its receipt says.
func (job *Job) run(tenant string, id background.RunID, now time.Time) (background.Run, receipts.Payload) {
	run := background.Run{
		ID: id, Case: background.CaseID(casework.NewIDAt(now)), Tenant: tenant, Family: Family, RetryKey: job.ID, Queue: job.Queue, Target: job.Type,
		Policy: job.Policy.Normalize(), Payload: job.Payload, State: background.Pending, LastTransition: casework.NewID(), DueAt: now, NotificationNumber: 1,
		Remote: true, Priority: job.Priority, ExpiresAt: wholeMicroseconds(job.ExpiresAt),
	}
	submitted := receipts.Payload{
		Family: Family, RetryKey: job.ID, Queue: job.Queue, Target: job.Type, Policy: run.Policy.Encode(), RequestDigest: binding.RequestDigest(job.Payload),
		Remote: true, Priority: job.Priority, Pending: job.Pending, ExpiresAt: run.ExpiresAt, RequestID: job.Request,
	}
	if job.Unique != nil {
		submitted.UniqueBy, submitted.UniqueUntil = hex.EncodeToString(job.Unique.Fingerprint[:]), wholeMicroseconds(job.Unique.Until)
	}
	switch notBefore := wholeMicroseconds(job.NotBefore); {
	case job.Pending:
		run.DueAt = background.NeverDue
	case notBefore.After(now):
		run.DueAt, submitted.NextRetryAt = notBefore, notBefore
	}
	return run, submitted
}

// wholeMicroseconds rounds up to the microsecond, the finest time that is stored: nothing starts
// before the time that was given.
func wholeMicroseconds(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Microsecond - time.Nanosecond).UTC().Truncate(time.Microsecond)
}

// Unique is what makes a job unique, and what happens if another one conflicts with it.
type Unique struct {
	Fingerprint [32]byte
	Until       time.Time           // until when the job holds its fingerprint; zero: without end
	Conflicts   func(s Status) bool // whether a job with the same fingerprint conflicts with this one
	OnConflict  OnConflict
	// KeepSchedule: with Replace, the new job is due when the one it replaces was, the oldest of several.
	KeepSchedule bool
}

// OnConflict is what happens to a unique job while another stands in its way.
type OnConflict string

// What happens. Replace cancels the jobs in the way, unless a worker holds one of them, or the caller may not replace one:
// see postadjudication.Caller. Ignore adds no job, and is for EnqueueAll.
const (
	Reject  OnConflict = "reject"
	Replace OnConflict = "replace"
	Ignore  OnConflict = "ignore"
)

// enqueueTogether adds jobs that were prepared in one commit.
func enqueueTogether(ctx context.Context, j Jobs, all []Job) ([]Status, error) {
	holders := make([]*journal.Snapshot, len(all)) // which stand in the way of a job
	replaced := map[background.RunID]bool{}
	given := make([]journal.UniqueSubmission, len(all))
	for i := range all {
		given[i] = journal.UniqueSubmission{Submission: j.submission(&all[i]), At: j.s.now()}
		if u := all[i].Unique; u != nil {
			given[i].Fingerprint, given[i].Until = u.Fingerprint, wholeMicroseconds(u.Until)
			given[i].Resolve = func(found []journal.Snapshot) (changes []journal.Change, leaveOut bool, err error) {
				mayReplace := func(holder background.RunID) error { return mayMeet(ctx, j, casework.Replaceable, holder, given[:i]) }
				changes, holders[i], err = resolve(j, &all[i], given[i].Run, found, mayReplace)
				for k := range changes {
					replaced[changes[k].After.Run.ID] = true
				}
				if u.OnConflict == Ignore && holders[i] != nil {
					return nil, true, mayMeet(ctx, j, casework.Permitted, holders[i].Run.ID, given[:i])
				}
				return changes, false, err
			}
		}
	}
	snaps, at, err := j.s.journal.SubmitAll(ctx, given)
	switch {
	case errors.Is(err, errDuplicate) && holders[at] != nil:
		return nil, &BatchError{at, refusedBy(ctx, j, holders[at], &all[at])}
	case errors.Is(err, errDuplicate):
		return nil, &BatchError{at, duplicate(snaps[at], err, false)}
	case err != nil:
		return nil, err
	}
	out := make([]Status, len(all))
	for i, snap := range snaps {
		if snap == nil { // it is left out
			snap = holders[i]
		}
		if out[i] = statusOf(snap.Run); replaced[snap.Run.ID] { // by a later one of them
			out[i].State, out[i].EndedAt = background.Cancelled, j.s.now()
		}
	}
	return out, nil
}

// mayMeet refuses a job because of another one unless the permission of the caller includes that. It includes those of the
// same batch.
func mayMeet(ctx context.Context, j Jobs, permission casework.Permission, holder background.RunID, batch []journal.UniqueSubmission) error {
	if slices.ContainsFunc(batch, func(g journal.UniqueSubmission) bool { return g.Run == holder }) {
		return nil
	}
	switch may, err := permission(ctx, j.s.journal, j.tenant, []background.RunID{holder}); {
	case err != nil:
		return err
	case !may(holder):
		return errDuplicate
	}
	return nil
}

// resolve returns the changes that end the jobs which stand in the way of a unique one, or the holder because of
// which it is refused or left out.
func resolve(j Jobs, job *Job, run background.RunID, found []journal.Snapshot, mayReplace func(background.RunID) error) (replaced []journal.Change, holder *journal.Snapshot, err error) {
	for i := range found {
		if found[i].Run.Letter == background.LetterPurged || !job.Unique.Conflicts(statusOf(found[i].Run)) {
			continue
		}
		holder = &found[i]
		switch {
		case job.Unique.OnConflict == Ignore:
			return nil, holder, nil
		case job.Unique.OnConflict != Replace || !holder.Run.State.Waiting():
			return nil, holder, errDuplicate
		}
		if err := mayReplace(holder.Run.ID); err != nil {
			return nil, holder, err
		}
		if job.Unique.KeepSchedule && !holder.Run.AwaitsActivation() {
			job.NotBefore = holder.Run.DueAt
		}
		change, err := j.replace(*holder, run)
		if err != nil {
			return nil, holder, err
		}
		replaced = append(replaced, *change)
	}
	return replaced, holder, nil
}

// refusedBy returns the error of a job that another one refuses by its Unique. A job that was enqueued
// before, and has lost its fingerprint since, is refused by itself: its id is taken.
func refusedBy(ctx context.Context, j Jobs, holder *journal.Snapshot, job *Job) error {
	own, err := j.s.journal.Cases.SubjectSnapshot(ctx, j.tenant, journal.KindPlain, subject(job.ID))
	switch {
	case errors.Is(err, background.ErrNotFound) || err == nil && own.Case.ID == holder.Case.ID:
		return duplicate(holder, errDuplicate, true)
	case err != nil:
		return err
	}
	return duplicate(&own, errDuplicate, false)
}

// replace returns the change that cancels a waiting job for another one.
func (j Jobs) replace(holder journal.Snapshot, by background.RunID) (*journal.Change, error) {
	tr := background.Transition{ID: casework.NewID(), Run: holder.Run, Subtype: receipts.Cancelled, At: j.s.now(), Actor: j.actor, Reason: "replaced by run " + by.String()}
	run := holder.Run
	if err := tr.Apply(&run); err != nil {
		return nil, err
	}
	return &journal.Change{Transition: tr.ID, Before: &holder, After: &journal.Snapshot{Case: holder.Case, Run: run},
		Drafts: []receipts.Draft{{Run: run.ID, Subtype: receipts.Cancelled, Actor: tr.Actor, At: tr.At, Payload: receipts.Payload{Attempt: run.Attempt, Reason: tr.Reason, BudgetSpent: run.BudgetSpent, Recoveries: run.Recoveries, OutcomeClass: string(run.Class), UnknownOpen: run.UnknownOpen}}}}, nil
}

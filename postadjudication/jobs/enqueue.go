package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
	out, err := enqueue(ctx, j, job)
	var duplicate *DuplicateError
	if !errors.As(err, &duplicate) {
		return out, err
	}
	may, readErr := casework.Permitted(ctx, j.s.journal, j.tenant, []background.RunID{duplicate.Existing.Run})
	if readErr != nil {
		return Status{}, readErr
	}
	if !may(duplicate.Existing.Run) {
		err = &DuplicateError{Unique: duplicate.Unique}
	}
	return Status{}, err
}

func enqueue(ctx context.Context, j Jobs, job Job) (Status, error) {
	if err := j.problems(ctx, job); err != nil {
		return Status{}, err
	}
	if err := checkForm(ctx, j, &job); err != nil {
		return Status{}, err
	}
	if err := j.s.applier.Engine.MeasureClock(ctx); err != nil {
		return Status{}, err
	}
	switch {
	case job.ID == "" && job.Request != "":
		job.ID = idOf(job.Request)
	case job.ID == "":
		job.ID = uuid.Must(uuid.NewV7()).String()
	default: // adjudications are jobs, too, by the id of their run
		switch taken, err := j.adjudications().takes(job.ID); {
		case err == nil:
			return Status{}, &DuplicateError{Existing: statusOf(taken.Run)}
		case !errors.Is(err, refusal.ErrNotFound):
			return Status{}, err
		}
	}
	// Before the job is committed, so that its queue is listed whatever happens to this process.
	if err := j.AddQueue(ctx, job.Queue); err != nil {
		return Status{}, err
	}
	sub := j.submission(&job)
	if job.Unique != nil {
		return j.enqueueUnique(ctx, &job, sub)
	}
	snap, err := j.s.journal.Submit(ctx, sub)
	if err != nil {
		return Status{}, duplicate(snap, err, false)
	}
	return statusOf(snap.Run), nil
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

// What happens. Replace cancels the jobs in the way, unless a worker holds one of them.
const (
	Reject  OnConflict = "reject"
	Replace OnConflict = "replace"
)

func (j Jobs) enqueueUnique(ctx context.Context, job *Job, sub journal.Submission) (Status, error) {
	var holder *journal.Snapshot
	snap, err := j.s.journal.SubmitUnique(ctx, journal.UniqueSubmission{
		Submission: sub, Fingerprint: job.Unique.Fingerprint, Until: wholeMicroseconds(job.Unique.Until), At: j.s.now(),
		Resolve: func(holders []journal.Snapshot) (replaced []journal.Change, err error) {
			for i := range holders {
				if holders[i].Run.Letter == background.LetterPurged || !job.Unique.Conflicts(statusOf(holders[i].Run)) {
					continue
				}
				if holder = &holders[i]; job.Unique.OnConflict != Replace || !holder.Run.State.Waiting() {
					return nil, errDuplicate
				}
				if job.Unique.KeepSchedule && !holder.Run.AwaitsActivation() {
					job.NotBefore = holder.Run.DueAt
				}
				change, err := j.replace(*holder, sub.Run)
				if err != nil {
					return nil, err
				}
				replaced = append(replaced, *change)
			}
			return replaced, nil
		},
	})
	if errors.Is(err, errDuplicate) && holder != nil {
		return Status{}, refusedBy(ctx, j, holder, job)
	}
	if err != nil {
		return Status{}, duplicate(snap, err, false)
	}
	return statusOf(snap.Run), nil
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
	run, err := tr.Apply(holder.Run)
	if err != nil {
		return nil, err
	}
	return &journal.Change{Transition: tr.ID, Before: &holder, After: &journal.Snapshot{Case: holder.Case, Run: run},
		Drafts: []receipts.Draft{{Run: run.ID, Subtype: receipts.Cancelled, Actor: tr.Actor, At: tr.At, Payload: receipts.Payload{Attempt: run.Attempt, Reason: tr.Reason, BudgetSpent: run.BudgetSpent, Recoveries: run.Recoveries, OutcomeClass: string(run.Class), UnknownOpen: run.UnknownOpen}}}}, nil
}

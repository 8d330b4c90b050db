package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Family is the name of the family of jobs. No other family has it.
const Family = casework.JobFamily

// MaxPayload bounds the envelope of a job, in bytes.
const MaxPayload = deadletter.MaxPayload

// MaxPriority bounds the priority of a job, which is from -MaxPriority to MaxPriority.
const MaxPriority = 100

// Store keeps jobs. It is safe for concurrent use.
type Store struct {
	journal *journal.Journal
	applier *casework.Applier
	letters *deadletter.Repository
	kept    Retention
	now     func() time.Time
	runs    runCache
	queues  queueCache
}

// runCache has the runs of jobs that this process leased. It and queueCache are interfaces so that
// packages with a Store do not compile the caches again.
type runCache interface {
	Get(job jobName) (run background.RunID, ok bool)
	Add(job jobName, run background.RunID) (evicted bool)
	Remove(job jobName) (present bool)
}

// queueCache has the queues that are stored already.
type queueCache interface {
	Contains(queue queueName) bool
	Add(queue queueName, _ struct{}) (evicted bool)
}

// queueName names a queue.
type queueName struct{ tenant, name string }

// Retention says how long dead letters are kept.
type Retention interface {
	// Kept returns how long open letters of a queue are kept, and how many; 0: no limit.
	Kept(family, queue string) (age time.Duration, count int)
	// NextAt returns when the next round of retention of this process begins; zero: it has none.
	NextAt() time.Time
}

// jobName names a job.
type jobName struct{ tenant, id string }

// knownRuns is how many jobs have their run cached, and how many queues are cached. The rest is read from, or
// written to, the journal each time.
const knownRuns = 8192

// NewStore returns a store of jobs.
func NewStore(letters *deadletter.Repository, kept Retention) (*Store, error) {
	runs, err := lru.New[jobName, background.RunID](knownRuns)
	if err != nil {
		return nil, err
	}
	queues, err := lru.New[queueName, struct{}](knownRuns)
	return &Store{journal: letters.Journal, applier: letters.Applier, letters: letters, kept: kept, now: letters.Now, runs: runs, queues: queues}, err
}

// Jobs are the jobs of a tenant, changed in the name of an actor.
type Jobs struct {
	s             *Store
	tenant, actor string
}

// As returns the jobs of a tenant.
func (s *Store) As(tenant, actor string) Jobs { return Jobs{s, tenant, actor} }

// Job is what is enqueued.
type Job struct {
	ID        string // unique in the tenant; empty: a UUIDv7 is made
	Type      string
	Queue     string
	Priority  int       // from -MaxPriority to MaxPriority: a higher one is fetched first
	NotBefore time.Time // zero: at once
	ExpiresAt time.Time // no attempt starts from then on; zero: never
	Pending   bool      // no attempt starts before Activate
	Policy    retrypolicy.Policy
	Payload   json.RawMessage // the envelope that workers get
	Unique    *Unique         // nil: others with the same content do not matter
	Request   string          // identifies the request that asks for it, which makes one job; empty: none
}

// problems returns what is wrong with a job; a join of *refusal.FieldError, or that the context has ended.
func (j Jobs) problems(ctx context.Context, job Job) error {
	all := []error{
		validate.KnownID("tenant", j.tenant, 128), validate.NoSecret("tenant", j.tenant), validate.NewID("type", job.Type, 255), validate.NewID("queue", job.Queue, 128),
		validate.NoSecret("id", job.ID), validate.NoSecret("actor", j.actor),
		validate.Policy(job.Policy, true), j.s.applier.Settlements.Targets.CheckPlainQueue(job.Queue),
	}
	wrong := func(is bool, field, problem string, args ...any) {
		if is {
			all = append(all, &refusal.FieldError{Field: field, Problem: fmt.Sprintf(problem, args...)})
		}
	}
	wrong(job.Type == AdjudicationType, "type", "is that of adjudications, which are submitted")
	wrong(len(job.ID) > 128 || !validate.PlainText(job.ID) || strings.ContainsAny(job.ID, " \t"), "id", "must be at most 128 bytes of plain text without spaces")
	wrong(job.Priority < -MaxPriority || job.Priority > MaxPriority, "priority", "must be between -%d and %d", MaxPriority, MaxPriority)
	wrong(len(job.Payload) > MaxPayload || !json.Valid(job.Payload), "payload", "must be JSON of at most %d bytes", MaxPayload)
	wrong(j.actor == "" || len(j.actor) > 128 || !validate.PlainText(j.actor), "actor", "must be 1 to 128 bytes of plain text")
	if len(job.Payload) <= MaxPayload && json.Valid(job.Payload) {
		var secret error
		if err := tenantlimit.InTurn(ctx, j.tenant, len(job.Payload), func() {
			secret = j.s.applier.Settlements.References.CheckPayload(ctx, j.tenant, job.Payload)
		}); err != nil {
			return err
		}
		if secret != nil && !errors.As(secret, new(*refusal.FieldError)) {
			return secret // the policy of references can't be read
		}
		all = append(all, secret)
	}
	return errors.Join(all...)
}

// Now returns the time by which jobs are due and expire.
func (j Jobs) Now() time.Time { return j.s.now() }

// subject names the case of a job.
func subject(id string) string { return Family + ":" + id }

// ConflictError means that a job is not in a state in which it can be changed so.
type ConflictError struct {
	Status Status // of the job as it is
	Reason string // for people
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("jobs: job %s is %s: %s", e.Status.ID, e.Status.State, e.Reason)
}

// DuplicateError means that a job with the id, or one that holds the fingerprint, exists.
type DuplicateError struct {
	Existing Status
	Unique   bool // by its fingerprint
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("jobs: job %s exists", e.Existing.ID)
}

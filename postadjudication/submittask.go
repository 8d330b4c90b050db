package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// PlainFamily is a family of the caller's own: tasks that move no money. They share policies,
// notifications, dead letters and the receipt trail with settlements.
type PlainFamily struct {
	Name      string             // lower-case letters, digits and dashes; stored with each run
	Policy    retrypolicy.Policy // normalised
	TimeLimit time.Duration      // per attempt; 30s when 0
	Handle    func(ctx context.Context, a background.Attempt) background.Result
	OnDeath   LetterHandler // runs when a run of the family dies; none when zero
}

// Task is one task of a plain family.
type Task struct {
	Tenant   string
	Family   string
	RetryKey string // tasks with equal keys are the same task; empty: a task of its own
	Once     bool   // a task with the same RetryKey that has ended answers for it, however it ended: AlreadyExecuted
	Payload  json.RawMessage
	Actor    string
	Request  string // identifies the request that asks for it, for the receipt, in at most 128 bytes of plain text without a secret; empty: none
}

var familyNamePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

func (p PlainFamily) validate() error {
	switch {
	case !familyNamePattern.MatchString(p.Name) || p.Name == casework.Family || p.Name == jobs.Family:
		return fmt.Errorf("family %q: the name must be lower-case letters, digits and dashes, at most 32, and neither %q nor %q", p.Name, casework.Family, jobs.Family)
	case p.Handle == nil:
		return fmt.Errorf("family %q: Handle is missing", p.Name)
	}
	return p.Policy.Validate()
}

// SubmitTask hands over a task of a plain family. When it returns Created, the run is committed
// and will execute. If a task with the same retry key is live, the reply is Deduplicated; if it is
// an open dead letter, DeadLettered; a task that ended otherwise is replaced by the new one, unless Once
// is set.
//
// Errors: a *FieldError for bad input (joined, one per field), background.ErrUnknownFamily. After
// any other error it is unknown whether the run was created.
func (s *submissions) SubmitTask(ctx context.Context, t Task) (Submitted, error) {
	if !s.calls.begin() {
		return Submitted{}, ErrClosed
	}
	defer s.calls.end()
	f, ok := s.applier.PlainFamilies[t.Family]
	if !ok {
		return Submitted{}, fmt.Errorf("%w: %q", background.ErrUnknownFamily, t.Family)
	}
	wrong, err := t.problemsInTurn(ctx)
	if err != nil {
		return Submitted{}, err
	}
	if err := wrong.takeReferences(ctx, s.applier.Settlements.References, t.Tenant); err != nil {
		return Submitted{}, err
	}
	if wrong.malformed() != nil {
		return Submitted{}, errors.Join(wrong.malformed(), wrong.unsafe())
	}
	switch unsafe, err := wrong.unsafeIfNew(ctx, s.journal.Cases, journal.SubmittedIDs{Tenant: t.Tenant, Kind: journal.KindPlain, Subject: t.subject()}); {
	case err != nil:
		return Submitted{}, err
	case unsafe != nil:
		return s.answerUnsafeTask(ctx, t, unsafe)
	}
	if err := s.applier.Engine.MeasureClock(ctx); err != nil {
		return Submitted{}, err
	}
	return s.submit(ctx, s.taskSubmission(ctx, f, t), nil)
}

// problemsInTurn is problems, for a long payload in the tenant's turn.
func (t Task) problemsInTurn(ctx context.Context) (p inputProblems, err error) {
	err = tenantlimit.InTurn(ctx, t.Tenant, len(t.Payload), func() { p = t.problems() })
	return p, err
}

// problems returns what is wrong with a task, with unsafe values apart.
func (t Task) problems() inputProblems {
	var p inputProblems
	if t.Tenant == AllTenants {
		p.addMalformed(errTenantRequired)
	}
	if t.Tenant == "" {
		p.addMalformed(validate.KnownID("tenant", t.Tenant, 128))
	}
	p.checkID("tenant", t.Tenant, 128)
	p.checkID("retry_key", t.RetryKey, 256)
	if strings.HasPrefix(t.RetryKey, casework.HandlerKeyPrefix) {
		p.addMalformed(&refusal.FieldError{Field: "retry_key", Problem: "must not begin with " + casework.HandlerKeyPrefix + ", which is for the handlers of dead letters"})
	}
	p.checkID("actor", t.Actor, 128)
	p.addUnsafe(checkRequest(t.Request))
	if len(t.Payload) > MaxPayload || len(t.Payload) > 0 && !json.Valid(t.Payload) {
		p.addMalformed(&refusal.FieldError{Field: "payload", Problem: fmt.Sprintf("must be JSON of at most %d bytes", MaxPayload)})
	} else {
		p.addSecret(validate.NoSecretIn(t.Payload), references.PayloadPrefix, string(t.Payload))
	}
	return p
}

// subject names the case of a task that has a retry key.
func (t Task) subject() string { return t.Family + ":" + t.RetryKey }

// replyToTask returns the reply to a task whose retry key an earlier task has: Created if the new
// task replaces it.
func replyToTask(seen *journal.Snapshot, once bool) Reply {
	switch {
	case seen.Run.State.Live():
		return Deduplicated
	case seen.Run.Letter == background.LetterOpen:
		return DeadLettered
	case once:
		return AlreadyExecuted
	}
	return Created
}

// taskSubmission returns what the journal writes of a task.
func (s *submissions) taskSubmission(ctx context.Context, f *casework.PlainFamily, t Task) journal.Submission {
	now := s.now()
	id := background.RunID(casework.NewIDAt(now))
	if t.RetryKey == "" {
		t.RetryKey = id.String()
	}
	if t.Actor == "" {
		t.Actor = "system:caller"
	}
	subject := t.subject()
	run := background.Run{
		ID: id, Case: background.CaseID(casework.NewIDAt(now)), Tenant: t.Tenant, Family: f.FamilyName, RetryKey: t.RetryKey,
		Queue: s.applier.Engine.Queue(f.FamilyName, t.RetryKey), Target: f.FamilyName, Policy: s.policies.policyFor(ctx, t.Tenant, f.FamilyName, f.Policy.Normalize()), Payload: t.Payload,
		State: background.Pending, LastTransition: casework.NewID(), DueAt: now, NotificationNumber: 1,
	}
	accepted := submittedTask(run, t.Actor, t.Request, now)
	return journal.Submission{
		Tenant: t.Tenant, Kind: journal.KindPlain, Subject: subject, Run: id,
		Open: func() (journal.Change, error) {
			newCase := journal.Case{ID: run.Case, Tenant: t.Tenant, Kind: journal.KindPlain, Subject: subject, Content: sha256.Sum256(t.Payload), ActiveRun: id}
			return journal.Change{Transition: run.LastTransition, After: &journal.Snapshot{Case: newCase, Run: run}, Drafts: []receipts.Draft{accepted}}, nil
		},
		Decide: func(seen *journal.Snapshot) (journal.Change, error) {
			if reply := replyToTask(seen, t.Once); reply != Created {
				return journal.Change{}, replyError(reply)
			}
			next := run
			next.Case = seen.Case.ID
			return nextTaskRun(seen, next, accepted), nil
		},
	}
}

// submittedTask returns the receipt of a run of a task that was submitted.
func submittedTask(run background.Run, actor, request string, at time.Time) receipts.Draft {
	letter, _ := casework.LetterHandledBy(run)
	return receipts.Draft{Run: run.ID, Subtype: receipts.Submitted, Actor: actor, At: at, Payload: receipts.Payload{
		Family: run.Family, RetryKey: run.RetryKey, Queue: run.Queue, Target: run.Target, Policy: run.Policy.Encode(), LetterOf: letter,
		RequestDigest: binding.RequestDigest(run.Payload), RequestID: request,
	}}
}

// nextTaskRun returns the change that makes a new run the active one of its case.
func nextTaskRun(seen *journal.Snapshot, run background.Run, accepted receipts.Draft) journal.Change {
	after := *seen
	after.Case.ActiveRun, after.Run.LastTransition = run.ID, run.LastTransition
	return journal.Change{Transition: run.LastTransition, Before: seen, After: &after, NewRun: &run, Drafts: []receipts.Draft{accepted}}
}

// answerUnsafeTask answers a task with unsafe input. If its retry key has a live task or an
// open dead letter it returns that task's reply. Otherwise it refuses.
func (s *submissions) answerUnsafeTask(ctx context.Context, t Task, unsafe error) (Submitted, error) {
	if t.RetryKey == "" {
		return Submitted{}, unsafe
	}
	seen, err := s.journal.Cases.SubjectSnapshot(ctx, t.Tenant, journal.KindPlain, t.subject())
	switch {
	case errors.Is(err, refusal.ErrNotFound):
		return Submitted{}, unsafe
	case err != nil:
		return Submitted{}, err
	}
	reply := replyToTask(&seen, t.Once)
	if reply == Created {
		return Submitted{}, unsafe
	}
	return s.outcomeOf(&seen, replyError(reply))
}

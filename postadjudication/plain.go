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
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Plain is a family of the caller's own: tasks that move no money. They share
// policy, bells, dead letters and the receipt trail with settlements.
type Plain struct {
	Name      string             // lower-case letters, digits and dashes; stored with each run
	Policy    retrypolicy.Policy // normalised
	TimeLimit time.Duration      // per attempt; 30s when 0
	Handle    func(ctx context.Context, a background.Attempt) background.Result
	OnDeath   LetterHandler // what is run when one of its runs dies; none when zero
}

// Task is one task of a plain family.
type Task struct {
	Tenant   string
	Family   string
	RetryKey string // what makes it the same task; empty means that every task is its own
	Payload  json.RawMessage
	Actor    string
}

var familyName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

func (p Plain) validate() error {
	switch {
	case !familyName.MatchString(p.Name) || p.Name == Family:
		return fmt.Errorf("family %q: the name must be lower-case letters, digits and dashes, at most 32, and not %q", p.Name, Family)
	case p.Handle == nil:
		return fmt.Errorf("family %q: Handle is missing", p.Name)
	case p.Policy.OnExhaustion == retrypolicy.Discard:
		return fmt.Errorf("family %q: a run that ends without success is always kept as a dead letter", p.Name)
	}
	return p.Policy.Validate()
}

// plainFamily records the moves of a plain family.
type plainFamily struct {
	Plain
	journal  *postgres.Journal
	handlers *handlers
}

func (f *plainFamily) Name() string { return f.Plain.Name }

func (f *plainFamily) TimeLimit() time.Duration {
	if f.Plain.TimeLimit > 0 {
		return f.Plain.TimeLimit
	}
	return 30 * time.Second
}

func (f *plainFamily) Handle(ctx context.Context, a background.Attempt) background.Result {
	return f.Plain.Handle(ctx, a)
}

// Lookup finds nothing: a plain family has nobody to ask.
func (f *plainFamily) Lookup(context.Context, background.Run) background.Result {
	return background.Result{Class: Unknown, Failure: &background.Failure{Type: "lookup.unsupported", Message: "a plain family has no lookup"}}
}

// Record commits a move with its receipt.
func (f *plainFamily) Record(ctx context.Context, m background.Move) (background.Run, error) {
	m = redacted(m)
	if m.Fact == receipts.OutOfBandChangeDetected {
		return recordNotice(ctx, f.journal, m)
	}
	s, err := f.handlers.apply(ctx, f.journal, m, func(s *postgres.Snapshot) (postgres.Change, error) {
		if m.Fact == receipts.AttemptStarted && s.Run.State.Waiting() {
			if err := bound(&s.Run); err != nil {
				return postgres.Change{}, err
			}
		}
		run, err := m.Apply(s.Run)
		if err != nil {
			return postgres.Change{}, answer(err)
		}
		return postgres.Change{
			Move: m.ID, Before: s, After: &postgres.Snapshot{Case: s.Case, Run: run},
			Drafts: []receipts.Draft{{Run: run.ID, Subtype: m.Fact, Actor: actorOf(&m), At: m.At, Payload: evidence(&m, &s.Run, &run)}},
		}, nil
	})
	return s.Run, err
}

// SubmitTask hands over a task of a plain family. A live task with the same retry
// key is answered Deduplicated, an open dead letter DeadLettered; a task that has
// ended otherwise makes way for the new one.
func (s *Service) SubmitTask(ctx context.Context, t Task) (Submitted, error) {
	f, ok := s.plain[t.Family]
	if !ok {
		return Submitted{}, fmt.Errorf("%w: %q", background.ErrUnknownFamily, t.Family)
	}
	wrong := t.problems()
	switch unsafe := wrong.unsafe(); {
	case wrong.malformed() != nil:
		return Submitted{}, errors.Join(wrong.malformed(), unsafe)
	case unsafe != nil:
		return s.taskAgain(ctx, t, unsafe)
	}
	if err := s.manager.MeasureClock(ctx); err != nil {
		return Submitted{}, err
	}
	return s.submit(ctx, s.taskSubmission(ctx, f, t), nil)
}

// problems returns what is wrong with a task, what is unsafe apart.
func (t Task) problems() problems {
	var p problems
	if t.Tenant == AllTenants {
		p.wrong(errNoTenant)
	}
	p.text("tenant", t.Tenant, 1, 128)
	p.text("retry_key", t.RetryKey, 0, 256)
	if strings.HasPrefix(t.RetryKey, handlerKey) {
		p.wrong(&FieldError{Field: "retry_key", Problem: "must not begin with " + handlerKey + ", which is for the handlers of dead letters"})
	}
	p.text("actor", t.Actor, 0, 128)
	p.secret(errors.Join(noSecret("tenant", t.Tenant), noSecret("retry_key", t.RetryKey), noSecret("actor", t.Actor)))
	if len(t.Payload) > MaxPayload || len(t.Payload) > 0 && !json.Valid(t.Payload) {
		p.wrong(&FieldError{Field: "payload", Problem: fmt.Sprintf("must be JSON of at most %d bytes", MaxPayload)})
	} else {
		p.secret(noSecretIn(t.Payload))
	}
	return p
}

// subject names the case of a task that has a retry key.
func (t Task) subject() string { return t.Family + ":" + t.RetryKey }

// standingTask returns how a task is answered whose retry key another one has: Created where
// that one makes way for it.
func standingTask(seen *postgres.Snapshot) Reply {
	switch {
	case seen.Run.State.Live():
		return Deduplicated
	case seen.Run.Letter == background.LetterOpen:
		return DeadLettered
	}
	return Created
}

func (s *Service) taskSubmission(ctx context.Context, f *plainFamily, t Task) postgres.Submission {
	now, id := s.now(), background.RunID(newID())
	if t.RetryKey == "" {
		t.RetryKey = id.String()
	}
	if t.Actor == "" {
		t.Actor = "system:caller"
	}
	subject := t.subject()
	run := background.Run{
		ID: id, Case: background.CaseID(newID()), Tenant: t.Tenant, Family: f.Plain.Name, RetryKey: t.RetryKey,
		Queue: s.manager.Queue(f.Plain.Name, t.RetryKey), Target: f.Plain.Name, Policy: s.policies.of(ctx, t.Tenant, f.Plain.Name, f.Policy.Normalize()), Payload: t.Payload,
		State: background.Pending, LastMove: newID(), DueAt: now, Bell: 1,
	}
	letter, _ := handles(run)
	draft := func(r background.Run) []receipts.Draft {
		return []receipts.Draft{{Run: r.ID, Subtype: receipts.Submitted, Actor: t.Actor, At: now, Payload: receipts.Payload{
			Family: r.Family, RetryKey: r.RetryKey, Queue: r.Queue, Target: r.Target, Policy: r.Policy.Encode(), LetterOf: letter, RequestDigest: digestOf(r.Payload)}}}
	}
	return postgres.Submission{
		Tenant: t.Tenant, Kind: postgres.KindPlain, Subject: subject, Run: id,
		Open: func() (postgres.Change, error) {
			kase := postgres.Case{ID: run.Case, Tenant: t.Tenant, Kind: postgres.KindPlain, Subject: subject, Content: sha256.Sum256(t.Payload), Holder: id}
			return postgres.Change{Move: run.LastMove, After: &postgres.Snapshot{Case: kase, Run: run}, Drafts: draft(run)}, nil
		},
		Decide: func(seen *postgres.Snapshot) (postgres.Change, error) {
			if standing := standingTask(seen); standing != Created {
				return postgres.Change{}, refusal(standing)
			}
			next, after := run, *seen
			next.Case, after.Case.Holder, after.Run.LastMove = seen.Case.ID, id, run.LastMove
			return postgres.Change{Move: run.LastMove, Before: seen, After: &after, New: &next, Drafts: draft(next)}, nil
		},
	}
}

package postadjudication

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// ForkRequest asks for an open dead letter to be tried again. What the escrow service
// is sent can't be changed: another request under the same operation key would be
// another order.
type ForkRequest struct {
	Actor  string              // who asks; required
	Reason string              // why; required
	Policy *retrypolicy.Policy // another retry policy; nil keeps the letter's
	Queue  string              // another queue of the family, "<family>:<shard>"; empty keeps the letter's
}

// RefusedError says which rule refuses an action, and what stands there instead.
type RefusedError struct {
	Gate   Gate
	Run    background.RunID
	Letter background.Letter
	Holder background.RunID // the run that holds the case now
	// Because tells more, as what the escrow service answered to a lookup; often empty.
	Because string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("postadjudication: refused by %s: %s: run %s", e.Gate, e.Gate.Meaning(), e.Run)
	if e.Letter != background.NoLetter {
		s += ", whose letter is " + string(e.Letter)
	}
	if e.Because != "" {
		s += "; " + e.Because
	}
	if e.Holder != e.Run {
		s += "; the case is held by run " + e.Holder.String()
	}
	return s
}

// FailureReplayer is implemented by executors whose escrow service answers a
// repeated operation key with the failure it stored. Then, and past the key's lifetime, a
// fork gets a new key, if every attempt under the old one is proven not executed.
type FailureReplayer interface {
	ReplaysFailures() bool
}

// Fork tries an open dead letter again: a new run in the same case with a fresh
// budget, which really executes. One letter has at most one fork, whoever asks how
// often: the next one is refused, naming the run that stands there. The error is a
// *RefusedError for the gates, ErrNotFound (also of a letter that was purged), or *FieldError for bad input.
func (s *Service) Fork(ctx context.Context, tenant string, id background.RunID, q ForkRequest) (_ Submitted, err error) {
	if err := q.validate(); err != nil {
		return Submitted{}, err
	}
	defer func() { err = s.noted(ctx, request{"fork", id, q.Actor, q.Reason}, err) }()
	seen, err := s.letter(ctx, tenant, id)
	if err != nil {
		return Submitted{}, err
	}
	if err := s.ownQueue(seen.Run.Family, q.Queue); err != nil {
		return Submitted{}, err
	}
	f := fork{ForkRequest: q, run: background.RunID(newID()), move: newID(), at: s.now(), family: s.settlements}
	if _, err := s.journal.Apply(ctx, seen.Run.ID, f.move, f.decide); err != nil {
		return Submitted{}, err
	}
	made, err := s.journal.Snapshot(ctx, f.run)
	if err != nil {
		return Submitted{}, err
	}
	out, err := s.submitted(&made, nil)
	s.ring(ctx, out)
	return out, err
}

// ownQueue refuses a queue that is not the family's; empty is none.
func (s *Service) ownQueue(family, queue string) error {
	if queues := s.manager.Queues(family); queue != "" && !slices.Contains(queues, queue) {
		return &FieldError{Field: "queue", Problem: "must be one of " + strings.Join(queues, ", ")}
	}
	return nil
}

func (q ForkRequest) validate() error {
	errs := []error{identified("actor", q.Actor, 128), named("reason", q.Reason, 1024)}
	if q.Policy != nil {
		errs = append(errs, validPolicy(*q.Policy))
	}
	return errors.Join(errs...)
}

// named checks a text that must be given.
func named(field, text string, limit int) error {
	if strings.TrimSpace(text) == "" || len(text) > limit || !plainText(text) {
		return &FieldError{Field: field, Problem: fmt.Sprintf("must be 1 to %d bytes of plain text", limit)}
	}
	return nil
}

// identified checks a name that must be given and is kept as it is: it must hold no secret.
func identified(field, text string, limit int) error {
	if err := named(field, text, limit); err != nil {
		return err
	}
	return noSecret(field, text)
}

// letter reads a run of a tenant.
func (s *Service) letter(ctx context.Context, tenant string, id background.RunID) (postgres.Snapshot, error) {
	seen, err := s.journal.Snapshot(ctx, id)
	if err == nil && (tenant == "" || seen.Run.Tenant != tenant) {
		err = ErrNotFound
	}
	return seen, err
}

// fork is a request with the ids it will have, fixed before the journal is asked.
type fork struct {
	ForkRequest
	run    background.RunID
	move   background.MoveID
	at     time.Time
	family *family
}

func (f fork) decide(s *postgres.Snapshot) (postgres.Change, error) {
	if s.Run.Letter == background.LetterPurged {
		return postgres.Change{}, ErrNotFound
	}
	if gate := f.family.gate(*s, f.at); gate != "" {
		return postgres.Change{}, &RefusedError{Gate: gate, Run: s.Run.ID, Letter: s.Run.Letter, Holder: s.Case.Holder}
	}
	if err := bound(&s.Run); err != nil { // the fork's receipt binds the same bytes
		no := refusedBy(GateRequestAltered, *s)
		no.Because = err.Error()
		return postgres.Change{}, no
	}
	after := *s
	after.Run.Letter, after.Run.LastMove, after.Case.Holder = background.LetterForked, f.move, f.run
	next := background.Run{
		ID: f.run, Case: s.Case.ID, Tenant: s.Run.Tenant, Family: s.Run.Family, RetryKey: s.Run.RetryKey, Queue: s.Run.Queue,
		Target: s.Run.Target, Parent: s.Run.ID, Policy: s.Run.Policy, Payload: s.Run.Payload, Operation: s.Run.Operation,
		State: background.Pending, LastMove: f.move, DueAt: f.at, Bell: 1, UnknownOpen: s.Run.UnknownOpen, FirstSentAt: s.Run.FirstSentAt,
	}
	if moneyUnknown(*s) {
		next.Class = Unknown // until that is resolved, whatever the fork's own attempts tell
	}
	changes := f.change(&next)
	submitted := receipts.Payload{
		RetryKey: next.RetryKey, Family: next.Family, Queue: next.Queue, Target: next.Target, Policy: next.Policy.Encode(), ParentRun: s.Run.ID, RequestDigest: digestOf(next.Payload),
		OutcomeClass: string(next.Class),
	}
	submitted.LetterOf, _ = handles(next)
	if s.Case.Kind == postgres.KindSettlement {
		state, _, err := settlement.Apply(s.Case.State, settlement.Event{Fact: settlement.Forked})
		if err != nil {
			return postgres.Change{}, err
		}
		after.Case.State = state
		if f.family.newKey(s, f.at) {
			after.Case.Epoch++
			next.Operation, next.FirstSentAt = rekeyed(s, after.Case.Epoch), time.Time{}
		}
		submitted.Amount, submitted.Currency = s.Run.Terms.Amount, s.Run.Terms.Currency
		submitted.OperationKey, submitted.Outcome = hex.EncodeToString(next.Operation[:]), string(state.Adjudication)
		submitted.Generation, submitted.Epoch, submitted.TransactionReceiptID = state.Generation, after.Case.Epoch, s.Case.Subject
		submitted.Settlement = snapshotOf(state)
	}
	return postgres.Change{Move: f.move, Before: s, After: &after, New: &next, Drafts: []receipts.Draft{
		{Run: s.Run.ID, Subtype: receipts.ManualRetryRequested, Actor: f.Actor, At: f.at, Payload: receipts.Payload{
			NewRun: f.run, Reason: clean(f.Reason, 1024), Changes: changes, Outcome: submitted.Outcome}},
		{Run: f.run, Subtype: receipts.Submitted, Actor: f.Actor, At: f.at, Payload: submitted},
	}}, nil
}

// change gives a fork what was asked for, and tells how it differs from the letter.
func (f fork) change(next *background.Run) string {
	var all []string
	if f.Policy != nil {
		if differs := policyDifference(next.Policy, *f.Policy); differs != "" {
			all = append(all, "policy: "+differs)
		}
		next.Policy = f.Policy.Normalize()
	}
	if f.Queue != "" && f.Queue != next.Queue {
		all = append(all, "queue: "+next.Queue+" to "+f.Queue)
		next.Queue = f.Queue
	}
	return strings.Join(all, "; ")
}

// gate is the rule that refuses a fork of the run as it is, or empty.
func (f *family) gate(s postgres.Snapshot, at time.Time) Gate {
	r := s.Run
	switch {
	case r.State != background.DeadLettered:
		return GateNotALetter
	case r.Letter != background.LetterOpen:
		return GateNotOpen
	case s.Case.State.Progression.Ended():
		return GateCaseEnded
	case s.Case.State.Undercut():
		return GatePaidOlder
	case s.Case.Kind == postgres.KindSettlement && r.UnknownOpen > 0 && (f.executorOf(r.Target) == nil || f.over(&r, at)):
		return GateReconcileFirst
	case r.Terms != nil && bound(&r) != nil: // lists don't read terms
		return GateRequestAltered
	case !f.served.has(r.Family):
		return GateFamilyNotServed
	}
	return ""
}

// newKey reports whether a fork needs an operation key of its own, and may have one. It
// needs one when the escrow service would replay the failure it stored, and when the key's
// lifetime is over: the old key protects nothing any more, and is no first call from which a
// lifetime could be counted. It may have one when nothing was or can be executed under the
// old key.
func (f *family) newKey(s *postgres.Snapshot, at time.Time) bool {
	if s.Run.Class != NotExecuted || s.Run.UnknownOpen > 0 || s.Run.CallIsOut() || !f.replaysFailures(s.Run.Target) && !f.outlived(&s.Run, at) {
		return false
	}
	// Calls of runs that have ended come back, and no more are made: it does not matter
	// that this is read apart. Who can't tell keeps the key.
	out, err := f.callOut(context.Background(), s.Run)
	return err == nil && !out
}

func (f *family) replaysFailures(target string) bool {
	replayer, ok := f.executorOf(target).(FailureReplayer)
	return ok && replayer.ReplaysFailures()
}

// outlived reports whether the lifetime of a run's operation key is over.
func (f *family) outlived(r *background.Run, at time.Time) bool {
	executor := f.executorOf(r.Target)
	return executor != nil && executor.KeyLifetime() > 0 && !r.FirstSentAt.IsZero() && f.over(r, at)
}

func rekeyed(s *postgres.Snapshot, epoch int) OperationKey {
	a := Adjudication{Target: s.Run.Target}
	a.Tenant, a.TransactionReceiptID, a.Outcome, a.Generation = s.Run.Tenant, s.Case.Subject, s.Case.State.Adjudication, s.Case.State.Generation
	return a.operationKey(epoch)
}

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

// ForkRequest describes the fork of an open dead letter. The request to the escrow service
// can't be changed: other bytes under the same operation key would be another order.
type ForkRequest struct {
	Actor  string              // required
	Reason string              // required
	Policy *retrypolicy.Policy // nil: the letter's
	Queue  string              // a queue of the family, "<family>:<shard>"; empty: the letter's
}

// RefusedError says which gate refuses an action, and the current state.
type RefusedError struct {
	Gate      Gate
	Run       background.RunID
	Letter    background.LetterStatus
	ActiveRun background.RunID // the active run of the case
	// Because gives details, such as the escrow service's answer to a lookup; often empty.
	Because string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("postadjudication: refused by %s: %s: run %s", e.Gate, e.Gate.Meaning(), e.Run)
	if e.Letter != background.NoLetter {
		s += ", letter is " + string(e.Letter)
	}
	if e.Because != "" {
		s += "; " + e.Because
	}
	if e.ActiveRun != e.Run {
		s += "; the active run of the case is " + e.ActiveRun.String()
	}
	return s
}

// FailureReplayer is implemented by executors whose escrow service answers a repeated operation
// key with the failure it stored. A fork then gets a new key, as it does after the key's
// lifetime, if every attempt under the old key is proven not executed.
type FailureReplayer interface {
	ReplaysFailures() bool
}

// Fork retries an open dead letter as a new run of the same case with a fresh budget. The fork
// is committed when it returns. A letter has at most one fork: later calls are refused and the
// error names the active run.
//
// Errors:
//   - *RefusedError: a gate refuses the fork
//   - ErrNotFound: the tenant has no such letter, or it was purged
//   - *FieldError: invalid input
func (s *Service) Fork(ctx context.Context, tenant string, id background.RunID, q ForkRequest) (_ Submitted, err error) {
	if err := q.validate(); err != nil {
		return Submitted{}, err
	}
	defer func() { err = s.recordGateRefusal(ctx, actionRequest{"fork", id, q.Actor, q.Reason}, err) }()
	seen, err := s.ownRun(ctx, tenant, id)
	if err != nil {
		return Submitted{}, err
	}
	if err := s.ownQueue(seen.Run.Family, q.Queue); err != nil {
		return Submitted{}, err
	}
	f := forkAction{ForkRequest: q, run: background.RunID(newID()), transition: newID(), at: s.now(), family: s.settlements}
	if _, err := s.journal.Apply(ctx, seen.Run.ID, f.transition, f.decide); err != nil {
		return Submitted{}, err
	}
	made, err := s.journal.Cases.Snapshot(ctx, f.run)
	if err != nil {
		return Submitted{}, err
	}
	out, err := s.submitted(&made, nil)
	s.notifyCreated(ctx, out)
	return out, err
}

// ownQueue refuses a queue of another family. Empty means no queue and is valid.
func (s *Service) ownQueue(family, queue string) error {
	if queues := s.manager.Queues(family); queue != "" && !slices.Contains(queues, queue) {
		return &FieldError{Field: "queue", Problem: "must be one of " + strings.Join(queues, ", ")}
	}
	return nil
}

func (q ForkRequest) validate() error {
	errs := []error{requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024)}
	if q.Policy != nil {
		errs = append(errs, validatePolicy(*q.Policy))
	}
	return errors.Join(errs...)
}

// requireText refuses an empty text and one that is not plain text of at most limit bytes.
func requireText(field, text string, limit int) error {
	if strings.TrimSpace(text) == "" || len(text) > limit || !isPlainText(text) {
		return &FieldError{Field: field, Problem: fmt.Sprintf("must be 1 to %d bytes of plain text", limit)}
	}
	return nil
}

// requireIdentifier is requireText for an identifier. It also refuses a secret, since
// identifiers are stored unredacted.
func requireIdentifier(field, text string, limit int) error {
	if err := requireText(field, text, limit); err != nil {
		return err
	}
	return rejectSecret(field, text)
}

// ownRun reads a run of a tenant, or returns ErrNotFound.
func (s *Service) ownRun(ctx context.Context, tenant string, id background.RunID) (postgres.Snapshot, error) {
	seen, err := s.journal.Cases.Snapshot(ctx, id)
	if err == nil && (tenant == "" || seen.Run.Tenant != tenant) {
		err = ErrNotFound
	}
	return seen, err
}

// forkAction is a ForkRequest with the ids of the fork, fixed before the journal is read.
type forkAction struct {
	ForkRequest
	run        background.RunID
	transition background.TransitionID
	at         time.Time
	family     *settlementFamily
}

func (f forkAction) decide(s *postgres.Snapshot) (postgres.Change, error) {
	if s.Run.Letter == background.LetterPurged {
		return postgres.Change{}, ErrNotFound
	}
	if gate := f.family.forkGate(*s, f.at); gate != "" {
		return postgres.Change{}, &RefusedError{Gate: gate, Run: s.Run.ID, Letter: s.Run.Letter, ActiveRun: s.Case.ActiveRun}
	}
	if err := checkBinding(&s.Run); err != nil { // the fork's receipt has the digest of the same bytes
		refusal := refusedBy(GateRequestAltered, *s)
		refusal.Because = err.Error()
		return postgres.Change{}, refusal
	}
	after := *s
	after.Run.Letter, after.Run.LastTransition, after.Case.ActiveRun = background.LetterForked, f.transition, f.run
	next := background.Run{
		ID: f.run, Case: s.Case.ID, Tenant: s.Run.Tenant, Family: s.Run.Family, RetryKey: s.Run.RetryKey, Queue: s.Run.Queue,
		Target: s.Run.Target, Parent: s.Run.ID, Policy: s.Run.Policy, Payload: s.Run.Payload, Operation: s.Run.Operation,
		State: background.Pending, LastTransition: f.transition, DueAt: f.at, NotificationNumber: 1, UnresolvedUnknowns: s.Run.UnresolvedUnknowns, FirstSentAt: s.Run.FirstSentAt,
	}
	if moneyUnknown(*s) {
		next.Class = Unknown // until that is resolved, whatever the outcomes of the fork's attempts
	}
	changes := f.applyOverrides(&next)
	submitted := receipts.Payload{
		RetryKey: next.RetryKey, Family: next.Family, Queue: next.Queue, Target: next.Target, Policy: next.Policy.Encode(), ParentRun: s.Run.ID, RequestDigest: requestDigest(next.Payload),
		OutcomeClass: string(next.Class),
	}
	submitted.LetterOf, _ = handledRun(next)
	if s.Case.Kind == postgres.KindSettlement {
		state, _, err := settlement.Apply(s.Case.State, settlement.Event{Fact: settlement.Forked})
		if err != nil {
			return postgres.Change{}, err
		}
		after.Case.State = state
		if f.family.needsNewKey(s, f.at) {
			after.Case.Epoch++
			next.Operation, next.FirstSentAt = newOperationKey(s, after.Case.Epoch), time.Time{}
		}
		submitted.Amount, submitted.Currency = s.Run.Terms.Amount, s.Run.Terms.Currency
		submitted.OperationKey, submitted.Outcome = hex.EncodeToString(next.Operation[:]), string(state.Adjudication)
		submitted.Generation, submitted.Epoch, submitted.TransactionReceiptID = state.Generation, after.Case.Epoch, s.Case.Subject
		submitted.Settlement = settlementSnapshot(state)
	}
	return postgres.Change{Transition: f.transition, Before: s, After: &after, NewRun: &next, Drafts: []receipts.Draft{
		{Run: s.Run.ID, Subtype: receipts.ManualRetryRequested, Actor: f.Actor, At: f.at, Payload: receipts.Payload{
			NewRun: f.run, Reason: cleanText(f.Reason, 1024), Changes: changes, Outcome: submitted.Outcome}},
		{Run: f.run, Subtype: receipts.Submitted, Actor: f.Actor, At: f.at, Payload: submitted},
	}}, nil
}

// applyOverrides applies the requested policy and queue to a fork and returns how they differ
// from the letter's.
func (f forkAction) applyOverrides(next *background.Run) string {
	var all []string
	if f.Policy != nil {
		if differs := policyChanges(next.Policy, *f.Policy); differs != "" {
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

// forkGate returns the gate that refuses a fork of the run, or empty.
func (f *settlementFamily) forkGate(s postgres.Snapshot, at time.Time) Gate {
	r := s.Run
	switch {
	case r.State != background.DeadLettered:
		return GateNotALetter
	case r.Letter != background.LetterOpen:
		return GateNotOpen
	case s.Case.State.Progression.Ended():
		return GateCaseEnded
	case s.Case.State.Underfunded():
		return GatePaidUnderOlderKey
	case s.Case.Kind == postgres.KindSettlement && r.UnresolvedUnknowns > 0 && (f.executorOf(r.Target) == nil || f.keyMayExpire(&r, at)):
		return GateReconcileFirst
	case r.Terms != nil && checkBinding(&r) != nil: // lists don't read terms
		return GateRequestAltered
	case !f.served.mayBeServed(r.Family):
		return GateFamilyNotServed
	}
	return ""
}

// needsNewKey reports whether a fork needs a new operation key and may have one. It needs one
// if the escrow service would replay a stored failure, and if the lifetime of the old key is
// over: that key no longer protects against a second payment, and a new lifetime can't be
// counted from a call under it. It may have one if nothing was or can be executed under the old
// key.
func (f *settlementFamily) needsNewKey(s *postgres.Snapshot, at time.Time) bool {
	if s.Run.Class != NotExecuted || s.Run.UnresolvedUnknowns > 0 || s.Run.HasOutstandingCall() || !f.replaysFailures(s.Run.Target) && !f.keyExpired(&s.Run, at) {
		return false
	}
	// Calls of ended runs only return, and no new ones start, so this read may be outside the
	// transaction. On an error the fork keeps the key.
	out, err := f.otherCallOutstanding(context.Background(), s.Run)
	return err == nil && !out
}

func (f *settlementFamily) replaysFailures(target string) bool {
	replayer, ok := f.executorOf(target).(FailureReplayer)
	return ok && replayer.ReplaysFailures()
}

// keyExpired reports whether the lifetime of a run's operation key is over.
func (f *settlementFamily) keyExpired(r *background.Run, at time.Time) bool {
	executor := f.executorOf(r.Target)
	return executor != nil && executor.KeyLifetime() > 0 && !r.FirstSentAt.IsZero() && f.keyMayExpire(r, at)
}

func newOperationKey(s *postgres.Snapshot, epoch int) OperationKey {
	a := Adjudication{Target: s.Run.Target}
	a.Tenant, a.TransactionReceiptID, a.Outcome, a.Generation = s.Run.Tenant, s.Case.Subject, s.Case.State.Adjudication, s.Case.State.Generation
	return a.operationKey(epoch)
}

// Retry retries a job, named by any run of its lineage, as Open Job Spec defines it: externally
// the job keeps its id and history and starts again at attempt 0 with its policy. Internally it
// is Fork of the newest run, with all its gates: Lineage returns that run, and Status shows the
// successor of each older one. Of several concurrent calls one succeeds; the others are
// refused, and the error names the active run.
func (s *Service) Retry(ctx context.Context, tenant string, id background.RunID, actor, reason string) (Submitted, error) {
	q := ForkRequest{Actor: actor, Reason: reason}
	if err := q.validate(); err != nil {
		return Submitted{}, err
	}
	lineage, err := s.Lineage(ctx, tenant, id)
	if err != nil {
		return Submitted{}, err
	}
	return s.Fork(ctx, tenant, lineage.Newest, q)
}

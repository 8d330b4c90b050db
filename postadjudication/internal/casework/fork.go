package casework

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// Forking forks an open letter as a new run of its case.
type Forking struct {
	Facts     ForkFacts
	Actor     string
	Reason    string
	RequestID string              // identifies the request that asks for the fork; empty: none
	Policy    *retrypolicy.Policy // nil: the letter's
	Queue     string              // empty: the letter's
	Queues    func(family string) []string
	Payload   []byte           // the envelope of a job, JSON; nil: the letter's
	Run       background.RunID // id of the fork
	// Fingerprint is that of a unique job with the Payload; nil: the letter's.
	Fingerprint *[32]byte
	Replayed    bool // a receipt of the replay precedes those of the fork
}

// ForkFacts are what forks are decided on besides their letters. They may be older than the fork: the runs of
// the letters have ended, so no new call of them can begin. A call that seemed outstanding makes the fork keep
// its operation key, even if the call has returned since.
type ForkFacts struct {
	family *SettlementFamily
	at     time.Time
	served map[string]bool // by family
	calls  map[background.RunID]otherCall
}

// otherCall is whether another run of a letter's case has an outstanding call under its operation
// key, or why that can't be read.
type otherCall struct {
	outstanding bool
	err         error
}

// ReadForkFacts reads the facts for forks of letters at a time. An error means that they could not
// be read, whatever the letters. A letter whose own receipts are unreadable is refused by Decide,
// with background.ErrUnreadable.
func (f *SettlementFamily) ReadForkFacts(ctx context.Context, at time.Time, letters ...journal.LetterRow) (ForkFacts, error) {
	facts := ForkFacts{family: f, at: at, served: map[string]bool{}, calls: map[background.RunID]otherCall{}}
	for i := range letters {
		r := &letters[i].Run
		if _, known := facts.served[r.Family]; !known && !r.Remote {
			served, err := f.Served.served(ctx, r.Family)
			if err != nil {
				return facts, err
			}
			facts.served[r.Family] = served
		}
		wanted := false
		err := RecoverPanic(func() error { wanted = f.wantsNewKey(&letters[i].Snapshot, at); return nil })
		if err != nil || !wanted { // err: an executor panicked. Decide calls it again, and panics for this letter only.
			continue
		}
		outstanding, err := f.otherCallOutstanding(ctx, *r)
		if err != nil && !errors.Is(err, background.ErrUnreadable) {
			return facts, err
		}
		facts.calls[r.ID] = otherCall{outstanding, err}
	}
	return facts, nil
}

// AddForkQueue makes the queue of a fork, unless it is empty, one of those that remote workers are told of. It
// is called before the fork is committed: a run in a queue that nobody is told of could be forgotten. A letter
// that can't be forked into the queue adds none.
func (c *Applier) AddForkQueue(ctx context.Context, s *journal.Snapshot, queue string, at time.Time) error {
	if queue == "" || !s.Run.Remote || OpenGate(*s) != "" || payerGate(&s.Run, queue) != "" || (Forking{Queue: queue}).checkQueue(&s.Run, c.Settlements.Targets) != nil {
		return nil
	}
	return c.Journal.Cases.AddJobQueue(ctx, s.Run.Tenant, queue, at)
}

// Decide is the decision to fork a letter. Facts must be of this letter as it was read.
func (k Forking) Decide(letter journal.LetterRow) (journal.Change, error) {
	s := &letter.Snapshot
	if s.Run.Letter == background.LetterPurged {
		return journal.Change{}, refusal.ErrNotFound
	}
	if err := errors.Join(k.checkQueue(&s.Run, k.Facts.family.Targets), k.checkPayload(s)); err != nil {
		return journal.Change{}, err
	}
	if k.Policy != nil && k.Policy.OnExhaustion == retrypolicy.Discard && s.Case.Kind == journal.KindSettlement {
		return journal.Change{}, validate.ErrDiscard
	}
	if gate := k.Facts.family.forkGate(*s, k.Facts.at, k.Queue, s.Run.Remote || k.Facts.served[s.Run.Family]); gate != "" {
		return journal.Change{}, RefusedBy(gate, *s)
	}
	if err := checkBinding(&s.Run); err != nil { // the fork's receipt has the digest of the same bytes
		return journal.Change{}, refusedBecause(refusal.GateRequestAltered, *s, err.Error())
	}
	after := *s
	after.Run.Letter, after.Case.ActiveRun = background.LetterForked, k.Run
	next := background.Run{
		ID: k.Run, Case: s.Case.ID, Tenant: s.Run.Tenant, Family: s.Run.Family, RetryKey: s.Run.RetryKey, Queue: s.Run.Queue,
		Target: s.Run.Target, Parent: s.Run.ID, Policy: s.Run.Policy, Payload: s.Run.Payload, Operation: s.Run.Operation,
		State: background.Pending, DueAt: k.Facts.at, NotificationNumber: 1, UnknownOpen: s.Run.UnknownOpen, FirstSentAt: s.Run.FirstSentAt,
		Remote: s.Run.Remote, Priority: s.Run.Priority,
	}
	if s.Run.ExpiresAt.After(k.Facts.at) { // a retry after that time would end at once
		next.ExpiresAt = s.Run.ExpiresAt
	}
	if moneyUnknown(*s) {
		next.Class = escrow.Unknown // until that is resolved, whatever the outcomes of the fork's attempts
	}
	changes := k.applyOverrides(&next)
	submitted := receipts.Payload{
		RetryKey: next.RetryKey, Family: next.Family, Queue: next.Queue, Target: next.Target, Policy: next.Policy.Encode(), ParentRun: s.Run.ID, RequestDigest: binding.RequestDigest(next.Payload),
		OutcomeClass: string(next.Class), RequestID: k.RequestID, Remote: next.Remote, Priority: next.Priority, ExpiresAt: next.ExpiresAt,
	}
	submitted.LetterOf, _ = LetterHandledBy(next)
	if k.Fingerprint != nil {
		submitted.UniqueBy = hex.EncodeToString(k.Fingerprint[:])
	}
	if s.Case.Kind == journal.KindSettlement {
		if err := k.applyToSettlement(s, &after, &next, &submitted); err != nil {
			return journal.Change{}, err
		}
	}
	reason := validate.Clean(k.Reason, 1024)
	drafts := []receipts.Draft{
		{Run: s.Run.ID, Subtype: receipts.Replayed, Actor: k.Actor, At: k.Facts.at, Payload: receipts.Payload{NewRun: k.Run, Reason: reason}},
		{Run: s.Run.ID, Subtype: receipts.ManualRetryRequested, Actor: k.Actor, At: k.Facts.at, Payload: receipts.Payload{
			NewRun: k.Run, Reason: reason, Changes: changes, Outcome: submitted.Outcome}},
		{Run: k.Run, Subtype: receipts.Submitted, Actor: k.Actor, At: k.Facts.at, Payload: submitted},
	}
	if !k.Replayed {
		drafts = drafts[1:]
	}
	return journal.Change{Before: s, After: &after, NewRun: &next, Drafts: drafts, Fingerprint: k.Fingerprint}, nil
}

// applyToSettlement sets what a fork changes in the case of a settlement, and a new operation
// key if the fork needs one.
func (k Forking) applyToSettlement(s, after *journal.Snapshot, next *background.Run, submitted *receipts.Payload) error {
	state, _, err := settlement.Apply(s.Case.State, settlement.Event{Fact: settlement.Forked})
	if err != nil {
		return err
	}
	after.Case.State = state
	newKey, err := k.Facts.newKey(s)
	if err != nil {
		return err
	}
	if newKey {
		after.Case.Epoch++
		next.Operation, next.FirstSentAt = newOperationKey(s, after.Case.Epoch), time.Time{}
	}
	submitted.Amount, submitted.Currency = s.Run.Terms.Amount, s.Run.Terms.Currency
	submitted.OperationKey, submitted.Outcome = hex.EncodeToString(next.Operation[:]), string(state.Outcome)
	submitted.Generation, submitted.Epoch, submitted.TransactionReceiptID = state.Generation, after.Case.Epoch, s.Case.Subject
	submitted.Settlement = binding.SettlementSnapshot(state)
	return nil
}

// checkQueue refuses a queue of another family. Empty means no queue and is valid. The queues of
// remote runs are their clients', but for payment queues.
func (k Forking) checkQueue(r *background.Run, targets Targets) error {
	switch {
	case k.Queue == "":
		return nil
	case r.Remote:
		errs := []error{validate.NewID("queue", k.Queue, 128)}
		if r.Family != Family {
			errs = append(errs, targets.CheckPlainQueue(k.Queue))
		}
		return errors.Join(errs...)
	}
	if queues := k.Queues(r.Family); !slices.Contains(queues, k.Queue) {
		return &refusal.FieldError{Field: "queue", Problem: "must be one of " + strings.Join(queues, ", ")}
	}
	return nil
}

// checkPayload refuses another payload of all but jobs. Whoever asks for the fork has refused one with a secret.
func (k Forking) checkPayload(s *journal.Snapshot) error {
	switch {
	case k.Payload == nil:
		return nil
	case s.Case.Kind == journal.KindSettlement:
		return &refusal.FieldError{Field: "payload", Problem: "can't be changed: it is the order to the escrow service"}
	case s.Run.Family != JobFamily:
		return &refusal.FieldError{Field: "payload", Problem: "can't be changed: only that of a job can"}
	}
	return nil
}

// applyOverrides applies the requested policy, queue and payload to a fork and returns how they
// differ from the letter's.
func (k Forking) applyOverrides(next *background.Run) string {
	var all []string
	if k.Policy != nil {
		if differs := validate.PolicyChanges(next.Policy, *k.Policy); differs != "" {
			all = append(all, "policy: "+differs)
		}
		next.Policy = k.Policy.Normalize()
	}
	if k.Queue != "" && k.Queue != next.Queue {
		all = append(all, "queue: "+next.Queue+" to "+k.Queue)
		next.Queue = k.Queue
	}
	if k.Payload != nil && !bytes.Equal(k.Payload, next.Payload) {
		all = append(all, fmt.Sprintf("payload: sha256 %.12s to %.12s", binding.RequestDigest(next.Payload), binding.RequestDigest(k.Payload)))
		next.Payload = k.Payload
	}
	return strings.Join(all, "; ")
}

// ForkGate returns the gate that would refuse a fork of the run into a queue (empty: its own), or empty, for lists
// and plans. It reads which families are served, at most once in servedFamiliesTTL. If that can't be read,
// the family counts as served: ReadForkFacts returns the error.
func (f *SettlementFamily) ForkGate(s journal.Snapshot, at time.Time, queue string) refusal.Gate {
	if s.Run.Remote {
		return f.forkGate(s, at, queue, true) // a worker of any program may fetch it
	}
	served, err := f.Served.served(context.Background(), s.Run.Family)
	return f.forkGate(s, at, queue, served || err != nil)
}

// payerGate returns the gate that refuses a queue for the fork of an adjudication that remote workers execute, or
// empty: the queue is the payer, and an operation key belongs to one. It refuses also what is proven unpaid.
func payerGate(r *background.Run, queue string) refusal.Gate {
	if r.Family == Family && r.Remote && queue != "" && queue != r.Queue {
		return refusal.GateAnotherPayer
	}
	return ""
}

// forkGate returns the gate that refuses a fork of the run, or empty.
func (f *SettlementFamily) forkGate(s journal.Snapshot, at time.Time, queue string, served bool) refusal.Gate {
	if gate := cmp.Or(OpenGate(s), payerGate(&s.Run, queue)); gate != "" {
		return gate
	}
	r := s.Run
	switch {
	case s.Case.State.Progression.Ended():
		return refusal.GateCaseEnded
	case s.Case.State.Underfunded() || r.Reason == ReasonPaidUnderOlderKey: // the sum of that payment may be unrecordable
		return refusal.GatePaidUnderOlderKey
	case s.Case.Kind == journal.KindSettlement && r.UnknownOpen > 0 && (f.ExecutorOf(r.Target) == nil || f.keyMayExpire(&r, at)):
		return refusal.GateReconcileFirst
	case r.Terms != nil && checkBinding(&r) != nil: // letters of lists have no terms: of these, Decide refuses the fork
		return refusal.GateRequestAltered
	case !served:
		return refusal.GateFamilyNotServed
	}
	return ""
}

// wantsNewKey reports whether a fork needs a new operation key. It needs one if the escrow service
// would replay a stored failure, and if the lifetime of the old key is over: that key no longer
// protects against a second payment, and a new lifetime can't be counted from a call under it.
// It never needs one if something was executed, or may be, by the run's own calls.
func (f *SettlementFamily) wantsNewKey(s *journal.Snapshot, at time.Time) bool {
	return s.Case.Kind == journal.KindSettlement && s.Run.Class == escrow.NotExecuted && s.Run.UnknownOpen == 0 && !s.Run.HasOutstandingCall() &&
		(f.replaysFailures(s.Run.Target) || f.keyExpired(&s.Run, at))
}

// newKey reports whether a fork gets a new operation key: it needs one, and nothing can be executed
// under the old one by calls of other runs.
func (facts ForkFacts) newKey(s *journal.Snapshot) (bool, error) {
	if !facts.family.wantsNewKey(s, facts.at) {
		return false, nil
	}
	other, read := facts.calls[s.Run.ID]
	if !read {
		return false, ErrLetterChanged // it needed none when the facts were read
	}
	return !other.outstanding, other.err
}

// otherCallOutstanding reports whether another run of the case, such as the fork's parent, has an
// outstanding call under the run's operation key that may still pay. A call of a lost process
// never returns: it counts for as long as a call can be in flight. The engine tracks the run's
// own calls.
func (f *SettlementFamily) otherCallOutstanding(ctx context.Context, r background.Run) (bool, error) {
	all, err := f.Journal.Cases.ReadableRuns(ctx, r.Tenant, r.Case)
	if err != nil {
		return false, err
	}
	return othersMayPay(r, all, func() (lookupEvidence, error) { return f.readLookupEvidence(ctx, r) })
}

// othersMayPay is otherCallOutstanding of a case with the given runs. It reads the evidence only if another run has a call.
func othersMayPay(r background.Run, all []journal.Snapshot, read func() (lookupEvidence, error)) (bool, error) {
	for _, s := range all {
		if s.Run.ID != r.ID && s.Run.Operation == r.Operation && s.Run.HasOutstandingCall() {
			q, err := read()
			return q.whyMayPay() != "", err
		}
	}
	return false, nil
}

func (f *SettlementFamily) replaysFailures(target string) bool {
	replayer, ok := f.ExecutorOf(target).(escrow.FailureReplayer)
	return ok && replayer.ReplaysFailures()
}

// keyExpired reports whether the lifetime of a run's operation key is over.
func (f *SettlementFamily) keyExpired(r *background.Run, at time.Time) bool {
	executor := f.ExecutorOf(r.Target)
	return executor != nil && executor.KeyLifetime() > 0 && !r.FirstSentAt.IsZero() && f.keyMayExpire(r, at)
}

func newOperationKey(s *journal.Snapshot, epoch int) escrow.OperationKey {
	return binding.OperationKey(settlement.Instruction{
		Tenant: s.Run.Tenant, TransactionReceiptID: s.Case.Subject, Outcome: s.Case.State.Outcome, Generation: s.Case.State.Generation,
	}, s.Run.Target, epoch)
}

package casework

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
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

// Decision returns the change to make to a dead letter as it was read, or the error that
// refuses it. The head of its case is the version of letter and annotations. A decision is
// called again whenever the letter is read again, so it must be pure. It leaves the ids of the
// transition empty: whoever applies it sets them.
type Decision func(f journal.LetterRow) (journal.Change, error)

// ErrLetterChanged means that the letter is not as it was read or planned.
var ErrLetterChanged = errors.New("postadjudication: the letter has changed since it was read")

// Guard narrows decisions to a letter as it was planned, and completes their receipts. The zero
// guard does neither.
type Guard struct {
	Head  *receipts.Head          // nil: any; else ErrLetterChanged unless the head of the case is this one
	Stamp func(*receipts.Payload) // nil: nothing; else called with the payload of each receipt of a change
}

// Letter guards decisions about letters.
func (g Guard) Letter(decide Decision) Decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		return g.run(func(*journal.Snapshot) (journal.Change, error) { return decide(f) })(&f.Snapshot)
	}
}

// run guards decisions about runs.
func (g Guard) run(decide journal.Decision) journal.Decision {
	if g.Head == nil && g.Stamp == nil {
		return decide
	}
	return func(s *journal.Snapshot) (journal.Change, error) {
		if g.Head != nil && s.Case.Head != *g.Head {
			return journal.Change{}, ErrLetterChanged
		}
		ch, err := decide(s)
		for i := range ch.Drafts {
			if g.Stamp != nil {
				g.Stamp(&ch.Drafts[i].Payload)
			}
		}
		return ch, err
	}
}

// setTransition sets the id of the transition in a change.
func setTransition(ch *journal.Change, id background.TransitionID) {
	ch.Transition, ch.After.Run.LastTransition = id, id
	if ch.NewRun != nil {
		ch.NewRun.LastTransition = id
	}
}

// AnnotationGate is the gate of changes to a letter's annotations: the letter must be open. Unless
// hold is empty, hold is the gate that refuses a held letter (refusal.GateHeld) or one not held (refusal.GateNotHeld).
func AnnotationGate(f journal.LetterRow, hold refusal.Gate) refusal.Gate {
	switch {
	case f.Run.State != background.DeadLettered:
		return refusal.GateNotALetter
	case f.Run.Letter != background.LetterOpen:
		return refusal.GateNotOpen
	case hold == refusal.GateHeld && f.Annotations.Held, hold == refusal.GateNotHeld && !f.Annotations.Held:
		return hold
	}
	return ""
}

// annotationChange returns a change that sets the annotations, with its receipt, and leaves the
// letter as it is.
func annotationChange(f journal.LetterRow, annotations journal.Annotations, receipt receipts.Draft) journal.Change {
	after := f.Snapshot
	receipt.Run = f.Run.ID
	return journal.Change{
		Before: &f.Snapshot, After: &after, Drafts: []receipts.Draft{receipt},
		SideEffect: journal.AnnotationsRow{Run: f.Run.ID, Tenant: f.Run.Tenant, Annotations: annotations},
	}
}

// Holding places a hold on a letter.
func Holding(actor, reason string, at time.Time) Decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := AnnotationGate(f, refusal.GateHeld); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason = true, validate.Clean(reason, 1024)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldPlaced, Actor: actor, At: at, Payload: receipts.Payload{Reason: annotations.HoldReason}}), nil
	}
}

// Releasing releases the hold on a letter. It voids the announced end of the letter's retention.
func Releasing(actor, reason string, at time.Time) Decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := AnnotationGate(f, refusal.GateNotHeld); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason, annotations.RetentionEndsAt = false, "", time.Time{}
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldReleased, Actor: actor, At: at, Payload: receipts.Payload{Reason: validate.Clean(reason, 1024)}}), nil
	}
}

// Marking sets marks on a letter. A nil mark is unchanged.
func Marking(actor, reason string, reprocess, review *bool, at time.Time) Decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := AnnotationGate(f, ""); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations, changes := f.Annotations, []string{}
		for _, m := range []struct {
			name  string
			value *bool
			to    **bool
		}{{"reprocess_eligible", reprocess, &annotations.Reprocess}, {"manual_review_required", review, &annotations.Review}} {
			if m.value != nil {
				*m.to = m.value
				changes = append(changes, m.name+"="+strconv.FormatBool(*m.value))
			}
		}
		annotations.MarkReason = validate.Clean(reason, 1024)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.Marked, Actor: actor, At: at, Payload: receipts.Payload{
			Reason: annotations.MarkReason, Changes: strings.Join(changes, " ")}}), nil
	}
}

// Announcing announces when the retention of a letter ends.
func Announcing(ends func(journal.LetterRow) time.Time, actor string, at time.Time) Decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		annotations := f.Annotations
		annotations.RetentionEndsAt = ends(f)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.RetentionEnding, Actor: actor, At: at, Payload: receipts.Payload{
			ExpiresAt: annotations.RetentionEndsAt, DeadLetteredAt: f.Run.DeadAt}}), nil
	}
}

// Freeing frees the reservation of a case and closes its open letter, which has nothing left to
// wait for. reference is to the evidence that nothing will be paid for it.
func Freeing(actor, reason, reference string, at time.Time) Decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := reservationGate(f); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		state, _, err := settlement.Apply(f.Case.State, settlement.Event{Fact: settlement.Freed})
		if err != nil {
			return journal.Change{}, err
		}
		after := f.Snapshot
		after.Case.State = state
		if after.Run.Letter == background.LetterOpen {
			after.Run.Letter = background.LetterReconciled
		}
		return journal.Change{Before: &f.Snapshot, After: &after, Drafts: []receipts.Draft{{
			Run: f.Run.ID, Subtype: receipts.ReservationFreed, Actor: actor, At: at, Payload: receipts.Payload{
				Reason: reason, FindingReference: reference, Freed: f.Case.State.Reserved, Outcome: string(state.Adjudication), Settlement: binding.SettlementSnapshot(state)},
		}}}, nil
	}
}

// reservationGate returns the gate that refuses freeing a case's reservation, by its active
// run.
func reservationGate(f journal.LetterRow) refusal.Gate {
	switch {
	case f.Case.Kind != journal.KindSettlement:
		return refusal.GateNotSettlement
	case f.Run.State.Live():
		return refusal.GateLive
	case moneyUnknown(f.Snapshot):
		return refusal.GateReconcileFirst
	case f.Case.State.Reserved == 0:
		return refusal.GateNothingReserved
	case f.Run.State != background.DeadLettered && f.Run.State != background.Cancelled:
		return refusal.GateNotALetter
	case f.Annotations.Held:
		return refusal.GateHeld
	}
	return ""
}

// Forking forks an open letter as a new run of its case.
type Forking struct {
	Family   *Settlements
	Actor    string
	Reason   string
	Policy   *retrypolicy.Policy // nil: the letter's
	Queue    string              // empty: the letter's
	Queues   func(family string) []string
	Run      background.RunID // id of the fork
	At       time.Time
	Replayed bool // a receipt of the replay precedes those of the fork
}

// Decide is the decision to fork a letter.
func (k Forking) Decide(f journal.LetterRow) (journal.Change, error) {
	s := &f.Snapshot
	if s.Run.Letter == background.LetterPurged {
		return journal.Change{}, refusal.ErrNotFound
	}
	if err := k.checkQueue(s.Run.Family); err != nil {
		return journal.Change{}, err
	}
	if gate := k.Family.ForkGate(*s, k.At); gate != "" {
		return journal.Change{}, RefusedBy(gate, *s)
	}
	if err := checkBinding(&s.Run); err != nil { // the fork's receipt has the digest of the same bytes
		refusal := RefusedBy(refusal.GateRequestAltered, *s)
		refusal.Because = err.Error()
		return journal.Change{}, refusal
	}
	after := *s
	after.Run.Letter, after.Case.ActiveRun = background.LetterForked, k.Run
	next := background.Run{
		ID: k.Run, Case: s.Case.ID, Tenant: s.Run.Tenant, Family: s.Run.Family, RetryKey: s.Run.RetryKey, Queue: s.Run.Queue,
		Target: s.Run.Target, Parent: s.Run.ID, Policy: s.Run.Policy, Payload: s.Run.Payload, Operation: s.Run.Operation,
		State: background.Pending, DueAt: k.At, NotificationNumber: 1, UnresolvedUnknowns: s.Run.UnresolvedUnknowns, FirstSentAt: s.Run.FirstSentAt,
	}
	if moneyUnknown(*s) {
		next.Class = escrow.Unknown // until that is resolved, whatever the outcomes of the fork's attempts
	}
	changes := k.applyOverrides(&next)
	submitted := receipts.Payload{
		RetryKey: next.RetryKey, Family: next.Family, Queue: next.Queue, Target: next.Target, Policy: next.Policy.Encode(), ParentRun: s.Run.ID, RequestDigest: binding.RequestDigest(next.Payload),
		OutcomeClass: string(next.Class),
	}
	submitted.LetterOf, _ = HandledRun(next)
	if s.Case.Kind == journal.KindSettlement {
		if err := k.applyToSettlement(s, &after, &next, &submitted); err != nil {
			return journal.Change{}, err
		}
	}
	reason := validate.Clean(k.Reason, 1024)
	drafts := []receipts.Draft{
		{Run: s.Run.ID, Subtype: receipts.Replayed, Actor: k.Actor, At: k.At, Payload: receipts.Payload{NewRun: k.Run, Reason: reason}},
		{Run: s.Run.ID, Subtype: receipts.ManualRetryRequested, Actor: k.Actor, At: k.At, Payload: receipts.Payload{
			NewRun: k.Run, Reason: reason, Changes: changes, Outcome: submitted.Outcome}},
		{Run: k.Run, Subtype: receipts.Submitted, Actor: k.Actor, At: k.At, Payload: submitted},
	}
	if !k.Replayed {
		drafts = drafts[1:]
	}
	return journal.Change{Before: s, After: &after, NewRun: &next, Drafts: drafts}, nil
}

// applyToSettlement sets what a fork changes in the case of a settlement, and a new operation
// key if the fork needs one.
func (k Forking) applyToSettlement(s, after *journal.Snapshot, next *background.Run, submitted *receipts.Payload) error {
	state, _, err := settlement.Apply(s.Case.State, settlement.Event{Fact: settlement.Forked})
	if err != nil {
		return err
	}
	after.Case.State = state
	if k.Family.needsNewKey(s, k.At) {
		after.Case.Epoch++
		next.Operation, next.FirstSentAt = newOperationKey(s, after.Case.Epoch), time.Time{}
	}
	submitted.Amount, submitted.Currency = s.Run.Terms.Amount, s.Run.Terms.Currency
	submitted.OperationKey, submitted.Outcome = hex.EncodeToString(next.Operation[:]), string(state.Adjudication)
	submitted.Generation, submitted.Epoch, submitted.TransactionReceiptID = state.Generation, after.Case.Epoch, s.Case.Subject
	submitted.Settlement = binding.SettlementSnapshot(state)
	return nil
}

// checkQueue refuses a queue of another family. Empty means no queue and is valid.
func (k Forking) checkQueue(family string) error {
	if k.Queue == "" {
		return nil
	}
	if queues := k.Queues(family); !slices.Contains(queues, k.Queue) {
		return &refusal.FieldError{Field: "queue", Problem: "must be one of " + strings.Join(queues, ", ")}
	}
	return nil
}

// applyOverrides applies the requested policy and queue to a fork and returns how they differ
// from the letter's.
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
	return strings.Join(all, "; ")
}

// FreeGate is reservationGate for all runs of the case: a call of any of them may be in flight.
func (c *Cases) FreeGate(ctx context.Context, f journal.LetterRow) (refusal.Gate, error) {
	if gate := reservationGate(f); gate != "" {
		return gate, nil
	}
	all, err := c.Journal.Cases.ReadableRuns(ctx, f.Run.Tenant, f.Case.ID)
	if err != nil {
		return "", err
	}
	for _, r := range all {
		switch why, err := c.Settlements.mayStillPay(ctx, r.Run); {
		case err != nil:
			return "", err
		case r.Run.State.Live():
			return refusal.GateLive, nil
		case why != "":
			return refusal.GateCallOutstanding, nil
		}
	}
	return "", nil
}

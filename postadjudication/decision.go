package postadjudication

import (
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
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// decision returns the change to make to a dead letter as it was read, or the error that
// refuses it. The head of its case is the version of letter and annotations. A decision is
// called again whenever the letter is read again, so it must be pure. It leaves the ids of the
// transition empty: whoever applies it sets them.
type decision func(f journal.LetterRow) (journal.Change, error)

// errLetterChanged means that the letter is not as it was read or planned.
var errLetterChanged = errors.New("postadjudication: the letter has changed since it was read")

// guard narrows decisions to a letter as it was planned, and completes their receipts. The zero
// guard does neither.
type guard struct {
	head  *receipts.Head          // nil: any; else errLetterChanged unless the head of the case is this one
	stamp func(*receipts.Payload) // nil: nothing; else called with the payload of each receipt of a change
}

// letter guards decisions about letters.
func (g guard) letter(decide decision) decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		return g.run(func(*journal.Snapshot) (journal.Change, error) { return decide(f) })(&f.Snapshot)
	}
}

// run guards decisions about runs.
func (g guard) run(decide journal.Decision) journal.Decision {
	if g.head == nil && g.stamp == nil {
		return decide
	}
	return func(s *journal.Snapshot) (journal.Change, error) {
		if g.head != nil && s.Case.Head != *g.head {
			return journal.Change{}, errLetterChanged
		}
		ch, err := decide(s)
		for i := range ch.Drafts {
			if g.stamp != nil {
				g.stamp(&ch.Drafts[i].Payload)
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

// annotationGate is the gate of changes to a letter's annotations: the letter must be open. Unless
// hold is empty, hold is the gate that refuses a held letter (GateHeld) or one not held (GateNotHeld).
func annotationGate(f journal.LetterRow, hold Gate) Gate {
	switch {
	case f.Run.State != background.DeadLettered:
		return GateNotALetter
	case f.Run.Letter != background.LetterOpen:
		return GateNotOpen
	case hold == GateHeld && f.Annotations.Held, hold == GateNotHeld && !f.Annotations.Held:
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

// holding places a hold on a letter.
func holding(actor, reason string, at time.Time) decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := annotationGate(f, GateHeld); gate != "" {
			return journal.Change{}, refusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason = true, cleanText(reason, 1024)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldPlaced, Actor: actor, At: at, Payload: receipts.Payload{Reason: annotations.HoldReason}}), nil
	}
}

// releasing releases the hold on a letter. It voids the announced end of the letter's retention.
func releasing(actor, reason string, at time.Time) decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := annotationGate(f, GateNotHeld); gate != "" {
			return journal.Change{}, refusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason, annotations.RetentionEndsAt = false, "", time.Time{}
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldReleased, Actor: actor, At: at, Payload: receipts.Payload{Reason: cleanText(reason, 1024)}}), nil
	}
}

// marking sets marks on a letter. A nil mark is unchanged.
func marking(actor, reason string, reprocess, review *bool, at time.Time) decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := annotationGate(f, ""); gate != "" {
			return journal.Change{}, refusedBy(gate, f.Snapshot)
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
		annotations.MarkReason = cleanText(reason, 1024)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.Marked, Actor: actor, At: at, Payload: receipts.Payload{
			Reason: annotations.MarkReason, Changes: strings.Join(changes, " ")}}), nil
	}
}

// announcing announces when the retention of a letter ends.
func announcing(ends func(journal.LetterRow) time.Time, actor string, at time.Time) decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		annotations := f.Annotations
		annotations.RetentionEndsAt = ends(f)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.RetentionEnding, Actor: actor, At: at, Payload: receipts.Payload{
			ExpiresAt: annotations.RetentionEndsAt, DeadLetteredAt: f.Run.DeadAt}}), nil
	}
}

// freeing frees the reservation of a case and closes its open letter, which has nothing left to
// wait for. reference is to the evidence that nothing will be paid for it.
func freeing(actor, reason, reference string, at time.Time) decision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := reservationGate(f); gate != "" {
			return journal.Change{}, refusedBy(gate, f.Snapshot)
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
func reservationGate(f journal.LetterRow) Gate {
	switch {
	case f.Case.Kind != journal.KindSettlement:
		return GateNotSettlement
	case f.Run.State.Live():
		return GateLive
	case moneyUnknown(f.Snapshot):
		return GateReconcileFirst
	case f.Case.State.Reserved == 0:
		return GateNothingReserved
	case f.Run.State != background.DeadLettered && f.Run.State != background.Cancelled:
		return GateNotALetter
	case f.Annotations.Held:
		return GateHeld
	}
	return ""
}

// forking forks an open letter as a new run of its case.
type forking struct {
	family   *settlementFamily
	actor    string
	reason   string
	policy   *retrypolicy.Policy // nil: the letter's
	queue    string              // empty: the letter's
	queues   func(family string) []string
	run      background.RunID // id of the fork
	at       time.Time
	replayed bool // a receipt of the replay precedes those of the fork
}

func (k forking) decide(f journal.LetterRow) (journal.Change, error) {
	s := &f.Snapshot
	if s.Run.Letter == background.LetterPurged {
		return journal.Change{}, ErrNotFound
	}
	if err := k.checkQueue(s.Run.Family); err != nil {
		return journal.Change{}, err
	}
	if gate := k.family.forkGate(*s, k.at); gate != "" {
		return journal.Change{}, refusedBy(gate, *s)
	}
	if err := checkBinding(&s.Run); err != nil { // the fork's receipt has the digest of the same bytes
		refusal := refusedBy(GateRequestAltered, *s)
		refusal.Because = err.Error()
		return journal.Change{}, refusal
	}
	after := *s
	after.Run.Letter, after.Case.ActiveRun = background.LetterForked, k.run
	next := background.Run{
		ID: k.run, Case: s.Case.ID, Tenant: s.Run.Tenant, Family: s.Run.Family, RetryKey: s.Run.RetryKey, Queue: s.Run.Queue,
		Target: s.Run.Target, Parent: s.Run.ID, Policy: s.Run.Policy, Payload: s.Run.Payload, Operation: s.Run.Operation,
		State: background.Pending, DueAt: k.at, NotificationNumber: 1, UnresolvedUnknowns: s.Run.UnresolvedUnknowns, FirstSentAt: s.Run.FirstSentAt,
	}
	if moneyUnknown(*s) {
		next.Class = escrow.Unknown // until that is resolved, whatever the outcomes of the fork's attempts
	}
	changes := k.applyOverrides(&next)
	submitted := receipts.Payload{
		RetryKey: next.RetryKey, Family: next.Family, Queue: next.Queue, Target: next.Target, Policy: next.Policy.Encode(), ParentRun: s.Run.ID, RequestDigest: binding.RequestDigest(next.Payload),
		OutcomeClass: string(next.Class),
	}
	submitted.LetterOf, _ = handledRun(next)
	if s.Case.Kind == journal.KindSettlement {
		if err := k.applyToSettlement(s, &after, &next, &submitted); err != nil {
			return journal.Change{}, err
		}
	}
	reason := cleanText(k.reason, 1024)
	drafts := []receipts.Draft{
		{Run: s.Run.ID, Subtype: receipts.Replayed, Actor: k.actor, At: k.at, Payload: receipts.Payload{NewRun: k.run, Reason: reason}},
		{Run: s.Run.ID, Subtype: receipts.ManualRetryRequested, Actor: k.actor, At: k.at, Payload: receipts.Payload{
			NewRun: k.run, Reason: reason, Changes: changes, Outcome: submitted.Outcome}},
		{Run: k.run, Subtype: receipts.Submitted, Actor: k.actor, At: k.at, Payload: submitted},
	}
	if !k.replayed {
		drafts = drafts[1:]
	}
	return journal.Change{Before: s, After: &after, NewRun: &next, Drafts: drafts}, nil
}

// applyToSettlement sets what a fork changes in the case of a settlement, and a new operation
// key if the fork needs one.
func (k forking) applyToSettlement(s, after *journal.Snapshot, next *background.Run, submitted *receipts.Payload) error {
	state, _, err := settlement.Apply(s.Case.State, settlement.Event{Fact: settlement.Forked})
	if err != nil {
		return err
	}
	after.Case.State = state
	if k.family.needsNewKey(s, k.at) {
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
func (k forking) checkQueue(family string) error {
	if k.queue == "" {
		return nil
	}
	if queues := k.queues(family); !slices.Contains(queues, k.queue) {
		return &FieldError{Field: "queue", Problem: "must be one of " + strings.Join(queues, ", ")}
	}
	return nil
}

// applyOverrides applies the requested policy and queue to a fork and returns how they differ
// from the letter's.
func (k forking) applyOverrides(next *background.Run) string {
	var all []string
	if k.policy != nil {
		if differs := policyChanges(next.Policy, *k.policy); differs != "" {
			all = append(all, "policy: "+differs)
		}
		next.Policy = k.policy.Normalize()
	}
	if k.queue != "" && k.queue != next.Queue {
		all = append(all, "queue: "+next.Queue+" to "+k.queue)
		next.Queue = k.queue
	}
	return strings.Join(all, "; ")
}

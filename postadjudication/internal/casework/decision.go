package casework

import (
	"context"
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
	"github.com/recourse-dev/recourse/settlement"
)

// LetterDecision returns the change to make to a dead letter as it was read, or the error that
// refuses it. The head of its case is the version of letter and annotations. A decision is
// called again whenever the letter is read again, so it must be pure: what it needs besides the
// letter is read before, such as ForkFacts. It leaves the ids of the transition empty: whoever
// applies it sets them.
type LetterDecision func(f journal.LetterRow) (journal.Change, error)

// Guard narrows decisions to a letter as it was planned, and completes their receipts. The zero
// guard does neither.
type Guard struct {
	Head  *receipts.Head          // nil: any; else ErrLetterChanged unless the head of the case is this one
	Stamp func(*receipts.Payload) // nil: nothing; else called with the payload of each receipt of a change
}

// Letter guards decisions about letters.
func (g Guard) Letter(decide LetterDecision) LetterDecision {
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

// HoldGate returns the gate that refuses a change of a letter's hold, or empty: hold is refusal.GateHeld,
// which refuses a held letter, or refusal.GateNotHeld, which refuses one that is not held.
func HoldGate(f journal.LetterRow, hold refusal.Gate) refusal.Gate {
	if gate := OpenGate(f.Snapshot); gate != "" {
		return gate
	}
	if f.Annotations.Held == (hold == refusal.GateHeld) {
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
func Holding(actor, reason string, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := HoldGate(f, refusal.GateHeld); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason = true, validate.Clean(reason, 1024)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldPlaced, Actor: actor, At: at, Payload: receipts.Payload{Reason: annotations.HoldReason}}), nil
	}
}

// Releasing releases the hold on a letter. It voids the announced end of the letter's retention.
func Releasing(actor, reason string, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := HoldGate(f, refusal.GateNotHeld); gate != "" {
			return journal.Change{}, RefusedBy(gate, f.Snapshot)
		}
		annotations := f.Annotations
		annotations.Held, annotations.HoldReason, annotations.RetentionEndsAt = false, "", time.Time{}
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.HoldReleased, Actor: actor, At: at, Payload: receipts.Payload{Reason: validate.Clean(reason, 1024)}}), nil
	}
}

// Marking sets marks on a letter. A nil mark is unchanged.
func Marking(actor, reason string, reprocess, review *bool, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		if gate := OpenGate(f.Snapshot); gate != "" {
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
func Announcing(ends func(journal.LetterRow) time.Time, actor string, at time.Time) LetterDecision {
	return func(f journal.LetterRow) (journal.Change, error) {
		annotations := f.Annotations
		annotations.RetentionEndsAt = ends(f)
		return annotationChange(f, annotations, receipts.Draft{Subtype: receipts.RetentionEnding, Actor: actor, At: at, Payload: receipts.Payload{
			ExpiresAt: annotations.RetentionEndsAt, DeadLetteredAt: f.Run.DeadAt}}), nil
	}
}

// Freeing frees the reservation of a case and closes its open letter, which has nothing left to
// wait for. reference is to the evidence that nothing will be paid for it.
func Freeing(actor, reason, reference string, at time.Time) LetterDecision {
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
				Reason: reason, FindingReference: reference, Freed: f.Case.State.Reserved, Outcome: string(state.Outcome), Settlement: binding.SettlementSnapshot(state)},
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

// FreeGate is reservationGate for all runs of the case: a call of any of them may be in flight.
func (c *Applier) FreeGate(ctx context.Context, f journal.LetterRow) (refusal.Gate, error) {
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

// ValueOr returns the mark that somebody set, else the derived one.
func ValueOr(value *bool, derived bool) bool {
	if value != nil {
		return *value
	}
	return derived
}

// ReprocessEligible returns the mark of a letter on which nobody set it: only attempts ran out.
func ReprocessEligible(s journal.Snapshot) bool {
	failed := s.Run.Class == escrow.NotExecuted || s.Run.Class == escrow.Unknown && s.Case.Kind != journal.KindSettlement
	return failed && s.Run.Reason == background.ReasonRetryExhausted
}

// ManualReviewRequired returns the mark of a letter on which nobody set it: money is unknown.
func ManualReviewRequired(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && s.Run.UnresolvedUnknowns > 0
}

// moneyUnknown reports whether it is unknown what became of a run's money. A plain task moves
// no money: its unknown outcome is a failure.
func moneyUnknown(s journal.Snapshot) bool {
	return s.Case.Kind == journal.KindSettlement && (s.Run.Class == escrow.Unknown || s.Run.UnresolvedUnknowns > 0)
}

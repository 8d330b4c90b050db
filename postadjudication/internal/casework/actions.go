package casework

import (
	"cmp"
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// GateOf returns the gate that refuses an action on a run now, or empty. Lists, inspections and plans judge by it, and
// so do the actions themselves, on the run as it is then. Whether a finding can be made is that of the class which the
// run takes longest, see FindingsTaken; what is on record is compared with the finding itself. FreeGate judges freeing by
// the calls of other runs of the case. A retry is judged by the newest run of the lineage.
func (c *Applier) GateOf(a refusal.Action, f *journal.LetterRow, at time.Time) refusal.Gate {
	switch a {
	case refusal.ActionFork, refusal.ActionRetry:
		return c.Settlements.ForkGate(f.Snapshot, at, "")
	case refusal.ActionReconcile:
		return FindingGate(escrow.Executed, f.Snapshot)
	case refusal.ActionLookup:
		return lookupGate(c.Settlements, f.Snapshot)
	case refusal.ActionHold:
		return HoldGate(*f, refusal.GateHeld)
	case refusal.ActionRelease:
		return HoldGate(*f, refusal.GateNotHeld)
	case refusal.ActionMark:
		return OpenGate(f.Snapshot)
	case refusal.ActionPurge:
		return PurgeGate(*f)
	case refusal.ActionFree:
		return reservationGate(*f)
	case refusal.ActionCancel:
		return cancelGate(f.Snapshot)
	case refusal.ActionAdjudicate:
		return cmp.Or(endedGate(f.Snapshot), HigherGate(&f.Snapshot))
	}
	return refusal.GateNotALetter
}

// FindingsTaken returns the classes that a finding about a run may state now.
func FindingsTaken(s journal.Snapshot) []escrow.Class {
	taken := []escrow.Class{}
	for _, class := range []escrow.Class{escrow.Executed, escrow.NotExecuted} {
		if FindingGate(class, s) == "" {
			taken = append(taken, class)
		}
	}
	return taken
}

// ForkUntil returns until when a fork that is allowed now stays so: the operation key of an unknown call has to
// protect against a second payment. Zero: for as long as nothing else changes.
func ForkUntil(f *SettlementFamily, s *journal.Snapshot) time.Time {
	if s.Case.Kind != journal.KindSettlement || s.Run.UnknownOpen == 0 || s.Run.FirstSentAt.IsZero() || f.ExecutorOf(s.Run.Target) == nil {
		return time.Time{}
	}
	life := f.ExecutorOf(s.Run.Target).KeyLifetime()
	if life == escrow.Forever {
		return time.Time{}
	}
	return s.Run.FirstSentAt.Add(f.trustedLifetime(life) - f.CallTimeLimit)
}

// HigherGate returns the gate that refuses a decision of a higher generation while the active run of the case may still
// pay, or empty.
func HigherGate(s *journal.Snapshot) refusal.Gate {
	switch {
	case s.Run.State.Live():
		return refusal.GateLive
	case s.Run.UnknownOpen > 0:
		return refusal.GateReconcileFirst
	case s.Run.HasOutstandingCall() && s.Run.Class != escrow.Executed: // one key is executed once
		return refusal.GateCallOutstanding
	}
	return ""
}

func endedGate(s journal.Snapshot) refusal.Gate {
	switch {
	case s.Case.Kind != journal.KindSettlement:
		return refusal.GateNotSettlement
	case s.Case.State.Progression.Ended():
		return refusal.GateCaseEnded
	}
	return ""
}

// cancelGate returns the gate that refuses to cancel a run. A running attempt takes the request, and its end decides.
func cancelGate(s journal.Snapshot) refusal.Gate {
	switch {
	case !s.Run.State.Live():
		return refusal.GateNotLive
	case s.Run.State != background.Running && moneyUnknown(s):
		return refusal.GateReconcileFirst
	}
	return ""
}

// lookupGate returns the gate that refuses a person's lookup of a run, or empty.
func lookupGate(f *SettlementFamily, s journal.Snapshot) refusal.Gate {
	gate := ReconcileGate(s)
	if gate == "" && (f.ExecutorOf(s.Run.Target) == nil || escrow.IsRemote(s.Run.Target)) {
		return refusal.GateNoExecutor
	}
	return gate
}

// FreeGate is the gate of freeing a case's reservation, for all runs of the case: a call of any of them may be in flight.
func (c *Applier) FreeGate(ctx context.Context, f journal.LetterRow) (refusal.Gate, error) {
	if gate := reservationGate(f); gate != "" {
		return gate, nil
	}
	all, err := c.Journal.Cases.ReadableRuns(ctx, f.Run.Tenant, f.Case.ID)
	if err != nil {
		return "", err
	}
	return freeGateOf(all, func(r background.Run) (string, error) { return c.Settlements.mayStillPay(ctx, r) })
}

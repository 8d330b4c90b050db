package casework

import (
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// failureAccepted is the failure type of a call or lookup that the service accepted, unless the executor states one. The
// record of lookups always has it.
const failureAccepted = "executor.accepted"

// Bounds of the pause between two questions about an accepted call. The sweeper takes the notification of a due run
// for lost if it is delayed by much more than the longer one.
const (
	acceptedPauseMin = 250 * time.Millisecond
	acceptedPauseMax = time.Minute
)

// acceptedPause returns the pause before the next question about a call of that age: half of its age. A negative age
// is unknown.
func acceptedPause(age time.Duration) time.Duration {
	if age < 0 {
		return acceptedPauseMax
	}
	return min(max(age/2, acceptedPauseMin), acceptedPauseMax)
}

// AcceptedUntil returns when an accepted call of a run is no longer asked about: its outcome is unknown then, as that of
// any other call. The service still knows the operation key. Zero if this process does not call the service.
func AcceptedUntil(f *SettlementFamily, r *background.Run) time.Time {
	executor := f.ExecutorOf(r.Target)
	if executor == nil || r.FirstSentAt.IsZero() {
		return time.Time{}
	}
	span := escrow.DefaultAcceptedFor
	if states, ok := executor.(escrow.Asynchronous); ok && states.AcceptedFor() > 0 { // 0: another process accepts for it
		span = states.AcceptedFor()
	}
	until := r.FirstSentAt.Add(span)
	if last := lastLookup(f, r); !last.IsZero() && last.Before(until) {
		return last
	}
	return until
}

// isAskedFirst reports whether the service has accepted the last call of a waiting run, and can be asked what became of
// it: no other call is made before.
func isAskedFirst(f *SettlementFamily, r *background.Run) bool {
	if !r.AwaitsEnd() || r.UnknownOpen == 0 {
		return false
	}
	_, canLookUp := f.ExecutorOf(r.Target).(escrow.Lookuper)
	return canLookUp
}

// awaitingEnd returns the answer of a call or a lookup with the time until the next question in RetryAfter, while a call
// is accepted: by this answer, or by one before that this one does not end. Once the span is over nothing is
// accepted any more, nor once the service may have forgotten the key: then no later answer says more.
func awaitingEnd(f *SettlementFamily, r *background.Run, res background.Result) background.Result {
	if res.Class != escrow.Unknown || !res.Accepted && !r.AwaitsEnd() {
		return res
	}
	now := f.Now()
	forgotten := res.Failure != nil && res.Failure.Type == lookupForgotten
	if until := AcceptedUntil(f, r); forgotten || !now.Before(until) {
		res.Accepted, res.RetryAfter = false, 0
		return res
	}
	pause := acceptedPause(keyAge(f, r.FirstSentAt, now))
	res.RetryAfter = max(pause, min(res.RetryAfter, acceptedPauseMax))
	return res
}

package casework

import (
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// trustedLifetime returns how long after its first call a key with the given lifetime is
// relied on.
func (f *SettlementFamily) trustedLifetime(life time.Duration) time.Duration {
	return life - f.margin()
}

// margin is subtracted from the lifetime of an operation key, besides a call's own time
// limit: a call is sent within the call bound of its claim, and the clocks of the process
// that made the first call and of this one may each be off by MaxClockOffset.
func (f *SettlementFamily) margin() time.Duration { return f.CallBound + 2*background.MaxClockOffset }

// checkKeyLifetime refuses a call after an unknown one once the key may have expired: the escrow
// service would take it for a new order and pay twice. If the clock is slightly before the
// first call, the run waits; keyMayExpire covers a clock far before it.
func (f *SettlementFamily) checkKeyLifetime(r *background.Run, at time.Time) error {
	switch {
	case r.UnknownOpen == 0 || r.FirstSentAt.IsZero() || !r.State.Waiting() || f.ExecutorOf(r.Target).KeyLifetime() == escrow.Forever:
		return nil
	case f.keyMayExpire(r, at):
		return background.ErrKeyExpired
	case at.Before(r.FirstSentAt):
		return background.ErrBeforeFirstCall
	}
	return nil
}

// keyMayExpire reports whether the run's operation key may expire during a call made now. It
// also returns true if the key's age is unknown: at is before the first call by more than two clocks
// may differ, or the database's clock was set back since.
func (f *SettlementFamily) keyMayExpire(r *background.Run, at time.Time) bool {
	life, age := f.ExecutorOf(r.Target).KeyLifetime(), keyAge(f, r.FirstSentAt, at)
	return life != escrow.Forever && (-age > 2*background.MaxClockOffset || age >= f.trustedLifetime(life)-f.CallTimeLimit)
}

// keyAge returns the time since the first call under a key; before any time, if the database's clock may have been set
// back since the call, which makes keys look younger. Until the clock has passed what it showed before it was set back,
// nobody knows which keys are from before: all of them count as such. A process may claim by the time of before
// for as long as its session lasts without a heartbeat.
func keyAge(f *SettlementFamily, first, at time.Time) time.Duration {
	if back := f.ClockSetBack(); !back.IsZero() && !first.After(back.Add(f.LostAfter+2*background.MaxClockOffset)) {
		return -escrow.Forever
	}
	return at.Sub(first)
}

// elapsed returns how long ago a recorded time was at the least: a clock that was set ahead since shows more.
func elapsed(f *SettlementFamily, since, now time.Time) time.Duration {
	return max(0, now.Sub(Later(since, f.ClockUnchanged())))
}

// slackOf returns how long before the end of a span something is done that has to happen within it: claims and
// lookups may be late.
func slackOf(span time.Duration) time.Duration { return min(max(span, 0)/10, time.Minute) }

// lastCall returns when the operation key of a run still protects a call against a second payment, with some time
// to make it; zero if it always does.
func lastCall(f *SettlementFamily, r *background.Run) time.Time {
	return lastUse(r, f.ExecutorOf(r.Target).KeyLifetime(), f.margin()+f.CallTimeLimit)
}

// lastLookup returns when the escrow service can still look a run's operation key up, with some time to ask; zero
// if it always can.
func lastLookup(f *SettlementFamily, r *background.Run) time.Time {
	return lastUse(r, f.lookupLifetime(r.Target), f.margin())
}

func lastUse(r *background.Run, life, margin time.Duration) time.Time {
	if life == escrow.Forever || r.FirstSentAt.IsZero() {
		return time.Time{}
	}
	return r.FirstSentAt.Add(life - margin - slackOf(life-margin))
}

// capRetry brings the next attempt of a run whose outcome is unknown forward, whatever asked for the wait, while the
// service still knows the operation key: to a call that is answered by what was paid, else to the lookup before it.
func capRetry(f *SettlementFamily, tr *background.Transition, r *background.Run) {
	if tr.NextRetryAt.IsZero() || r.Remote || tr.Result.Class != escrow.Unknown && r.UnknownOpen == 0 || f.ExecutorOf(r.Target) == nil {
		return
	}
	for _, last := range []time.Time{lastCall(f, r), lastLookup(f, r)} {
		if last.After(tr.At) {
			if tr.NextRetryAt.After(last) {
				tr.NextRetryAt = last.Truncate(time.Microsecond)
			}
			return
		}
	}
}

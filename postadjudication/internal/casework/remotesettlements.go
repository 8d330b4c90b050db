package casework

import (
	"context"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// RemoteWorkers is what an operator states about the payment services that remote workers call.
type RemoteWorkers struct {
	// KeyLifetime is how long after the first call they recognise an operation key. An attempt ends before
	// that, and after it no attempt follows one of unknown outcome. 0: none ever does, and a repeated fetch
	// is not given the adjudication that it got before.
	KeyLifetime time.Duration
	// InFlight is how long after its lease a worker may still pay. 0: nobody can say. Then "not
	// executed" is a finding only of a person who confirms it.
	InFlight time.Duration
}

// remoteExecutor stands for the workers of a remote target. It calls nothing: a remote run is
// fetched, and never delivered.
type remoteExecutor struct{ RemoteWorkers }

func (remoteExecutor) Execute(context.Context, escrow.Call) escrow.Answer {
	return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "executor.remote", Message: "remote workers fetch this adjudication; it is never delivered"}
}

func (e remoteExecutor) KeyLifetime() time.Duration { return e.RemoteWorkers.KeyLifetime }

// InFlight implements escrow.InFlighter.
func (e remoteExecutor) InFlight() time.Duration {
	if e.RemoteWorkers.InFlight <= 0 {
		return escrow.Forever
	}
	return e.RemoteWorkers.InFlight
}

// leaseLimit returns the time limit of a remote attempt that is claimed now, or background.ErrNotDue. Heartbeats
// don't extend it: whoever holds the attempt may pay more than once under its key, also by repeating its fetch, so it
// has to end while the key is recognised, which counts from the first call. Once so little is left that a call may
// last longer, until the key is surely forgotten, nobody gets the attempt: the key could be forgotten during it. Where
// nothing was executed under a key that is surely forgotten, the time counts anew; then, and where no key is
// recognised, the attempt is given once: see ClaimDue.
func (r RemoteRuns) leaseLimit(run *background.Run, at time.Time) (time.Duration, error) {
	recognised := r.recognisedByWorkers()
	switch {
	case recognised == escrow.Forever || recognised == 0:
		return MaxLease, nil
	case run.FirstSentAt.IsZero():
		return min(MaxLease, recognised), nil
	case !r.Settlements.keyMayExpire(run, at):
		return min(MaxLease, run.FirstSentAt.Add(recognised).Sub(at)), nil
	case run.UnknownOpen > 0: // see checkKeyLifetime
		return 0, background.ErrKeyExpired
	case !r.forgottenByWorkers(run, at):
		return 0, background.ErrNotDue
	}
	return min(MaxLease, recognised), nil
}

// forgottenByWorkers reports whether the operation key of a run is surely forgotten by the payment service. The key of a
// call that is made then is known from that call on. False where keys are never recognised, or for ever.
func (r RemoteRuns) forgottenByWorkers(run *background.Run, at time.Time) bool {
	recognised := r.recognisedByWorkers()
	return recognised > 0 && recognised != escrow.Forever && !run.FirstSentAt.IsZero() && elapsed(r.Settlements, run.FirstSentAt, at) >= r.Settlements.Remote.KeyLifetime+r.Settlements.margin()
}

// NoWorkerUntil returns when a waiting adjudication is given to remote workers again: when its operation key is surely
// forgotten. Zero if that does not hold it back.
func NoWorkerUntil(f *SettlementFamily, run *background.Run, at time.Time) time.Time {
	if run.Family != Family {
		return time.Time{}
	}
	if _, err := (RemoteRuns{Settlements: f}).leaseLimit(run, at); !errors.Is(err, background.ErrNotDue) {
		return time.Time{}
	}
	return Later(run.FirstSentAt, f.ClockUnchanged()).Add(f.Remote.KeyLifetime + f.margin())
}

// recognisedByWorkers returns how long the services that remote workers call are relied on to recognise
// an operation key; 0: not at all.
func (r RemoteRuns) recognisedByWorkers() time.Duration {
	life := r.Settlements.Remote.KeyLifetime
	if life == escrow.Forever {
		return escrow.Forever
	}
	return max(0, r.Settlements.trustedLifetime(life))
}

// unclaimable returns why a change that was to claim a remote run does not: the case ends the run.
func unclaimable(reason string) error {
	return &lease.UnclaimableError{Reason: reason}
}

// UnrepeatableRuns lists waiting remote runs of which no attempt may follow: the outcome of one is unknown,
// and the operation key may have expired.
func (r RemoteRuns) UnrepeatableRuns(ctx context.Context, at time.Time, limit int) ([]background.Run, error) {
	waiting, err := r.LeaseStore.UnknownRuns(ctx, limit)
	if err != nil {
		return nil, err
	}
	over := waiting[:0]
	for i := range waiting {
		if err := r.Settlements.checkKeyLifetime(&waiting[i], at); errors.Is(err, background.ErrKeyExpired) {
			over = append(over, waiting[i])
		}
	}
	return over, nil
}

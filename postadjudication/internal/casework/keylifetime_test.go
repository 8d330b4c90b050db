package casework

import (
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

func never() time.Time { return time.Time{} }

// A key that was first called while the database's clock may have been ahead has no age, until it was called later than
// any process can have used the clock of before: a session without heartbeats lasts five times the call bound.
func TestAKeyOfWhichTheAgeIsUnknown(t *testing.T) {
	t.Parallel()
	back := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f := &SettlementFamily{Executor: fixedEscrow{keyLifetime: time.Hour}, Targets: Targets{escrow.DefaultTarget: nil}, CallTimeLimit: time.Second, CallBound: 3 * time.Second, LostAfter: 15 * time.Second, ClockSetBack: func() time.Time { return back }, ClockUnchanged: never}
	for after, want := range map[time.Duration]error{
		-24 * time.Hour: background.ErrKeyExpired, -time.Minute: background.ErrKeyExpired, 0: background.ErrKeyExpired, 17 * time.Second: background.ErrKeyExpired,
		17*time.Second + 1: nil,
	} {
		r := background.Run{Target: escrow.DefaultTarget, State: background.Scheduled, UnknownOpen: 1, FirstSentAt: back.Add(after)}
		if got := f.checkKeyLifetime(&r, r.FirstSentAt.Add(time.Second)); !errors.Is(got, want) {
			t.Errorf("first called %s after the clock was set back: %v, want %v", after, got, want)
		}
	}
}

// A clock slightly before the first call waits for it. A clock far before it can't decide, and
// one past the lifetime can.
func TestAClockBeforeTheFirstCallWaits(t *testing.T) {
	t.Parallel()
	f := &SettlementFamily{Executor: fixedEscrow{keyLifetime: time.Minute}, Targets: Targets{escrow.DefaultTarget: nil}, CallTimeLimit: time.Second, CallBound: 3 * time.Second, ClockSetBack: never, ClockUnchanged: never}
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := background.Run{Target: escrow.DefaultTarget, State: background.Scheduled, UnknownOpen: 1, FirstSentAt: first}
	for after, want := range map[time.Duration]error{
		-time.Hour: background.ErrKeyExpired, -2*time.Second - 1: background.ErrKeyExpired,
		-2 * time.Second: background.ErrBeforeFirstCall, -1: background.ErrBeforeFirstCall,
		0: nil, 54*time.Second - 1: nil, 54 * time.Second: background.ErrKeyExpired, time.Hour: background.ErrKeyExpired,
	} {
		if got := f.checkKeyLifetime(&r, first.Add(after)); !errors.Is(got, want) {
			t.Errorf("%s after the first call: %v, want %v", after, got, want)
		}
	}
	if r.UnknownOpen = 0; f.checkKeyLifetime(&r, first.Add(time.Hour)) != nil {
		t.Error("a key without an unknown outcome has expired")
	}
}

// A remote attempt ends while its key is recognised. Nobody gets one between the last call that surely ends in time and
// the time from which the key is surely forgotten.
func TestHowLongARemoteAttemptMayLast(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	remote := RemoteWorkers{KeyLifetime: time.Hour}
	f := &SettlementFamily{Remote: remote, CallTimeLimit: 5 * time.Second, CallBound: 3 * time.Second, ClockSetBack: never, ClockUnchanged: never} // a margin of 5s
	const recognised = time.Hour - 5*time.Second
	run := background.Run{Target: escrow.RemotePrefix + "payouts", State: background.Scheduled, FirstSentAt: first}
	unknown := run
	unknown.UnknownOpen = 1
	for _, tc := range []struct {
		run   background.Run
		age   time.Duration
		limit time.Duration
		err   error
	}{
		{background.Run{Target: run.Target}, 0, recognised, nil},
		{run, 0, recognised, nil},
		{run, 40 * time.Minute, recognised - 40*time.Minute, nil},
		{run, recognised - 5*time.Second - 1, 5*time.Second + 1, nil},
		{run, recognised - 5*time.Second, 0, background.ErrNotDue},
		{run, time.Hour - 1, 0, background.ErrNotDue},
		{run, time.Hour, 0, background.ErrNotDue},
		{run, time.Hour + 5*time.Second - 1, 0, background.ErrNotDue},
		{run, time.Hour + 5*time.Second, recognised, nil},
		{run, 24 * time.Hour, recognised, nil},
		{run, -time.Hour, 0, background.ErrNotDue}, // a clock far before the first call
		{unknown, 40 * time.Minute, recognised - 40*time.Minute, nil},
		{unknown, recognised - 5*time.Second, 0, background.ErrKeyExpired},
		{unknown, 24 * time.Hour, 0, background.ErrKeyExpired},
	} {
		if got, err := (RemoteRuns{Settlements: f}).leaseLimit(&tc.run, first.Add(tc.age)); got != tc.limit || !errors.Is(err, tc.err) {
			t.Errorf("%d unknown, %s after the first call: %s, %v, want %s, %v", tc.run.UnknownOpen, tc.age, got, err, tc.limit, tc.err)
		}
	}
}

// The next attempt after an unknown outcome is brought forward to the last call that its key protects; later to the last
// lookup that proves something; after that, and where the outcome is known, the wait stays as it is.
func TestHowLongAWaitOfUnknownOutcomeMayLast(t *testing.T) {
	t.Parallel()
	f := &SettlementFamily{Executor: fixedEscrow{keyLifetime: time.Hour}, Targets: Targets{escrow.DefaultTarget: nil}, CallTimeLimit: 5 * time.Second, CallBound: 3 * time.Second, ClockSetBack: never, ClockUnchanged: never}
	forever := &SettlementFamily{Executor: fixedEscrow{keyLifetime: escrow.Forever}, Targets: Targets{escrow.DefaultTarget: nil}, ClockSetBack: never, ClockUnchanged: never}
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lastCall, lastLookup := time.Hour-5*time.Second-5*time.Second-time.Minute, time.Hour-5*time.Second-time.Minute
	for _, tc := range []struct {
		f               *SettlementFamily
		class           escrow.Class
		open            int
		now, next, want time.Duration // since the first call
	}{
		{f, escrow.Unknown, 0, 0, time.Minute, time.Minute},
		{f, escrow.Unknown, 0, 0, 2 * time.Hour, lastCall},
		{f, escrow.NotExecuted, 1, 0, 2 * time.Hour, lastCall},
		{f, escrow.NotExecuted, 0, 0, 2 * time.Hour, 2 * time.Hour},
		{f, escrow.Unknown, 0, lastCall, 2 * time.Hour, lastLookup},
		{f, escrow.Unknown, 0, lastLookup, 2 * time.Hour, 2 * time.Hour},
		{forever, escrow.Unknown, 0, 0, 2000 * time.Hour, 2000 * time.Hour},
	} {
		tr := background.Transition{At: first.Add(tc.now), NextRetryAt: first.Add(tc.next), Result: background.Result{Class: tc.class}}
		capRetry(tc.f, &tr, &background.Run{Target: escrow.DefaultTarget, UnknownOpen: tc.open, FirstSentAt: first})
		if got := tr.NextRetryAt.Sub(first); got != tc.want {
			t.Errorf("%s, %d unknown, at %s, next at %s: %s, want %s", tc.class, tc.open, tc.now, tc.next, got, tc.want)
		}
	}
}

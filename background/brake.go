package background

import (
	"bytes"
	"context"
	"time"
)

// Target is whom a family's handler calls on behalf of one tenant. Brakes are per
// target.
type Target struct {
	Tenant string
	Family string
	Name   string // Run.Target
}

func (r Run) target() Target { return Target{Tenant: r.Tenant, Family: r.Family, Name: r.Target} }

// BrakeState is where a brake stands.
type BrakeState string

// The states of a brake.
const (
	BrakeReleased BrakeState = "released" // runs of the target are claimed
	BrakePulled   BrakeState = "pulled"   // only the probe is
	BrakeEasing   BrakeState = "easing"   // those that have been let go are
)

// Brake is the brake of one target as the journal last saw it. While it is not
// released, runs of the target that it bars are parked: they stay pending or
// scheduled, spend nothing while they are a crowd, and no bell rings for them.
//
//	released ──failing, hanging, by hand──▶ pulled ──probe answered, by hand──▶ easing
//	   ▲                                      ▲                                 │  │
//	   │                                      └───── failing again, by hand ────┘  │
//	   └────────────────── what was parked has been let go, by hand ◀──────────────┘
type Brake struct {
	Target
	State   BrakeState
	ByHand  bool   // pulled by a person: no probe is made, only a person releases it
	Actor   string // of the last pull or release
	Cause   string // reason code of the last pull or release
	Reason  string // for people
	At      time.Time
	Version int64 // rises with every change

	Probe RunID     // pulled: the run that may be claimed all the same
	LetGo Cursor    // easing: runs up to here, by due time and id, may be claimed
	Goal  time.Time // easing: released when all that was due by then has been let go
}

// Causes of a brake's moves.
const (
	CauseFailing   = "failing"   // too many attempts failed within the window
	CauseHanging   = "hanging"   // too many calls outlived their attempts
	CauseRelapsed  = "relapsed"  // a batch that was let go failed
	CauseAnswered  = "answered"  // the probe was answered: begin to let go
	CauseRecovered = "recovered" // everything parked has been let go
	CauseByHand    = "by_hand"
)

// Bars reports whether the brake keeps a run of its target from being claimed. The
// probe is let through by who makes it.
func (b Brake) Bars(r Run) bool {
	switch b.State {
	case BrakePulled:
		return true
	case BrakeEasing:
		return after(Cursor{DueAt: r.DueAt, ID: r.ID}, b.LetGo)
	}
	return false
}

func after(a, b Cursor) bool {
	if !a.DueAt.Equal(b.DueAt) {
		return a.DueAt.After(b.DueAt)
	}
	return bytes.Compare(a.ID[:], b.ID[:]) > 0
}

// Pull is the brake after a pull; false when it is pulled already and nothing
// changes. A person's pull of a brake that pulled itself makes it theirs.
func (b Brake) Pull(byHand bool, actor, cause, reason string, at time.Time) (Brake, bool) {
	if b.State == BrakePulled && (b.ByHand || !byHand) {
		return b, false
	}
	return Brake{Target: b.Target, State: BrakePulled, ByHand: byHand, Actor: actor, Cause: cause, Reason: reason, At: at, Version: b.Version + 1}, true
}

// Release is the brake one step further: what was pulled eases, what eases is
// released; false when it is released already. The goal of easing is what is due at
// its beginning.
func (b Brake) Release(actor, cause, reason string, at time.Time) (Brake, bool) {
	next := Brake{Target: b.Target, Actor: actor, Cause: cause, Reason: reason, At: at, Version: b.Version + 1}
	switch b.State {
	case BrakePulled:
		next.State, next.Goal = BrakeEasing, at
	case BrakeEasing:
		next.State = BrakeReleased
	default:
		return b, false
	}
	return next, true
}

// BrakeLedger is what the journal keeps of brakes, for all processes.
type BrakeLedger interface {
	// Brakes lists the brakes that are not released.
	Brakes(ctx context.Context) ([]Brake, error)
	// MoveBrake changes a brake with a receipt of it, in one commit. It decides on the
	// newest state, which is a released brake of version 0 when there is none yet;
	// when decide reports false nothing is written. It returns the brake as it is now.
	MoveBrake(ctx context.Context, t Target, decide func(Brake) (Brake, bool)) (now Brake, moved bool, err error)
	// StepBrake writes Probe and LetGo of a brake whose version is still the one
	// before, without a receipt. It reports whether it did. A new probe is refused
	// while the last one runs.
	StepBrake(ctx context.Context, next Brake) (bool, error)
	// Parked lists waiting runs of a target that are due at the given time, in
	// order, strictly after the cursor.
	Parked(ctx context.Context, t Target, after Cursor, due time.Time, limit int) ([]Run, error)
	// Runs reads runs by id, in no order. Those that do not exist are left out.
	Runs(ctx context.Context, ids []RunID) ([]Run, error)
}

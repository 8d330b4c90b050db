package circuit

import (
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// Scope is what a circuit breaker holds for: the calls of a family's handler to a target, of one tenant or of
// all tenants.
type Scope struct {
	Tenant string // empty: all tenants
	Family string
	Name   string // the target, as runs name it
}

// State is the state of a circuit breaker.
type State string

// The states of a circuit breaker.
const (
	Closed   State = "closed"    // runs of the target are claimed
	Open     State = "open"      // only probes are claimed; none at all when opened manually
	HalfOpen State = "half_open" // as open, and the target has answered a probe
)

// Breaker is the circuit breaker of one target as last read from the journal. While it is not
// closed, waiting runs of the target are paused: they stay pending or scheduled, and need no
// notification.
//
//	closed ──failing, hanging, manual──▶ open ──a probe is answered, manual──▶ half_open
//	   ▲                                  ▲                                     │   │
//	   │                                  └──────── failing again, manual ──────┘   │
//	   └───────────────────── answered often enough, manual ────────────────────────┘
//
// The breaker of a single tenant changes only manually. Its release closes it at once: the
// breaker over all tenants decides whether the target can take the paused runs.
type Breaker struct {
	Scope
	State    State
	Manual   bool   // opened by a person: no probes, and only a person releases it
	Actor    string // of the last change
	Cause    string // reason code of the last change
	Reason   string // for people
	At       time.Time
	OpenedAt time.Time // when it last left the closed state; zero before it first opened
	Openings int64     // number of openings
	Version  int64     // rises with every change

	Probes         []receipts.RunID // not closed: the runs that may be claimed as probes
	NewCasesProbed int64            // new cases claimed as probes since it opened
	Paused         int              // paused runs, as last counted by the leader; at most the number that a leader counts

	// FewSince is since when fewer runs than Rule.FewPaused are paused; zero while there
	// are more. A leader writes it with its probes, so that the next one does not start to count
	// again: a run that never succeeds would be probed for ever.
	FewSince time.Time
}

// Causes of a breaker's changes.
const (
	CauseFailing   = "failing"   // new cases failed, with too few answers between
	CauseHanging   = "hanging"   // too many calls outlived their attempts
	CauseRelapsed  = "relapsed"  // new cases fail again after an answer
	CauseAnswered  = "answered"  // a probe was answered
	CauseRecovered = "recovered" // enough probes were answered
	CauseReplaced  = "replaced"  // a breaker of one tenant that was not opened manually: the one over all tenants replaces it
	CauseManual    = "by_hand"
)

// Blocks reports whether the breaker keeps runs of its target from being claimed, except for
// Probes.
func (b Breaker) Blocks() bool { return b.State == Open || b.State == HalfOpen }

// Next returns the breaker changed to a state. An opening begins where it was closed before.
func (b Breaker) Next(state State, actor, cause, reason string, at time.Time) Breaker {
	next := Breaker{
		Scope: b.Scope, State: state, Actor: actor, Cause: cause, Reason: reason, At: at,
		OpenedAt: b.OpenedAt, Openings: b.Openings, Version: b.Version + 1, Paused: b.Paused, FewSince: b.FewSince,
	}
	if !b.Blocks() {
		next.OpenedAt, next.Openings, next.Paused, next.FewSince = at, b.Openings+1, 0, time.Time{}
	}
	return next
}

// Open returns the breaker opened. It returns false and changes nothing when the breaker is
// open already, unless a person opens one that opened by itself: then it becomes manual.
func (b Breaker) Open(manual bool, actor, cause, reason string, at time.Time) (Breaker, bool) {
	if b.State == Open && (b.Manual || !manual) {
		return b, false
	}
	next := b.Next(Open, actor, cause, reason, at)
	next.Manual = manual
	return next, true
}

// Release returns the breaker one step further: open becomes half-open, half-open becomes
// closed. The breaker of one tenant is closed in one step. Release returns false when the
// breaker is closed.
func (b Breaker) Release(actor, cause, reason string, at time.Time) (Breaker, bool) {
	if !b.Blocks() {
		return b, false
	}
	if b.State == Open && b.Tenant == "" {
		return b.Next(HalfOpen, actor, cause, reason, at), true
	}
	return b.Close(actor, cause, reason, at)
}

// Close returns the breaker closed. It returns false when the breaker is closed already.
func (b Breaker) Close(actor, cause, reason string, at time.Time) (Breaker, bool) {
	if !b.Blocks() {
		return b, false
	}
	next := b.Next(Closed, actor, cause, reason, at)
	next.Paused = 0
	return next, true
}

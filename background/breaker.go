package background

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Target names a service that a family's handler calls, for one tenant or over all: the scope
// of a circuit breaker.
type Target struct {
	Tenant string // empty: all tenants
	Family string
	Name   string // Run.Target
}

// breakerTargets returns the two scopes whose breakers can keep a run from being claimed: its target
// for its own tenant, and over all. A target that shares the breaker of another has that one's.
func (m *Manager) breakerTargets(r Run) (own, all Target) {
	all = m.breakerTarget(r)
	return Target{Tenant: r.Tenant, Family: all.Family, Name: all.Name}, all
}

// breakerTarget is the target, over all tenants, whose breaker the run goes by.
func (m *Manager) breakerTarget(r Run) Target {
	t := Target{Family: r.Family, Name: r.Target}
	if of, shared := m.cfg.SharedBreakers[t]; shared {
		t.Name = of
	}
	return t
}

// callsTarget reports whether a handler of this process calls a target.
func (m *Manager) callsTarget(t Target) bool {
	targets, some := m.cfg.Targets[t.Family]
	return !some || slices.Contains(targets, t.Name)
}

// calledTargets are all that Config.Targets names.
func (m *Manager) calledTargets() (all []string) {
	for _, family := range slices.Sorted(maps.Keys(m.cfg.Targets)) {
		all = append(all, m.cfg.Targets[family]...)
	}
	return all
}

// BreakerState is where a circuit breaker stands.
type BreakerState string

// The states of a circuit breaker.
const (
	BreakerClosed   BreakerState = "closed"    // runs of the target are claimed
	BreakerOpen     BreakerState = "open"      // none is but for probes; by hand, none at all
	BreakerHalfOpen BreakerState = "half_open" // as open, and the target has answered a probe
)

// Breaker is the circuit breaker of one target as the journal last saw it. While it is
// not closed, waiting runs of the target are paused: they stay pending or scheduled,
// and need no notification.
//
//	closed ──failing, hanging, by hand──▶ open ──a probe is answered, by hand──▶ half_open
//	   ▲                                   ▲                                      │   │
//	   │                                   └──────── failing again, by hand ──────┘   │
//	   └───────────────────── answered often enough, by hand ─────────────────────────┘
//
// One of a single tenant is moved by hand only. Its release closes it at once: whether
// the target bears what was paused is for the breaker over all tenants to say.
type Breaker struct {
	Target
	State    BreakerState
	Manual   bool   // opened by a person: nothing probes, only a person releases it
	Actor    string // of the last move
	Cause    string // reason code of the last move
	Reason   string // for people
	At       time.Time
	OpenedAt time.Time // when it was last closed until; zero before it first opened
	Openings int64     // how often it has opened
	Version  int64     // rises with every change

	Probes         []RunID // not closed: the runs that may be claimed all the same
	NewCasesProbed int64   // new cases that were let through and claimed since it opened
	Paused         int     // runs that wait behind it, as its leader last counted; no more than maxPausedCounted
}

// Causes of a breaker's moves.
const (
	CauseFailing   = "failing"   // new cases failed, with too few answers between
	CauseHanging   = "hanging"   // too many calls outlived their attempts
	CauseRelapsed  = "relapsed"  // it had answered, and new cases fail again
	CauseAnswered  = "answered"  // a probe was answered
	CauseRecovered = "recovered" // enough of them were
	CauseReplaced  = "replaced"  // of one tenant and not by hand: the one over all tenants has its place
	CauseManual    = "by_hand"
)

// Blocks reports whether the breaker keeps runs of its target from being claimed. A probe
// is let through by who makes it.
func (b Breaker) Blocks() bool { return b.State == BreakerOpen || b.State == BreakerHalfOpen }

func (b Breaker) next(state BreakerState, actor, cause, reason string, at time.Time) Breaker {
	next := Breaker{
		Target: b.Target, State: state, Actor: actor, Cause: cause, Reason: reason, At: at,
		OpenedAt: b.OpenedAt, Openings: b.Openings, Version: b.Version + 1, Paused: b.Paused,
	}
	if !b.Blocks() {
		next.OpenedAt, next.Openings, next.Paused = at, b.Openings+1, 0
	}
	return next
}

// Open is the breaker after it opened; false when it is open already and nothing
// changes. A person who opens one that opened by itself makes it theirs.
func (b Breaker) Open(manual bool, actor, cause, reason string, at time.Time) (Breaker, bool) {
	if b.State == BreakerOpen && (b.Manual || !manual) {
		return b, false
	}
	next := b.next(BreakerOpen, actor, cause, reason, at)
	next.Manual = manual
	return next, true
}

// Release is the breaker one step further: what was open is half-open, what was
// half-open is closed; false when it is closed already. That of one tenant is closed in
// one step.
func (b Breaker) Release(actor, cause, reason string, at time.Time) (Breaker, bool) {
	if !b.Blocks() {
		return b, false
	}
	if b.State == BreakerOpen && b.Tenant == "" {
		return b.next(BreakerHalfOpen, actor, cause, reason, at), true
	}
	return b.Close(actor, cause, reason, at)
}

// Close is the breaker closed; false when it is.
func (b Breaker) Close(actor, cause, reason string, at time.Time) (Breaker, bool) {
	if !b.Blocks() {
		return b, false
	}
	next := b.next(BreakerClosed, actor, cause, reason, at)
	next.Paused = 0
	return next, true
}

// letsThrough reports whether a run may be claimed as a probe.
func (b Breaker) Allows(id RunID) bool { return !b.Blocks() || slices.Contains(b.Probes, id) }

// PausedQuery asks for waiting runs of a target that are due and that no breaker of
// their own tenant keeps back.
type PausedQuery struct {
	Target
	Called        []string // only runs that name one of these targets; nil: whatever they name
	Others        bool     // only those that name none of Called, and what another process calls
	NeverClaimed  bool     // never claimed; else only those that were
	NewestFirst   bool     // in falling order of due time; else rising
	StartFraction float64  // of new ones in rising order: begin so far between the oldest (0) and the newest (1)
	After         Cursor   // of those that were claimed: strictly after
	Due           time.Time
	Limit         int
}

// BreakerStore is what the journal keeps of circuit breakers, for all processes.
type BreakerStore interface {
	// Breakers lists the breakers that are not closed.
	Breakers(ctx context.Context) ([]Breaker, error)
	// BreakerChangedAt returns when a breaker of a target was moved last, of its tenant alone or
	// over all, as that move recorded it; zero when none ever was.
	BreakerChangedAt(ctx context.Context, t Target) (time.Time, error)
	// UpdateBreaker changes a breaker with a receipt of it, in one commit. It decides on
	// the newest state, which is a closed breaker of version 0 when there is none yet;
	// when decide reports false nothing is written. It returns the breaker as it is now.
	UpdateBreaker(ctx context.Context, t Target, decide func(Breaker) (Breaker, bool)) (now Breaker, moved bool, err error)
	// RecordProbes writes Probes, Asked and Paused of a breaker whose version is still the
	// one before and whose state is the one given, without a receipt. It reports whether
	// it did.
	RecordProbes(ctx context.Context, next Breaker) (bool, error)
	// PausedRuns lists waiting runs that go by a target's breaker: of each what Waiting gives.
	PausedRuns(ctx context.Context, q PausedQuery) ([]Run, error)
	// CountPausedRuns counts the waiting runs that go by a target's breaker, due or not, up to a number:
	// all, and those that name one of some targets, which are all when these are nil.
	CountPausedRuns(ctx context.Context, t Target, called []string, most int) (all, named int, err error)
	// RecordPaused leaves the receipt, in the tenant's own trail, that the breaker of a
	// target over all tenants pauses its runs: once an opening. It does nothing when the
	// breaker is closed.
	RecordPaused(ctx context.Context, tenant string, t Target, at time.Time) error
	// RecordClosed leaves the receipts, in the trails of tenants that were told of an
	// opening which is over, that it is: of at most so many. It returns how many.
	RecordClosed(ctx context.Context, at time.Time, limit int) (int, error)
}

// BreakerRule says when a circuit breaker opens by itself, and how it probes and closes.
// What is not positive has a default.
type BreakerRule struct {
	Disabled          bool          // this process opens none by itself; it probes those that are open all the same
	Consecutive       int           // opens: so many new cases in a row failed, over whatever time; 5
	ConsecutiveAtLast int           // opens: so many did, and one of them is at its last attempt; 2
	Window            time.Duration // opens: within this time ...; 1s
	MinAttempts       int           // ... of at least so many new cases and answers ...; 20
	FailurePercent    int           // ... this percentage failed; 50
	MaxAbandoned      int           // opens: more calls than this outlived their attempts in one process and hang while no other is answered, or 16 times as many do; 16

	ProbeInterval       time.Duration // between two probes by new cases at first; 100ms
	FallbackInterval    time.Duration // between two probes by paused runs when there is no new case, at first; 1s
	FallbackIntervalMax time.Duration // ... and at last; 30s
	AnswerValidFor      time.Duration // for how long an answer shows that the target works; 2s
	FewPaused           int           // fewer paused runs than this may each be what fails; 10
	FewPausedFor        time.Duration // for how long they must have been so few; 1m
	StalledAfter        time.Duration // alarm: runs are paused, and for so long there was no new case to ask; 1m
	LeaderTimeout       time.Duration // a leader that shows nothing for so long is replaced; 1s
}

func (r *BreakerRule) normalise() {
	positive(&r.Consecutive, 5)
	positive(&r.ConsecutiveAtLast, 2)
	positive(&r.Window, time.Second)
	positive(&r.MinAttempts, 20)
	positive(&r.FailurePercent, 50)
	positive(&r.MaxAbandoned, 16)
	positive(&r.ProbeInterval, 100*time.Millisecond)
	positive(&r.FallbackInterval, time.Second)
	positive(&r.FallbackIntervalMax, 30*time.Second)
	positive(&r.AnswerValidFor, 2*time.Second)
	positive(&r.FewPaused, 10)
	positive(&r.FewPausedFor, time.Minute)
	positive(&r.StalledAfter, time.Minute)
	positive(&r.LeaderTimeout, time.Second)
}

// BreakerOpen reports whether claims of a run's target are stopped or only let through one by
// one, as far as this process knows.
func (m *Manager) BreakerOpen(r Run) bool {
	known := *m.breakers.current.Load()
	own, all := m.breakerTargets(r)
	_, ownBlocks := known[own]
	_, allBlocks := known[all]
	return ownBlocks || allBlocks
}

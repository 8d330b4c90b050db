package background

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Target names a service that a family's handler calls, for one tenant or over all tenants. It
// is the scope of a circuit breaker.
type Target struct {
	Tenant string // empty: all tenants
	Family string
	Name   string // Run.Target
}

// targetSet answers which targets this process calls, and whose breaker applies to a run.
type targetSet struct {
	called         map[string][]string // Config.Targets
	sharedBreakers map[Target]string   // Config.SharedBreakers
	log            *zap.Logger
	unknownLogged  sync.Map // Target: logged as not called by this process
}

// breakerScopes returns the two scopes whose breakers can block a run: its target for its own
// tenant, and over all tenants. A target in Config.SharedBreakers is replaced by the one whose
// breaker it uses.
func (s *targetSet) breakerScopes(r Run) (own, all Target) {
	all = s.breakerScope(r)
	return Target{Tenant: r.Tenant, Family: all.Family, Name: all.Name}, all
}

// breakerScope returns the target over all tenants whose breaker applies to the run.
func (s *targetSet) breakerScope(r Run) Target {
	t := Target{Family: r.Family, Name: r.Target}
	if of, shared := s.sharedBreakers[t]; shared {
		t.Name = of
	}
	return t
}

// calls reports whether a handler of this process calls a target.
func (s *targetSet) calls(t Target) bool {
	targets, some := s.called[t.Family]
	return !some || slices.Contains(targets, t.Name)
}

// allCalled returns all targets in Config.Targets.
func (s *targetSet) allCalled() (all []string) {
	for _, family := range slices.Sorted(maps.Keys(s.called)) {
		all = append(all, s.called[family]...)
	}
	return all
}

// logUnknown logs once per target that runs wait for a process that calls it.
func (s *targetSet) logUnknown(r Run) {
	if _, logged := s.unknownLogged.LoadOrStore(Target{Family: r.Family, Name: r.Target}, true); !logged {
		s.log.Error("runs wait for a process that calls their target", zap.String("target", r.Target), zap.String("family", r.Family), zap.Stringer("run", r.ID))
	}
}

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states of a circuit breaker.
const (
	BreakerClosed   BreakerState = "closed"    // runs of the target are claimed
	BreakerOpen     BreakerState = "open"      // only probes are claimed; none at all when opened manually
	BreakerHalfOpen BreakerState = "half_open" // as open, and the target has answered a probe
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
	Target
	State    BreakerState
	Manual   bool   // opened by a person: no probes, and only a person releases it
	Actor    string // of the last change
	Cause    string // reason code of the last change
	Reason   string // for people
	At       time.Time
	OpenedAt time.Time // when it last left the closed state; zero before it first opened
	Openings int64     // number of openings
	Version  int64     // rises with every change

	Probes         []RunID // not closed: the runs that may be claimed as probes
	NewCasesProbed int64   // new cases claimed as probes since it opened
	Paused         int     // paused runs, as last counted by the leader; at most maxPausedCounted

	// FewSince is since when fewer runs than BreakerRule.FewPaused are paused; zero while there
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

// Blocks reports whether the breaker keeps runs of its target from being claimed. Probes are
// claimed all the same, see Allows.
func (b Breaker) Blocks() bool { return b.State == BreakerOpen || b.State == BreakerHalfOpen }

func (b Breaker) next(state BreakerState, actor, cause, reason string, at time.Time) Breaker {
	next := Breaker{
		Target: b.Target, State: state, Actor: actor, Cause: cause, Reason: reason, At: at,
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
	if b.State == BreakerOpen && (b.Manual || !manual) {
		return b, false
	}
	next := b.next(BreakerOpen, actor, cause, reason, at)
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
	if b.State == BreakerOpen && b.Tenant == "" {
		return b.next(BreakerHalfOpen, actor, cause, reason, at), true
	}
	return b.Close(actor, cause, reason, at)
}

// Close returns the breaker closed. It returns false when the breaker is closed already.
func (b Breaker) Close(actor, cause, reason string, at time.Time) (Breaker, bool) {
	if !b.Blocks() {
		return b, false
	}
	next := b.next(BreakerClosed, actor, cause, reason, at)
	next.Paused = 0
	return next, true
}

// Allows reports whether a run may be claimed: the breaker is closed, or lists the run as a
// probe.
func (b Breaker) Allows(id RunID) bool { return !b.Blocks() || slices.Contains(b.Probes, id) }

// PausedQuery selects waiting runs of a target that are due and that no breaker of their own
// tenant blocks.
type PausedQuery struct {
	Target
	Called        []string // only runs of these targets; nil: of any
	Others        bool     // only runs of targets that are not in Called and that another process calls
	NeverClaimed  bool     // only runs never claimed; else only runs claimed before
	NewestFirst   bool     // in descending order of due time; else ascending
	StartFraction float64  // with NeverClaimed, ascending: start between the oldest (0) and the newest (1)
	After         Cursor   // for runs claimed before: strictly after
	Due           time.Time
	Limit         int
}

// BreakerStore stores circuit breakers for all processes.
type BreakerStore interface {
	// Breakers lists the breakers that are not closed.
	Breakers(ctx context.Context) ([]Breaker, error)
	// BreakerChangedAt returns when a breaker of a target last changed, of its tenant alone or
	// over all tenants, as that change recorded it; zero when none ever changed.
	BreakerChangedAt(ctx context.Context, t Target) (time.Time, error)
	// UpdateBreaker changes a breaker and writes a receipt, in one commit. It calls decide with
	// the newest state, which is a closed breaker of version 0 when there is none. When decide
	// returns false nothing is written. It returns the breaker as it is now.
	UpdateBreaker(ctx context.Context, t Target, decide func(Breaker) (Breaker, bool)) (now Breaker, moved bool, err error)
	// RecordProbes writes Probes, NewCasesProbed, Paused and FewSince of a breaker, without a receipt, if
	// its version is still the one before next's and its state is next's. It reports whether it
	// did.
	RecordProbes(ctx context.Context, next Breaker) (bool, error)
	// PausedRuns lists waiting runs that a target's breaker applies to, with the fields that
	// DueRuns reads.
	PausedRuns(ctx context.Context, q PausedQuery) ([]Run, error)
	// CountPausedRuns counts the waiting runs that a target's breaker applies to, due or not, up
	// to most: all of them, and those of the targets in called. A nil called means all.
	CountPausedRuns(ctx context.Context, t Target, called []string, most int) (all, named int, err error)
	// RecordPaused writes the receipt, in the tenant's own trail, that the breaker of a target
	// over all tenants pauses its runs. It does so once per opening, and not when the breaker is
	// closed.
	RecordPaused(ctx context.Context, tenant string, t Target, at time.Time) error
	// RecordClosed writes the receipts, in the trails of paused tenants, that an opening is
	// over, up to limit. It returns how many it wrote.
	RecordClosed(ctx context.Context, at time.Time, limit int) (int, error)
}

// BreakerRule configures when a circuit breaker opens by itself, and how it probes and closes.
// A value that is not positive means the default.
type BreakerRule struct {
	Disabled          bool          // this process opens none by itself; it still probes open ones
	Consecutive       int           // opens: new cases in a row that failed, over any time; 5
	ConsecutiveAtLast int           // opens: as Consecutive, when one of them is at its last attempt; 2
	Window            time.Duration // opens: within this time ...; 1s
	MinAttempts       int           // ... of at least so many attempts of new cases and answers ...; 20
	FailurePercent    int           // ... this percentage failed; 50
	MaxAbandoned      int           // opens: more calls of one process than this outlived their attempts and hang while no other call is answered, or 16 times as many hang; 16

	ProbeInterval       time.Duration // between two probes of new cases at first; 100ms
	FallbackInterval    time.Duration // between two probes of runs claimed before, when there is no new case, at first; 1s
	FallbackIntervalMax time.Duration // ... at most; 30s
	AnswerValidFor      time.Duration // how long an answer shows that the target works; 2s
	FewPaused           int           // with fewer paused runs than this, the runs themselves may be the cause; 10
	FewPausedFor        time.Duration // how long there must have been so few; 1m
	StalledAfter        time.Duration // alarm: runs are paused, and there was no new case to probe for so long; 1m
	LeaderTimeout       time.Duration // a leader without change of the version for so long is replaced; 1s
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

// BreakerOpen reports whether an open or half-open breaker applies to a run, as last read by
// this process.
func (m *Manager) BreakerOpen(r Run) bool {
	known := *m.breakers.current.Load()
	own, all := m.targets.breakerScopes(r)
	_, ownBlocks := known[own]
	_, allBlocks := known[all]
	return ownBlocks || allBlocks
}

package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/every"
)

// SessionID identifies the session of one process.
type SessionID = uuid.UUID

// Session is a running process as stored in the journal.
type Session struct {
	ID        SessionID
	Worker    string
	StartedAt time.Time // by the journal's clock
	Beat      int64     // rises while the process lives
	Lost      bool      // declared lost: its counter did not change for too long

	BeatAt          time.Time // last heartbeat, as the process recorded it; zero before the first
	Queues          []string  // queues that it serves
	Targets         []string  // targets that its handlers call
	ClaimsBlockedBy string    // why it claims nothing now: BlockedByClock, BlockedByStaleClaims, BlockedByServers; "" when it claims
	Redis           string    // marker of the Redis that it sends notifications to; empty when unknown, or when it sends none any more

	ClockOffset *time.Duration // how much later the journal's clock is than the process's; nil when not measured
	// ClockAtLeast is the earliest time that the journal's clock can show at this heartbeat, by the process's monotonic
	// clock: if it shows less, it was set back. Zero when not measured.
	ClockAtLeast time.Time
	// ClockChangedTo is what the journal's clock showed when this process last found it changed by over MaxClockOffset,
	// either way; zero if it never did.
	ClockChangedTo time.Time
	LostAfter      time.Duration // Config.LostAfter: after as long without a heartbeat of any process, the clock may have been changed
}

// Why a process claims nothing, in Session.ClaimsBlockedBy.
const (
	BlockedByClock       = "clock"      // its clock is off, or the database's clock changed
	BlockedByStaleClaims = "old_claims" // its last claims became stale before their calls
	BlockedByServers     = "servers"    // it must not work with its Postgres or its Redis
)

// session keeps this process registered in the journal. A process without answered heartbeats
// may have been declared lost, and others may be executing its runs: it cancels its calls and
// claims nothing until a heartbeat is answered.
//
//	none ──Register──▶ alive ──heartbeats fail for BeatGrace──▶ suspended ──Beat──▶ alive
//	 ▲                   │                                          │
//	 └───────────────────┴── declared lost: registers a new session ┘
type session struct {
	m *Manager

	mu             sync.Mutex
	id             SessionID
	callCtx        context.Context // of calls made under the session; ends when it is lost or suspended
	cancel         context.CancelFunc
	beatAnsweredAt time.Time // last answered heartbeat
}

func newSession(m *Manager) *session { return &session{m: m} }

// current returns the session to claim under; ok is false when there is none.
func (s *session) current() (id SessionID, callCtx context.Context, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.callCtx, s.callCtx != nil && s.callCtx.Err() == nil
}

// run sends heartbeats until ctx ends. It closes ready when the first session is registered.
func (s *session) run(ctx context.Context, ready chan<- struct{}) {
	registered := false
	every.Loop{Interval: s.m.cfg.BeatEvery}.Run(ctx, func(ctx context.Context) error {
		s.beat(ctx) // it logs its failures
		if _, _, ok := s.current(); ok && !registered {
			registered = true
			close(ready)
		}
		return nil
	})
}

func (s *session) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.m.cfg.BeatGrace)
	defer cancel()
	id, _, _ := s.current()
	if id == (SessionID{}) {
		if s.register(ctx); !s.registered() {
			return
		}
		if err := s.m.clock.measureFirst(ctx, s.m.cfg.Store); err != nil {
			s.onBeatFailed(err)
			return
		}
		id, _, _ = s.current()
	}
	sent := monotonic()
	status := Session{ID: id, BeatAt: s.m.now(), Queues: s.m.queues.served(), Targets: s.m.targets.allCalled(), ClaimsBlockedBy: s.m.claimGate.claimsBlockedBy(), Redis: s.m.redisOwner.sessionMarker(), ClockOffset: s.m.clock.offset(), ClockAtLeast: s.m.clock.atLeast(),
		ClockChangedTo: s.m.clock.changedTo(), LostAfter: s.m.cfg.LostAfter}
	alive, now, err := s.m.cfg.Store.Beat(ctx, status)
	s.m.liveness.onBeat(err)
	switch {
	case err != nil:
		s.onBeatFailed(err)
	case alive:
		s.m.clock.observe(sent, now)
		s.onBeatAnswered()
	default:
		s.m.log.Error("this process was declared lost, its calls are cancelled and it registers a new session", zap.Stringer("session", id))
		s.drop()
		s.register(ctx)
	}
}

func (s *session) registered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id != (SessionID{})
}

func (s *session) register(ctx context.Context) {
	if errors.Is(s.m.claimGate.serversErr(), ErrOtherDatabase) {
		return
	}
	next := Session{ID: s.m.cfg.NewID(), Worker: s.m.cfg.Worker}
	if err := s.m.cfg.Store.Register(ctx, next); err != nil {
		s.m.log.Warn("session registration failed", zap.Error(err))
		return
	}
	s.mu.Lock()
	s.id = next.ID
	s.mu.Unlock()
	s.onBeatAnswered()
}

// onBeatAnswered records an answered heartbeat, and allows calls again after missing
// heartbeats.
func (s *session) onBeatAnswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beatAnsweredAt = time.Now()
	if s.callCtx == nil || s.callCtx.Err() != nil {
		s.callCtx, s.cancel = context.WithCancel(s.m.baseCtx)
	}
}

// onBeatFailed cancels the calls once no heartbeat has been answered for BeatGrace: an observer
// may be about to declare the session lost.
func (s *session) onBeatFailed(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callCtx == nil || s.callCtx.Err() != nil || time.Since(s.beatAnsweredAt) < s.m.cfg.BeatGrace {
		return
	}
	s.m.log.Error("heartbeats are not answered, calls are cancelled and claiming is paused", zap.Error(cause))
	s.cancel()
}

func (s *session) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
	s.id = SessionID{}
}

// unregister removes the session if nothing runs under it. Otherwise others find it lost and
// recover its runs.
func (s *session) unregister(ctx context.Context) {
	id, _, _ := s.current()
	if id == (SessionID{}) {
		return
	}
	if err := s.m.cfg.Store.Remove(ctx, id); err != nil {
		s.m.log.Warn("session was not removed, it will be marked lost", zap.Error(err))
	}
}

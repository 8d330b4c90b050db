package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
)

// SessionID names the life of one process, as far as the ledger is concerned.
type SessionID = uuid.UUID

// Session is a process that works, as the ledger knows it.
type Session struct {
	ID        SessionID
	Worker    string
	StartedAt time.Time // by the ledger's clock
	Beat      int64     // rises while the process lives
	Lost      bool      // an observer saw it stand still for too long

	BeatAt          time.Time // of the last beat, as the process recorded it; zero before the first
	Queues          []string  // that it takes runs from
	Targets         []string  // whom its handlers call
	ClaimsBlockedBy string    // why it claims nothing now: BlockedByClock, BlockedByStaleClaims; "" when it claims
	Redis           string    // the marker of the Redis that its notifications go by; empty when it is not known, or none go any more

	ClockOffset *time.Duration // how much later the ledger's clock is than the process's; nil when not measured
}

// Why a process claims nothing, in Session.Barred.
const (
	BlockedByClock       = "clock"      // its clock is off, or the ledger's clock changed
	BlockedByStaleClaims = "old_claims" // its last claims grew too old before they were called on
	BlockedByServers     = "servers"    // its Postgres or its Redis is not one that it may work on
)

// session keeps this process known to the ledger. A process that can't show its
// life may have been declared lost, and others may be executing what it holds: it
// cancels its calls and claims nothing until it is known again.
//
//	unknown ──Enlist──▶ alive ──beat failing for too long──▶ doubtful ──beat──▶ alive
//	   ▲                  │                                     │
//	   └────────declared lost: a new session is begun───────────┘
type session struct {
	m *Manager

	mu             sync.Mutex
	id             SessionID
	callCtx        context.Context // of the calls made under it; ended when it is lost or in doubt
	cancel         context.CancelFunc
	beatAnsweredAt time.Time // the last beat that was answered
}

func newSession(m *Manager) *session { return &session{m: m} }

// current is the session to claim under; ok is false when there is none.
func (s *session) current() (id SessionID, callCtx context.Context, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.callCtx, s.callCtx != nil && s.callCtx.Err() == nil
}

// run shows that the process lives, until ctx ends. ready is closed when the first
// session is known.
func (s *session) run(ctx context.Context, ready chan<- struct{}) {
	tick := time.NewTicker(s.m.cfg.BeatEvery)
	defer tick.Stop()
	for registered := false; ; {
		s.beat(ctx)
		if _, _, ok := s.current(); ok && !registered {
			registered = true
			close(ready)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.m.cfg.BeatGrace)
	defer cancel()
	id, _, _ := s.current()
	if id == (SessionID{}) {
		if s.register(ctx); !s.registered() {
			return
		}
		id, _, _ = s.current() // and measure the clock, before anything is claimed
	}
	sent := monotonic()
	status := Session{ID: id, BeatAt: s.m.now(), Queues: s.m.servedQueues(), Targets: s.m.calledTargets(), ClaimsBlockedBy: s.m.claimsBlockedBy(), Redis: s.m.redisOwner.sessionMarker(), ClockOffset: s.m.clock.offset()}
	alive, now, err := s.m.cfg.Store.Beat(ctx, status)
	s.m.liveness.onBeat(err)
	switch {
	case err != nil:
		s.onBeatFailed(err)
	case alive:
		s.m.clock.observe(sent, now)
		s.onBeatAnswered()
	default:
		s.m.log.Error("this process was declared lost; its calls are cancelled and it begins a new session", zap.Stringer("session", id))
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
	if errors.Is(s.m.serversErr(), ErrOtherDatabase) {
		return
	}
	next := Session{ID: s.m.cfg.NewID(), Worker: s.m.cfg.Worker}
	if err := s.m.cfg.Store.Register(ctx, next); err != nil {
		s.m.log.Warn("this process can't make itself known yet", zap.Error(err))
		return
	}
	s.mu.Lock()
	s.id = next.ID
	s.mu.Unlock()
	s.onBeatAnswered()
}

// onBeatAnswered notes an answered beat; after a doubt, calls may be made again.
func (s *session) onBeatAnswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beatAnsweredAt = time.Now()
	if s.callCtx == nil || s.callCtx.Err() != nil {
		s.callCtx, s.cancel = context.WithCancel(s.m.baseCtx)
	}
}

// onBeatFailed cancels the calls once no beat has been answered for the grace: by then an
// observer may be about to declare the session lost.
func (s *session) onBeatFailed(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callCtx == nil || s.callCtx.Err() != nil || time.Since(s.beatAnsweredAt) < s.m.cfg.BeatGrace {
		return
	}
	s.m.log.Error("this process can't show that it lives; its calls are cancelled and nothing is claimed until it can", zap.Error(cause))
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

// unregister forgets the session when nothing was left running under it; else it is
// found lost, and what ran is recovered.
func (s *session) unregister(ctx context.Context) {
	id, _, _ := s.current()
	if id == (SessionID{}) {
		return
	}
	if err := s.m.cfg.Store.Remove(ctx, id); err != nil {
		s.m.log.Warn("the session could not be ended, it will be found lost", zap.Error(err))
	}
}

package postadjudication

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// bellsAtOnce bounds the bells that ring beside the callers whose runs they ring
	// for. When Redis is slower than the commits, callers ring for themselves, and so
	// come back more slowly.
	bellsAtOnce = 512

	// bellLimit is how long a bell may take before it is the sweeper's.
	bellLimit = 5 * time.Second
)

// bells are those that ring beside their callers.
type bells struct {
	ringing chan struct{}
	closing sync.Once
}

func newBells() *bells { return &bells{ringing: make(chan struct{}, bellsAtOnce)} }

// ring rings for what was just committed, and does not keep the caller waiting: that
// it is committed is all that was promised. A bell that fails is the sweeper's, as is
// one that this process took along when it died.
func (s *Service) ring(ctx context.Context, out Submitted) {
	if out.Reply != Created || s.deaf {
		return
	}
	ctx = context.WithoutCancel(ctx)
	select {
	case s.bells.ringing <- struct{}{}:
		go func() {
			defer func() { <-s.bells.ringing }()
			s.ringNow(ctx, out)
		}()
	default:
		s.ringNow(ctx, out)
	}
}

// ringNow rings, and waits for it.
func (s *Service) ringNow(ctx context.Context, out Submitted) {
	ctx, cancel := context.WithTimeout(ctx, bellLimit)
	defer cancel()
	if err := out.Ring(ctx); err != nil && !errors.Is(err, ErrNoRedis) {
		s.log.Warn("a bell failed, the sweeper will ring", zap.Stringer("run", out.Run), zap.Error(err))
	}
}

// close waits for the bells that ring. What is committed later rings for itself.
func (b *bells) close() {
	b.closing.Do(func() {
		for range cap(b.ringing) {
			b.ringing <- struct{}{}
		}
	})
}

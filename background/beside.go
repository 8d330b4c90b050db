package background

import (
	"context"
	"time"

	"go.uber.org/zap"
)

const (
	// bellsBeside bounds the bells that ring beside those whose runs they ring for.
	bellsBeside = 512

	// bellLimit is how long a bell may take before it is the sweeper's.
	bellLimit = 5 * time.Second
)

// BellBeside rings for a run that is committed, and does not keep the caller waiting.
// Only where Redis is slower than the commits, and too many bells ring already, does
// the caller ring, for as long as ctx allows, and so come back more slowly. A bell
// that fails is the sweeper's, as is one that this process took along when it died;
// only a letter then goes without its mirror, which is but a picture. Close waits for
// the bells.
func (m *Manager) BellBeside(ctx context.Context, r Run) {
	select {
	case m.beside <- struct{}{}:
		go func() {
			defer func() { <-m.beside }()
			m.bellOrSweep(context.WithoutCancel(ctx), r)
		}()
	default:
		m.bellOrSweep(ctx, r)
	}
}

func (m *Manager) bellOrSweep(ctx context.Context, r Run) {
	ctx, cancel := context.WithTimeout(ctx, bellLimit)
	defer cancel()
	if err := m.Bell(ctx, r); err != nil {
		m.log.Warn("a bell failed, the sweeper will ring if the run waits", zap.Stringer("run", r.ID), zap.Error(err))
	}
}

// hush waits for the bells that ring; later ones are rung by their callers.
func (m *Manager) hush() {
	for range cap(m.beside) {
		m.beside <- struct{}{}
	}
}

package background

import (
	"context"
	"time"

	"go.uber.org/zap"
)

const (
	// maxAsyncNotifications bounds the bells that ring beside those whose runs they ring for.
	maxAsyncNotifications = 512

	// notifyTimeout is how long a bell may take before it is the sweeper's.
	notifyTimeout = 5 * time.Second
)

// NotifyAsync rings for a run that is committed, and does not keep the caller waiting.
// Only where Redis is slower than the commits, and too many bells ring already, does
// the caller ring, for as long as ctx allows, and so come back more slowly. A bell
// that fails is the sweeper's, as is one that this process took along when it died;
// only a letter then goes without its mirror, which is but a picture. Close waits for
// the bells.
func (m *Manager) NotifyAsync(ctx context.Context, r Run) {
	select {
	case m.asyncNotifications <- struct{}{}:
		go func() {
			defer func() { <-m.asyncNotifications }()
			m.notifyOrLog(context.WithoutCancel(ctx), r)
		}()
	default:
		m.notifyOrLog(ctx, r)
	}
}

func (m *Manager) notifyOrLog(ctx context.Context, r Run) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	if err := m.Notify(ctx, r); err != nil {
		m.log.Warn("a bell failed, the sweeper will ring if the run waits", zap.Stringer("run", r.ID), zap.Error(err))
	}
}

// drainNotifications waits for the bells that ring; later ones are rung by their callers.
func (m *Manager) drainNotifications() {
	for range cap(m.asyncNotifications) {
		m.asyncNotifications <- struct{}{}
	}
}

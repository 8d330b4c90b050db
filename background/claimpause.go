package background

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	claimBackoffMin = time.Second
	claimBackoffMax = 30 * time.Second
)

// claimBackoff keeps a process from claiming for a while after a claim of it grew too
// old to be called on: whatever made it slow, such as a stall of Postgres or a machine
// that stood still, would have every claim end like that one. The pause doubles until
// a claim that was sent after it is called on in time.
type claimBackoff struct {
	log         *zap.Logger
	clocks      func() instant
	staleClaims atomic.Uint64 // claims that were too old, since the start

	mu    sync.Mutex
	next  time.Duration // the length of the next pause; claimBackoffMin when 0
	began instant
	last  time.Duration // of the last pause; 0: there was none
}

func newClaimBackoff(log *zap.Logger, clocks func() instant) *claimBackoff {
	return &claimBackoff{log: log, clocks: clocks}
}

// onStaleClaim begins a pause, unless one is going on: claims that were sent together grow
// old together.
func (p *claimBackoff) onStaleClaim() {
	p.staleClaims.Add(1)
	now := p.clocks()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left(now) > 0 {
		return
	}
	p.began, p.last = now, max(p.next, claimBackoffMin)
	p.next = min(2*p.last, claimBackoffMax)
	p.log.Warn("a claim was too old to be called on: nothing is claimed for a while", zap.Duration("pause", p.last))
}

// onFreshClaim notes that a claim was called on in time. One that was sent before the last
// pause began says nothing of what is now.
func (p *claimBackoff) onFreshClaim(sent instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next > 0 && p.began.mono < sent.mono {
		p.next, p.last = 0, 0
	}
}

// remaining is for how long nothing is to be claimed.
func (p *claimBackoff) remaining() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == 0 {
		return 0
	}
	return p.left(p.clocks())
}

func (p *claimBackoff) left(now instant) time.Duration { return max(0, p.last-(now.mono-p.began.mono)) }

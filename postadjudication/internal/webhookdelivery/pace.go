package webhookdelivery

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
)

// Payments come first. While this process writes many transitions, webhooks take a small share of
// its processors, and fall behind; once it is less busy they catch up.
const (
	busyRate = 300 // transitions of this process a second

	// A read of events is followed by a pause of so many times its duration.
	readCost     = 4
	readCostBusy = 100
	readPauseMax = time.Second

	// Requests of all webhooks begin at least so far apart while the process is busy.
	requestPauseBusy = 5 * time.Millisecond
)

// pacer says when webhooks may read and send. It is safe for concurrent use.
type pacer struct {
	transitions func() uint64 // that this process has written
	busy        atomic.Bool
	reading     chan struct{} // holds a value while somebody reads, or pauses after it

	mu       sync.Mutex
	counted  uint64
	at       time.Time
	nextSend time.Time
}

func newPacer(transitions func() uint64) *pacer {
	return &pacer{transitions: transitions, reading: make(chan struct{}, 1), counted: transitions(), at: time.Now()}
}

// measure compares the transitions with those of the call before.
func (p *pacer) measure(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.transitions()
	if took := now.Sub(p.at).Seconds(); took > 0 {
		p.busy.Store(float64(n-p.counted)/took > busyRate)
	}
	p.counted, p.at = n, now
}

// read calls do while no other caller reads, and pauses if it found something.
func (p *pacer) read(ctx context.Context, do func() (found bool)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case p.reading <- struct{}{}:
	}
	defer func() { <-p.reading }()
	begin := time.Now()
	if do() {
		casework.Sleep(ctx, p.readPause(time.Since(begin)), nil)
	}
	return nil
}

func (p *pacer) readPause(took time.Duration) time.Duration {
	if p.busy.Load() {
		return min(readCostBusy*took, readPauseMax)
	}
	return min(readCost*took, readPauseMax)
}

// send reserves the moment for a request, and returns how long it is away; 0: now. A caller that has
// to wait reserves nothing.
func (p *pacer) send(now time.Time) time.Duration {
	if !p.busy.Load() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := p.nextSend.Sub(now); wait > 0 {
		return wait
	}
	p.nextSend = now.Add(requestPauseBusy)
	return 0
}

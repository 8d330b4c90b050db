package background

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// claimReplyTimeout is how long a claim may stay unanswered before its delivery goes back to
// asynq. The claim itself is retried until it is answered: it may have been written, and then
// no other process may call the handler.
const claimReplyTimeout = time.Second

// claim moves the run to running under a new token. It sets d.run to the run after the claim,
// or to the run that the journal returned instead. The error is the journal's.
func (d *delivery) claim() (claimRecord, error) {
	sent := d.m.clocks()
	tr := d.m.recorder.newTransition(receipts.AttemptStarted, &d.run)
	tr.Token = d.m.cfg.NewID()
	tr.Session, d.callCtx, _ = d.m.session.current()
	d.callCtx, tr.Trace = d.m.tracing.withDeliverySpan(d.callCtx, d.traceCtx), traceID(d.traceCtx)
	if !d.probe {
		tr.Blocks = d.m.breakers.blocks
	}
	timeout := time.AfterFunc(claimReplyTimeout, d.onClaimTimeout)
	defer timeout.Stop()
	run, err := d.m.recorder.write(d.family, &tr)
	if errors.Is(err, errClosed) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) {
		return claimRecord{}, err
	}
	d.run = run
	if errors.Is(err, ErrConflict) && run.State == Running && run.Token == tr.Token {
		err = nil // an earlier try was written, and the run changed since, as by a cancel
	}
	return claimRecord{at: tr.At, sent: sent}, err
}

// claimRecord is a committed claim.
type claimRecord struct {
	at   time.Time // as recorded
	sent instant   // before its statement was sent
}

// lookupBeforeClaim looks up a run that may not be called again because its operation key may
// have expired, and records the result. It returns true when the run may be claimed after that. The run waits where
// the lookup proves nothing yet and states when to ask again.
func (d *delivery) lookupBeforeClaim() (claimAgain bool, err error) {
	if d.lookedUp {
		// Resolved a moment ago and unknown again: another run of the case is active.
		return false, &redeliverAt{at: d.m.now().Add(time.Second)}
	}
	if !d.probe && d.m.breakers.confirmBlocked(&d.run) {
		return d.acknowledgePaused() // paused meanwhile: no lookup, and no dead letter for the expired key
	}
	if !d.m.lookups.acquire(d.run.Target) { // deliveries of other runs must not wait behind lookups that hang
		return false, &redeliverAt{at: d.m.now().Add(time.Second)}
	}
	lookup, interrupted := d.m.caller.lookup(d.family, d.run)
	d.m.lookups.release(d.run.Target)
	if interrupted {
		return false, &redeliverAt{at: d.m.now()}
	}
	if lookup.Class == Unknown && lookup.RetryAfter > 0 {
		return false, &redeliverAt{at: d.m.now().Add(lookup.RetryAfter)}
	}
	tr := d.m.recorder.newTransition(receipts.Reconciled, &d.run)
	tr.Result, tr.Lookup = lookup, lookup.Class
	if lookup.Class == Unknown {
		tr.Subtype, tr.Reason = receipts.DeadLettered, ReasonOutcomeUnknown
		tr.Result = Result{} // no attempt ended: the failure of the last one stays
	}
	after, err := d.m.recorder.write(d.family, &tr)
	d.lookedUp = err == nil
	return d.onWaitingRunWritten(after, err)
}

// onClaimTimeout lets the delivery go back to asynq while the claim is retried. More than one
// claim of a delivery may time out.
func (d *delivery) onClaimTimeout() { d.claimTimeoutOnce.Do(func() { close(d.claimTimeout) }) }

// journalTimeout is how long a delivery waits for the journal before it goes back to asynq.
const journalTimeout = time.Second

// claimGate decides whether this process may claim, and acquires the slots of deliveries.
type claimGate struct {
	clock           *clock
	claimBackoff    *claimBackoff
	redisOwner      *redisOwner
	blockedByConfig func() error // Config.ClaimsBlocked
	health          *health
	session         *session
	slots           *slots
	now             func() time.Time
	stop            <-chan struct{} // closed: nothing new is claimed
	started         *atomic.Bool    // Run was called
}

// claimErr returns why the journal accepts no claims of this process, or nil.
func (g *claimGate) claimErr() error {
	if _, _, alive := g.session.current(); g.started.Load() && !alive {
		return errors.Join(errNoSession, g.health.err())
	}
	if g.started.Load() {
		return errors.Join(g.clock.err(), g.health.err())
	}
	return g.health.err()
}

// claimsBlocked reports whether this process may claim nothing: its clock is off, one of its
// claims became stale a short while ago, or it must not work with its servers.
func (g *claimGate) claimsBlocked() bool { return g.claimsBlockedBy() != "" }

// dequeuesNothing reports whether this process leaves the notifications to others, because it
// could claim none of their runs. Without answered heartbeats it may still reach Redis, and
// would put back every notification that it dequeued, for seconds, and dequeue it again.
func (g *claimGate) dequeuesNothing() bool {
	_, _, alive := g.session.current()
	return !alive || g.claimsBlocked()
}

// mayNotLead reports whether this process must leave work for all processes to others, because
// it could not carry it out.
func (g *claimGate) mayNotLead() bool {
	why := g.claimsBlockedBy()
	return why == BlockedByClock || why == BlockedByServers
}

func (g *claimGate) claimsBlockedBy() string {
	switch {
	case g.clock.err() != nil:
		return BlockedByClock
	case g.claimBackoff.remaining() > 0:
		return BlockedByStaleClaims
	case g.serversErr() != nil:
		return BlockedByServers
	}
	return ""
}

// serversErr returns why nothing may be claimed with these servers, or nil.
func (g *claimGate) serversErr() error {
	if g.blockedByConfig == nil {
		return g.redisOwner.err()
	}
	return errors.Join(g.blockedByConfig(), g.redisOwner.err())
}

// acquireSlot acquires a slot for a delivery while the journal can be written. Its error tells asynq
// when to deliver the run again.
func (g *claimGate) acquireSlot() error {
	for {
		if err := g.awaitHealth(); err != nil {
			return err
		}
		if !g.slots.acquire(g.stop) {
			return &redeliverAt{at: g.now()}
		}
		if g.dequeuesNothing() {
			g.slots.release()
			return &redeliverAt{at: g.now()} // to another process: this one dequeues no task
		}
		if g.claimErr() == nil {
			return nil
		}
		g.slots.release() // claims became impossible while the delivery waited
	}
}

func (g *claimGate) awaitHealth() error {
	writable := g.health.writable()
	select {
	case <-writable:
		return nil
	default:
	}
	timeout := time.NewTimer(journalTimeout)
	defer timeout.Stop()
	select {
	case <-writable:
		return nil
	case <-g.stop:
		return &redeliverAt{at: g.now()}
	case <-timeout.C:
		return errUnavailable
	}
}

const (
	claimBackoffMin = time.Second
	claimBackoffMax = 30 * time.Second
)

// mostClaimBackoff bounds a pause by how soon others would take over from a lost process: a pause that is
// longer than a recovery would have the runs stand still after the stall is over.
func mostClaimBackoff(lostAfter time.Duration) time.Duration {
	return max(claimBackoffMin, min(2*lostAfter, claimBackoffMax))
}

// claimBackoff stops a process from claiming for a while after one of its claims became stale.
// The cause, such as a stall of Postgres or a suspended machine, would make every other claim
// stale too. The pause doubles until a claim that was sent after it is called in time.
type claimBackoff struct {
	log         *zap.Logger
	clocks      func() instant
	most        time.Duration // the longest pause
	staleClaims atomic.Uint64 // stale claims since the start

	mu    sync.Mutex
	next  time.Duration // the length of the next pause; claimBackoffMin when 0
	began instant
	last  time.Duration // length of the last pause; 0 when there was none
}

func newClaimBackoff(log *zap.Logger, clocks func() instant, lostAfter time.Duration) *claimBackoff {
	return &claimBackoff{log: log, clocks: clocks, most: mostClaimBackoff(lostAfter)}
}

// onStaleClaim begins a pause, unless one is running: claims that were sent together become
// stale together.
func (p *claimBackoff) onStaleClaim() {
	p.staleClaims.Add(1)
	now := p.clocks()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left(now) > 0 {
		return
	}
	p.began, p.last = now, max(p.next, claimBackoffMin)
	p.next = min(2*p.last, p.most)
	p.log.Warn("claim was stale, claiming is paused", zap.Duration("pause", p.last))
}

// onFreshClaim records that a claim was called in time. A claim that was sent before the last
// pause began is ignored.
func (p *claimBackoff) onFreshClaim(sent instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next > 0 && p.began.mono < sent.mono {
		p.next, p.last = 0, 0
	}
}

// remaining returns how much of the pause is left.
func (p *claimBackoff) remaining() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == 0 {
		return 0
	}
	return p.left(p.clocks())
}

func (p *claimBackoff) left(now instant) time.Duration { return max(0, p.last-(now.mono-p.began.mono)) }

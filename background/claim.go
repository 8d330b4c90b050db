package background

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// claimReplyTimeout is for how long a claim may stay unanswered before its delivery
// goes back to asynq. The claim itself is tried until it is answered: it may have
// been written, and then nobody else may call the handler.
const claimReplyTimeout = time.Second

// claim makes the run running under a new token, and puts the run as it is then,
// or as it is instead, into d.run. The error is the journal's answer.
func (d *delivery) claim() (claimRecord, error) {
	sent := d.m.clocks()
	tr := d.m.newTransition(receipts.AttemptStarted, d.run)
	tr.Token = d.m.cfg.NewID()
	tr.Session, d.callCtx, _ = d.m.session.current()
	d.callCtx, tr.Trace = d.m.tracing.withDeliverySpan(d.callCtx, d.traceCtx), traceID(d.traceCtx)
	if !d.probe {
		tr.Blocks = d.m.breakers.blocks
	}
	timeout := time.AfterFunc(claimReplyTimeout, d.onClaimTimeout)
	defer timeout.Stop()
	run, err := d.m.write(d.family, tr)
	if errors.Is(err, errClosed) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) {
		return claimRecord{}, err
	}
	d.run = run
	if errors.Is(err, ErrConflict) && run.State == Running && run.Token == tr.Token {
		err = nil // an earlier try was written, and the run was changed since, as by a cancel
	}
	return claimRecord{at: tr.At, sent: sent}, err
}

// lookupBeforeClaim asks the other side about a run that may not be called again because its
// operation key may have expired, and records what it says. It reports true when
// the run may be claimed after that.
func (d *delivery) lookupBeforeClaim() (retry bool, err error) {
	if d.lookedUp {
		// Cleared a moment ago and unknown again: another run of the case is at work.
		return false, &redeliverAt{at: d.m.now().Add(time.Second)}
	}
	if !d.probe && d.m.breakers.confirmBlocked(d.run) {
		return d.acknowledgePaused() // paused meanwhile: nobody is asked, and nothing dies of its key
	}
	lookup, interrupted := d.m.lookup(d.family, d.run)
	if interrupted {
		return false, &redeliverAt{at: d.m.now()}
	}
	tr := d.m.newTransition(receipts.Reconciled, d.run)
	tr.Result, tr.Lookup = lookup, lookup.Class
	if lookup.Class == Unknown {
		tr.Event, tr.Reason = receipts.DeadLettered, ReasonOutcomeUnknown
		tr.Result = Result{} // no attempt ended: the failure of the last one stands
	}
	after, err := d.m.write(d.family, tr)
	switch {
	case errors.Is(err, errClosed):
		return false, errUnavailable
	case errors.Is(err, ErrConflict):
		return true, nil // the run changed meanwhile: the claim finds out
	case errors.Is(err, ErrUnreadable), errors.Is(err, ErrNotFound):
		return d.onClaimRefused(err)
	case err != nil:
		d.run = after
		return d.onClaimRefused(err)
	}
	d.run, d.lookedUp = after, true
	if after.State == DeadLettered && after.Letter == LetterOpen {
		return false, archiveErrorFor(after)
	}
	return after.State.Waiting(), nil
}

// onClaimTimeout lets the delivery go back to asynq while the claim is tried on.
// More than one claim of a delivery may come into doubt.
func (d *delivery) onClaimTimeout() { d.claimTimeoutOnce.Do(func() { close(d.claimTimeout) }) }

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

// ErrStaleClaim is what Attempt.Fresh refuses with.
var ErrStaleClaim = errors.New("background: the claim may no longer be called on")

// FailureStaleClaim is the failure of an attempt that ended before its call had left,
// because its claim was too old by then.
const FailureStaleClaim = "claim.stale"

// MaxClaimAge is how old a claim may be when the last byte of its request is let go. The
// claim locks the row of its session, so it proves that the process was alive when
// the claim was sent; nobody declares a process lost, and has its runs executed or
// decided about elsewhere, within the rest of lostAfter. Whatever else says how late a
// call may be is derived from it.
func MaxClaimAge(lostAfter time.Duration) time.Duration { return lostAfter / 5 }

// claimRecord is a claim that is on record.
type claimRecord struct {
	at   time.Time // as recorded
	sent instant   // before its statement was
}

// freshness answers whether the call of one attempt may still leave. Only its first
// answer tells what became of the request: a second request of the same call, which
// is refused, says nothing of the first.
type freshness struct {
	m          *Manager
	ctx        context.Context // of the attempt
	claim      claimRecord
	firstCheck atomic.Int32
}

const (
	unchecked int32 = iota
	granted
	denied
)

// checkBeforeSend is Attempt.Fresh.
func (f *freshness) checkBeforeSend() error {
	failpoint.Hit(failpoint.CallLastByte, failpoint.Executor)
	err := f.check()
	if err != nil {
		f.firstCheck.CompareAndSwap(unchecked, denied)
	} else {
		f.firstCheck.CompareAndSwap(unchecked, granted)
	}
	return err
}

func (f *freshness) check() error {
	if f.ctx.Err() != nil {
		return fmt.Errorf("%w: the attempt has ended", ErrStaleClaim)
	}
	age := f.claim.sent.until(f.m.clocks())
	if bound := MaxClaimAge(f.m.cfg.LostAfter); age >= bound {
		f.m.claimBackoff.onStaleClaim()
		return fmt.Errorf("%w: it was sent %s ago, %s at most is allowed", ErrStaleClaim, age.Round(time.Millisecond), bound)
	}
	return nil
}

// adjustResult takes a handler at its word, but for one that was refused before its request
// had left, and says that it has done nothing: that is no answer of the other side.
func (f *freshness) adjustResult(res Result) Result {
	if res.Class == NotExecuted && f.firstCheck.Load() == denied {
		return unsentResult("the claim was too old before the request was sent")
	}
	res.Unsent = false
	return res
}

// unsentResult is the result of a call of which nothing whole was sent.
func unsentResult(why string) Result {
	return Result{Class: NotExecuted, Retry: true, Unsent: true, Failure: &Failure{Type: FailureStaleClaim, Message: why}}
}

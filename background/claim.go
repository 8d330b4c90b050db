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

// claimReplyTimeout is how long a claim may stay unanswered before its delivery goes back to
// asynq. The claim itself is retried until it is answered: it may have been written, and then
// no other process may call the handler.
const claimReplyTimeout = time.Second

// claim moves the run to running under a new token. It sets d.run to the run after the claim,
// or to the run that the journal returned instead. The error is the journal's.
func (d *delivery) claim() (claimRecord, error) {
	sent := d.m.clocks()
	tr := d.m.recorder.newTransition(receipts.AttemptStarted, d.run)
	tr.Token = d.m.cfg.NewID()
	tr.Session, d.callCtx, _ = d.m.session.current()
	d.callCtx, tr.Trace = d.m.tracing.withDeliverySpan(d.callCtx, d.traceCtx), traceID(d.traceCtx)
	if !d.probe {
		tr.Blocks = d.m.breakers.blocks
	}
	timeout := time.AfterFunc(claimReplyTimeout, d.onClaimTimeout)
	defer timeout.Stop()
	run, err := d.m.recorder.write(d.family, tr)
	if errors.Is(err, errClosed) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) {
		return claimRecord{}, err
	}
	d.run = run
	if errors.Is(err, ErrConflict) && run.State == Running && run.Token == tr.Token {
		err = nil // an earlier try was written, and the run changed since, as by a cancel
	}
	return claimRecord{at: tr.At, sent: sent}, err
}

// lookupBeforeClaim looks up a run that may not be called again because its operation key may
// have expired, and records the result. It returns true when the run may be claimed after that.
func (d *delivery) lookupBeforeClaim() (retry bool, err error) {
	if d.lookedUp {
		// Resolved a moment ago and unknown again: another run of the case is active.
		return false, &redeliverAt{at: d.m.now().Add(time.Second)}
	}
	if !d.probe && d.m.breakers.confirmBlocked(d.run) {
		return d.acknowledgePaused() // paused meanwhile: no lookup, and no dead letter for the expired key
	}
	lookup, interrupted := d.m.caller.lookup(d.family, d.run)
	if interrupted {
		return false, &redeliverAt{at: d.m.now()}
	}
	tr := d.m.recorder.newTransition(receipts.Reconciled, d.run)
	tr.Result, tr.Lookup = lookup, lookup.Class
	if lookup.Class == Unknown {
		tr.Event, tr.Reason = receipts.DeadLettered, ReasonOutcomeUnknown
		tr.Result = Result{} // no attempt ended: the failure of the last one stays
	}
	after, err := d.m.recorder.write(d.family, tr)
	switch {
	case errors.Is(err, errClosed):
		return false, errUnavailable
	case errors.Is(err, ErrConflict):
		return true, nil // the run changed meanwhile: the claim reads it
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

// onClaimTimeout lets the delivery go back to asynq while the claim is retried. More than one
// claim of a delivery may time out.
func (d *delivery) onClaimTimeout() { d.claimTimeoutOnce.Do(func() { close(d.claimTimeout) }) }

const (
	claimBackoffMin = time.Second
	claimBackoffMax = 30 * time.Second
)

// claimBackoff stops a process from claiming for a while after one of its claims became stale.
// The cause, such as a stall of Postgres or a suspended machine, would make every other claim
// stale too. The pause doubles until a claim that was sent after it is called in time.
type claimBackoff struct {
	log         *zap.Logger
	clocks      func() instant
	staleClaims atomic.Uint64 // stale claims since the start

	mu    sync.Mutex
	next  time.Duration // the length of the next pause; claimBackoffMin when 0
	began instant
	last  time.Duration // length of the last pause; 0 when there was none
}

func newClaimBackoff(log *zap.Logger, clocks func() instant) *claimBackoff {
	return &claimBackoff{log: log, clocks: clocks}
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
	p.next = min(2*p.last, claimBackoffMax)
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

// ErrStaleClaim is the error of Attempt.Fresh.
var ErrStaleClaim = errors.New("background: the claim is stale, the call may not be made")

// FailureStaleClaim is the failure of an attempt whose claim became stale before its request
// was sent.
const FailureStaleClaim = "claim.stale"

// MaxClaimAge is the maximum age of a claim when the last byte of its request is sent. The
// claim locks the row of its session, so it proves that the process was alive when the claim
// was sent. Within the rest of lostAfter nobody declares the process lost and has its runs
// executed or decided elsewhere. Every other bound on late calls is derived from it.
func MaxClaimAge(lostAfter time.Duration) time.Duration { return lostAfter / 5 }

// claimRecord is a committed claim.
type claimRecord struct {
	at   time.Time // as recorded
	sent instant   // before its statement was sent
}

// freshness reports whether the call of one attempt may still be sent. Only its first check
// counts for the result: the refusal of a second request of the same call says nothing about
// the first.
type freshness struct {
	caller     *handlerCaller
	ctx        context.Context // of the attempt
	claim      claimRecord
	firstCheck atomic.Int32
}

const (
	unchecked int32 = iota
	granted
	denied
)

// checkBeforeSend implements Attempt.Fresh.
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
	age := f.claim.sent.until(f.caller.clocks())
	if bound := MaxClaimAge(f.caller.lostAfter); age >= bound {
		f.caller.claimBackoff.onStaleClaim()
		return fmt.Errorf("%w: it was sent %s ago, the maximum is %s", ErrStaleClaim, age.Round(time.Millisecond), bound)
	}
	return nil
}

// adjustResult returns the handler's result. If the handler was refused before its request was
// sent and reports NotExecuted, the result is unsent instead: it is no answer of the called
// service.
func (f *freshness) adjustResult(res Result) Result {
	if res.Class == NotExecuted && f.firstCheck.Load() == denied {
		return unsentResult("the claim was too old before the request was sent")
	}
	res.Unsent = false
	return res
}

// unsentResult returns the result of a call whose request was not sent completely.
func unsentResult(why string) Result {
	return Result{Class: NotExecuted, Retry: true, Unsent: true, Failure: &Failure{Type: FailureStaleClaim, Message: why}}
}

package background

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
)

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

package background

import (
	"errors"
	"time"

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

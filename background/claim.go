package background

import (
	"errors"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// claimPatience is for how long a claim may stay unanswered before its delivery
// goes back to asynq. The claim itself is tried until it is answered: it may have
// been written, and then nobody else may call the handler.
const claimPatience = time.Second

// claim makes the run running under a new token, and puts the run as it is then,
// or as it is instead, into d.run. The error is the journal's answer.
func (d *delivery) claim() (claimed, error) {
	sent := d.m.clocks()
	mv := d.m.move(receipts.AttemptStarted, d.run)
	mv.Token = d.m.cfg.NewID()
	mv.Session, d.calls, _ = d.m.session.current()
	d.calls, mv.Trace = d.m.tracing.within(d.calls, d.traced), traceID(d.traced)
	if !d.probing {
		mv.Bars = d.m.breakers.bars
	}
	doubt := time.AfterFunc(claimPatience, d.doubted)
	defer doubt.Stop()
	run, err := d.m.write(d.family, mv)
	if errors.Is(err, errClosed) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) {
		return claimed{}, err
	}
	d.run = run
	if errors.Is(err, ErrLostGuard) && run.State == Running && run.Token == mv.Token {
		err = nil // an earlier try was written, and the run was changed since, as by a cancel
	}
	return claimed{at: mv.At, sent: sent}, err
}

// inquire asks the other side about a run that may not be called again because its
// operation key may have expired, and records what it says. It reports true when
// the run may be claimed after that.
func (d *delivery) inquire() (again bool, err error) {
	if d.asked {
		// Cleared a moment ago and unknown again: another run of the case is at work.
		return false, &handBack{at: d.m.now().Add(time.Second)}
	}
	if !d.probing && d.m.breakers.confirm(d.run) {
		return d.letGo() // paused meanwhile: nobody is asked, and nothing dies of its key
	}
	looked, interrupted := d.m.lookup(d.family, d.run)
	if interrupted {
		return false, &handBack{at: d.m.now()}
	}
	mv := d.m.move(receipts.Reconciled, d.run)
	mv.Result, mv.Lookup = looked, looked.Class
	if looked.Class == Unknown {
		mv.Fact, mv.Reason = receipts.DeadLettered, ReasonOutcomeUnknown
		mv.Result = Result{} // no attempt ended: the failure of the last one stands
	}
	after, err := d.m.write(d.family, mv)
	switch {
	case errors.Is(err, errClosed):
		return false, errUnavailable
	case errors.Is(err, ErrLostGuard):
		return true, nil // the run changed meanwhile: the claim finds out
	case errors.Is(err, ErrUnreadable), errors.Is(err, ErrNotFound):
		return d.refused(err)
	case err != nil:
		d.run = after
		return d.refused(err)
	}
	d.run, d.asked = after, true
	if after.State == DeadLettered && after.Letter == LetterOpen {
		return false, mirror(after)
	}
	return after.State.Waiting(), nil
}

// doubted lets the delivery go back to asynq while the claim is tried on.
// More than one claim of a delivery may come into doubt.
func (d *delivery) doubted() { d.doubtOnce.Do(func() { close(d.doubt) }) }

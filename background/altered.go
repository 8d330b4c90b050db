package background

import (
	"errors"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// deadLetterAltered ends a run whose request is not what was submitted: nothing is sent, nobody is
// asked about it, and what is known of its money stays as it was. It is a dead letter
// for a person. It reports true when the run changed meanwhile and may be claimed again.
func (d *delivery) deadLetterAltered(cause error) (retry bool, err error) {
	tr := d.m.newTransition(receipts.DeadLettered, d.run)
	tr.Reason = ReasonRequestAltered
	tr.Result.Failure = &Failure{Type: ReasonRequestAltered, Message: cause.Error()}
	after, err := d.m.write(d.family, tr)
	switch {
	case errors.Is(err, errClosed):
		return false, errUnavailable
	case errors.Is(err, ErrConflict):
		return true, nil // the run changed meanwhile: the claim finds out
	}
	d.run = after
	if err != nil {
		return d.onClaimRefused(err)
	}
	d.m.log.Error("a request was altered after it was submitted; nothing was sent, and a person has to look",
		zap.Stringer("run", after.ID), zap.String("tenant", after.Tenant), zap.Stringer("case", after.Case), zap.Error(cause))
	if after.Letter != LetterOpen {
		return false, nil
	}
	return false, archiveErrorFor(after)
}

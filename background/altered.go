package background

import (
	"errors"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

// condemn ends a run whose request is not what was submitted: nothing is sent, nobody is
// asked about it, and what is known of its money stays as it was. It is a dead letter
// for a person. It reports true when the run changed meanwhile and may be claimed again.
func (d *delivery) condemn(cause error) (again bool, err error) {
	mv := d.m.move(receipts.DeadLettered, d.run)
	mv.Reason = ReasonRequestAltered
	mv.Result.Failure = &Failure{Type: ReasonRequestAltered, Message: cause.Error()}
	after, err := d.m.write(d.family, mv)
	switch {
	case errors.Is(err, errClosed):
		return false, errUnavailable
	case errors.Is(err, ErrLostGuard):
		return true, nil // the run changed meanwhile: the claim finds out
	}
	d.run = after
	if err != nil {
		return d.refused(err)
	}
	d.m.log.Error("a request was altered after it was submitted; nothing was sent, and a person has to look",
		zap.Stringer("run", after.ID), zap.String("tenant", after.Tenant), zap.Stringer("case", after.Case), zap.Error(cause))
	if after.Letter != LetterOpen {
		return false, nil
	}
	return false, mirror(after)
}

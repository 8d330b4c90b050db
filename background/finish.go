package background

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

// errLost ends a delivery whose attempt was ended by somebody else.
var errLost = errors.New("background: the attempt was ended by somebody else")

// finish records how an attempt ended and returns the run after it. The handler is
// never called again for it: when the run changed meanwhile, as by a request to
// cancel, only the decision is made anew. Errors: errClosed, and errLost with the
// run as it is instead.
func (m *Manager) finish(f Family, run Run, done call) (Run, error) {
	var looked *Result
	for pause := time.Duration(0); ; pause = min(2*pause+writePauseMin, writePauseMax) {
		if pause > 0 && !sleep(m.life, pause) {
			return run, errClosed
		}
		end, ask := m.ending(run, done, looked)
		if ask {
			answer, cut := m.lookup(f, run)
			if cut {
				done.interrupted = true
			}
			looked = &answer
			end, _ = m.ending(run, done, looked)
		}
		after, err := m.write(f, m.endMove(run, end, done))
		switch {
		case err == nil:
			return m.settleKnown(f, after, end.result)
		case errors.Is(err, errClosed):
			return run, err
		case holds(after, run):
			run = after
			continue
		}
		m.log.Warn("an attempt was ended by somebody else", zap.Stringer("run", run.ID), zap.Int("attempt", run.Attempt),
			zap.String("class", string(done.result.Class)), zap.String("state", string(after.State)), zap.Error(err))
		m.tell(f, run, done)
		return after, errLost
	}
}

// tell records what a call told whose attempt somebody else had ended, as when this
// process stood still for so long that it was declared lost: if it paid, that is a
// fact all the same.
func (m *Manager) tell(f Family, run Run, done call) {
	if done.interrupted || done.late != nil || done.result.Class == Unknown {
		return
	}
	late := make(chan Result, 1)
	late <- done.result
	m.abandon(run, 1)
	m.awaitLate(f, run, late)
}

// ending decides, or interrupts. While a call of the run is still out, nobody can
// prove that it will not pay.
func (m *Manager) ending(run Run, done call, looked *Result) (ending, bool) {
	if done.interrupted {
		return interrupted(run, done.result, m.now()), false
	}
	if looked != nil && looked.Class == NotExecuted && (done.late != nil || run.Unheard != 0) {
		looked = &Result{Class: Unknown}
	}
	if done.probe {
		return probed(run, done.result, looked, m.now())
	}
	return decide(run, done.result, looked, m.now())
}

func (m *Manager) endMove(run Run, end ending, done call) Move {
	mv := m.move(end.fact, run)
	mv.Spend, mv.Result, mv.Lookup, mv.Reason, mv.NextRetryAt = end.spend, end.result, end.lookup, end.reason, end.next
	mv.Duration, mv.CallGoesOn, mv.Trace = done.took, done.late != nil, done.trace
	return mv
}

// holds reports whether the attempt that was claimed is still the run's own.
func holds(now, claimed Run) bool {
	return now.State == Running && now.Attempt == claimed.Attempt && now.Token == claimed.Token
}

// lookup asks what became of a run. Who can't tell in time does not know.
func (m *Manager) lookup(f Family, run Run) (looked Result, interrupted bool) {
	done := m.bounded(m.life, f.TimeLimit(), func(ctx context.Context) Result { return f.Lookup(ctx, run) })
	return done.result, done.interrupted
}

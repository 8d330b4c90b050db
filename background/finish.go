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
		now := m.now()
		end, ask := m.ending(run, done, looked, now)
		if ask {
			answer, cut := m.lookup(f, asked(run, done))
			if cut {
				done.interrupted = true
			}
			looked, now = &answer, m.now()
			end, _ = m.ending(run, done, looked, now)
		}
		after, err := m.record(f, m.endMove(run, end, done, now))
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

// record writes how an attempt ended, in a narrower form where the values of it can't be
// written: so the outcome of one run never keeps the process from the others.
func (m *Manager) record(f Family, mv Move) (Run, error) {
	after, err := m.insist(f, mv)
	for form := 1; errors.Is(err, ErrUnrecordable); form++ {
		m.unrecordable.Add(1)
		m.log.Error("what became of an attempt can't be recorded as it is, its run is left to a person", zap.Stringer("run", mv.Run.ID),
			zap.Int("attempt", mv.Run.Attempt), zap.String("class", string(mv.Result.Class)), zap.Int64("moved", mv.Result.Moved), zap.Error(err))
		if form > narrowest && !sleep(m.life, unreadablePause) {
			return Run{}, errClosed
		}
		after, err = m.insist(f, mv.narrowed(m.cfg.NewID(), form, err))
	}
	return after, err
}

// tell records what a call told whose attempt somebody else had ended, as when this
// process stood still for so long that it was declared lost: if it paid, that is a
// fact all the same, and so it is if nothing was sent.
func (m *Manager) tell(f Family, run Run, done call) {
	if done.interrupted && !done.result.Unsent || done.late != nil || done.result.Class == Unknown {
		return
	}
	late := make(chan Result, 1)
	late <- done.result
	m.awaitLate(f, run, late, m.abandon(run))
}

// asked is a run as a lookup is to see it: the call of an attempt that does not wait for
// it any more is outstanding.
func asked(run Run, done call) Run {
	if done.late != nil {
		return run.withCallOut(run.Attempt)
	}
	return run
}

// ending decides, or interrupts.
func (m *Manager) ending(run Run, done call, looked *Result, now time.Time) (ending, bool) {
	if done.interrupted {
		return interrupted(run, done.result, now), false
	}
	if done.probe {
		return probed(run, done.result, looked, now)
	}
	return decide(run, done.result, looked, now)
}

// endMove is the move of an ending that was decided at a time given: it is also what the
// time of the next attempt counts from.
func (m *Manager) endMove(run Run, end ending, done call, now time.Time) Move {
	mv := m.move(end.fact, run)
	mv.At = now
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

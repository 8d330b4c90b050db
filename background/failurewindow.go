package background

import (
	"fmt"
	"time"
)

// failureWindowSize bounds what is remembered: in a busy process the last so many
// outcomes stand for the window.
const failureWindowSize = 4096

// outcome is how one attempt ended, as far as its target is concerned.
type outcome struct {
	caseID CaseID
	first  bool // of its run: it speaks for a new case
	failed bool // retryable or unknown; any other answer shows that the target works
	last   bool // no more than one attempt of the run is left
}

// failureWindow judges a target while its breaker is closed, by the outcomes in this
// process. Failures speak only when they are of new cases: one that fails again and
// again by itself has spoken once. Successes of all speak.
//
// It is pure: time comes in with the outcomes.
type failureWindow struct {
	rule        BreakerRule
	seen        []seenOutcome
	failed      int // of seen
	consecutive map[CaseID]struct{}
}

type seenOutcome struct {
	at     time.Time
	failed bool
}

// note takes an outcome in. It returns why the breaker is to be opened; empty when it
// is not.
func (w *failureWindow) note(at time.Time, o outcome) (why string) {
	switch {
	case !o.failed:
		w.consecutive = nil
	case o.first:
		if w.consecutive == nil {
			w.consecutive = make(map[CaseID]struct{}, w.rule.Consecutive)
		}
		w.consecutive[o.caseID] = struct{}{}
	}
	if o.first || !o.failed {
		w.forget(at.Add(-w.rule.Window))
		w.seen = append(w.seen, seenOutcome{at, o.failed})
		if o.failed {
			w.failed++
		}
	}
	if !o.failed {
		return ""
	}
	_, counted := w.consecutive[o.caseID]
	switch n := len(w.consecutive); {
	case n >= w.rule.Consecutive:
		return fmt.Sprintf("%d new cases in a row failed or were not answered", n)
	case o.last && counted && n >= w.rule.ConsecutiveAtLast:
		return fmt.Sprintf("%d new cases in a row failed or were not answered, and one is at its last attempt", n)
	case o.first && len(w.seen) >= w.rule.MinAttempts && 100*w.failed >= w.rule.FailurePercent*len(w.seen):
		return fmt.Sprintf("%d of the last %d calls within %s were new cases that failed or were not answered", w.failed, len(w.seen), w.rule.Window)
	}
	return ""
}

func (w *failureWindow) forget(before time.Time) {
	n := 0
	for n < len(w.seen) && (w.seen[n].at.Before(before) || len(w.seen)-n >= failureWindowSize) {
		if w.seen[n].failed {
			w.failed--
		}
		n++
	}
	w.seen = w.seen[n:]
}

// idle reports whether nothing is remembered that could open the breaker.
func (w *failureWindow) idle(now time.Time) bool {
	if len(w.consecutive) > 0 {
		return false
	}
	w.forget(now.Add(-w.rule.Window))
	return len(w.seen) == 0
}

// countsAsFailure reports whether a result speaks against the target rather than against
// the run alone.
func countsAsFailure(r Result) bool { return r.Class != Executed && (r.Retry || r.Class == Unknown) }

// hangingCalls is what this process knows of the calls of a target that have outlived their
// attempts. It is pure: the counts and times come in.
type hangingCalls struct {
	beforeChange int       // calls that hung when the breaker last moved, and have not answered yet
	sinceChange  int       // calls that hang since, and have not answered yet
	changes      int       // how often the breaker has moved
	lastAnswer   time.Time // when any call of the target was answered last
}

// hangingLimitFactor is how many times the bound of the rule may hang beside calls that are
// answered: nobody can end them, and each holds memory and a connection.
const hangingLimitFactor = 16

// shouldOpen reports whether the breaker is to be opened when one more call has outlived its
// limit: more than most hang since the breaker last moved, and since that call began the
// target has answered nothing. Where it answers others, those that hang do so by themselves:
// they end by their own failures, and open the breaker only when they are far too many.
// Calls that hung before the breaker moved do not count: it was opened for them.
func (h hangingCalls) shouldOpen(most int, began time.Time) bool {
	return h.sinceChange > most && h.lastAnswer.Before(began) || h.sinceChange > hangingLimitFactor*most
}

// add returns h with one more call that hangs, and the number of moves to give to answer when
// that call returns.
func (h hangingCalls) add() (hangingCalls, int) {
	h.sinceChange++
	return h, h.changes
}

// remove removes a call that began to hang after that many moves of the breaker.
func (h hangingCalls) remove(changes int) hangingCalls {
	if changes == h.changes {
		h.sinceChange--
	} else {
		h.beforeChange--
	}
	return h
}

// breakerChanged returns h after the breaker opened or closed.
func (h hangingCalls) breakerChanged() hangingCalls {
	h.beforeChange, h.sinceChange, h.changes = h.beforeChange+h.sinceChange, 0, h.changes+1
	return h
}

// empty reports whether no call hangs.
func (h hangingCalls) empty() bool { return h.beforeChange+h.sinceChange == 0 }

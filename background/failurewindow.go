package background

import (
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background/circuit"
)

// failureWindowSize bounds the outcomes kept: in a busy process they cover less time than the
// window.
const failureWindowSize = 4096

// outcome is the end of one attempt, for the statistics of its target.
type outcome struct {
	caseID CaseID
	first  bool // first attempt of its run: it counts as a new case
	failed bool // retryable or unknown; any other result shows that the target works
	last   bool // the run has at most one attempt left
}

// failureWindow decides by the outcomes of this process when to open the closed breaker of a
// target. Failures count only for new cases: a run that fails again and again counts once.
// Successes always count.
//
// It is pure: time comes in with the outcomes.
type failureWindow struct {
	rule        circuit.Rule
	seen        []seenOutcome
	failed      int // of seen
	consecutive map[CaseID]struct{}
}

type seenOutcome struct {
	at     time.Time
	failed bool
}

// note adds an outcome. It returns why the breaker is to be opened, or an empty string.
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

// idle reports whether nothing is left that could open the breaker.
func (w *failureWindow) idle(now time.Time) bool {
	if len(w.consecutive) > 0 {
		return false
	}
	w.forget(now.Add(-w.rule.Window))
	return len(w.seen) == 0
}

// countsAsFailure reports whether a result counts against the target, and not only against the
// run.
func countsAsFailure(r Result) bool { return r.Class != Executed && (r.Retry || r.Class == Unknown) }

// hangingCalls counts the outstanding calls of a target in this process. They hang, in the words of the rule.
// It is pure: the counts and times come in.
type hangingCalls struct {
	beforeChange int       // hanging calls from before the breaker last changed
	sinceChange  int       // hanging calls since then
	changes      int       // number of changes of the breaker
	lastAnswer   time.Time // last answer of any call of the target
}

// hangingLimitFactor multiplies the rule's bound where other calls are answered: hanging calls
// cannot be ended, and each holds memory and a connection.
const hangingLimitFactor = 16

// shouldOpen reports whether the breaker is to be opened when one more call has outlived its
// limit. That is so when more than most hang since the breaker last changed, and the target has
// answered nothing since that call began. Where the target answers other calls, the hanging
// ones end by their own failures, and open the breaker only when there are hangingLimitFactor
// times as many. Calls from before the last change do not count: the breaker was opened for
// them.
func (h hangingCalls) shouldOpen(most int, began time.Time) bool {
	return h.sinceChange > most && h.lastAnswer.Before(began) || h.sinceChange > hangingLimitFactor*most
}

// add returns h with one more hanging call, and the number of changes to pass to remove when
// that call returns.
func (h hangingCalls) add() (hangingCalls, int) {
	h.sinceChange++
	return h, h.changes
}

// remove removes a call that began to hang after that many changes of the breaker.
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

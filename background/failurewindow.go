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
	kase   CaseID
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
	rule   BreakerRule
	seen   []seenOutcome
	failed int // of seen
	row    map[CaseID]struct{}
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
		w.row = nil
	case o.first:
		if w.row == nil {
			w.row = make(map[CaseID]struct{}, w.rule.Row)
		}
		w.row[o.kase] = struct{}{}
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
	_, speaks := w.row[o.kase]
	switch n := len(w.row); {
	case n >= w.rule.Row:
		return fmt.Sprintf("%d new cases in a row failed or were not answered", n)
	case o.last && speaks && n >= w.rule.LastRow:
		return fmt.Sprintf("%d new cases in a row failed or were not answered, and one is at its last attempt", n)
	case o.first && len(w.seen) >= w.rule.Attempts && 100*w.failed >= w.rule.Share*len(w.seen):
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
	if len(w.row) > 0 {
		return false
	}
	w.forget(now.Add(-w.rule.Window))
	return len(w.seen) == 0
}

// failing reports whether a result speaks against the target rather than against
// the run alone.
func failing(r Result) bool { return r.Class != Executed && (r.Retry || r.Class == Unknown) }

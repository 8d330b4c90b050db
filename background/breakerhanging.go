package background

import "time"

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

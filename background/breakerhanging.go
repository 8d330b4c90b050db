package background

import "time"

// hanging is what this process knows of the calls of a target that have outlived their
// attempts. It is pure: the counts and times come in.
type hanging struct {
	before   int       // calls that hung when the breaker last moved, and have not answered yet
	since    int       // calls that hang since, and have not answered yet
	moves    int       // how often the breaker has moved
	answered time.Time // when any call of the target was answered last
}

// hangingMost is how many times the bound of the rule may hang beside calls that are
// answered: nobody can end them, and each holds memory and a connection.
const hangingMost = 16

// opens reports whether the breaker is to be opened when one more call has outlived its
// limit: more than most hang since the breaker last moved, and since that call began the
// target has answered nothing. Where it answers others, those that hang do so by themselves:
// they end by their own failures, and open the breaker only when they are far too many.
// Calls that hung before the breaker moved do not count: it was opened for them.
func (h hanging) opens(most int, began time.Time) bool {
	return h.since > most && h.answered.Before(began) || h.since > hangingMost*most
}

// hang returns h with one more call that hangs, and the number of moves to give to answer when
// that call returns.
func (h hanging) hang() (hanging, int) {
	h.since++
	return h, h.moves
}

// answer removes a call that began to hang after that many moves of the breaker.
func (h hanging) answer(moves int) hanging {
	if moves == h.moves {
		h.since--
	} else {
		h.before--
	}
	return h
}

// moved returns h after the breaker opened or closed.
func (h hanging) moved() hanging {
	h.before, h.since, h.moves = h.before+h.since, 0, h.moves+1
	return h
}

// none reports whether no call hangs.
func (h hanging) none() bool { return h.before+h.since == 0 }

package background

import "time"

// hanging is what this process knows of the calls of a target that have outlived their
// attempts. It is pure: the counts and times come in.
type hanging struct {
	calls    int       // that have not answered yet
	answered time.Time // when any call of the target was answered last
}

// hangingMost is how many times the bound of the rule may hang beside calls that are
// answered: nobody can end them, and each holds memory and a connection.
const hangingMost = 16

// opens reports whether the breaker is to be opened when one more call has outlived its
// limit: more than most hang, and since that call began the target has answered nothing.
// Where it answers others, those that hang do so by themselves: they end by their own
// failures, and open the breaker only when they are far too many.
func (h hanging) opens(most int, began time.Time) bool {
	return h.calls > most && h.answered.Before(began) || h.calls > hangingMost*most
}

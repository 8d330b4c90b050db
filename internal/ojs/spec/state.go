package spec

import (
	"slices"
	"time"
)

// State is the state of a job. The extension document mentions a state dead, which does not exist.
type State string

// The states. The last three are final.
const (
	Scheduled State = "scheduled" // its first time has not come
	Available State = "available" // it can be fetched
	Pending   State = "pending"   // it waits to be activated
	Active    State = "active"    // a worker holds it
	Retryable State = "retryable" // the time of its next attempt has not come
	Completed State = "completed"
	Cancelled State = "cancelled"
	Discarded State = "discarded" // it failed for good; a dead letter, or not
)

// states returns the eight states.
func states() []State {
	return []State{Scheduled, Available, Pending, Active, Retryable, Completed, Cancelled, Discarded}
}

// Final reports whether only the retry of a dead letter leaves the state.
func (s State) Final() bool { return s == Completed || s == Cancelled || s == Discarded }

// Facts are what the state of a job follows from.
type Facts struct {
	RunState  string    // of its newest run: pending, running, scheduled, succeeded, dead_lettered, discarded or cancelled
	NotBefore time.Time // when the next attempt may start
	Attempt   int       // attempts so far, without those that were handed back
	Pending   bool      // the job waits to be activated
}

// StateOf returns the state of a job at a time; empty for another run state than those of Facts. A job is
// available from NotBefore on: no process has to change it when its time comes.
func StateOf(f Facts, now time.Time) State {
	switch f.RunState {
	case "running":
		return Active
	case "succeeded":
		return Completed
	case "cancelled":
		return Cancelled
	case "dead_lettered", "discarded":
		return Discarded
	case "pending", "scheduled":
		switch {
		case f.Pending:
			return Pending
		case !now.Before(f.NotBefore):
			return Available
		case f.Attempt == 0:
			return Scheduled
		}
		return Retryable
	}
	return ""
}

// Request is what is asked of a job.
type Request string

// The requests.
const (
	RequestFetch     Request = "fetch"
	RequestAck       Request = "ack"
	RequestNack      Request = "nack"
	RequestHeartbeat Request = "heartbeat"
	RequestCancel    Request = "cancel"
	RequestActivate  Request = "activate"
	RequestRetry     Request = "retry"  // of a dead letter
	RequestDelete    Request = "delete" // of a dead letter
)

// allowed are the states in which a request may be made of a job. Retry and delete ask for a dead letter.
// Cancelling a cancelled job succeeds by the core document; HTTP and clients want 409.
var allowed = map[Request][]State{
	RequestFetch:     {Available},
	RequestAck:       {Active},
	RequestNack:      {Active},
	RequestHeartbeat: {Active},
	RequestCancel:    {Scheduled, Available, Pending, Active, Retryable},
	RequestActivate:  {Pending},
	RequestRetry:     {Discarded},
	RequestDelete:    {Discarded},
}

// CheckRequest returns nil if a request may be made of a job in a state, else the refusal: 409 with
// details.current_state, and details.expected_state where it is one; for retry and delete of what is not a
// dead letter 404. letter says whether a discarded job is a dead letter. A request that is refused changes
// nothing; fetch and heartbeat only leave such a job out.
func CheckRequest(r Request, id string, s State, letter bool) error {
	states := allowed[r]
	if r == RequestRetry || r == RequestDelete {
		if !letter || !slices.Contains(states, s) {
			return NotDeadLetter(id, s)
		}
		return nil
	}
	if slices.Contains(states, s) {
		return nil
	}
	e := Conflict("a job that is "+string(s)+" cannot take the request "+string(r)).With("job_id", id).With("current_state", s)
	if len(states) == 1 {
		e = e.With("expected_state", states[0])
	}
	return e
}

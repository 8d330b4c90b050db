package remote

import (
	"fmt"
	"slices"
	"time"
)

// Verdict is the result of Verify: counts, and what is broken.
type Verdict struct {
	Accepted int            `json:"accepted"`
	Places   map[string]int `json:"places"` // where the accepted jobs are
	Leases   int            `json:"leases"`
	Effects  int            `json:"effects"`
	Acks     int            `json:"acks_accepted"`
	Unknown  int            `json:"answers_without_reply"`
	Refused  int            `json:"answers_refused"`
	Lies     map[Lie]int    `json:"lies"`
	Acts     map[string]int `json:"acts_done"`
	Broken   []string       `json:"broken"`
}

// The final states of jobs.
const (
	completed = "completed"
	cancelled = "cancelled"
	discarded = "discarded"
)

// clockError is by how much a server's time of a lease or a start may be wrong, and a time of Open Job
// Spec, which has milliseconds.
const clockError = 300 * time.Millisecond

// ask is an answer of a worker, with the reply if there was one.
type ask struct {
	Entry
	replied *Entry
}

func (a *ask) accepted() bool { return a.replied != nil && reply{status: a.replied.Status}.ok() }
func (a *ask) refused() bool {
	return a.replied != nil && !a.accepted() && !reply{status: a.replied.Status}.unknown()
}

// mayHaveCounted reports that nobody knows, or that it did.
func (a *ask) mayHaveCounted() bool { return !a.refused() }

// held is an attempt that a worker was given.
type held struct {
	Entry
	asks   []*ask // true ones about it, the oldest first
	effect bool
}

// story is everything about one job.
type story struct {
	Enqueued
	final  Final
	leases []*held
	asks   []*ask // of all workers, lies too
	acts   []Act  // those that had an effect, or may have had one
	events map[string]int
	starts map[string]int // by worker
}

type verifier struct {
	*Verdict
	evidence Evidence
	stories  map[string]*story
	asks     map[string]*ask // by key
}

// Verify compares what workers and callers know with what became of the jobs.
func Verify(e Evidence) *Verdict {
	v := &verifier{
		Verdict:  &Verdict{Places: map[string]int{}, Lies: map[Lie]int{}, Acts: map[string]int{}, Broken: append([]string{}, e.Broken...)},
		evidence: e, stories: map[string]*story{}, asks: map[string]*ask{},
	}
	v.read()
	for _, j := range e.Jobs {
		s := v.stories[j.ID]
		v.checkEnqueued(s)
		if !s.Accepted && !(s.Unknown && s.final.Found) {
			continue
		}
		v.Accepted++
		v.checkPlace(s)
		v.checkCompletion(s)
		v.checkRetries(s)
		v.checkLeases(s)
		v.checkRefusals(s)
		v.checkEnd(s)
	}
	v.checkLies()
	v.checkUnique()
	return v.Verdict
}

func (v *verifier) fail(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf("jobs: "+format, args...))
}

// read gathers what is about one job.
func (v *verifier) read() {
	for _, j := range v.evidence.Jobs {
		v.stories[j.ID] = &story{Enqueued: j, final: v.evidence.Finals[j.ID], events: map[string]int{}, starts: map[string]int{}}
	}
	for _, event := range v.evidence.Events {
		s := v.stories[event.Job]
		if s == nil {
			v.fail("job %s has an event %s, and nobody enqueued it", event.Job, event.Type)
			continue
		}
		s.events[event.Type]++
		if event.Type == eventStarted {
			s.starts[event.Worker]++
		}
	}
	for _, a := range v.evidence.Acts {
		if a.done() {
			v.Acts[a.Verb]++
		}
		for _, s := range v.stories {
			if a.maybe() && (a.Job == s.ID || a.Verb == Purge && a.Queue == s.Queue) {
				s.acts = append(s.acts, a)
			}
		}
	}
	v.readLedger()
}

func (v *verifier) readLedger() {
	leases := map[[2]string]*held{}
	for _, e := range v.evidence.Entries {
		s, lease := v.stories[e.Job], leases[[2]string{e.Job, e.Lease}]
		if s == nil && e.Lie != NeverExisted {
			v.fail("worker %s was given job %s, which nobody enqueued", e.Worker, e.Job)
			continue
		}
		switch e.Kind {
		case Fetched:
			v.Leases++
			if lease != nil {
				v.fail("job %s was given twice as the attempt of %s, to %s and %s", e.Job, e.Lease, lease.Worker, e.Worker)
			}
			lease = &held{Entry: e}
			leases[[2]string{e.Job, e.Lease}] = lease
			s.leases = append(s.leases, lease)
		case Effect:
			v.Effects++
			if lease != nil {
				lease.effect = true
			}
		case Asked:
			a := &ask{Entry: e}
			v.asks[e.Key] = a
			if s != nil {
				s.asks = append(s.asks, a)
			}
			if lease != nil && (e.Lie == "" || e.Lie == NotDone) {
				lease.asks = append(lease.asks, a)
			}
		case Answered:
			if a := v.asks[e.Key]; a != nil {
				a.replied = &e
			}
		}
	}
}

// act returns an act of a verb that was done, or may have been.
func (s *story) act(verb string) (Act, bool) {
	i := slices.IndexFunc(s.acts, func(a Act) bool { return a.Verb == verb })
	if i < 0 {
		return Act{}, false
	}
	return s.acts[i], true
}

// checkEnqueued compares the answer to an enqueue with the receipt of it.
func (v *verifier) checkEnqueued(s *story) {
	n := s.events[eventEnqueued]
	switch {
	case s.Unknown:
		v.fail("job %s was enqueued, and its caller never got an answer", s.ID)
	case s.Accepted && n != 1:
		v.fail("job %s was accepted, and was enqueued %d times", s.ID, n)
	case !s.Accepted && n != 0:
		v.fail("job %s was refused, and is enqueued all the same", s.ID)
	}
}

// checkPlace checks where a job is, and that somebody brought it there.
func (v *verifier) checkPlace(s *story) {
	_, cancel := s.act(Cancel)
	_, removed := s.act(Delete)
	_, purged := s.act(Purge)
	f := s.final
	place := f.State
	switch {
	case !f.Found:
		place = "deleted"
		if !removed && !purged || !s.DeadLetter {
			v.fail("job %s was accepted and does not exist, and nobody deleted it", s.ID)
		}
	case f.State == completed:
	case f.State == cancelled:
		if !cancel && !v.replaced(s) {
			v.fail("job %s is cancelled, and nobody asked for that", s.ID)
		}
	case f.State != discarded:
		v.fail("job %s is still %s", s.ID, f.State)
	case f.Letter != s.DeadLetter:
		v.fail("job %s has failed for good: a dead letter %t, and should be one %t", s.ID, f.Letter, s.DeadLetter)
	case f.Attempt < f.Limit && !slices.ContainsFunc(s.asks, func(a *ask) bool { return a.Final && a.mayHaveCounted() }):
		v.fail("job %s has failed for good after %d of %d attempts, and no worker said that", s.ID, f.Attempt, f.Limit)
	}
	if f.Letter {
		place = "dead letter"
	}
	v.Places[place]++
}

// replaced reports that another unique job may have taken the place of one.
func (v *verifier) replaced(s *story) bool {
	return s.UniqueKey != "" && slices.ContainsFunc(v.evidence.Jobs, func(j Enqueued) bool {
		return j.ID != s.ID && j.UniqueKey == s.UniqueKey && j.Replaces && (j.Accepted || j.Unknown)
	})
}

// checkCompletion checks that a completed job was acknowledged once, by who held it and did it.
func (v *verifier) checkCompletion(s *story) {
	var accepted []*ask
	for _, a := range s.asks {
		if a.Verb == Ack && a.accepted() {
			accepted = append(accepted, a)
		}
	}
	v.Acks += len(accepted)
	if len(accepted) > 1 {
		v.fail("job %s was acknowledged %d times with success: %s, %s", s.ID, len(accepted), accepted[0].Key, accepted[1].Key)
	}
	done := s.final.State == completed
	if n := s.events[eventCompleted]; n > 1 || (n == 1) != done {
		v.fail("job %s is %q, and was completed %d times by its receipts", s.ID, s.final.State, n)
	}
	if !done {
		if len(accepted) > 0 {
			v.fail("job %s was acknowledged with success by %s, and is %q", s.ID, accepted[0].Key, s.final.State)
		}
		return
	}
	by := v.asks[s.final.Key]
	switch {
	case by == nil || by.Job != s.ID || by.Verb != Ack:
		v.fail("job %s is completed by the answer %q, which no worker sent", s.ID, s.final.Key)
	case by.refused():
		v.fail("job %s is completed by the answer %s, which was refused with %d", s.ID, by.Key, by.replied.Status)
	case len(accepted) > 0 && accepted[0] != by:
		v.fail("job %s is completed by the answer %s, and %s got success", s.ID, by.Key, accepted[0].Key)
	case by.Lie == "" && !slices.ContainsFunc(s.leases, func(l *held) bool { return l.Lease == by.Lease && l.effect }):
		v.fail("job %s is completed by the answer %s, and nobody did its work", s.ID, by.Key)
	case by.mustBeRefused(s):
		v.fail("job %s is completed by the answer %s, a lie: %s", s.ID, by.Key, by.Lie)
	}
}

// checkRetries checks that each retry that was accepted happened once.
func (v *verifier) checkRetries(s *story) {
	done, unknown := 0, 0
	for _, a := range s.acts {
		switch {
		case a.Verb != Retry:
		case a.done():
			done++
		default:
			unknown++
		}
	}
	if n := s.events[eventRetried]; n < done || n > done+unknown {
		v.fail("job %s was retried %d times, and %d requests for that were accepted, %d not answered", s.ID, n, done, unknown)
	}
	if n := s.events[eventReplayed]; n > 0 {
		v.fail("job %s was replayed %d times by a rule, and there is none", s.ID, n)
	}
}

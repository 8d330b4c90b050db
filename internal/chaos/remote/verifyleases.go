package remote

import (
	"time"
)

// surelyHeld returns until when a lease has certainly run: to the end of its length, or until somebody
// may have ended it before; and longer if an answer was accepted. It began when the worker knew of it, at
// the latest.
func (s *story) surelyHeld(l *held) time.Time {
	until := l.Sent.Add(time.Duration(l.Length)*time.Millisecond - clockError)
	sooner := func(t time.Time) {
		if t.Before(until) && !t.Before(l.Sent) {
			until = t
		}
	}
	for _, a := range s.asks {
		if a.mayHaveCounted() {
			sooner(a.At)
		}
		if a.Name == l.Worker && !a.accepted() && !a.refused() && a.At.Before(l.Sent) {
			until = l.Sent // a server that was frozen may execute it now
		}
	}
	for _, a := range s.acts {
		if a.Verb != Cancel {
			continue
		}
		if sooner(a.Sent); a.Sent.Before(l.Sent) && (!a.done() || a.Received.After(l.Sent)) {
			until = l.Sent // it may have ended the lease at any time
		}
	}
	for _, a := range l.asks {
		if a.accepted() && a.At.After(until) {
			until = a.At
		}
	}
	return until
}

// checkLeases checks that no two workers held a job at once, that each lease has its receipt, and that none began
// too early.
func (v *verifier) checkLeases(s *story) {
	given := map[string]int{}
	for i, a := range s.leases {
		given[a.Worker]++
		if !s.NotBefore.IsZero() && a.Received.Add(clockError+v.evidence.Clock.Ahead(a.Sent, a.Received)).Before(s.NotBefore) {
			v.fail("job %s was given to %s %s before its time", s.ID, a.Worker, s.NotBefore.Sub(a.Received))
		}
		for _, b := range s.leases[i+1:] {
			from, until := latest(a.Received, b.Received), earliest(s.surelyHeld(a), s.surelyHeld(b))
			if from.Before(until) {
				v.fail("job %s was held by %s and %s at once, for %s", s.ID, a.Worker, b.Worker, until.Sub(from))
			}
		}
	}
	for worker, n := range given {
		if n > s.starts[worker] {
			v.fail("job %s was given to %s %d times, and its receipts have %d", s.ID, worker, n, s.starts[worker])
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// checkRefusals checks that a worker that certainly held a job was not refused when it answered for the first
// time.
func (v *verifier) checkRefusals(s *story) {
	for _, a := range s.asks {
		switch {
		case a.replied == nil || !a.accepted() && !a.refused():
			v.Unknown++
		case a.refused():
			v.Refused++
		}
	}
	for _, l := range s.leases {
		if len(l.asks) == 0 || !l.asks[0].refused() {
			continue
		}
		first := l.asks[0]
		if s.surelyHeld(l).Before(first.replied.Received) {
			continue
		}
		v.fail("job %s was held by %s, whose answer %s was refused with %d", s.ID, l.Worker, first.Key, first.replied.Status)
	}
}

// checkEnd checks that nothing happened to a job after its end.
func (v *verifier) checkEnd(s *story) {
	over := func(what string, at time.Time) {
		for _, l := range s.leases {
			if l.Sent.After(at) {
				v.fail("job %s was given to %s %s after it was %s", s.ID, l.Worker, l.Sent.Sub(at), what)
			}
		}
		for _, a := range s.asks {
			if a.accepted() && a.At.After(at) {
				v.fail("job %s: the answer %s was accepted %s after it was %s", s.ID, a.Key, a.At.Sub(at), what)
			}
		}
	}
	for _, a := range s.asks {
		if a.Verb == Ack && a.accepted() {
			over(completed, a.replied.Received)
		}
	}
	for _, a := range s.acts {
		switch {
		case !a.done():
		case a.Verb == Cancel && a.State == cancelled:
			over(cancelled, a.Received)
			if s.final.State != cancelled {
				v.fail("job %s was cancelled, and is %q", s.ID, s.final.State)
			}
		case a.Verb == Delete:
			over("deleted", a.Received)
			if s.final.Found {
				v.fail("job %s was deleted, and is %q", s.ID, s.final.State)
			}
		}
	}
}

// mustBeRefused reports that an answer is a lie that can be noticed. A worker may have been given a job
// without an answer to its fetch, and does not know then that it holds it.
func (a *ask) mustBeRefused(s *story) bool {
	switch a.Lie {
	case OtherName, NeverExisted:
		return true
	case NotHeld:
		return s == nil || s.starts[a.Name] == 0
	}
	return false
}

// checkLies checks that lies were refused.
func (v *verifier) checkLies() {
	for _, a := range v.asks {
		if a.Lie == "" {
			continue
		}
		v.Lies[a.Lie]++
		if a.accepted() && a.mustBeRefused(v.stories[a.Job]) {
			v.fail("job %s: the answer %s was accepted, a lie: %s", a.Job, a.Key, a.Lie)
		}
	}
}

// checkUnique checks that of the jobs with a key one was live at a time.
func (v *verifier) checkUnique() {
	byKey := map[string][]*story{}
	for _, j := range v.evidence.Jobs {
		if s := v.stories[j.ID]; j.UniqueKey != "" && j.Accepted && s.final.Found {
			byKey[j.UniqueKey] = append(byKey[j.UniqueKey], s)
		}
	}
	for key, all := range byKey {
		for i, a := range all {
			for _, b := range all[i+1:] {
				from, until := latest(a.final.CreatedAt, b.final.CreatedAt), earliest(v.evidence.Clock.Earliest(a.final.EndedAt), v.evidence.Clock.Earliest(b.final.EndedAt))
				if from.Add(2 * clockError).Before(until) {
					v.fail("jobs %s and %s are unique by %q, and were both live for %s", a.ID, b.ID, key, until.Sub(from))
				}
			}
		}
	}
}

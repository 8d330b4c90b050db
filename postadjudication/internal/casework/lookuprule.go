package casework

import (
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// LookupRule configures the lookup loop, which asks the escrow service about runs of unknown
// outcome. The zero rule is the default: on if the executor is a Lookuper.
type LookupRule struct {
	Off        bool
	Every      time.Duration // interval between rounds; 5s
	FirstPause time.Duration // between the first and second lookup of a letter; each further pause doubles; 1m
	MaxPause   time.Duration // the longest pause; 6h
	PerSecond  int           // lookups per second at one escrow service, by all processes; 5
	Slots      int           // concurrent lookups; 4
}

// WithDefaults returns the rule with a value for whatever it leaves out.
func (r LookupRule) WithDefaults() LookupRule {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&r.Every, 5 * time.Second}, {&r.FirstPause, time.Minute}, {&r.MaxPause, 6 * time.Hour}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if r.PerSecond <= 0 {
		r.PerSecond = 5
	}
	if r.Slots <= 0 {
		r.Slots = 4
	}
	return r
}

// pause returns the pause after the nth lookup of a letter.
func (r LookupRule) pause(asked int) time.Duration {
	d := r.FirstPause
	for range asked - 1 {
		if d >= r.MaxPause/2 {
			return r.MaxPause
		}
		d *= 2
	}
	return min(d, r.MaxPause)
}

// weigh returns the record of lookups of a run after one more answer, and whether the answer is believed. Executed
// is believed. NotExecuted, which conclude has passed, is believed only if the service has said it before, as long
// ago as a call can be in flight and at least FirstPause, and neither was an attempt made since nor did the service
// say that the call is accepted: a replica that lags says it once. Whatever the product asks by itself is judged here:
// before a claim, at the end of an attempt, by the loop.
func weigh(f *SettlementFamily, was *journal.LookupRecord, run *background.Run, found background.Result, now time.Time) (next journal.LookupRecord, believed bool) {
	next = journal.LookupRecord{
		Run: run.ID, Tenant: run.Tenant, Attempt: run.Attempt, Count: was.Count + 1, LookedUpAt: now, Answer: found.Class, Moved: found.Moved,
		NextAt: now.Add(f.Lookups.pause(was.Count + 1)),
	}
	if found.Failure != nil {
		next.FailureType = found.Failure.Type
	}
	if was.Attempt == run.Attempt && !was.NotExecutedAt.After(now) { // after now: the clock was set back
		next.NotExecutedAt = was.NotExecutedAt
	}
	gap := max(f.Lookups.FirstPause, f.inFlight(run.Target))
	switch {
	case found.Class == escrow.Executed:
		next.NotExecutedAt = time.Time{}
		return next, true
	case was.Answer == escrow.Executed:
		return *was, false // the service contradicts itself: what it said first stays on record
	case found.Accepted: // it may yet be executed, whatever was said before
		next.NotExecutedAt, next.FailureType = time.Time{}, failureAccepted
	case found.Class == escrow.NotExecuted && next.NotExecutedAt.IsZero():
		next.NotExecutedAt, next.NextAt = now, now.Add(gap)
	case found.Class == escrow.NotExecuted && elapsed(f, next.NotExecutedAt, now) >= gap:
		return next, true
	case found.Class == escrow.NotExecuted:
		next.NextAt = Later(next.NotExecutedAt, f.ClockUnchanged()).Add(gap)
	}
	if last := lastLookup(f, run); !last.IsZero() && next.NextAt.After(last) {
		if next.NextAt = last; !now.Before(last) {
			next.NextAt, next.ManualReason = time.Time{}, LookupKeyForgotten
		}
	}
	return next, false
}

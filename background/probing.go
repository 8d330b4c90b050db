package background

import (
	"math/rand/v2"
	"time"
)

// probing judges a target while its breaker is open: it says which paused runs are let
// through, what their failures cost them, and when the breaker closes. There is one for
// each opening and leader; what it lets through counts in it alone.
//
// New cases, which were never called, probe: by a credit that doubles with each answer
// and shrinks by one with each failure. Runs that failed before are called only while
// answers show that the target works: then a failure is their own. With no new case to
// ask, one of them probes now and then.
//
// It is pure: time comes in, and one source of chance is given.
type probing struct {
	rule  BreakerRule
	slots int
	rnd   *rand.Rand

	credit    int // new cases that may be out at one time
	freshOut  int
	triedMost int // runs that failed before that may be
	triedOut  int
	answers   int // probes that were answered since a new case failed
	turn      int
	answered  time.Time // the last answer; zero before
	letAt     time.Time // when a probe was let through last
	askedAt   time.Time // when the last of them by a new case was, or the opening
	rest      time.Duration
	fewSince  time.Time // since when few are paused; zero while they are many
	failing   time.Time // the first failure of a probe since the last answer; zero when there was none
}

// lane is which way a run is let through.
type lane int

const (
	laneNew   lane = iota // a new case probes
	laneTried             // it failed before, and the target works
	laneRest              // it failed before, and there is no new case to probe
)

// ticket is a call that was let through.
type ticket struct {
	lane   lane
	budget bool // a failure spends the run's budget whatever becomes of the target
	left   bool // it takes so long that it no longer counts as out
}

// triedFirst is how many runs that failed before are called at one time at first.
const triedFirst = 4

func newProbing(rule BreakerRule, slots int, rnd *rand.Rand, now time.Time) *probing {
	return &probing{rule: rule, slots: slots, rnd: rnd, credit: 1, triedMost: min(triedFirst, max(1, slots/2)), letAt: now, askedAt: now, rest: rule.Rest}
}

// works reports whether an answer shows that the target works now.
func (p *probing) works(now time.Time) bool {
	return !p.answered.IsZero() && now.Sub(p.answered) < p.rule.Recent
}

// newAllowed is how many new cases may be let through now.
func (p *probing) newAllowed(now time.Time) int {
	if p.credit == 1 && now.Sub(p.letAt) < p.rule.Probe {
		return 0
	}
	return max(0, p.credit-p.freshOut)
}

// pick says which new case is next: three times the newest, then one anywhere, so that
// no order of arrival hides those that succeed. from is the place between the oldest
// (0) and the newest (1).
func (p *probing) pick() (from float64, anywhere bool) {
	p.turn++
	if p.turn%4 != 0 {
		return 1, false
	}
	return p.rnd.Float64(), true
}

// triedAllowed is how many of the runs that failed before may be let through now.
func (p *probing) triedAllowed(now time.Time) int {
	if !p.works(now) {
		return 0
	}
	return max(0, p.triedMost-p.triedOut)
}

// restDue reports whether a run that failed before is to probe, for want of a new case.
// paused is how many wait in all.
func (p *probing) restDue(now time.Time, paused int) bool {
	switch few := paused < p.rule.Few; {
	case !few:
		p.fewSince = time.Time{}
	case p.fewSince.IsZero():
		p.fewSince = now
	}
	pause := p.rest
	if p.few(now) {
		pause = p.rule.Rest
	}
	return !p.works(now) && now.Sub(p.letAt) >= pause
}

func (p *probing) few(now time.Time) bool {
	return !p.fewSince.IsZero() && now.Sub(p.fewSince) >= p.rule.FewFor
}

// let counts a run that is let through.
func (p *probing) let(now time.Time, l lane) *ticket {
	t := &ticket{lane: l, budget: l == laneTried || l == laneRest && p.few(now)}
	switch l {
	case laneNew:
		p.freshOut++
		p.letAt, p.askedAt = now, now
	case laneTried:
		p.triedOut++
	case laneRest:
		p.letAt = now
	}
	return t
}

// leave takes a call that is slow off what is out, before it has ended.
func (p *probing) leave(t *ticket) {
	if t.left {
		return
	}
	t.left = true
	switch t.lane {
	case laneNew:
		p.freshOut--
	case laneTried:
		p.triedOut--
	}
}

// spends reports whether the failure of a call spends the run's budget: it does when it
// is the run's own. What a new case fails while others are answered is, but a probe
// never ends a run.
func (p *probing) spends(now time.Time, t *ticket, last bool) bool {
	return t.budget || t.lane == laneNew && p.works(now) && !last
}

// verdict is what a call that was let through says of the target.
type verdict int

const (
	saysNothing verdict = iota // it was not made, or was cut short
	saysWorks
	saysFails
)

// ended takes in how a call that was let through ended.
func (p *probing) ended(now time.Time, t *ticket, v verdict) {
	p.leave(t)
	if v == saysFails && t.lane != laneTried && p.failing.IsZero() {
		p.failing = now
	}
	if t.lane == laneTried {
		p.triedMost = min(max(1, p.slots/2), p.triedMost+1)
	}
	switch {
	case v == saysWorks:
		p.answered, p.rest, p.failing = now, p.rule.Rest, time.Time{}
		if t.lane != laneTried {
			p.answers++
			p.credit = min(p.slots, 2*p.credit)
		}
	case v == saysFails && t.lane == laneNew:
		p.credit, p.answers = max(1, p.credit-1), 0
	case v == saysFails && t.lane == laneRest:
		p.rest = min(p.rule.RestMax, p.rest+p.rest/8)
	case t.lane == laneRest: // it was not called: another may be before long
		p.letAt = now.Add(p.rule.Rest/5 - p.rest)
	}
}

// How many answers in a row close a breaker.
const (
	answersNoneWaiting = 3
	answersInAll       = 10
)

// relapsedAfter is for how many times BreakerRule.Recent probes must fail for a breaker
// that is half-open to be open again.
const relapsedAfter = 5

// How often a leader looks for more to let through.
const (
	leadBusy = 20 * time.Millisecond
	leadIdle = 100 * time.Millisecond
)

// pause is for how long a leader waits before it looks again.
func (p *probing) pause(now time.Time) time.Duration {
	if p.credit > 1 || p.works(now) {
		return leadBusy
	}
	return min(leadIdle, p.rule.Probe)
}

// recovered reports whether the breaker is to be closed. waiting says that new cases are
// still paused, paused how many runs are in all.
func (p *probing) recovered(now time.Time, waiting bool, paused int) bool {
	switch {
	case p.answers >= answersInAll:
		return true
	case waiting:
		return false
	}
	return p.answers >= answersNoneWaiting || paused == 0 && p.works(now)
}

// relapsed reports whether probes have failed for some time, and none was answered.
func (p *probing) relapsed(now time.Time) bool {
	return !p.failing.IsZero() && now.Sub(p.failing) >= relapsedAfter*p.rule.Recent
}

// stalled reports whether there was no new case to ask for so long that somebody should
// know. paused is how many runs wait.
func (p *probing) stalled(now time.Time, paused int) bool {
	return paused > 0 && !p.works(now) && now.Sub(p.askedAt) >= p.rule.Stalled
}

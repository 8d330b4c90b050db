package background

import (
	"math/rand/v2"
	"time"
)

// probePolicy judges a target while its breaker is open: it says which paused runs are let
// through, what their failures cost them, and when the breaker closes. There is one for
// each opening and leader; what it lets through counts in it alone.
//
// New cases, which were never called, probe: by a credit that doubles with each answer
// and shrinks by one with each failure. Runs that failed before are called only while
// answers show that the target works: then a failure is their own. With no new case to
// ask, one of them probes now and then.
//
// It is pure: time comes in, and one source of chance is given.
type probePolicy struct {
	rule  BreakerRule
	slots int
	rnd   *rand.Rand

	credit           int // new cases that may be out at one time
	newInFlight      int
	maxRetried       int // runs that failed before that may be
	retriedInFlight  int
	answers          int // probes that were answered since a new case failed
	picks            int
	lastAnswer       time.Time // the last answer; zero before
	lastProbe        time.Time // when a probe was let through last
	lastNewCase      time.Time // when the last of them by a new case was, or the opening
	fallbackInterval time.Duration
	fewSince         time.Time // since when few are paused; zero while they are many
	failingSince     time.Time // the first failure of a probe since the last answer; zero when there was none
}

// probeKind is which way a run is let through.
type probeKind int

const (
	kindNewCase  probeKind = iota // a new case probes
	kindRetried                   // it failed before, and the target works
	kindFallback                  // it failed before, and there is no new case to probe
)

// probeCall is a call that was let through.
type probeCall struct {
	kind          probeKind
	alwaysCharges bool // a failure spends the run's budget whatever becomes of the target
	released      bool // it takes so long that it no longer counts as out
}

// initialMaxRetried is how many runs that failed before are called at one time at first.
const initialMaxRetried = 4

func newProbePolicy(rule BreakerRule, slots int, rnd *rand.Rand, now time.Time) *probePolicy {
	return &probePolicy{rule: rule, slots: slots, rnd: rnd, credit: 1, maxRetried: min(initialMaxRetried, max(1, slots/2)), lastProbe: now, lastNewCase: now, fallbackInterval: rule.FallbackInterval}
}

// targetWorks reports whether an answer shows that the target works now.
func (p *probePolicy) targetWorks(now time.Time) bool {
	return !p.lastAnswer.IsZero() && now.Sub(p.lastAnswer) < p.rule.AnswerValidFor
}

// newCasesAllowed is how many new cases may be let through now.
func (p *probePolicy) newCasesAllowed(now time.Time) int {
	if p.credit == 1 && now.Sub(p.lastProbe) < p.rule.ProbeInterval {
		return 0
	}
	return max(0, p.credit-p.newInFlight)
}

// pick says which new case is next: three times the newest, then one anywhere, so that
// no order of arrival hides those that succeed. from is the place between the oldest
// (0) and the newest (1).
func (p *probePolicy) pick() (from float64, anywhere bool) {
	p.picks++
	if p.picks%4 != 0 {
		return 1, false
	}
	return p.rnd.Float64(), true
}

// retriedAllowed is how many of the runs that failed before may be let through now.
func (p *probePolicy) retriedAllowed(now time.Time) int {
	if !p.targetWorks(now) {
		return 0
	}
	return max(0, p.maxRetried-p.retriedInFlight)
}

// fallbackDue reports whether a run that failed before is to probe, for want of a new case.
// paused is how many wait in all.
func (p *probePolicy) fallbackDue(now time.Time, paused int) bool {
	switch few := paused < p.rule.FewPaused; {
	case !few:
		p.fewSince = time.Time{}
	case p.fewSince.IsZero():
		p.fewSince = now
	}
	pause := p.fallbackInterval
	if p.few(now) {
		pause = p.rule.FallbackInterval
	}
	return !p.targetWorks(now) && now.Sub(p.lastProbe) >= pause
}

func (p *probePolicy) few(now time.Time) bool {
	return !p.fewSince.IsZero() && now.Sub(p.fewSince) >= p.rule.FewPausedFor
}

// start counts a run that is let through.
func (p *probePolicy) start(now time.Time, kind probeKind) *probeCall {
	t := &probeCall{kind: kind, alwaysCharges: kind == kindRetried || kind == kindFallback && p.few(now)}
	switch kind {
	case kindNewCase:
		p.newInFlight++
		p.lastProbe, p.lastNewCase = now, now
	case kindRetried:
		p.retriedInFlight++
	case kindFallback:
		p.lastProbe = now
	}
	return t
}

// release takes a call that is slow off what is out, before it has ended.
func (p *probePolicy) release(t *probeCall) {
	if t.released {
		return
	}
	t.released = true
	switch t.kind {
	case kindNewCase:
		p.newInFlight--
	case kindRetried:
		p.retriedInFlight--
	}
}

// chargesBudget reports whether the failure of a call spends the run's budget: it does when it
// is the run's own. What a new case fails while others are answered is, but a probe
// never ends a run.
func (p *probePolicy) chargesBudget(now time.Time, t *probeCall, last bool) bool {
	return t.alwaysCharges || t.kind == kindNewCase && p.targetWorks(now) && !last
}

// probeResult is what a call that was let through says of the target.
type probeResult int

const (
	probeInconclusive probeResult = iota // it was not made, or was cut short
	probeAnswered
	probeFailed
)

// finish takes in how a call that was let through ended.
func (p *probePolicy) finish(now time.Time, t *probeCall, result probeResult) {
	p.release(t)
	if result == probeFailed && t.kind != kindRetried && p.failingSince.IsZero() {
		p.failingSince = now
	}
	if t.kind == kindRetried {
		p.maxRetried = min(max(1, p.slots/2), p.maxRetried+1)
	}
	switch {
	case result == probeAnswered:
		p.lastAnswer, p.fallbackInterval, p.failingSince = now, p.rule.FallbackInterval, time.Time{}
		if t.kind != kindRetried {
			p.answers++
			p.credit = min(p.slots, 2*p.credit)
		}
	case result == probeFailed && t.kind == kindNewCase:
		p.credit, p.answers = max(1, p.credit-1), 0
	case result == probeFailed && t.kind == kindFallback:
		p.fallbackInterval = min(p.rule.FallbackIntervalMax, p.fallbackInterval+p.fallbackInterval/8)
	case t.kind == kindFallback: // it was not called: another may be before long
		p.lastProbe = now.Add(p.rule.FallbackInterval/5 - p.fallbackInterval)
	}
}

// How many answers in a row close a breaker.
const (
	answersWhenNoneWait = 3
	answersToClose      = 10
)

// relapseFactor is for how many times BreakerRule.Recent probes must fail for a breaker
// that is half-open to be open again.
const relapseFactor = 5

// How often a leader looks for more to let through.
const (
	leaderBusyPause = 20 * time.Millisecond
	leaderIdlePause = 100 * time.Millisecond
)

// pause is for how long a leader waits before it looks again.
func (p *probePolicy) pause(now time.Time) time.Duration {
	if p.credit > 1 || p.targetWorks(now) {
		return leaderBusyPause
	}
	return min(leaderIdlePause, p.rule.ProbeInterval)
}

// recovered reports whether the breaker is to be closed. waiting says that new cases are
// still paused, paused how many runs are in all.
func (p *probePolicy) recovered(now time.Time, waiting bool, paused int) bool {
	switch {
	case p.answers >= answersToClose:
		return true
	case waiting:
		return false
	}
	return p.answers >= answersWhenNoneWait || paused == 0 && p.targetWorks(now)
}

// relapsed reports whether probes have failed for some time, and none was answered.
func (p *probePolicy) relapsed(now time.Time) bool {
	return !p.failingSince.IsZero() && now.Sub(p.failingSince) >= relapseFactor*p.rule.AnswerValidFor
}

// stalled reports whether there was no new case to ask for so long that somebody should
// know. paused is how many runs wait.
func (p *probePolicy) stalled(now time.Time, paused int) bool {
	return paused > 0 && !p.targetWorks(now) && now.Sub(p.lastNewCase) >= p.rule.StalledAfter
}

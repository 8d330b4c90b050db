package background

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/recourse-dev/recourse/background/circuit"
)

// failureWindowSize bounds the outcomes kept: in a busy process they cover less time than the
// window.
const failureWindowSize = 4096

// outcome is the end of one attempt, for the statistics of its target.
type outcome struct {
	caseID CaseID
	began  time.Time
	first  bool // first attempt of its run: it counts as a new case
	failed bool // retryable or unknown; any other result shows that the target works
	last   bool // the run has at most one attempt left
}

// failureWindow decides by the outcomes of this process when to open the closed breaker of a
// target. Failures count only for new cases: a run that fails again and again counts once.
// Successes always count.
//
// A service that fails often is not down: the more of the calls before a row of failures failed,
// the longer that row must be. A failure of a call that began before the last answer is none of the
// row: calls that fail late end in rows of their own.
//
// It is pure: time comes in with the outcomes.
type failureWindow struct {
	rule        circuit.Rule
	closedAt    time.Time // when answered probes closed the breaker; zero: not known
	answeredAt  time.Time // the last answer
	seen        []seenOutcome
	failed      int // of seen
	sinceAnswer int // outcomes noted since the last answer: all of them failed
	consecutive map[CaseID]struct{}
}

type seenOutcome struct {
	at     time.Time
	failed bool
}

// note adds an outcome. It returns why the breaker is to be opened, or an empty string.
func (w *failureWindow) note(at time.Time, o outcome) (why string) {
	switch {
	case !o.failed:
		w.consecutive, w.sinceAnswer, w.answeredAt = nil, 0, at
	case o.first && !o.began.Before(w.answeredAt) && !o.began.Before(w.closedAt):
		if w.consecutive == nil {
			w.consecutive = make(map[CaseID]struct{}, w.rule.Consecutive)
		}
		w.consecutive[o.caseID] = struct{}{}
	}
	w.forget(at.Add(-w.rule.Window))
	if !o.failed || o.first && at.Sub(o.began) < w.rule.Window {
		w.seen = append(w.seen, seenOutcome{at, o.failed})
		if o.failed {
			w.failed, w.sinceAnswer = w.failed+1, w.sinceAnswer+1
		}
	}
	if !o.failed {
		return ""
	}
	_, counted := w.consecutive[o.caseID]
	switch n, least := len(w.consecutive), w.unlikelyRow(at); {
	case n >= max(least, w.rule.Consecutive):
		return fmt.Sprintf("%d new cases in a row failed or were not answered", n)
	case o.last && counted && n >= max(least, w.rule.ConsecutiveAtLast):
		return fmt.Sprintf("%d new cases in a row failed or were not answered, and one is at its last attempt", n)
	case o.first && len(w.seen) >= w.rule.MinAttempts && 100*w.failed >= w.rule.FailurePercent*len(w.seen):
		return fmt.Sprintf("%d of the last %d calls within %s were new cases that failed or were not answered", w.failed, len(w.seen), w.rule.Window)
	}
	return ""
}

// chanceOfRow is the chance below which a row of failures is an outage, and not part of the failures
// that the target had before.
const chanceOfRow = 1e-6

// unlikelyRow returns how many failures in a row the outcomes before the row do not explain. With
// fewer of them than the rule's MinAttempts it returns 0, unless the breaker has just closed: then
// the answers that closed it are known, and their share is not.
func (w *failureWindow) unlikelyRow(at time.Time) int {
	row := min(w.sinceAnswer, len(w.seen))
	before, failed := len(w.seen)-row, w.failed-row
	switch {
	case before < w.rule.MinAttempts && at.Sub(w.closedAt) < w.rule.Window:
		return w.rule.MinAttempts
	case before < w.rule.MinAttempts || failed == 0 || failed == before: // of the last, the logarithm below is 0
		return 0
	}
	return int(math.Ceil(math.Log(chanceOfRow) / math.Log(float64(failed)/float64(before))))
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

// idle reports whether nothing is left that could open the breaker.
func (w *failureWindow) idle(now time.Time) bool {
	if len(w.consecutive) > 0 || now.Sub(w.closedAt) < w.rule.Window {
		return false
	}
	w.forget(now.Add(-w.rule.Window))
	return len(w.seen) == 0
}

// countsAsFailure reports whether a result counts against the target, and not only against the
// run. A service that accepts a call and ends it later answers.
func countsAsFailure(r Result) bool {
	return r.Class != Executed && !r.Accepted && (r.Retry || r.Class == Unknown)
}

// hangingCalls counts the outstanding calls of a target in this process. They hang, in the words of the rule.
// It is pure: the counts and times come in.
type hangingCalls struct {
	beforeChange int       // hanging calls from before the breaker last changed
	sinceChange  int       // hanging calls since then
	changes      int       // number of changes of the breaker
	lastAnswer   time.Time // last answer of any call of the target
}

// hangingLimitFactor multiplies the rule's bound where other calls are answered: hanging calls
// cannot be ended, and each holds memory and a connection.
const hangingLimitFactor = 16

// shouldOpen reports whether the breaker is to be opened when one more call has outlived its
// limit. That is so when more than most hang since the breaker last changed, and the target has
// answered nothing since that call began. Where the target answers other calls, the hanging
// ones end by their own failures, and open the breaker only when there are hangingLimitFactor
// times as many. Calls from before the last change do not count: the breaker was opened for
// them.
func (h hangingCalls) shouldOpen(most int, began time.Time) bool {
	return h.sinceChange > most && h.lastAnswer.Before(began) || h.sinceChange > hangingLimitFactor*most
}

// add returns h with one more hanging call, and the number of changes to pass to remove when
// that call returns.
func (h hangingCalls) add() (hangingCalls, int) {
	h.sinceChange++
	return h, h.changes
}

// remove removes a call that began to hang after that many changes of the breaker.
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

// probePolicy decides, while a breaker is open, which paused runs are probed, whether their
// failures charge their budgets, and when the breaker closes. There is one for each opening and
// leader, and it counts only its own probes.
//
// New cases, which were never called, are probed first: the number allowed at one time doubles
// with each answer and drops by one with each failure. Runs that failed before are called only
// while answers show that the target works: then a failure is their own. When there is no new
// case, one of them is probed now and then.
//
// It is pure: time comes in, and one source of chance is given.
type probePolicy struct {
	rule  circuit.Rule
	slots int
	rnd   *rand.Rand

	credit           int // new cases that may be in flight
	newInFlight      int
	maxRetried       int // runs that failed before and may be in flight
	retriedInFlight  int
	answers          int // answered probes since a new case failed
	recent           probeShare
	picks            int
	lastAnswer       time.Time // the last answer; zero before
	lastProbe        time.Time // when the last probe started
	fallbackInterval time.Duration
	fewSince         time.Time // since when few runs are paused; zero while many are
	failingSince     time.Time // first failed probe since the last answer; zero when there was none
}

// probeShare counts the probes since the target began to answer, the last ones more.
type probeShare struct{ answered, failed int }

// probesCounted bounds how many probes a probeShare counts.
const probesCounted = 100

func (s *probeShare) add(answered bool) {
	if s.answered+s.failed >= probesCounted {
		s.answered, s.failed = s.answered/2, s.failed/2
	}
	if answered {
		s.answered++
	} else {
		s.failed++
	}
}

// works reports whether so many probes were answered, and a smaller percentage failed.
func (s *probeShare) works(answered, percent int) bool {
	return s.answered >= answered && 100*s.failed < percent*(s.answered+s.failed)
}

// probeKind is why a run is probed.
type probeKind int

const (
	kindNewCase  probeKind = iota // a new case
	kindRetried                   // it failed before, and the target works
	kindFallback                  // it failed before, and there is no new case to probe
)

// probeCall is one probe.
type probeCall struct {
	kind          probeKind
	alwaysCharges bool // a failure charges the run's budget whether or not the target works
	released      bool // slow: it no longer counts as in flight
}

// initialMaxRetried is how many runs that failed before are called at one time at first.
const initialMaxRetried = 4

func newProbePolicy(rule circuit.Rule, slots int, rnd *rand.Rand, now time.Time) *probePolicy {
	return &probePolicy{rule: rule, slots: slots, rnd: rnd, credit: 1, maxRetried: min(initialMaxRetried, max(1, slots/2)), lastProbe: now, fallbackInterval: rule.FallbackInterval}
}

// targetWorks reports whether an answer shows that the target works now.
func (p *probePolicy) targetWorks(now time.Time) bool {
	return !p.lastAnswer.IsZero() && now.Sub(p.lastAnswer) < p.rule.AnswerValidFor
}

// newCasesAllowed returns how many new cases may be probed now.
func (p *probePolicy) newCasesAllowed(now time.Time) int {
	if p.credit == 1 && now.Sub(p.lastProbe) < p.rule.ProbeInterval {
		return 0
	}
	return max(0, p.credit-p.newInFlight)
}

// pick selects the next new case: three times the newest, then one anywhere, so that no order
// of arrival hides those that succeed. from is the position between the oldest (0) and the
// newest (1).
func (p *probePolicy) pick() (from float64, anywhere bool) {
	p.picks++
	if p.picks%4 != 0 {
		return 1, false
	}
	return p.rnd.Float64(), true
}

// retriedAllowed returns how many runs that failed before may be called now.
func (p *probePolicy) retriedAllowed(now time.Time) int {
	if !p.targetWorks(now) {
		return 0
	}
	return max(0, p.maxRetried-p.retriedInFlight)
}

// fallbackDue reports whether a run that failed before is to be probed because there is no new
// case. paused is the number of all paused runs.
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

// start counts a probe that starts.
func (p *probePolicy) start(now time.Time, kind probeKind) *probeCall {
	t := &probeCall{kind: kind, alwaysCharges: kind == kindRetried || kind == kindFallback && p.few(now)}
	switch kind {
	case kindNewCase:
		p.newInFlight++
		p.lastProbe = now
	case kindRetried:
		p.retriedInFlight++
	case kindFallback:
		p.lastProbe = now
	}
	return t
}

// release stops counting a slow call as in flight before it has ended.
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

// chargesBudget reports whether the failure of a probe charges the run's budget, because the
// failure is the run's own. The failure of a new case is its own while others are answered, but
// it never uses the run's last attempt.
func (p *probePolicy) chargesBudget(now time.Time, t *probeCall, last bool) bool {
	return t.alwaysCharges || t.kind == kindNewCase && p.targetWorks(now) && !last
}

// probeResult is what a probe says of the target.
type probeResult int

const (
	probeInconclusive probeResult = iota // not called, or interrupted
	probeAnswered
	probeFailed
)

// finish applies the end of a probe.
func (p *probePolicy) finish(now time.Time, t *probeCall, result probeResult) {
	p.release(t)
	if result == probeFailed && t.kind != kindRetried && p.failingSince.IsZero() {
		p.failingSince = now
	}
	if t.kind != kindRetried && result != probeInconclusive {
		if !p.targetWorks(now) { // what failed before the target answered again says nothing of it now
			p.recent = probeShare{}
		}
		p.recent.add(result == probeAnswered)
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
	case t.kind == kindFallback: // not called: the next one may start soon
		p.lastProbe = now.Add(p.rule.FallbackInterval/5 - p.fallbackInterval)
	}
}

// Answers that close a breaker: in a row, or while a smaller share of probes fails than opens it.
const (
	answersWhenNoneWait = 3
	answersToClose      = 10
)

// relapseFactor times circuit.Rule.AnswerValidFor is how long probes must fail for a half-open
// breaker to open again.
const relapseFactor = 5

// Pauses between two steps of a leader.
const (
	leaderBusyPause = 20 * time.Millisecond
	leaderIdlePause = 100 * time.Millisecond
)

// pause returns how long a leader waits before its next step.
func (p *probePolicy) pause(now time.Time) time.Duration {
	if p.credit > 1 || p.targetWorks(now) {
		return leaderBusyPause
	}
	return min(leaderIdlePause, p.rule.ProbeInterval)
}

// recovered reports whether the breaker is to be closed. waiting reports that new cases are
// still paused; paused is the number of all paused runs.
func (p *probePolicy) recovered(now time.Time, waiting bool, paused int) bool {
	enough := func(answers int) bool {
		return p.answers >= answers || p.recent.works(answers, p.rule.FailurePercent)
	}
	if waiting {
		return enough(answersToClose)
	}
	return enough(answersWhenNoneWait) || paused == 0 && p.targetWorks(now)
}

// relapsed reports whether probes have failed for relapseFactor times AnswerValidFor without an
// answer.
func (p *probePolicy) relapsed(now time.Time) bool {
	return !p.failingSince.IsZero() && now.Sub(p.failingSince) >= relapseFactor*p.rule.AnswerValidFor
}

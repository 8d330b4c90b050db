package background

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/receipts"
)

func TestBreakerTransitions(t *testing.T) {
	t.Parallel()
	const closed, open, half = circuit.Closed, circuit.Open, circuit.HalfOpen
	auto := func(b circuit.Breaker) (circuit.Breaker, bool) { return b.Open(false, "who", "cause", "why", noon) }
	hand := func(b circuit.Breaker) (circuit.Breaker, bool) { return b.Open(true, "who", "cause", "why", noon) }
	release := func(b circuit.Breaker) (circuit.Breaker, bool) { return b.Release("who", "cause", "why", noon) }
	closes := func(b circuit.Breaker) (circuit.Breaker, bool) { return b.Close("who", "cause", "why", noon) }
	earlier := noon.Add(-time.Hour)
	for _, tc := range []struct {
		name   string
		from   circuit.State
		byHand bool
		tenant string
		move   func(circuit.Breaker) (circuit.Breaker, bool)
		to     circuit.State
		toHand bool
		moved  bool
	}{
		{"opens by itself", closed, false, "", auto, open, false, true},
		{"is opened manually", closed, false, "", hand, open, true, true},
		{"nothing to release", closed, false, "", release, closed, false, false},
		{"nothing to close", closed, false, "", closes, closed, false, false},
		{"is open", open, false, "", auto, open, false, false},
		{"becomes manual", open, false, "", hand, open, true, true},
		{"stays manual", open, true, "", auto, open, true, false},
		{"is manual", open, true, "", hand, open, true, false},
		{"is released", open, false, "", release, half, false, true},
		{"manual, is released", open, true, "", release, half, false, true},
		{"recovers from open", open, false, "", closes, closed, false, true},
		{"relapses", half, false, "", auto, open, false, true},
		{"half-open becomes manual", half, false, "", hand, open, true, true},
		{"is released twice", half, false, "", release, closed, false, true},
		{"recovers", half, false, "", closes, closed, false, true},
		{"a tenant's is released at once", open, true, "t", release, closed, false, true},
		{"a tenant's of an earlier version", half, false, "t", closes, closed, false, true},
	} {
		was := circuit.Breaker{Scope: circuit.Scope{Tenant: tc.tenant, Family: "f", Name: "n"}, State: tc.from, Manual: tc.byHand, OpenedAt: earlier, Openings: 3, Version: 7, Probes: []RunID{RunID(uuid.New())}, NewCasesProbed: 5, Paused: 4}
		now, moved := tc.move(was)
		if now.State != tc.to || now.Manual != tc.toHand || moved != tc.moved || now.Scope != was.Scope {
			t.Errorf("%s: %+v, %v", tc.name, now, moved)
		}
		if !moved {
			if now.Version != 7 || len(now.Probes) != 1 {
				t.Errorf("%s: changed without a transition: %+v", tc.name, now)
			}
			continue
		}
		if now.Version != 8 || now.Probes != nil || now.NewCasesProbed != 0 || now.Actor != "who" || now.Cause != "cause" || now.Reason != "why" || now.At != noon {
			t.Errorf("%s: %+v", tc.name, now)
		}
		opens := tc.from == closed
		if opened := now.Openings == 4 && now.OpenedAt.Equal(noon); opened != opens || !opens && !now.OpenedAt.Equal(earlier) {
			t.Errorf("%s: opening %d at %s", tc.name, now.Openings, now.OpenedAt)
		}
	}
}

// The failure of a probe counts against the target, not the run.
func TestProbeSpendsNothingButOtherwiseEndsAsAnyAttempt(t *testing.T) {
	t.Parallel()
	no := Result{Class: NotExecuted, Retry: true, Failure: &Failure{Type: "busy"}}
	run := Run{Attempt: 3, BudgetSpent: 2, State: Running}
	run.Policy.MaxRetryAttempts = 3
	if end, needsLookup := probeEnding(&run, &no, nil, noon); needsLookup || end.subtype != "retry-scheduled" || end.charge != ChargeNothing || end.reason != ReasonProbe || end.next.Before(noon.Add(100*time.Millisecond)) {
		t.Errorf("the last of the budget: %+v, %v", end, needsLookup)
	}
	if end, _ := decide(&run, &no, nil, noon); end.subtype != "dead-lettered" {
		t.Errorf("without a probe: %+v", end)
	}
	run.Attempt = 60
	if end, _ := probeEnding(&run, &no, nil, noon); end.next.After(noon.Add(probeDelayMax + time.Second)) {
		t.Errorf("next attempt at %s", end.next)
	}
	run.CancelRequested = true
	if end, _ := probeEnding(&run, &no, nil, noon); end.subtype != "cancelled" {
		t.Errorf("cancel requested: %+v", end)
	}
	run.CancelRequested = false
	if end, _ := probeEnding(&run, &Result{Class: NotExecuted, Failure: &Failure{Type: "refused"}}, nil, noon); end.subtype != "dead-lettered" || end.charge != ChargeAttempt {
		t.Errorf("refused: %+v", end)
	}
	if end, _ := probeEnding(&run, &Result{Class: Executed}, nil, noon); end.subtype != "attempt-succeeded" {
		t.Errorf("executed: %+v", end)
	}
}

func TestTheLastAttemptIsTheOneBeforeTheBudgetEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		most, spent int
		last        bool
	}{{3, 0, false}, {3, 1, true}, {3, 2, true}, {1, 0, true}, {2, 0, true}, {5, 2, false}} {
		r := Run{BudgetSpent: tc.spent}
		r.Policy.MaxRetryAttempts = tc.most
		if got := lastAttempt(&r); got != tc.last {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// While the opening of a circuit breaker is not written it is not recorded for tenants, and its
// runs are redelivered. Once another process has written an opening, that one is recorded.
func TestAnUnwrittenOpeningIsNotRecordedForTenants(t *testing.T) {
	t.Parallel()
	all := circuit.Scope{Family: "settlement", Name: "escrow"}
	run := Run{Tenant: "acme", Family: all.Family, Target: all.Name}
	for name, c := range map[string]struct {
		found   []circuit.Breaker
		opening int64
	}{
		"never opened":                 {nil, 0},
		"closed":                       {[]circuit.Breaker{{Scope: all, State: circuit.Closed, Version: 4, Openings: 2}}, 0},
		"opened by another process":    {[]circuit.Breaker{{Scope: all, State: circuit.Open, Version: 5, Openings: 3}}, 3},
		"half-open at another process": {[]circuit.Breaker{{Scope: all, State: circuit.HalfOpen, Version: 6, Openings: 3}}, 3},
	} {
		b := newBreakerRegistry(&Manager{})
		b.pendingOpens[all] = struct{}{}
		if !b.applyRead(c.found, time.Now(), 0) || !b.blocks(run) {
			t.Fatalf("%s: it does not block", name)
		}
		if got := (*b.current.Load())[all].Openings; got != c.opening {
			t.Errorf("%s: opening %d, want %d", name, got, c.opening)
		}
		if c.opening > 0 {
			b.pausedRecords[all] = pausedRecord{c.opening, map[string]struct{}{"acme": {}}} // else the store is called
		}
		if recorded, err := b.recordPaused(t.Context(), &run); recorded != (c.opening > 0) || err != nil {
			t.Errorf("%s: recorded %t, %v", name, recorded, err)
		}
	}
}

// A leader that is to leave the lead probes nothing for long enough that another process takes
// over, and then its own runs as long, since there may be no other process.
func TestALeaderYieldsWhileItsLeadIsToBeLeft(t *testing.T) {
	t.Parallel()
	m := &Manager{}
	m.cfg.Breaker.LeaderTimeout = time.Second
	l := &breakerLeader{m: m}
	for _, at := range []struct {
		after          time.Duration
		leaves, yields bool
	}{
		{0, false, false}, {500 * time.Millisecond, true, true}, {2499 * time.Millisecond, true, true}, {2500 * time.Millisecond, true, false}, {4499 * time.Millisecond, true, false},
		{4500 * time.Millisecond, true, true}, {6500 * time.Millisecond, true, false}, {8600 * time.Millisecond, true, true},
		{9 * time.Second, false, false}, {10 * time.Second, true, true}, {12 * time.Second, true, false},
	} {
		if got := l.yields(noon.Add(at.after), at.leaves); got != at.yields {
			t.Errorf("after %v: it yields %v, want %v", at.after, got, at.yields)
		}
	}
}

// A leader counts on from when the one before it saw few paused runs: a run that never succeeds is
// not probed for ever because the lead changes.
func TestANewLeaderCountsOnSinceWhenFewRunsArePaused(t *testing.T) {
	t.Parallel()
	m := &Manager{clock: &clock{wall: time.Now}}
	m.cfg.Breaker.Normalise()
	for _, c := range []struct {
		since time.Time
		few   bool
	}{{time.Time{}, false}, {m.now(), false}, {m.now().Add(-m.cfg.Breaker.FewPausedFor), true}, {m.now().Add(time.Hour), false}} {
		l := newBreakerLeader(m, nil, circuit.Breaker{State: circuit.Open, FewSince: c.since})
		now := time.Now()
		l.policy.fallbackDue(now, 1)
		if got := l.policy.few(now); got != c.few {
			t.Errorf("few since %v: %t, want %t", c.since, got, c.few)
		}
		if l.policy.fewSince.After(now) {
			t.Errorf("few since %v: counted from %v, which is to come", c.since, l.policy.fewSince)
		}
		if l.policy.fallbackDue(now, m.cfg.Breaker.FewPaused); !l.policy.fewSince.IsZero() {
			t.Errorf("few since %v: it counts on although many runs are paused", c.since)
		}
	}
}

// A lookup before a probe tells of the target: it answered, it failed, or it was not asked.
func TestWhatALookupBeforeAProbeTellsOfTheTarget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind       probeKind
		state      State
		class      Class
		lookedUp   bool
		lookup     Result
		claimAgain bool
		want       probeResult
		recorded   int
	}{
		"a test, refused":             {kindFallback, Scheduled, Unknown, false, refused, false, probeAnswered, 0},
		"a test, the service is down": {kindFallback, Scheduled, Unknown, false, vague, false, probeFailed, 0},
		"a test, unknown for good":    {kindFallback, Scheduled, Unknown, false, finalUnknown, false, probeInconclusive, 1},
		"refused":                     {kindNewCase, Scheduled, Unknown, false, refused, true, probeInconclusive, 1},
		"paid":                        {kindNewCase, Scheduled, Unknown, false, paid, false, probeAnswered, 1},
		"resolved before, not paid":   {kindNewCase, Scheduled, NotExecuted, true, vague, false, probeAnswered, 0},
		"resolved before, paid":       {kindNewCase, Succeeded, Executed, true, vague, false, probeAnswered, 0},
		"unknown again":               {kindNewCase, Scheduled, Unknown, true, vague, false, probeInconclusive, 0},
		"not paid, and a dead letter": {kindNewCase, DeadLettered, NotExecuted, true, vague, false, probeInconclusive, 0},
	} {
		run := runIn(c.state)
		run.ID, run.Family, run.Class = RunID(uuid.New()), "pay", c.class
		m, j := unconnected(t, run)
		j.answer = func(context.Context) Result { return c.lookup }
		l := &breakerLeader{m: m, family: j}
		claimAgain, got := l.lookupExpiredKey(&delivery{m: m, family: j, run: run, probe: true, lookedUp: c.lookedUp}, &probeCall{kind: c.kind})
		if claimAgain != c.claimAgain || got != c.want || len(j.recorded) != c.recorded {
			t.Errorf("%s: %v, %v, recorded %+v", name, claimAgain, got, j.recorded)
		}
	}
}

// Each probe counts as in flight from its start until it is released, once.
func TestAProbeIsCountedUntilItsRelease(t *testing.T) {
	t.Parallel()
	var rule circuit.Rule
	rule.Normalise()
	later := noon.Add(time.Minute)
	for kind, want := range map[probeKind][2]int{kindNewCase: {1, 0}, kindRetried: {0, 1}, kindFallback: {0, 0}} {
		p := newProbePolicy(rule, 8, nil, noon)
		probe := p.start(later, kind)
		if got := [2]int{p.newInFlight, p.retriedInFlight}; got != want || p.lastProbe.Equal(later) != (kind != kindRetried) {
			t.Errorf("kind %v: %v in flight, last probe %s", kind, got, p.lastProbe)
		}
		for range 2 {
			if p.release(probe); p.newInFlight != 0 || p.retriedInFlight != 0 {
				t.Errorf("kind %v: %d and %d left in flight", kind, p.newInFlight, p.retriedInFlight)
			}
		}
	}
}

// While new cases wait, a breaker closes only after as many answers as show that the target works.
func TestABreakerWithWaitingCasesNeedsMoreAnswers(t *testing.T) {
	t.Parallel()
	var rule circuit.Rule
	rule.Normalise()
	p := newProbePolicy(rule, 8, nil, noon)
	p.answers = answersWhenNoneWait
	if p.recovered(noon, true, 9) || !p.recovered(noon, false, 9) {
		t.Error("the answers that suffice when no new case waits suffice always")
	}
	if countsAsFailure(Result{Class: Executed, Retry: true}) || !countsAsFailure(refused) || countsAsFailure(declined) {
		t.Error("a payment counts as a failure, or a failure does not")
	}
}

// pausedRun returns a run that waits for the target without a name.
func pausedRun() Run {
	run := runIn(Scheduled)
	run.ID, run.Family, run.Queue, run.Tenant, run.NotificationNumber, run.OutstandingCalls = RunID(uuid.New()), "pay", "pay:0", "acme", 1, nil
	return run
}

// openBreaker is that of the target without a name.
var openBreaker = circuit.Breaker{Scope: circuit.Scope{Family: "pay"}, State: circuit.Open, Version: 1, Openings: 1}

// A run that this process has in flight is not probed, and another one is probed in its place.
func TestARunInFlightIsNotProbed(t *testing.T) {
	t.Parallel()
	first, second := pausedRun(), pausedRun()
	m, j := unconnected(t, first)
	j.due = []Run{first, second}
	m.inFlight.acquire(first.ID, 1)
	picks, err := newBreakerLeader(m, j, openBreaker).chooseProbes(t.Context(), time.Now().Add(time.Hour), nil)
	if err != nil || len(picks) != 1 || picks[0].run.ID != second.ID {
		t.Errorf("%+v, %v", picks, err)
	}
}

// The breaker that closes has paused the waiting runs of its target, and no others. Those in flight need no task.
func TestAClosedBreakerNotifiesOfTheRunsThatItPaused(t *testing.T) {
	t.Parallel()
	paused, runs, inFlight, other := pausedRun(), pausedRun(), pausedRun(), pausedRun()
	runs.State, other.Target = Running, "other"
	m, j := unconnected(t, paused)
	j.breaker, j.due = openBreaker, []Run{runs, inFlight, other, paused}
	m.inFlight.acquire(inFlight.ID, 1)
	if err := newBreakerLeader(m, j, openBreaker).close(t.Context()); err != nil || !slices.Equal(j.renewed, []RunID{paused.ID}) || j.breaker.Blocks() {
		t.Errorf("notified of %v, %v, the breaker is %s", j.renewed, err, j.breaker.State)
	}
}

// What a probe leaves behind gets its task: a dead letter that of its archive, and a waiting run that no breaker pauses
// any more that of its next attempt.
func TestWhatIsNotifiedOfAfterAProbe(t *testing.T) {
	t.Parallel()
	m, j := connected(t, attempted())
	m.session.onBeatAnswered()
	for name, c := range map[string]struct {
		refusal  error // of the claim
		since    func(*Run)
		open     bool
		task     bool // of the dead letter
		notified int
	}{
		"it can't be claimed yet":           {ErrTooManyOutstandingCalls, nil, false, false, 1},
		"it can't, and its breaker is open": {ErrTooManyOutstandingCalls, nil, true, false, 0},
		"it ended meanwhile":                {ErrConflict, func(r *Run) { r.State = Succeeded }, false, false, 0},
		"it runs elsewhere":                 {ErrConflict, func(r *Run) { r.State = Running }, false, false, 0},
		"it died, for it was altered":       {ErrRequestAltered, nil, false, true, 0},
	} {
		run := pausedRun()
		now := run
		if c.since != nil {
			c.since(&now)
		}
		breaker := openBreaker
		if !c.open {
			breaker.State = circuit.Closed
		}
		m.breakers.apply(breaker)
		j.runs[run.ID], j.renewed = now, nil
		j.refuse = func(tr Transition) error {
			if tr.Subtype == receipts.AttemptStarted {
				return c.refusal
			}
			return nil
		}
		l := newBreakerLeader(m, j, openBreaker)
		inFlight, _ := m.inFlight.acquire(run.ID, 1)
		l.runProbe(t.Context(), probeCandidate{run, kindRetried, inFlight}, l.policy.start(time.Now(), kindRetried))
		_, err := m.inspector.GetTaskInfo(run.Queue, taskID(run))
		if err == nil != c.task || len(j.renewed) != c.notified || m.inFlight.has(run.ID) {
			t.Errorf("%s: task %v, notified of %v", name, err, j.renewed)
		}
	}
}

// slowBreakers is a journal whose reads of the breakers end when the test lets them.
type slowBreakers struct {
	*memoryJournal
	reads atomic.Int64
	let   chan struct{}
}

func (s *slowBreakers) Breakers(ctx context.Context) ([]circuit.Breaker, error) {
	s.reads.Add(1)
	<-s.let
	return s.memoryJournal.Breakers(ctx)
}

// Deliveries that ask at once whether their run is paused share a read of the breakers: it began after they asked.
func TestDeliveriesThatAskAtOnceReadTheBreakersOnce(t *testing.T) {
	t.Parallel()
	run := runIn(Scheduled)
	slow := &slowBreakers{let: make(chan struct{})}
	m, j := unconnected(t, run, func(c *Config) {
		slow.memoryJournal = c.Store.(*memoryJournal)
		c.Store = slow
	})
	j.breaker = circuit.Breaker{Scope: circuit.Scope{Tenant: run.Tenant}, State: circuit.Closed}
	var asking, answered sync.WaitGroup
	const deliveries = 50
	asking.Add(deliveries)
	for range deliveries {
		answered.Go(func() {
			asking.Done()
			if m.breakers.confirmBlocked(&run) {
				t.Error("it is paused")
			}
		})
	}
	asking.Wait()
	close(slow.let)
	answered.Wait()
	if n := slow.reads.Load(); n < 1 || n > deliveries/2 {
		t.Errorf("%d reads", n)
	}
}

package background

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background/circuit"
)

// This is a discrete-event model of one process and one target: simulated runs, calls and time
// around the real failureWindow and probePolicy.

type modelRun struct {
	id                    CaseID
	bad                   bool
	submittedAt, due, end time.Duration
	spent, attempts       int
	state                 State
}

type modelEvent struct {
	at time.Duration
	n  int
	do func()
}

type modelQueue []modelEvent

func (q modelQueue) Len() int { return len(q) }
func (q modelQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q modelQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *modelQueue) Push(x any)   { *q = append(*q, x.(modelEvent)) }
func (q *modelQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// model is the simulated world.
type model struct {
	now       time.Duration
	events    modelQueue
	made      int
	runs      []*modelRun
	live      []*modelRun // created and not ended, in order of creation
	slotQueue []*modelRun // waiting for a slot
	inUse     int
	overflow  int // calls that left their slot
	rnd       *rand.Rand

	rule      circuit.Rule
	window    failureWindow
	probing   *probePolicy // nil while closed
	openings  int
	newCaseAt time.Duration // when the last probe of a new case started, or the opening
	stalledAt time.Duration // when runs were first reported stalled; 0: never

	down        [2]time.Duration
	share       float64       // of calls that fail at random
	badCallTime time.Duration // duration of a call of a bad run, and with share of one that fails
	noBreaker   bool
	retryAfter  func() time.Duration
}

const (
	modelSlots   = 64
	modelBudget  = 3
	modelAnswers = 5 * time.Millisecond
)

var modelStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newModel(seed uint64) *model {
	m := &model{rnd: rand.New(rand.NewPCG(seed, 7)), down: [2]time.Duration{-1, -1}}
	m.rule.Normalise()
	m.window.rule = m.rule
	return m
}

func (m *model) at(t time.Duration, do func()) {
	m.made++
	heap.Push(&m.events, modelEvent{t, m.made, do})
}

func (m *model) clock() time.Time { return modelStart.Add(m.now) }

// submit adds a case.
func (m *model) submit(submittedAt time.Duration, bad bool) {
	r := &modelRun{bad: bad, submittedAt: submittedAt, state: Pending, id: CaseID(uuid.UUID{byte(len(m.runs) >> 16), byte(len(m.runs) >> 8), byte(len(m.runs))})}
	m.runs = append(m.runs, r)
	m.at(submittedAt, func() {
		r.due = m.now
		m.live = append(m.live, r)
		m.deliver(r)
	})
}

// run simulates d, or until nothing is left to do.
func (m *model) run(until time.Duration) {
	var tick func()
	tick = func() {
		pause := leaderBusyPause
		if p := m.probing; p != nil {
			m.lead()
			pause = p.pause(m.clock())
		}
		m.at(m.now+pause, tick)
	}
	m.at(0, tick)
	for len(m.events) > 0 && m.events[0].at <= until {
		e := heap.Pop(&m.events).(modelEvent)
		m.now = e.at
		e.do()
		if e.n%1000 == 0 {
			if !slices.ContainsFunc(m.runs, func(r *modelRun) bool { return r.end == 0 }) {
				return
			}
		}
	}
}

// deliver starts a due run in a slot, unless the breaker pauses it.
func (m *model) deliver(r *modelRun) {
	switch {
	case !r.state.Waiting() || r.due > m.now || m.probing != nil:
	case m.inUse >= modelSlots:
		m.slotQueue = append(m.slotQueue, r)
	default:
		m.call(r, nil, nil)
	}
}

func (m *model) next() {
	for len(m.slotQueue) > 0 && m.inUse < modelSlots {
		r := m.slotQueue[0]
		m.slotQueue = m.slotQueue[1:]
		m.deliver(r)
	}
}

// call makes an attempt; p is set for a probe.
func (m *model) call(r *modelRun, p *probePolicy, t *probeCall) {
	r.state, r.attempts = Running, r.attempts+1
	began := m.clock()
	m.inUse++
	fails := r.bad || m.now >= m.down[0] && m.now < m.down[1] || m.rnd.Float64() < m.share
	takes := modelAnswers + time.Duration(m.rnd.Int64N(int64(time.Millisecond)))
	if (r.bad || fails && m.share > 0) && m.badCallTime > 0 {
		takes = m.badCallTime
	}
	slot := true
	leave := func() {
		if slot {
			slot = false
			m.inUse--
			m.next()
		}
	}
	left := false
	if takes > slowCall {
		m.at(m.now+slowCall, func() {
			if m.overflow < (callsPerSlot-1)*modelSlots {
				m.overflow++
				left = true
				leave()
			}
			if t != nil {
				p.release(t)
			}
		})
	}
	m.at(m.now+takes, func() {
		if left {
			m.overflow--
		}
		leave()
		m.ended(r, began, fails, p, t)
	})
}

func (m *model) ended(r *modelRun, began time.Time, fails bool, p *probePolicy, t *probeCall) {
	if !fails {
		r.state, r.end = Succeeded, m.now
	} else {
		delay := 25 * time.Millisecond << min(r.attempts-1, 10)
		if t == nil || p.chargesBudget(m.clock(), t, r.spent+1 >= modelBudget) {
			r.spent++
			delay = 25 * time.Millisecond << (r.spent - 1)
		}
		if r.spent >= modelBudget {
			r.state, r.end = DeadLettered, m.now
		} else {
			if m.retryAfter != nil && r.bad {
				delay = max(delay, m.retryAfter())
			}
			r.state, r.due = Scheduled, m.now+min(delay, probeDelayMax)
			m.at(r.due, func() { m.deliver(r) })
		}
	}
	if r.end > 0 {
		m.live = slices.DeleteFunc(m.live, func(o *modelRun) bool { return o == r })
	}
	switch {
	case t != nil:
		v := probeAnswered
		if fails {
			v = probeFailed
		}
		p.finish(m.clock(), t, v)
	case m.probing == nil && !m.noBreaker:
		if m.window.note(m.clock(), outcome{caseID: r.id, began: began, first: r.attempts == 1, failed: fails, last: r.spent >= modelBudget-1}) != "" {
			m.openings++
			m.probing, m.newCaseAt = newProbePolicy(m.rule, modelSlots, m.rnd, m.clock()), m.now
			m.window = failureWindow{rule: m.rule}
		}
	}
}

// lead does what the leader of an open breaker does, see breakerLeader.step.
func (m *model) lead() {
	p := m.probing
	if p == nil {
		return
	}
	var fresh, tried []*modelRun
	paused := 0
	for _, r := range m.live {
		switch {
		case !r.state.Waiting():
			continue
		case r.due > m.now:
		case r.attempts == 0:
			fresh = append(fresh, r)
		default:
			tried = append(tried, r)
		}
		paused++
	}
	if p.recovered(m.clock(), len(fresh) > 0, paused) {
		m.probing, m.window.closedAt = nil, m.clock()
		for _, r := range m.live {
			m.deliver(r)
		}
		return
	}
	if paused > 0 && !p.targetWorks(m.clock()) && m.now-m.newCaseAt >= m.rule.StalledAfter && m.stalledAt == 0 {
		m.stalledAt = m.now
	}
	let := func(r *modelRun, l probeKind) { m.call(r, p, p.start(m.clock(), l)) }
	waiting := len(fresh) > 0
	for n := p.newCasesAllowed(m.clock()); n > 0 && len(fresh) > 0 && m.inUse < modelSlots; n-- {
		at := len(fresh) - 1
		if from, anywhere := p.pick(); anywhere {
			at = int(from * float64(len(fresh)))
		}
		let(fresh[at], kindNewCase)
		m.newCaseAt = m.now
		fresh = slices.Delete(fresh, at, at+1)
	}
	n, rests := p.retriedAllowed(m.clock()), !waiting && p.fallbackDue(m.clock(), paused)
	if n > 0 || rests {
		slices.SortFunc(tried, func(a, b *modelRun) int { return int(a.due - b.due) })
	}
	for ; n > 0 && len(tried) > 0 && m.inUse < modelSlots; n-- {
		let(tried[0], kindRetried)
		tried = tried[1:]
	}
	if rests && len(tried) > 0 && m.inUse < modelSlots {
		let(tried[0], kindFallback)
	}
}

// modelResult is the outcome of a model's cases.
type modelResult struct {
	good, goodDead, goodLive int
	goodP50, goodP99         time.Duration
	deadLetters, badLive     int
	slowestDeadLetter        time.Duration // the longest from creation to dead letter
	openings, calls          int
	stalledAt                time.Duration
}

func (m *model) result() (out modelResult) {
	var took []time.Duration
	for _, r := range m.runs {
		out.calls += r.attempts
		switch {
		case r.bad && r.state == DeadLettered:
			out.deadLetters++
			out.slowestDeadLetter = max(out.slowestDeadLetter, r.end-r.submittedAt)
		case r.bad:
			out.badLive++
		case r.state == Succeeded:
			out.good++
			took = append(took, r.end-r.submittedAt)
		case r.state == DeadLettered:
			out.goodDead++
		default:
			out.goodLive++
		}
	}
	if slices.Sort(took); len(took) > 0 {
		out.goodP50, out.goodP99 = took[len(took)/2], took[min(len(took)-1, len(took)*99/100)]
	}
	out.openings, out.stalledAt = m.openings, m.stalledAt
	return out
}

func (o modelResult) String() string {
	return fmt.Sprintf("good: %d settled (p50 %s, p99 %s), %d dead, %d live; bad: %d dead letters (the last after %s), %d live; opened %d times, %d calls",
		o.good, o.goodP50, o.goodP99, o.goodDead, o.goodLive, o.deadLetters, o.slowestDeadLetter, o.badLive, o.openings, o.calls)
}

var modelSeeds = []uint64{1, 2, 3}

// scenario runs a model for each seed.
func scenario(t *testing.T, name string, until time.Duration, set func(*model), bar func(*testing.T, modelResult)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		for _, seed := range modelSeeds {
			m := newModel(seed)
			set(m)
			m.run(until)
			out := m.result()
			t.Logf("seed %d: %s", seed, out)
			if bar != nil {
				bar(t, out)
			}
		}
	})
}

// mixedLoad submits n cases that always fail, and five good ones a second.
func mixedLoad(bad int) func(*model) {
	return func(m *model) {
		for i := range bad {
			m.submit(time.Duration(i)*time.Millisecond, true)
		}
		for at := time.Second; at < 2*time.Minute; at += 200 * time.Millisecond {
			m.submit(at, false)
		}
	}
}

// Cases that fail by themselves do not open the breaker for long: the good ones settle
// meanwhile, and the bad ones become dead letters.
func TestCasesThatFailByThemselvesAreNoOutage(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(*model){
		"at once":    func(m *model) {},
		"after 2s":   func(m *model) { m.badCallTime = 2 * time.Second },
		"not at all": func(m *model) { m.badCallTime = 10 * time.Second },
		"Retry-After up to 20s": func(m *model) {
			m.retryAfter = func() time.Duration { return time.Duration(m.rnd.Int64N(int64(20 * time.Second))) }
		},
		"Retry-After of 15s": func(m *model) { m.retryAfter = func() time.Duration { return 15 * time.Second } },
	}
	for kind, set := range kinds {
		for _, n := range []int{40, 150, 600} {
			var bar func(*testing.T, modelResult)
			if n < 600 {
				bar = func(t *testing.T, o modelResult) {
					if o.good != 595 || o.goodP99 > 2*time.Second {
						t.Errorf("%d of 595 settled, p99 %s", o.good, o.goodP99)
					}
					if o.deadLetters != n || o.slowestDeadLetter > time.Minute {
						t.Errorf("%d of %d are dead letters, the last after %s", o.deadLetters, n, o.slowestDeadLetter)
					}
				}
			}
			scenario(t, fmt.Sprintf("%d, %s", n, kind), 4*time.Minute, func(m *model) { set(m); mixedLoad(n)(m) }, bar)
		}
	}
}

// An outage pauses the work.
func TestAnOutageInTheModelLosesNothing(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.5, 1, 2, 5, 50, 500, 2500} {
		most := 0
		if rate <= 5 {
			most = 2
		}
		scenario(t, fmt.Sprintf("10s, 5000 at %g a second", rate), 4*time.Hour, func(m *model) {
			m.down = [2]time.Duration{time.Second, 11 * time.Second}
			for i := range 5000 {
				m.submit(time.Duration(float64(i)/rate*float64(time.Second)), false)
			}
		}, func(t *testing.T, o modelResult) {
			if o.goodDead > most || o.good+o.goodDead != 5000 {
				t.Errorf("%d dead, %d settled", o.goodDead, o.good)
			}
		})
	}
	scenario(t, "10s, 5000 at 500 a second, 3% always fail", 5*time.Minute, func(m *model) {
		m.down = [2]time.Duration{time.Second, 11 * time.Second}
		for i := range 5000 {
			m.submit(time.Duration(i)*2*time.Millisecond, i%33 == 0)
		}
	}, func(t *testing.T, o modelResult) {
		if o.goodDead > 0 || o.goodLive > 0 || o.badLive > 0 {
			t.Errorf("%d dead, %d live, %d bad ones live", o.goodDead, o.goodLive, o.badLive)
		}
	})
}

// Without good cases, a few bad ones end by their own failures, and many are paused and
// reported stalled.
func TestAFewPausedRunsEndAndManyAreReportedStalled(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 9, 40} {
		scenario(t, fmt.Sprintf("%d bad, nothing else, 1 hour", n), time.Hour, func(m *model) {
			for i := range n {
				m.submit(time.Duration(i)*10*time.Millisecond, true)
			}
		}, func(t *testing.T, o modelResult) {
			switch {
			case n < 10 && (o.deadLetters != n || o.slowestDeadLetter > 2*time.Minute):
				t.Errorf("%d of %d are dead letters, the last after %s", o.deadLetters, n, o.slowestDeadLetter)
			case n >= 10 && (o.badLive < 10 || o.stalledAt == 0 || o.stalledAt > 2*time.Minute):
				t.Errorf("%d live, reported stalled after %s", o.badLive, o.stalledAt)
			}
		})
	}
}

// Where calls fail now and then, where bad cases are told to wait, and where good and bad ones are many, every run
// ends, the good ones soon, and no more of them die than have three failing calls in a row.
func TestMixedFailuresInTheModel(t *testing.T) {
	t.Parallel()
	endsAll := func(good, goodDead, bad int, slowestDeadLetter time.Duration) func(*testing.T, modelResult) {
		return func(t *testing.T, o modelResult) {
			if o.good+o.goodDead != good || o.goodDead > goodDead || o.goodP99 > 3*time.Second {
				t.Errorf("%d of %d settled, p99 %s, %d dead", o.good, good, o.goodP99, o.goodDead)
			}
			if o.deadLetters != bad || o.slowestDeadLetter > slowestDeadLetter {
				t.Errorf("%d of %d are dead letters, the last after %s", o.deadLetters, bad, o.slowestDeadLetter)
			}
		}
	}
	for _, share := range []float64{.3, .6} {
		scenario(t, fmt.Sprintf("%g of calls fail, 100 a second", share), 10*time.Minute, func(m *model) {
			m.share = share
			for i := range 5000 {
				m.submit(time.Duration(i)*10*time.Millisecond, false)
			}
		}, endsAll(5000, int(1.2*5000*share*share*share), 0, 0))
	}
	scenario(t, "40 bad that are told to wait 20s each time, 5 good a second", 4*time.Minute, func(m *model) {
		m.retryAfter = func() time.Duration { return 20 * time.Second }
		mixedLoad(40)(m)
	}, endsAll(595, 0, 40, 90*time.Second))
	for _, every := range []int{2, 5} {
		scenario(t, fmt.Sprintf("100 a second, one in %d always fails", every), 10*time.Minute, func(m *model) {
			for i := range 6000 {
				m.submit(time.Duration(i)*10*time.Millisecond, i%every == 0)
			}
		}, endsAll(6000-6000/every, 0, 6000/every, 3*time.Second))
	}
}

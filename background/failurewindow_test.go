package background

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background/circuit"
)

// outcomeSeries is a number of equal outcomes at one pace.
type outcomeSeries struct {
	n     int
	every time.Duration
	what  func(i int) outcome
	takes time.Duration // each call
}

func caseOf(i int) CaseID { return CaseID(uuid.UUID{byte(i >> 16), byte(i >> 8), byte(i), 1}) }

func newCaseFails(i int) outcome   { return outcome{caseID: caseOf(i), first: true, failed: true} }
func newCaseAnswers(i int) outcome { return outcome{caseID: caseOf(i), first: true} }
func oldCaseFails(i int) outcome   { return outcome{caseID: caseOf(i), failed: true} } // not its first attempt
func everyNth(o func(int) outcome, in int, rest func(int) outcome) func(int) outcome {
	return func(i int) outcome {
		if i%in == 0 {
			return o(i)
		}
		return rest(i)
	}
}

func TestAnOpeningByTheRuleAndByNothingLess(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		name  string
		rule  circuit.Rule
		story []outcomeSeries
		opens int // outcome that opens it, from 1; 0: never
	}{
		{"five new cases in a row", circuit.Rule{}, []outcomeSeries{{n: 9, every: ms, what: newCaseFails}}, 5},
		{"over any time", circuit.Rule{}, []outcomeSeries{{n: 9, every: 24 * time.Hour, what: newCaseFails}}, 5},
		{"four, and an answer", circuit.Rule{}, []outcomeSeries{{n: 4, every: ms, what: newCaseFails}, {n: 1, every: ms, what: newCaseAnswers}, {n: 4, every: ms, what: newCaseFails}}, 0},
		{"cases that failed before do not count", circuit.Rule{}, []outcomeSeries{{n: 4, every: ms, what: newCaseFails}, {n: 1000, every: ms, what: oldCaseFails}}, 0},
		{"the same few again and again", circuit.Rule{}, []outcomeSeries{{n: 19, every: ms, what: func(i int) outcome { return newCaseFails(i % 4) }}}, 0},
		{"an answer of one that failed before counts", circuit.Rule{}, []outcomeSeries{{n: 4, every: ms, what: newCaseFails}, {n: 1, every: ms, what: func(i int) outcome { return outcome{caseID: caseOf(0)} }}, {n: 4, every: ms, what: newCaseFails}}, 0},
		{"two, one at its last attempt", circuit.Rule{}, []outcomeSeries{{n: 2, every: time.Second, what: newCaseFails}, {n: 1, every: ms, what: func(int) outcome { return outcome{caseID: caseOf(1), failed: true, last: true} }}}, 3},
		{"one alone at its last attempt", circuit.Rule{}, []outcomeSeries{{n: 1, every: ms, what: newCaseFails}, {n: 9, every: ms, what: func(int) outcome { return outcome{caseID: caseOf(0), failed: true, last: true} }}}, 0},
		{"an older case at its last attempt", circuit.Rule{}, []outcomeSeries{{n: 1, every: ms, what: newCaseFails}, {n: 1, every: ms, what: newCaseAnswers}, {n: 2, every: ms, what: newCaseFails}, {n: 1, every: ms, what: func(int) outcome { return outcome{caseID: caseOf(0), failed: true, last: true} }}}, 0},
		{"nine of ten of twenty within the window", circuit.Rule{Consecutive: 100}, []outcomeSeries{{n: 1, every: ms, what: newCaseFails}, {n: 1, every: ms, what: newCaseAnswers}, {n: 40, every: ms, what: newCaseFails}}, 20},
		{"nine of ten of nineteen", circuit.Rule{Consecutive: 100}, []outcomeSeries{{n: 1, every: ms, what: newCaseFails}, {n: 1, every: ms, what: newCaseAnswers}, {n: 17, every: ms, what: newCaseFails}}, 0},
		{"nine of ten, too slowly", circuit.Rule{Consecutive: 100}, []outcomeSeries{{n: 100, every: 55 * ms, what: everyNth(newCaseAnswers, 10, newCaseFails)}}, 0},
		{"half, as a rule of half says", circuit.Rule{FailurePercent: 50}, []outcomeSeries{{n: 40, every: ms, what: everyNth(newCaseFails, 2, newCaseAnswers)}}, 21},
		{"half, for long", circuit.Rule{}, []outcomeSeries{{n: 5000, every: ms, what: everyNth(newCaseFails, 2, newCaseAnswers)}}, 0},
		{"half, and then as many in a row as half explains", circuit.Rule{}, []outcomeSeries{{n: 1000, every: ms, what: everyNth(newCaseFails, 2, newCaseAnswers)}, {n: 19, every: ms, what: newCaseFails}}, 0},
		{"half, and then all", circuit.Rule{}, []outcomeSeries{{n: 1000, every: ms, what: everyNth(newCaseFails, 2, newCaseAnswers)}, {n: 100, every: ms, what: newCaseFails}}, 1020},
		{"half, slowly, and then all", circuit.Rule{}, []outcomeSeries{{n: 100, every: 100 * ms, what: everyNth(newCaseFails, 2, newCaseAnswers)}, {n: 40, every: 100 * ms, what: newCaseFails}}, 105},
		{"many that began before the last answer and fail late", circuit.Rule{}, []outcomeSeries{{n: 1, every: ms, what: newCaseAnswers}, {n: 40, every: ms, what: newCaseFails, takes: 2 * time.Second}}, 0},
		{"all that begin after the last answer fail late", circuit.Rule{}, []outcomeSeries{{n: 1, every: ms, what: newCaseAnswers}, {n: 1, every: 2 * time.Second, what: oldCaseFails}, {n: 40, every: ms, what: newCaseFails, takes: 2 * time.Second}}, 7},
		{"every third, for long", circuit.Rule{}, []outcomeSeries{{n: 5000, every: ms, what: everyNth(newCaseFails, 3, newCaseAnswers)}}, 0},
		{"busy and sound, then all fail", circuit.Rule{}, []outcomeSeries{{n: 3000, every: ms / 4, what: newCaseAnswers}, {n: 40, every: ms / 4, what: newCaseFails}}, 3005},
		{"other thresholds", circuit.Rule{Consecutive: 3, ConsecutiveAtLast: 1}, []outcomeSeries{{n: 9, every: ms, what: newCaseFails}}, 3},
		{"a share of 80 is not reached by three of four", circuit.Rule{FailurePercent: 80, Consecutive: 100}, []outcomeSeries{{n: 1000, every: ms, what: everyNth(newCaseAnswers, 4, newCaseFails)}}, 0},
		{"more than is kept", circuit.Rule{Window: time.Hour}, []outcomeSeries{{n: 3 * failureWindowSize, every: ms, what: newCaseAnswers}, {n: 40, every: ms, what: newCaseFails}}, 3*failureWindowSize + 5},
	} {
		tc.rule.Normalise()
		w := failureWindow{rule: tc.rule}
		at, n, opened := noon, 0, 0
		for _, s := range tc.story {
			for range s.n {
				at = at.Add(s.every)
				o := s.what(n)
				o.began = at.Add(-s.takes)
				if w.note(at, o) != "" && opened == 0 {
					opened = n + 1
				}
				n++
			}
		}
		if opened != tc.opens {
			t.Errorf("%s: opened by %d, want %d", tc.name, opened, tc.opens)
		}
		if len(w.seen) > failureWindowSize {
			t.Errorf("%s: %d outcomes kept", tc.name, len(w.seen))
		}
	}
}

func TestAWindowIsIdleWhenNothingInItCanOpen(t *testing.T) {
	t.Parallel()
	rule := circuit.Rule{}
	rule.Normalise()
	w := failureWindow{rule: rule}
	w.note(noon, newCaseAnswers(0))
	if w.idle(noon) || !w.idle(noon.Add(2*time.Second)) {
		t.Error("an answer is kept after the window")
	}
	w.note(noon, outcome{caseID: caseOf(1), began: noon, first: true, failed: true})
	if w.idle(noon.Add(time.Hour)) {
		t.Error("a new case that failed is dropped without an answer")
	}
}

// After a breaker has closed, the answers that closed it stand for the calls before: a few failures in
// a row do not open it again, and an outage does. Once enough calls were answered since, they stand for
// themselves.
func TestABreakerThatHasJustClosedOpensForAnOutage(t *testing.T) {
	t.Parallel()
	rule := circuit.Rule{}
	rule.Normalise()
	for after, opens := range map[time.Duration]int{0: rule.MinAttempts, 2 * rule.Window: rule.Consecutive} {
		w := failureWindow{rule: rule, closedAt: noon}
		if w.idle(noon) {
			t.Error("that it has just closed is dropped")
		}
		for n := range rule.MinAttempts {
			at := noon.Add(after + time.Duration(n)*time.Millisecond)
			if why := w.note(at, outcome{caseID: caseOf(n), began: at, first: true, failed: true}); why != "" != (n+1 >= opens) {
				t.Errorf("%s after it closed, failure %d: %q", after, n+1, why)
			}
		}
	}
	w := failureWindow{rule: rule, closedAt: noon}
	for n := range rule.MinAttempts + rule.Consecutive {
		at, failed := noon.Add(time.Duration(n)*time.Millisecond), n >= rule.MinAttempts
		if why := w.note(at, outcome{caseID: caseOf(n), began: at, first: true, failed: failed}); why != "" != (n+1 == rule.MinAttempts+rule.Consecutive) {
			t.Errorf("call %d, after %d answers since it closed: %q", n+1, rule.MinAttempts, why)
		}
	}
	w = failureWindow{rule: rule, closedAt: noon}
	for n := range 2 * rule.MinAttempts {
		if why := w.note(noon.Add(time.Minute), outcome{caseID: caseOf(n), began: noon.Add(-time.Second), first: true, failed: true}); why != "" {
			t.Errorf("%d calls from before it closed open it again: %s", n+1, why)
		}
	}
}

func TestWhatCountsAgainstATarget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		result Result
		fails  bool
	}{
		{Result{Class: Executed}, false},
		{Result{Class: NotExecuted}, false}, // a refusal is an answer
		{Result{Class: NotExecuted, Retry: true}, true},
		{Result{Class: Unknown, Retry: true}, true},
		{Result{Class: Unknown}, true},
		{Result{Class: Unknown, Retry: true, Accepted: true}, false}, // it takes calls
	} {
		if got := countsAsFailure(tc.result); got != tc.fails {
			t.Errorf("%+v: %v", tc.result, got)
		}
	}
}

func TestCallsThatHangOpenTheBreakerWhenNobodyIsAnswered(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	for _, tc := range []struct {
		name  string
		state hangingCalls
		opens bool
	}{
		{"at the bound", hangingCalls{sinceChange: 16}, false},
		{"over the bound, never an answer", hangingCalls{sinceChange: 17}, true},
		{"over the bound, no answer since the last of them began", hangingCalls{sinceChange: 17, lastAnswer: began.Add(-time.Nanosecond)}, true},
		{"over the bound, an answer meanwhile", hangingCalls{sinceChange: 17, lastAnswer: began}, false},
		{"at the bound despite answers", hangingCalls{sinceChange: 256, lastAnswer: began.Add(time.Second)}, false},
		{"over the bound despite answers", hangingCalls{sinceChange: 257, lastAnswer: began.Add(time.Second)}, true},
	} {
		if got := tc.state.shouldOpen(16, began); got != tc.opens {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestCallsThatHangOpenTheBreakerOnce(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	answersOthers := hangingCalls{lastAnswer: began.Add(time.Second)}
	hang := func(h hangingCalls, calls int) hangingCalls {
		for range calls {
			h, _ = h.add()
		}
		return h
	}
	opened := hang(answersOthers, 257)
	if !opened.shouldOpen(16, began) {
		t.Fatal("257 hanging calls do not open it")
	}
	later := opened.breakerChanged().breakerChanged() // opened, and closed
	for calls := range 257 {
		if hang(later, calls).shouldOpen(16, began) {
			t.Fatalf("%d calls besides those that it was opened for open it again", calls)
		}
	}
	if !hang(later, 257).shouldOpen(16, began) {
		t.Error("another 257 hanging calls do not open it")
	}
	quiet := later
	quiet.lastAnswer = time.Time{}
	if hang(quiet, 16).shouldOpen(16, began) || !hang(quiet, 17).shouldOpen(16, began) {
		t.Error("without answers, the calls that it was opened for count again")
	}
}

func TestACallThatHungIsForgottenWhenItAnswers(t *testing.T) {
	t.Parallel()
	h, first := hangingCalls{}.add()
	h = h.breakerChanged()
	h, second := h.add()
	h, third := h.add()
	if h = h.remove(first).remove(second); h.beforeChange != 0 || h.sinceChange != 1 || h.empty() {
		t.Errorf("%+v", h)
	}
	if h = h.breakerChanged().remove(third); !h.empty() || h.beforeChange != 0 || h.sinceChange != 0 {
		t.Errorf("%+v", h)
	}
}

// brownout is a part of the calls of a target that fails while the others are answered.
type brownout struct {
	name string
	set  func(m *model, n int) // before case n is submitted
	bad  func(m *model, n int) bool
}

func callsFail(share float64) brownout {
	return brownout{fmt.Sprintf("%g of calls fail", share), func(m *model, _ int) { m.share = share }, func(*model, int) bool { return false }}
}

func casesFail(share float64) brownout {
	return brownout{fmt.Sprintf("%g of cases fail", share), func(*model, int) {}, func(m *model, _ int) bool { return m.rnd.Float64() < share }}
}

// tenantFails is one of five tenants, each of which submits row cases in a row.
func tenantFails(row int) brownout {
	return brownout{fmt.Sprintf("one of five tenants fails, rows of %d", row), func(*model, int) {}, func(_ *model, n int) bool { return n/row%5 == 0 }}
}

// A target that fails often is not down. While some of its cases are answered, the breaker costs them
// little: in the median at most 2 s, or a fifth more than they take without a breaker, where calls that
// are answered late take all slots.
func TestABrownoutInTheModelIsNoOutage(t *testing.T) {
	t.Parallel()
	const cases = 1500
	for _, b := range []brownout{callsFail(.1), callsFail(.28), callsFail(.3), callsFail(.6), casesFail(.1), casesFail(.28), casesFail(.3), casesFail(.6), tenantFails(1), tenantFails(50)} {
		for _, rate := range []float64{5, 20, 100, 1000} {
			for _, failing := range []time.Duration{0, 2 * time.Second, 10 * time.Second} {
				t.Run(fmt.Sprintf("%s after %s, %g a second", b.name, failing, rate), func(t *testing.T) {
					t.Parallel()
					for _, seed := range modelSeeds {
						with, without := brownoutOf(seed, b, cases, rate, failing, false), brownoutOf(seed, b, cases, rate, failing, true)
						t.Logf("seed %d: %s\nwithout a breaker: %s", seed, with, without)
						if with.goodP50 > max(2*time.Second, without.goodP50*6/5) {
							t.Errorf("seed %d: median %s, %s without a breaker", seed, with.goodP50, without.goodP50)
						}
						if with.good < without.good*95/100 {
							t.Errorf("seed %d: %d settled, %d without a breaker", seed, with.good, without.good)
						}
					}
				})
			}
		}
	}
}

func brownoutOf(seed uint64, b brownout, cases int, rate float64, failing time.Duration, noBreaker bool) modelResult {
	m := newModel(seed)
	m.badCallTime, m.noBreaker = failing, noBreaker
	for n := range cases {
		b.set(m, n)
		m.submit(time.Duration(float64(n)/rate*float64(time.Second)), b.bad(m, n))
	}
	m.run(10 * time.Minute)
	return m.result()
}

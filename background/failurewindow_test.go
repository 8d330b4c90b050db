package background

import (
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
		{"five new cases in a row", circuit.Rule{}, []outcomeSeries{{9, ms, newCaseFails}}, 5},
		{"over any time", circuit.Rule{}, []outcomeSeries{{9, 24 * time.Hour, newCaseFails}}, 5},
		{"four, and an answer", circuit.Rule{}, []outcomeSeries{{4, ms, newCaseFails}, {1, ms, newCaseAnswers}, {4, ms, newCaseFails}}, 0},
		{"cases that failed before do not count", circuit.Rule{}, []outcomeSeries{{4, ms, newCaseFails}, {1000, ms, oldCaseFails}}, 0},
		{"the same few again and again", circuit.Rule{}, []outcomeSeries{{19, ms, func(i int) outcome { return newCaseFails(i % 4) }}}, 0},
		{"an answer of one that failed before counts", circuit.Rule{}, []outcomeSeries{{4, ms, newCaseFails}, {1, ms, func(i int) outcome { return outcome{caseID: caseOf(0)} }}, {4, ms, newCaseFails}}, 0},
		{"two, one at its last attempt", circuit.Rule{}, []outcomeSeries{{2, time.Second, newCaseFails}, {1, ms, func(int) outcome { return outcome{caseID: caseOf(1), failed: true, last: true} }}}, 3},
		{"one alone at its last attempt", circuit.Rule{}, []outcomeSeries{{1, ms, newCaseFails}, {9, ms, func(int) outcome { return outcome{caseID: caseOf(0), failed: true, last: true} }}}, 0},
		{"an older case at its last attempt", circuit.Rule{}, []outcomeSeries{{1, ms, newCaseFails}, {1, ms, newCaseAnswers}, {2, ms, newCaseFails}, {1, ms, func(int) outcome { return outcome{caseID: caseOf(0), failed: true, last: true} }}}, 0},
		{"half of twenty within the window", circuit.Rule{}, []outcomeSeries{{40, ms, everyNth(newCaseFails, 2, newCaseAnswers)}}, 21},
		{"half of nineteen", circuit.Rule{}, []outcomeSeries{{19, ms, everyNth(newCaseFails, 2, newCaseAnswers)}}, 0},
		{"half, too slowly", circuit.Rule{}, []outcomeSeries{{100, 55 * ms, everyNth(newCaseFails, 2, newCaseAnswers)}}, 0},
		{"every third, for long", circuit.Rule{}, []outcomeSeries{{5000, ms, everyNth(newCaseFails, 3, newCaseAnswers)}}, 0},
		{"busy and sound, then all fail", circuit.Rule{}, []outcomeSeries{{3000, ms / 4, newCaseAnswers}, {40, ms / 4, newCaseFails}}, 3005},
		{"other thresholds", circuit.Rule{Consecutive: 3, ConsecutiveAtLast: 1}, []outcomeSeries{{9, ms, newCaseFails}}, 3},
		{"a share of 80 is not reached by three of four", circuit.Rule{FailurePercent: 80, Consecutive: 100}, []outcomeSeries{{1000, ms, everyNth(newCaseAnswers, 4, newCaseFails)}}, 0},
		{"more than is kept", circuit.Rule{Window: time.Hour}, []outcomeSeries{{3 * failureWindowSize, ms, newCaseAnswers}, {40, ms, newCaseFails}}, 3*failureWindowSize + 5},
	} {
		tc.rule.Normalise()
		w := failureWindow{rule: tc.rule}
		at, n, opened := noon, 0, 0
		for _, s := range tc.story {
			for range s.n {
				at = at.Add(s.every)
				if w.note(at, s.what(n)) != "" && opened == 0 {
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
	w.note(noon, newCaseFails(1))
	if w.idle(noon.Add(time.Hour)) {
		t.Error("a new case that failed is dropped without an answer")
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

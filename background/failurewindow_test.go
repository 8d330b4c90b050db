package background

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// stretch is so many outcomes at one pace.
type stretch struct {
	n     int
	every time.Duration
	what  func(i int) outcome
}

func caseOf(i int) CaseID { return CaseID(uuid.UUID{byte(i >> 16), byte(i >> 8), byte(i), 1}) }

func fails(i int) outcome { return outcome{kase: caseOf(i), first: true, failed: true} }
func works(i int) outcome { return outcome{kase: caseOf(i), first: true} }
func again(i int) outcome { return outcome{kase: caseOf(i), failed: true} } // not its first attempt
func one(o func(int) outcome, in int, rest func(int) outcome) func(int) outcome {
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
		rule  BreakerRule
		story []stretch
		opens int // by this outcome, from 1; 0: never
	}{
		{"five new cases in a row", BreakerRule{}, []stretch{{9, ms, fails}}, 5},
		{"over whatever time", BreakerRule{}, []stretch{{9, 24 * time.Hour, fails}}, 5},
		{"four, and an answer", BreakerRule{}, []stretch{{4, ms, fails}, {1, ms, works}, {4, ms, fails}}, 0},
		{"cases that failed before say nothing", BreakerRule{}, []stretch{{4, ms, fails}, {1000, ms, again}}, 0},
		{"the same few again and again", BreakerRule{}, []stretch{{19, ms, func(i int) outcome { return fails(i % 4) }}}, 0},
		{"an answer of one that failed before speaks", BreakerRule{}, []stretch{{4, ms, fails}, {1, ms, func(i int) outcome { return outcome{kase: caseOf(0)} }}, {4, ms, fails}}, 0},
		{"two, one at its last attempt", BreakerRule{}, []stretch{{2, time.Second, fails}, {1, ms, func(int) outcome { return outcome{kase: caseOf(1), failed: true, last: true} }}}, 3},
		{"one alone at its last attempt", BreakerRule{}, []stretch{{1, ms, fails}, {9, ms, func(int) outcome { return outcome{kase: caseOf(0), failed: true, last: true} }}}, 0},
		{"one of before at its last attempt", BreakerRule{}, []stretch{{1, ms, fails}, {1, ms, works}, {2, ms, fails}, {1, ms, func(int) outcome { return outcome{kase: caseOf(0), failed: true, last: true} }}}, 0},
		{"half of twenty within the window", BreakerRule{}, []stretch{{40, ms, one(fails, 2, works)}}, 21},
		{"half of nineteen", BreakerRule{}, []stretch{{19, ms, one(fails, 2, works)}}, 0},
		{"half, too slowly", BreakerRule{}, []stretch{{100, 55 * ms, one(fails, 2, works)}}, 0},
		{"every third, for long", BreakerRule{}, []stretch{{5000, ms, one(fails, 3, works)}}, 0},
		{"busy and sound, then all fail", BreakerRule{}, []stretch{{3000, ms / 4, works}, {40, ms / 4, fails}}, 3005},
		{"other thresholds", BreakerRule{Row: 3, LastRow: 1}, []stretch{{9, ms, fails}}, 3},
		{"a share of 80 is not reached by three of four", BreakerRule{Share: 80, Row: 100}, []stretch{{1000, ms, one(works, 4, fails)}}, 0},
		{"more than is remembered", BreakerRule{Window: time.Hour}, []stretch{{3 * failureWindowSize, ms, works}, {40, ms, fails}}, 3*failureWindowSize + 5},
	} {
		tc.rule.normalise()
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
			t.Errorf("%s: %d remembered", tc.name, len(w.seen))
		}
	}
}

func TestAWindowIsIdleWhenNothingInItCanOpen(t *testing.T) {
	t.Parallel()
	rule := BreakerRule{}
	rule.normalise()
	w := failureWindow{rule: rule}
	w.note(noon, works(0))
	if w.idle(noon) || !w.idle(noon.Add(2*time.Second)) {
		t.Error("an answer is forgotten after the window")
	}
	w.note(noon, fails(1))
	if w.idle(noon.Add(time.Hour)) {
		t.Error("a new case that failed is remembered until an answer")
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
		if got := failing(tc.result); got != tc.fails {
			t.Errorf("%+v: %v", tc.result, got)
		}
	}
}

package background

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// stretch is so many attempts one after another, at an even pace.
type stretch struct {
	attempts int
	every    time.Duration
	failing  func(i int) bool // nil: none
	cases    int              // they belong to in turn; 0: each has its own
}

func all(int) bool { return true }

func oneIn(n int) func(int) bool { return func(i int) bool { return i%n == n-1 } }

func TestBrakeIsPulledByTheRuleAndByNothingLess(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		name  string
		rule  BrakeRule
		story []stretch
		at    int // the attempt, from 1, that pulls; 0: none does
	}{
		{"all fail, from the first", BrakeRule{}, []stretch{{30, ms, all, 0}}, 20},
		{"19 are too few", BrakeRule{}, []stretch{{19, ms, all, 0}}, 0},
		{"too slow: never 20 within the window", BrakeRule{}, []stretch{{60, 55 * ms, all, 0}}, 0},
		{"20 just within the window", BrakeRule{}, []stretch{{25, 52 * ms, all, 0}}, 20},
		{"nine cases are too few", BrakeRule{}, []stretch{{200, ms, all, 9}}, 0},
		{"ten cases are enough", BrakeRule{}, []stretch{{200, ms, all, 10}}, 20},
		{"nine cases fail among many that do not", BrakeRule{}, []stretch{{9, ms, all, 9}, {9, ms, nil, 0}, {9, ms, all, 9}}, 0},
		{"every second fails: half of a whole window", BrakeRule{}, []stretch{{1100, ms, oneIn(2), 0}}, 1002},
		{"half of a few attempts fail", BrakeRule{}, []stretch{{24, ms, oneIn(2), 0}}, 0},
		{"half of a few attempts fail, slowly", BrakeRule{}, []stretch{{40, 49 * ms, oneIn(2), 0}}, 22},
		{"every third fails, for long", BrakeRule{}, []stretch{{5000, ms / 2, oneIn(3), 0}}, 0},
		{"busy and sound, then all fail: seen within 20", BrakeRule{}, []stretch{{3000, ms / 4, nil, 0}, {40, ms / 4, all, 0}}, 3020},
		{"busy and sound, then three of four fail", BrakeRule{}, []stretch{{3000, ms / 4, nil, 0}, {60, ms / 4, func(i int) bool { return i%4 != 0 }, 0}}, 3039},
		{"ten failures in a row in a busy service", BrakeRule{}, []stretch{{500, ms, nil, 0}, {10, ms, all, 0}, {500, ms, nil, 0}}, 0},
		{"old failures are forgotten", BrakeRule{}, []stretch{{19, ms, all, 0}, {1, 2 * time.Second, all, 0}, {18, ms, all, 0}}, 0},
		{"more than is remembered", BrakeRule{Window: time.Hour}, []stretch{{3 * gaugeSize, ms, nil, 0}, {40, ms, all, 0}}, 3*gaugeSize + 20},
		{"other thresholds", BrakeRule{Attempts: 4, Cases: 2, Share: 75}, []stretch{{8, ms, all, 2}}, 4},
		{"a share of 80 is not reached by three of four", BrakeRule{Share: 80}, []stretch{{1000, ms, func(i int) bool { return i%4 != 0 }, 0}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if at := pulledAt(tc.rule, tc.story); at != tc.at {
				t.Errorf("pulled at attempt %d, want %d", at, tc.at)
			}
		})
	}
}

func pulledAt(rule BrakeRule, story []stretch) int {
	rule.normalise()
	g, now, n := gauge{rule: rule}, time.Unix(1_700_000_000, 0), 0
	for _, s := range story {
		for i := range s.attempts {
			n++
			now = now.Add(s.every)
			kase := n
			if s.cases > 0 {
				kase = -1 - i%s.cases
			}
			if g.note(ended{at: now, kase: caseNo(kase), failed: s.failing != nil && s.failing(i)}) {
				return n
			}
		}
	}
	return 0
}

func caseNo(n int) CaseID {
	var id receipts.CaseID
	copy(id[:], strconv.Itoa(n))
	return id
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

func TestAGaugeForgetsWithoutGrowing(t *testing.T) {
	t.Parallel()
	rule := BrakeRule{Window: time.Hour}
	rule.normalise()
	g, now := gauge{rule: rule}, time.Unix(1_700_000_000, 0)
	for i := range 4 * gaugeSize {
		g.note(ended{at: now, kase: caseNo(i), failed: i%3 == 0})
	}
	counted := 0
	for _, e := range g.seen {
		if e.failed {
			counted++
		}
	}
	if len(g.seen) != gaugeSize || g.failed != counted {
		t.Errorf("remembers %d attempts, %d failed, of which %d are counted", len(g.seen), counted, g.failed)
	}
	if g.forget(now.Add(time.Hour)); len(g.seen) != 0 || g.failed != 0 {
		t.Errorf("%d attempts, %d failed", len(g.seen), g.failed)
	}
}

// mixed are the failures of the attempts of each line of testdata/adjudications.jsonl
// that is executed: how many such lines there are, and which attempts fail.
var mixed = []struct {
	lines    int
	attempts []bool
}{
	{218, []bool{false}},
	{48, []bool{true, false}},
	{12, []bool{true, true, false}},
	{24, []bool{true, true, true}},
}

// Three attempts in ten of the demonstration's mix fail. In whatever order they come,
// for five tenants with few attempts each, no brake is pulled.
func TestAnOrdinaryMixOfFailuresPullsNoBrake(t *testing.T) {
	t.Parallel()
	var lines [][]bool
	for _, kind := range mixed {
		for range kind.lines {
			lines = append(lines, kind.attempts)
		}
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(lines), func(a, b int) { lines[a], lines[b] = lines[b], lines[a] })
		for tenant := range 5 {
			if n, all := playMix(r, lines, tenant); n > 0 {
				t.Errorf("seed %d, tenant %d: pulled at attempt %d of %d", seed, tenant, n, all)
			}
		}
	}
}

// playMix plays a tenant's share of the lines, handed over within a quarter of a
// second, and tells which attempt pulled the brake.
func playMix(r *rand.Rand, lines [][]bool, tenant int) (pulled, all int) {
	var es []ended
	for i := tenant; i < len(lines); i += 5 {
		at := time.Duration(i)*600*time.Microsecond + time.Duration(r.Int64N(int64(20*time.Millisecond)))
		for n, failed := range lines[i] {
			es = append(es, ended{at: time.Unix(1_700_000_000, 0).Add(at), kase: caseNo(i + 1), failed: failed})
			at += 25*time.Millisecond<<n + time.Duration(r.Int64N(int64(8*time.Millisecond)))
		}
	}
	slices.SortFunc(es, func(a, b ended) int { return a.at.Compare(b.at) })
	rule := BrakeRule{}
	rule.normalise()
	g := gauge{rule: rule}
	for i, e := range es {
		if g.note(e) {
			return i + 1, len(es)
		}
	}
	return 0, len(es)
}

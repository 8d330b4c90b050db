package background

import "time"

// BrakeRule says when a brake pulls itself and how it is let go. What is not
// positive has a default.
type BrakeRule struct {
	Off       bool          // pulled by hand only
	Window    time.Duration // attempts older than this say nothing; 1s
	Attempts  int           // at least so many within the window; 20
	Share     int           // percent of a window that failed, retryable or unknown; 50
	Cases     int           // at least so many different cases among the failed; 10
	Abandoned int           // over so many calls of a target in one process that outlived their attempts; 16
	Probe     time.Duration // between two probes of a target; 1s
	Batch     int           // runs let go at one time; 50
}

func (r *BrakeRule) normalise() {
	positive(&r.Window, time.Second)
	positive(&r.Attempts, 20)
	positive(&r.Share, 50)
	positive(&r.Cases, 10)
	positive(&r.Abandoned, 16)
	positive(&r.Probe, time.Second)
	positive(&r.Batch, 50)
}

// gaugeSize bounds what a gauge remembers: in a busy process the last so many
// attempts stand for the window.
const gaugeSize = 4096

// gauge judges a target by the last attempts of this process. It has no clock: time
// comes in with the attempts.
type gauge struct {
	rule   BrakeRule
	seen   []ended
	failed int       // of seen
	began  time.Time // since when there was no window without an attempt
}

// ended is how one attempt ended, as far as the target is concerned.
type ended struct {
	at     time.Time
	kase   CaseID
	failed bool // retryable or unknown; any other answer shows that the target works
}

// note takes the end of an attempt in and reports whether the brake is to be pulled.
// It is when, among the attempts of the window or the most recent of them, there are
// enough attempts, of enough cases that failed, and the failed ones reach the share:
//
//   - over a whole window, which must have passed: of a first few attempts half may
//     fail by chance where a quarter of all do; or
//   - since some moment within it, by a surplus that enough attempts would have if all
//     had failed. It lets a sudden stop of a busy target be seen at once, however many
//     attempts succeeded just before, and is not reached by chance.
func (g *gauge) note(e ended) bool {
	if g.forget(e.at.Add(-g.rule.Window)); len(g.seen) == 0 {
		g.began = e.at
	}
	g.seen = append(g.seen, e)
	if !e.failed {
		return false
	}
	g.failed++
	whole := e.at.Sub(g.began) >= g.rule.Window
	if whole && len(g.seen) >= g.rule.Attempts && 100*g.failed >= g.rule.Share*len(g.seen) && cases(g.seen) >= g.rule.Cases {
		return true
	}
	worst := g.surplus()
	return len(worst) > 0 && cases(worst) >= g.rule.Cases
}

func (g *gauge) forget(before time.Time) {
	n := 0
	for n < len(g.seen) && (g.seen[n].at.Before(before) || len(g.seen)-n >= gaugeSize) {
		if g.seen[n].failed {
			g.failed--
		}
		n++
	}
	if g.seen = g.seen[n:]; len(g.seen) == 0 {
		g.seen = nil
	}
}

// surplus is the longest run of the most recent attempts in which the failed ones
// outweigh the others as the rule asks; none when there is no such run.
func (g *gauge) surplus() []ended {
	weight, from := 0, len(g.seen)
	for i := len(g.seen) - 1; i >= 0; i-- {
		if g.seen[i].failed {
			weight += 100 - g.rule.Share
		} else {
			weight -= g.rule.Share
		}
		if weight >= g.rule.Attempts*(100-g.rule.Share) && len(g.seen)-i >= g.rule.Attempts {
			from = i
		}
	}
	return g.seen[from:]
}

// cases counts the different cases among the failed attempts.
func cases(es []ended) int {
	different := make(map[CaseID]struct{}, min(len(es), 64))
	for _, e := range es {
		if e.failed {
			different[e.kase] = struct{}{}
		}
	}
	return len(different)
}

// failing reports whether a result speaks against the target rather than against
// the run alone.
func failing(r Result) bool { return r.Class != Executed && (r.Retry || r.Class == Unknown) }

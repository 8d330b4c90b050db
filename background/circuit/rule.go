package circuit

import "time"

// Rule configures when a circuit breaker opens by itself, and how it probes and closes.
// A value that is not positive means the default.
type Rule struct {
	Disabled          bool          // this process opens none by itself; it still probes open ones
	Consecutive       int           // opens: new cases in a row that failed, over any time; 5. More where calls before them failed too
	ConsecutiveAtLast int           // opens: as Consecutive, when one of them is at its last attempt; 2
	Window            time.Duration // opens: within this time ...; 1s
	MinAttempts       int           // ... of at least so many attempts of new cases and answers ...; 20
	FailurePercent    int           // ... this percentage failed; probes close the breaker while a smaller one fails; 90
	MaxAbandoned      int           // opens: more calls of one process than this outlived their attempts and hang while no other call is answered, or 16 times as many hang; 16

	ProbeInterval       time.Duration // between two probes of new cases at first; 100ms
	FallbackInterval    time.Duration // between two probes of runs claimed before, when there is no new case, at first; 1s
	FallbackIntervalMax time.Duration // ... at most; 30s
	AnswerValidFor      time.Duration // how long an answer shows that the target works; 2s
	FewPaused           int           // with fewer paused runs than this, the runs themselves may be the cause; 10
	FewPausedFor        time.Duration // how long there must have been so few; 1m
	StalledAfter        time.Duration // alarm: runs are paused, and there was no new case to probe for so long; 1m
	LeaderTimeout       time.Duration // a leader without change of the version for so long is replaced; 1s
}

// Normalise sets every value that is not positive to its default.
func (r *Rule) Normalise() {
	positive(&r.Consecutive, 5)
	positive(&r.ConsecutiveAtLast, 2)
	positive(&r.Window, time.Second)
	positive(&r.MinAttempts, 20)
	positive(&r.FailurePercent, 90)
	positive(&r.MaxAbandoned, 16)
	positive(&r.ProbeInterval, 100*time.Millisecond)
	positive(&r.FallbackInterval, time.Second)
	positive(&r.FallbackIntervalMax, 30*time.Second)
	positive(&r.AnswerValidFor, 2*time.Second)
	positive(&r.FewPaused, 10)
	positive(&r.FewPausedFor, time.Minute)
	positive(&r.StalledAfter, time.Minute)
	positive(&r.LeaderTimeout, time.Second)
}

func positive[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

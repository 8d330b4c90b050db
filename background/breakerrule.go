package background

import "time"

// BreakerRule says when a circuit breaker opens by itself, and how it probes and closes.
// What is not positive has a default.
type BreakerRule struct {
	Disabled          bool          // this process opens none by itself; it probes those that are open all the same
	Consecutive       int           // opens: so many new cases in a row failed, over whatever time; 5
	ConsecutiveAtLast int           // opens: so many did, and one of them is at its last attempt; 2
	Window            time.Duration // opens: within this time ...; 1s
	MinAttempts       int           // ... of at least so many new cases and answers ...; 20
	FailurePercent    int           // ... this percentage failed; 50
	MaxAbandoned      int           // opens: more calls than this outlived their attempts in one process and hang while no other is answered, or 16 times as many do; 16

	ProbeInterval       time.Duration // between two probes by new cases at first; 100ms
	FallbackInterval    time.Duration // between two probes by paused runs when there is no new case, at first; 1s
	FallbackIntervalMax time.Duration // ... and at last; 30s
	AnswerValidFor      time.Duration // for how long an answer shows that the target works; 2s
	FewPaused           int           // fewer paused runs than this may each be what fails; 10
	FewPausedFor        time.Duration // for how long they must have been so few; 1m
	StalledAfter        time.Duration // alarm: runs are paused, and for so long there was no new case to ask; 1m
	LeaderTimeout       time.Duration // a leader that shows nothing for so long is replaced; 1s
}

func (r *BreakerRule) normalise() {
	positive(&r.Consecutive, 5)
	positive(&r.ConsecutiveAtLast, 2)
	positive(&r.Window, time.Second)
	positive(&r.MinAttempts, 20)
	positive(&r.FailurePercent, 50)
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

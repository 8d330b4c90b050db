package background

import "time"

// BreakerRule says when a circuit breaker opens by itself, and how it probes and closes.
// What is not positive has a default.
type BreakerRule struct {
	Off       bool          // this process opens none by itself; it probes those that are open all the same
	Row       int           // opens: so many new cases in a row failed, over whatever time; 5
	LastRow   int           // opens: so many did, and one of them is at its last attempt; 2
	Window    time.Duration // opens: within this time ...; 1s
	Attempts  int           // ... of at least so many new cases and answers ...; 20
	Share     int           // ... this percentage failed; 50
	Abandoned int           // opens: more calls than this outlived their attempts in one process and hang while no other is answered, or 16 times as many do; 16

	Probe   time.Duration // between two probes by new cases at first; 100ms
	Rest    time.Duration // between two probes by paused runs when there is no new case, at first; 1s
	RestMax time.Duration // ... and at last; 30s
	Recent  time.Duration // for how long an answer shows that the target works; 2s
	Few     int           // fewer paused runs than this may each be what fails; 10
	FewFor  time.Duration // for how long they must have been so few; 1m
	Stalled time.Duration // alarm: runs are paused, and for so long there was no new case to ask; 1m
	Lead    time.Duration // a leader that shows nothing for so long is replaced; 1s
}

func (r *BreakerRule) normalise() {
	positive(&r.Row, 5)
	positive(&r.LastRow, 2)
	positive(&r.Window, time.Second)
	positive(&r.Attempts, 20)
	positive(&r.Share, 50)
	positive(&r.Abandoned, 16)
	positive(&r.Probe, 100*time.Millisecond)
	positive(&r.Rest, time.Second)
	positive(&r.RestMax, 30*time.Second)
	positive(&r.Recent, 2*time.Second)
	positive(&r.Few, 10)
	positive(&r.FewFor, time.Minute)
	positive(&r.Stalled, time.Minute)
	positive(&r.Lead, time.Second)
}

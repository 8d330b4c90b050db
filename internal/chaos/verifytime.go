package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// callsByAttempt returns the call of each attempt, by "<run id>.<attempt>".
func callsByAttempt(all map[string][]fakeescrow.Call) map[string]fakeescrow.Call {
	out := map[string]fakeescrow.Call{}
	for _, calls := range all {
		for _, c := range calls {
			if _, found := out[c.By.Attempt]; !found {
				out[c.By.Attempt] = c
			}
		}
	}
	return out
}

// checkWaits checks by the escrow service's own clock that no attempt of a case came early. The
// wait after an attempt is that of its policy, or the Retry-After of the service. It begins at the
// earliest when the answer that ended the attempt was written. That needs no other clock. A wait that
// began in one process and ended in another is measured by both of their clocks, and may be short by
// their difference. While the database's clock may be ahead, a wait may end early by as much. An attempt that was not ended by an answer is not checked: its call may have
// come late.
func (v *verification) checkWaits(c *caseTrail, calls map[string]fakeescrow.Call, maxClockSkew time.Duration, clock remote.Clock) {
	policies := map[background.RunID]retrypolicy.Policy{}
	workers := map[string]string{}      // that made an attempt
	waits := map[string]time.Duration{} // after an attempt
	for _, r := range c.receipts {
		now, last := fmt.Sprintf("%s.%d", r.Run, r.p.Attempt), fmt.Sprintf("%s.%d", r.Run, r.p.Attempt-1)
		switch r.Subtype {
		case receipts.Submitted:
			if p, err := retrypolicy.Parse(r.p.Policy); err == nil && p.Jitter == 0 {
				policies[r.Run] = p
			}
		case receipts.RetryScheduled:
			if r.p.AttemptClass != string(background.NotExecuted) || calls[now].Status != http.StatusTooManyRequests {
				continue
			}
			if p, known := policies[r.Run]; known {
				waits[now] = p.DelayForAttempt(r.p.BudgetSpent)
			}
			if calls[now].RetryAfter > 0 {
				waits[now] = calls[now].RetryAfter
			}
		case receipts.AttemptStarted:
			workers[now] = r.p.Worker
			wait, waited := waits[last]
			before, after := calls[last], calls[now]
			if !waited || before.Answered.IsZero() || after.At.IsZero() {
				continue
			}
			if workers[now] != workers[last] {
				wait -= maxClockSkew
			}
			if wait -= clock.Ahead(before.Answered, after.At); wait <= 0 {
				continue
			}
			if v.Gaps++; after.At.Sub(before.Answered) < wait {
				v.Early++
				v.fail("attempt %d of run %s was called %s after the one before was answered, which was to be at least %s",
					r.p.Attempt, r.Run, after.At.Sub(before.Answered), wait)
			}
		}
	}
}

// measureSettling measures how long after its submission each run was known to have paid, by the times of the receipts.
func (v *verification) measureSettling(cases map[transaction]*caseTrail) {
	var took []time.Duration
	for _, c := range cases {
		submitted := map[background.RunID]time.Time{}
		for _, r := range c.receipts {
			switch at, open := submitted[r.Run]; {
			case r.Subtype == receipts.Submitted:
				submitted[r.Run] = r.At
			case open && r.p.AttemptClass == string(background.Executed):
				took = append(took, r.At.Sub(at))
				delete(submitted, r.Run)
			}
		}
	}
	if slices.Sort(took); len(took) > 0 {
		v.SettledMedian, v.SettledP95 = took[len(took)/2].Seconds(), took[len(took)*95/100].Seconds()
	}
}

// checkClockFaults reports calls of workers whose clock is far off: they must make none.
func (v *verification) checkClockFaults(all map[string][]fakeescrow.Call, faults []clockFault) {
	for key, calls := range all {
		for _, c := range calls {
			for _, s := range faults {
				if strings.HasPrefix(c.By.Worker, s.worker) && c.At.After(s.from) && c.At.Before(s.to) {
					v.ClockFaultCalls++
					v.fail("%s called for operation %.12s though its clock is far off", c.By.Worker, key)
				}
			}
		}
	}
}

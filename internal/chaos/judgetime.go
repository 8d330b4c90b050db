package main

import (
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// callsByAttempt finds the call that an attempt made, by "<run id>.<attempt>".
func callsByAttempt(all map[string][]fakeescrow.Call) map[string]fakeescrow.Call {
	out := map[string]fakeescrow.Call{}
	for _, calls := range all {
		for _, c := range calls {
			if _, told := out[c.By.Attempt]; !told {
				out[c.By.Attempt] = c
			}
		}
	}
	return out
}

// waited judges by the escrow service's own clock whether the attempts of a case kept
// their time. The wait after an attempt is what its policy says, or what the service asked
// for; it begins, at the earliest, when the answer of the attempt was on its way. That
// needs no other clock. Where a wait began in one process and ended in another, it is
// measured by two of them, and may be short by what they lie apart.
func (v *verdict) waited(c *trail, calls map[string]fakeescrow.Call, clocks time.Duration) {
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
			if !waited || before.At.IsZero() || after.At.IsZero() {
				continue
			}
			if workers[now] != workers[last] {
				wait -= clocks
			}
			if v.Gaps++; after.At.Sub(endOf(before)) < wait {
				v.Early++
				v.breaks("attempt %d of run %s was called %s after the one before, which was to be at least %s", r.p.Attempt, r.Run, after.At.Sub(endOf(before)), wait)
			}
		}
	}
}

// endOf is the earliest moment at which an attempt can have known its end.
func endOf(c fakeescrow.Call) time.Time {
	if c.Answered.IsZero() || c.Word == fakeescrow.Late {
		return c.At // it was given up before, or never answered
	}
	return c.Answered
}

package retrypolicy

import (
	"slices"
	"strings"
	"time"
)

// Question is the situation after an attempt that ended without success.
type Question struct {
	Run         [16]byte      // the run's id
	BudgetSpent int           // attempts that ended as failure, unknown or panic, this one included; from 1
	Retryable   bool          // whether calling again may help
	ErrorType   string        // what NonRetryable is matched against
	RetryAfter  time.Duration // wait that the called service asked for; 0 for none
	Now         time.Time
}

// Reason is the reason of a verdict.
type Reason string

// The reasons. All but Retry mean that the run has ended.
const (
	Retry            Reason = "retry"
	RetryExhausted   Reason = "retry_exhausted"
	Final            Reason = "final"              // calling again can't help
	NonRetryableType Reason = "non_retryable_type" // the policy names the error type
)

// Verdict is the answer to a Question.
type Verdict struct {
	Retry  bool
	At     time.Time     // UTC microseconds, not before Now + Delay; zero unless Retry
	Delay  time.Duration // 0 unless Retry
	Reason Reason
}

// Decide returns whether and when the run is tried again. A final error ends it,
// whatever is left of the budget. A RetryAfter that is longer than the policy's delay
// is used instead, up to MaxDelay.
func (p Policy) Decide(q Question) Verdict {
	p = p.Normalize()
	switch {
	case !q.Retryable:
		return Verdict{Reason: Final}
	case p.names(q.ErrorType):
		return Verdict{Reason: NonRetryableType}
	case !p.ShouldScheduleRetry(q.BudgetSpent):
		return Verdict{Reason: RetryExhausted}
	}
	delay := min(max(p.jittered(q.Run, q.BudgetSpent), q.RetryAfter), p.MaxDelay)
	return Verdict{Retry: true, At: ceilMicrosecond(q.Now.Add(delay)), Delay: delay, Reason: Retry}
}

func (p Policy) names(errorType string) bool {
	return slices.ContainsFunc(p.NonRetryable, func(entry string) bool {
		if prefix, ok := strings.CutSuffix(entry, "*"); ok && strings.HasSuffix(prefix, ".") {
			return strings.HasPrefix(errorType, prefix)
		}
		return entry == errorType
	})
}

// ceilMicrosecond rounds up to the microsecond, the finest time that is stored, since
// rounding down would let an attempt start early.
func ceilMicrosecond(t time.Time) time.Time {
	t = t.UTC()
	whole := t.Truncate(time.Microsecond)
	if whole.Before(t) {
		whole = whole.Add(time.Microsecond)
	}
	return whole
}

// ShouldScheduleRetry reports whether another attempt follows after attemptCount
// attempts have failed: with three attempts in all, after the first and second.
func (p Policy) ShouldScheduleRetry(attemptCount int) bool {
	return attemptCount > 0 && attemptCount < p.Normalize().MaxRetryAttempts
}

package retrypolicy

import (
	"math"
	"slices"
	"time"
)

// The defaults of missing fields.
const (
	DefaultMaxRetryAttempts = 3
	DefaultBaseDelay        = 25 * time.Millisecond
	DefaultMaxDelay         = 5 * time.Minute
	DefaultCoefficient      = 2.0
)

// MaxAttempts is the most attempts that a policy can allow.
const MaxAttempts = 10_000

// Exhaustion is the action for a run that will not be tried again.
type Exhaustion string

// The actions on exhaustion. A family that moves money has to refuse Discard.
const (
	DeadLetter Exhaustion = "dead_letter"
	Discard    Exhaustion = "discard"
)

// Backoff is how the delays of a policy grow.
type Backoff string

// The ways to grow. A constant delay is exponential with a coefficient of 1.
const (
	Exponential Backoff = "exponential" // each delay is Coefficient times the one before
	Linear      Backoff = "linear"      // the delay after attempt n is n times BaseDelay
)

// Policy is how often and how fast a run is tried again. A run keeps the policy
// it was submitted with. Every method uses the normalized policy, so that the zero
// value is ready to use.
type Policy struct {
	MaxRetryAttempts int           // attempts in all, the first included; <= 0 means 3
	BaseDelay        time.Duration // after the first attempt; <= 0 means 25ms
	MaxDelay         time.Duration // no delay is longer; <= 0 means 5m
	Backoff          Backoff       // empty means exponential
	Coefficient      float64       // of exponential delays: each to the one before; below 1 or not finite means 2
	Jitter           float64       // share of a delay, 0 to 1, that may be added or subtracted
	NonRetryable     []string      // error types that are final; "prefix.*" is any that begins with "prefix."
	OnExhaustion     Exhaustion    // empty means dead_letter
}

// Normalize returns the policy with every field set and in range: missing and invalid
// values become the default, values over a limit become the limit, and NonRetryable
// is sorted without repetition. It is idempotent.
func (p Policy) Normalize() Policy {
	if p.MaxRetryAttempts <= 0 {
		p.MaxRetryAttempts = DefaultMaxRetryAttempts
	}
	p.MaxRetryAttempts = min(p.MaxRetryAttempts, MaxAttempts)
	if p.BaseDelay <= 0 {
		p.BaseDelay = DefaultBaseDelay
	}
	if p.MaxDelay <= 0 {
		p.MaxDelay = DefaultMaxDelay
	}
	p.BaseDelay = min(p.BaseDelay, p.MaxDelay)
	if p.Backoff != Linear {
		p.Backoff = Exponential
	}
	if !(p.Coefficient >= 1) || math.IsInf(p.Coefficient, 0) {
		p.Coefficient = DefaultCoefficient
	}
	if !(p.Jitter > 0) {
		p.Jitter = 0
	}
	p.Jitter = min(p.Jitter, 1)
	p.NonRetryable = distinct(p.NonRetryable)
	if p.OnExhaustion != Discard {
		p.OnExhaustion = DeadLetter
	}
	return p
}

// distinct returns a sorted list unchanged: that is the common case of every failed
// attempt and must not allocate.
func distinct(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	for i := 1; i < len(list); i++ {
		if list[i-1] >= list[i] {
			list = slices.Clone(list)
			slices.Sort(list)
			return slices.Compact(list)
		}
	}
	return list
}

package retrypolicy

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// DelayForAttempt returns the wait after the given attempt, counted from 1, without
// jitter: BaseDelay after the first; after each one more, Coefficient times as long, or
// BaseDelay more if the backoff is linear; never over MaxDelay. A count below 1 is taken
// as 1. The wait never falls from one attempt to the next.
func (p Policy) DelayForAttempt(attemptCount int) time.Duration {
	return p.Normalize().delay(attemptCount)
}

// delay multiplies step by step: unlike math.Pow, that can't fall by a rounding error
// from one attempt to the next. Counts end at MaxAttempts, which is the most that any
// policy allows.
func (p Policy) delay(attemptCount int) time.Duration {
	n := min(max(attemptCount, 1), MaxAttempts)
	if p.Backoff == Linear {
		if p.BaseDelay > p.MaxDelay/time.Duration(n) { // without the product, which may overflow
			return p.MaxDelay
		}
		return p.BaseDelay * time.Duration(n)
	}
	longest := float64(p.MaxDelay)
	d := float64(p.BaseDelay)
	for range n - 1 {
		if d *= p.Coefficient; !(d < longest) {
			return p.MaxDelay
		}
	}
	if !(d < longest) {
		return p.MaxDelay
	}
	return time.Duration(d)
}

// JitteredDelay returns the wait after the given attempt of a run, with up to Jitter
// of it added or subtracted, between 0 and MaxDelay. It depends on the policy, the
// run's id and the attempt only, so that a repeated decision has the same result.
func (p Policy) JitteredDelay(seed [16]byte, attemptCount int) time.Duration {
	return p.Normalize().jittered(seed, attemptCount)
}

func (p Policy) jittered(seed [16]byte, attemptCount int) time.Duration {
	d := p.delay(attemptCount)
	if p.Jitter == 0 {
		return d
	}
	shifted := float64(d) * (1 + p.Jitter*spread(seed, attemptCount))
	switch {
	case !(shifted > 0):
		return 0
	case !(shifted < float64(p.MaxDelay)):
		return p.MaxDelay
	}
	return time.Duration(shifted)
}

// spread returns a number from -1 up to 1, evenly distributed.
func spread(seed [16]byte, attemptCount int) float64 {
	var in [24]byte
	copy(in[:16], seed[:])
	binary.BigEndian.PutUint64(in[16:], uint64(max(attemptCount, 1)))
	sum := sha256.Sum256(in[:])
	const steps = 1 << 52
	return float64(binary.BigEndian.Uint64(sum[:8])>>11)/steps - 1
}

package main

import (
	"sync/atomic"
	"time"
)

// maxAttempts is the budget of every task in every system.
const maxAttempts = 3

// baseDelay is the wait after the first attempt; the next one is twice as long.
const baseDelay = 25 * time.Millisecond

// delayAfter returns the wait after attempt k, counted from 1.
func delayAfter(k int) time.Duration { return baseDelay << (k - 1) }

// record has the times of each task by this process's monotonic clock. A task has one
// writer at a time. The record may be read after done is closed.
type record struct {
	base  time.Time
	tasks []history

	left          atomic.Int64
	extraAttempts atomic.Int64 // attempts over the budget and second ends; must stay 0
	done          chan struct{}
}

// history holds times since the record's base.
type history struct {
	submitted, ended time.Duration
	began, returned  [maxAttempts]time.Duration
	over             atomic.Bool
}

func newRecord(n int) *record {
	r := &record{base: time.Now(), tasks: make([]history, n), done: make(chan struct{})}
	r.left.Store(int64(n))
	if n == 0 {
		close(r.done)
	}
	return r
}

func (r *record) now() time.Duration { return time.Since(r.base) }

func (r *record) submitting(i int) { r.tasks[i].submitted = r.now() }

// began records the start of attempt k of task i, counted from 1.
func (r *record) began(i, k int) {
	if k < 1 || k > maxAttempts {
		r.extraAttempts.Add(1)
		return
	}
	r.tasks[i].began[k-1] = r.now()
}

func (r *record) returned(i, k int) {
	if k >= 1 && k <= maxAttempts {
		r.tasks[i].returned[k-1] = r.now()
	}
}

// ended records that the end of task i is committed.
func (r *record) ended(i int) {
	if r.tasks[i].over.Swap(true) {
		r.extraAttempts.Add(1)
		return
	}
	r.tasks[i].ended = r.now()
	if r.left.Add(-1) == 0 {
		close(r.done)
	}
}

// latencies returns the times from submit to end, or from the start of the workers when
// that was later.
func (r *record) latencies(started time.Duration) []time.Duration {
	out := make([]time.Duration, len(r.tasks))
	for i := range r.tasks {
		h := &r.tasks[i]
		out[i] = h.ended - max(h.submitted, started)
	}
	return out
}

// pickups returns the times from submit to the first attempt.
func (r *record) pickups() []time.Duration {
	out := make([]time.Duration, len(r.tasks))
	for i := range r.tasks {
		out[i] = r.tasks[i].began[0] - r.tasks[i].submitted
	}
	return out
}

// clockResolution is the resolution of the times that recourse and the peers store. An
// attempt counts as early only if it is earlier by more.
const clockResolution = time.Microsecond

// gaps returns how much later than due each attempt but the first began. Due is when the
// attempt before it returned, plus its delay. early is the number of attempts before that.
func (r *record) gaps() (errors []time.Duration, early int) {
	for i := range r.tasks {
		h := &r.tasks[i]
		for k := 1; k < maxAttempts && h.began[k] > 0; k++ {
			e := h.began[k] - h.returned[k-1] - delayAfter(k)
			if e < -clockResolution {
				early++
			}
			errors = append(errors, e)
		}
	}
	return errors, early
}

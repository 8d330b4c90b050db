package pg

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Every row of many callers gets its own answer; no batch is too large or has two rows of
// one key.
func TestEveryRowIsAnsweredAndNoKeyTwiceInABatch(t *testing.T) {
	t.Parallel()
	type row struct{ key, n int }
	var flushed int
	var full bool
	b := NewBatcher(func(r row) int { return r.key }, func(rows []row) []Outcome[int] {
		if flushed += len(rows); len(rows) > maxBatch {
			t.Errorf("batch of %d rows", len(rows))
		}
		seen := map[int]bool{}
		out := make([]Outcome[int], len(rows))
		for i, r := range rows {
			full = full || len(rows) == maxBatch
			if seen[r.key] {
				t.Errorf("key %d twice in a batch", r.key)
			}
			seen[r.key] = true
			out[i].Value = r.n
		}
		return out
	})
	// Fewer, as many, and more callers than end the lingering, and than fit in a batch.
	const each = 40
	var total int
	for _, callers := range []int{1, 2, lingerMinRows, lingerMaxRows - 1, lingerMaxRows, lingerMaxRows + 1, 3 * maxBatch} {
		total += callers * each
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for n := range each {
					want := c*each + n
					if got, err := b.Do(row{want % 601, want}); err != nil || got != want {
						t.Errorf("answer of row %d: %d, %v", want, got, err)
					}
				}
			})
		}
		all.Wait()
	}
	b.Close()
	if flushed != total || !full {
		t.Errorf("flushed %d rows, want %d; a full batch: %t", flushed, total, full)
	}
	if _, err := b.Do(row{}); !errors.Is(err, ErrClosed) {
		t.Errorf("do after close: %v", err)
	}
}

// A flusher lingers until as many rows are queued as in the fullest recent batch, or until
// its time is over.
func TestLingeringEndsWhenEnoughRowsWait(t *testing.T) {
	for _, c := range []struct {
		of       string
		batches  []int
		rows     int
		lingered time.Duration
	}{
		{"as many as in the last batch", []int{8}, 8, 0},
		{"one fewer", []int{8}, 7, lingerTime},
		{"as many as in an earlier batch", []int{20, 8}, 20, 0},
		{"fewer than in an earlier batch", []int{20, 8}, 19, lingerTime},
		{"enough for a commit, though batches were fuller", []int{maxBatch}, lingerMaxRows, 0},
		{"fewer than enough for a commit", []int{maxBatch}, lingerMaxRows - 1, lingerTime},
		{"the peak of a full batch has decayed", append([]int{maxBatch}, slices.Repeat([]int{9}, 4*peakDecayBatches)...), 9, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &batcher[int, int, int]{wake: make(chan struct{}, 1), queue: make([]waiter[int, int], c.rows)}
			for _, n := range c.batches {
				b.recordSize(n)
			}
			b.wakeFlusher() // like the first of the rows
			begin := time.Now()
			b.linger()
			if lingered := time.Since(begin); lingered != c.lingered {
				t.Errorf("%s: lingered for %s", c.of, lingered)
			}
		})
	}
}

// The row that reaches the target ends the lingering.
func TestTheLastOfEnoughRowsEndsTheLingering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher[int, int, int]{wake: make(chan struct{}, 1)}
		const enough = 8
		b.recordSize(enough)
		begin, late := time.Now(), lingerTime/4
		var all sync.WaitGroup
		for n := range enough {
			all.Go(func() {
				if n == 0 {
					<-time.After(late) // of the test's own clock
				}
				if _, err := b.Do(n); err != nil {
					t.Error(err)
				}
			})
		}
		b.linger()
		if lingered := time.Since(begin); lingered != late {
			t.Errorf("lingered for %s, the last row came after %s", lingered, late)
		}
		for _, w := range b.queue {
			w.reply <- Outcome[int]{}
		}
		all.Wait()
	})
}

// Rows queued before close are written.
func TestAClosedBatcherHasWrittenWhatItWasGiven(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}), make(chan struct{})
	var flushed []int
	b := NewBatcher(func(n int) int { return n }, func(rows []int) []Outcome[int] {
		if len(flushed) == 0 {
			close(begun)
			<-let
		}
		flushed = append(flushed, rows...)
		return make([]Outcome[int], len(rows))
	})
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := b.Do(0); err != nil {
			t.Error(err)
		}
	})
	<-begun
	const more = 2 * lingerMaxRows
	var accepted atomic.Int64
	for n := range more {
		all.Go(func() {
			switch _, err := b.Do(n + 1); {
			case err == nil:
				accepted.Add(1)
			case !errors.Is(err, ErrClosed):
				t.Error(err)
			}
		})
	}
	for b.(*batcher[int, int, int]).queued() == 0 {
		runtime.Gosched()
	}
	closed := make(chan struct{})
	go func() { b.Close(); close(closed) }()
	close(let)
	<-closed
	all.Wait()
	if n := int(accepted.Load()); len(flushed) != n+1 || n == 0 {
		t.Errorf("flushed %d rows, answered %d callers", len(flushed), n+1)
	}
}

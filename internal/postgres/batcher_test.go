package postgres

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Every row of many callers is answered with its own answer; no batch is too large,
// and none has two rows of one key.
func TestEveryRowIsAnsweredAndNoKeyTwiceInABatch(t *testing.T) {
	t.Parallel()
	type row struct{ key, n int }
	var flushed int
	b := newBatcher(func(r row) int { return r.key }, func(rows []row) []answer[int] {
		if flushed += len(rows); len(rows) > maxBatch {
			t.Errorf("a batch of %d rows", len(rows))
		}
		seen := map[int]bool{}
		out := make([]answer[int], len(rows))
		for i, r := range rows {
			if seen[r.key] {
				t.Errorf("key %d is twice in a batch", r.key)
			}
			seen[r.key] = true
			out[i].value = r.n
		}
		return out
	})
	// Fewer, as many, and more callers than end the lingering, and than fit.
	const each = 40
	var total int
	for _, callers := range []int{1, 2, crowd, worthwhile - 1, worthwhile, worthwhile + 1, 3 * maxBatch} {
		total += callers * each
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for n := range each {
					want := c*each + n
					if got, err := b.do(row{want % 97, want}); err != nil || got != want {
						t.Errorf("row %d was answered %d, %v", want, got, err)
					}
				}
			})
		}
		all.Wait()
	}
	b.close()
	if flushed != total {
		t.Errorf("%d rows were flushed, want %d", flushed, total)
	}
	if _, err := b.do(row{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after the close: %v", err)
	}
}

// A flusher that lingers goes on when as many rows wait as in the fullest batch of
// late, and not before its time when fewer do.
func TestLingeringEndsWhenEnoughRowsWait(t *testing.T) {
	t.Parallel()
	b := &batcher[int, int, int]{wake: make(chan struct{}, 1)}
	for _, c := range []struct {
		of       string
		batches  []int
		rows     int
		lingered bool
	}{
		{"as many as the last batch had", []int{8}, 8, false},
		{"one less", []int{8}, 7, true},
		{"as a batch before the last had", []int{20, 8}, 20, false},
		{"fewer than it", []int{20, 8}, 19, true},
		{"what is worth a commit, though batches were fuller", []int{maxBatch}, worthwhile, false},
		{"less", []int{maxBatch}, worthwhile - 1, true},
		{"what batches had since a full one is forgotten", append([]int{maxBatch}, slices.Repeat([]int{9}, 4*forgetting)...), 9, false},
	} {
		b.fullest, b.queue = 0, make([]waiter[int, int], c.rows)
		for _, n := range c.batches {
			b.note(n)
		}
		b.wake <- struct{}{} // as a row does; whoever lingers hears it, and waits on
		b.linger()
		if lingered := len(b.wake) == 0; lingered != c.lingered {
			t.Errorf("%s: lingered %t", c.of, lingered)
		}
		b.nudge()
		<-b.wake
	}
}

// What was handed over before the close is written.
func TestAClosedBatcherHasWrittenWhatItWasGiven(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}), make(chan struct{})
	var flushed []int
	b := newBatcher(func(n int) int { return n }, func(rows []int) []answer[int] {
		if len(flushed) == 0 {
			close(begun)
			<-let
		}
		flushed = append(flushed, rows...)
		return make([]answer[int], len(rows))
	})
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := b.do(0); err != nil {
			t.Error(err)
		}
	})
	<-begun
	const more = 2 * worthwhile
	var accepted atomic.Int64
	for n := range more {
		all.Go(func() {
			switch _, err := b.do(n + 1); {
			case err == nil:
				accepted.Add(1)
			case !errors.Is(err, ErrClosed):
				t.Error(err)
			}
		})
	}
	for b.waiting() == 0 {
		runtime.Gosched()
	}
	closed := make(chan struct{})
	go func() { b.close(); close(closed) }()
	close(let)
	<-closed
	all.Wait()
	if n := int(accepted.Load()); len(flushed) != n+1 || n == 0 {
		t.Errorf("%d rows were flushed, %d callers were told so", len(flushed), n+1)
	}
}

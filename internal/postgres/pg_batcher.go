package postgres

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A batcher lets concurrent callers share one statement and one commit. It has
// one flusher; while that is busy, rows gather. Lone rows wait for nobody: only after
// a batch of several does the flusher linger for more, until as many wait as in the
// fullest batch of late, for then probably everybody does, or as are worth a commit.
// If it lingered longer, the callers and the server would work in turns instead of
// at once.
//
// No batch holds two rows of one key: of several rows that match one target an
// UPDATE would apply one and drop the others without a word.
type batcher[T any, K comparable, R any] struct {
	key   func(T) K
	flush func([]T) []answer[R]

	mu           sync.Mutex
	queue        []waiter[T, R]
	closed       bool
	lingerTarget int // rows in the queue that end the lingering
	wake         chan struct{}
	done         chan struct{}
	sizes        sizeHistogram

	// Of the flusher alone:
	lastRows int     // rows of the last batch
	peakRows float64 // rows of the fullest batch of late
}

type answer[R any] struct {
	value R
	err   error
}

type waiter[T, R any] struct {
	row   T
	reply chan answer[R]
}

const (
	maxBatch         = 256
	lingerMinRows    = 4  // rows in the last batch that make lingering pay
	lingerMaxRows    = 32 // rows that are worth a commit
	peakDecayBatches = 64 // batches after which most of how full one was is forgotten
	lingerTime       = 2 * time.Millisecond
)

func newBatcher[T any, K comparable, R any](key func(T) K, flush func([]T) []answer[R]) *batcher[T, K, R] {
	b := &batcher[T, K, R]{key: key, flush: flush, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go b.run()
	return b
}

// do hands a row over and waits for what became of it, however long that takes:
// a row that is handed over may be committed, and to walk away from it would
// make a written move look like a failed one.
func (b *batcher[T, K, R]) do(row T) (R, error) {
	w := waiter[T, R]{row, make(chan answer[R], 1)}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		var zero R
		return zero, ErrClosed
	}
	b.queue = append(b.queue, w)
	wakes := len(b.queue) == 1 || len(b.queue) == b.lingerTarget
	b.mu.Unlock()
	if wakes {
		b.wakeFlusher()
	}
	a := <-w.reply
	return a.value, a.err
}

func (b *batcher[T, K, R]) wakeFlusher() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// close writes what was handed over, then stops the flusher.
func (b *batcher[T, K, R]) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wakeFlusher()
	<-b.done
}

func (b *batcher[T, K, R]) run() {
	defer close(b.done)
	for {
		if b.lastRows >= lingerMinRows {
			b.linger()
		}
		batch, closed := b.takeBatch()
		if len(batch) == 0 {
			if closed {
				return
			}
			<-b.wake
			continue
		}
		b.sizes.record(len(batch))
		rows := make([]T, len(batch))
		for i, w := range batch {
			rows[i] = w.row
		}
		for i, a := range b.flush(rows) {
			batch[i].reply <- a
		}
	}
}

// linger waits for more rows.
func (b *batcher[T, K, R]) linger() {
	timeout := time.NewTimer(lingerTime)
	defer timeout.Stop()
	for b.queued() < b.lingerTarget {
		select {
		case <-b.wake:
		case <-timeout.C:
			return
		}
	}
}

func (b *batcher[T, K, R]) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// takeBatch removes up to maxBatch rows of different keys from the queue, in order.
func (b *batcher[T, K, R]) takeBatch() (batch []waiter[T, R], closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := make(map[K]struct{}, min(len(b.queue), maxBatch))
	rest := b.queue[:0:0]
	for i, w := range b.queue {
		if len(batch) == maxBatch {
			rest = append(rest, b.queue[i:]...)
			break
		}
		k := b.key(w.row)
		if _, duplicate := seen[k]; duplicate {
			rest = append(rest, w)
			continue
		}
		seen[k] = struct{}{}
		batch = append(batch, w)
	}
	b.queue = rest
	if len(batch) > 0 {
		b.recordSize(len(batch))
	}
	return batch, b.closed
}

// recordSize learns from a batch how many rows are enough for the next.
func (b *batcher[T, K, R]) recordSize(rows int) {
	b.lastRows = rows
	b.peakRows = max(float64(rows), b.peakRows*(1-1./peakDecayBatches))
	b.lingerTarget = min(lingerMaxRows, int(math.Ceil(b.peakRows)))
}

// BatchSizeBuckets are the upper bounds, in rows, that Batches counts by. No batch is
// larger than the last.
var BatchSizeBuckets = [...]int{1, 2, 4, 8, 16, 32, 64, 128, maxBatch}

// BatchStats tells how many rows shared a commit, since the journal was opened.
type BatchStats struct {
	Commits [len(BatchSizeBuckets)]uint64 // by bound: those larger than the bound before
	Rows    uint64
}

// BatchStats counts the batches of moves of existing cases, and of new cases.
func (j *Journal) BatchStats() (moves, opens BatchStats) {
	return j.transitions.sizes.stats(), j.opens.sizes.stats()
}

// sizeHistogram counts batches as they are flushed.
type sizeHistogram struct {
	commits [len(BatchSizeBuckets)]atomic.Uint64
	rows    atomic.Uint64
}

func (s *sizeHistogram) record(rows int) {
	i := 0
	for BatchSizeBuckets[i] < rows {
		i++
	}
	s.commits[i].Add(1)
	s.rows.Add(uint64(rows))
}

func (s *sizeHistogram) stats() BatchStats {
	out := BatchStats{Rows: s.rows.Load()}
	for i := range s.commits {
		out.Commits[i] = s.commits[i].Load()
	}
	return out
}

package pg

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Batcher lets concurrent callers share one statement and one commit. It has one goroutine that flushes.
// While that is busy, rows queue up. A lone row is flushed immediately. Only after a batch of at least lingerMinRows
// does the goroutine linger, until lingerTarget rows are queued or lingerTime is over. lingerTarget is the
// size of the fullest recent batch, but at most lingerMaxRows: with so many rows, probably all callers have
// queued theirs. If it lingered longer, the callers and the server would work in turns instead of concurrently.
//
// No batch holds two rows of one key: of several rows that match one target an UPDATE would
// apply one and drop the others silently.
//
// It is an interface for the compiler: the methods of a generic struct are compiled again in each
// package whose types lead to it.
type Batcher[T, R any] interface {
	// Do queues a row and blocks until its outcome is known. It takes no context: a queued row
	// may be committed, and to return early would make a written transition look like a failed
	// one.
	Do(row T) (R, error)
	// Close flushes the queued rows, then stops the flusher. A later Do returns ErrClosed.
	Close()
	// Stats counts the batches since the batcher was made.
	Stats() BatchStats
}

// batcher implements Batcher; K is the key of a row.
type batcher[T any, K comparable, R any] struct {
	key   func(T) K
	flush func([]T) []Outcome[R]

	mu           sync.Mutex
	queue        []waiter[T, R]
	closed       bool
	lingerTarget int // rows in the queue that end the lingering
	wake         chan struct{}
	done         chan struct{}
	sizes        sizeHistogram

	// Used by the flusher only:
	lastRows int     // rows of the last batch
	peakRows float64 // rows of the fullest recent batch, decayed
}

// Outcome is what becomes of a row: the value that the flush returned for it, or an error.
type Outcome[R any] struct {
	Value R
	Err   error
}

type waiter[T, R any] struct {
	row   T
	reply chan Outcome[R]
}

const (
	maxBatch         = 256
	lingerMinRows    = 4  // rows in the last batch from which lingering pays
	lingerMaxRows    = 32 // rows that are enough for a commit
	peakDecayBatches = 64 // batches after which the peak has decayed to about a third
	lingerTime       = 2 * time.Millisecond
)

// NewBatcher returns a batcher that writes rows by flush. No batch has two rows of one key. flush is called
// by one goroutine, returns one outcome for each row, in their order, and must not panic.
func NewBatcher[T any, K comparable, R any](key func(T) K, flush func([]T) []Outcome[R]) Batcher[T, R] {
	b := &batcher[T, K, R]{key: key, flush: flush, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go b.run()
	return b
}

func (b *batcher[T, K, R]) Do(row T) (R, error) {
	w := waiter[T, R]{row, make(chan Outcome[R], 1)}
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
	return a.Value, a.Err
}

func (b *batcher[T, K, R]) wakeFlusher() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *batcher[T, K, R]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wakeFlusher()
	<-b.done
}

func (b *batcher[T, K, R]) Stats() BatchStats { return b.sizes.stats() }

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

// linger blocks until enough rows are queued, at most lingerTime.
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

// recordSize adapts lingerTarget to the size of a batch.
func (b *batcher[T, K, R]) recordSize(rows int) {
	b.lastRows = rows
	b.peakRows = max(float64(rows), b.peakRows*(1-1./peakDecayBatches))
	b.lingerTarget = min(lingerMaxRows, int(math.Ceil(b.peakRows)))
}

// BatchSizeBuckets are the upper bounds of the buckets of BatchStats, in rows. No batch is
// larger than the last.
var BatchSizeBuckets = [...]int{1, 2, 4, 8, 16, 32, 64, 128, maxBatch}

// BatchStats counts the batches of a Batcher by size, since it was made.
type BatchStats struct {
	Batches [len(BatchSizeBuckets)]uint64 // by bucket, not cumulative
	Rows    uint64
}

// Add returns the sum of the counts of two batchers.
func (s BatchStats) Add(other BatchStats) BatchStats {
	s.Rows += other.Rows
	for i := range s.Batches {
		s.Batches[i] += other.Batches[i]
	}
	return s
}

// sizeHistogram counts batches by size. It is safe for concurrent use.
type sizeHistogram struct {
	batches [len(BatchSizeBuckets)]atomic.Uint64
	rows    atomic.Uint64
}

func (s *sizeHistogram) record(rows int) {
	i := 0
	for BatchSizeBuckets[i] < rows {
		i++
	}
	s.batches[i].Add(1)
	s.rows.Add(uint64(rows))
}

func (s *sizeHistogram) stats() BatchStats {
	out := BatchStats{Rows: s.rows.Load()}
	for i := range s.batches {
		out.Batches[i] = s.batches[i].Load()
	}
	return out
}

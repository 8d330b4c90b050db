package postgres

import "sync/atomic"

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

package postgres

import "sync/atomic"

// BatchBounds are the upper bounds, in rows, that Batches counts by. No batch is
// larger than the last.
var BatchBounds = [...]int{1, 2, 4, 8, 16, 32, 64, 128, maxBatch}

// Batches tells how many rows shared a commit, since the journal was opened.
type Batches struct {
	Commits [len(BatchBounds)]uint64 // by bound: those larger than the bound before
	Rows    uint64
}

// Batches counts the batches of moves of existing cases, and of new cases.
func (j *Journal) Batches() (moves, opens Batches) {
	return j.moves.sizes.counts(), j.opens.sizes.counts()
}

// sizes counts batches as they are flushed.
type sizes struct {
	commits [len(BatchBounds)]atomic.Uint64
	rows    atomic.Uint64
}

func (s *sizes) note(rows int) {
	i := 0
	for BatchBounds[i] < rows {
		i++
	}
	s.commits[i].Add(1)
	s.rows.Add(uint64(rows))
}

func (s *sizes) counts() Batches {
	out := Batches{Rows: s.rows.Load()}
	for i := range s.commits {
		out.Commits[i] = s.commits[i].Load()
	}
	return out
}

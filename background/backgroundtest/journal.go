package backgroundtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// ErrSpurious is the failure without a reason. Whether the write took effect is
// not told.
var ErrSpurious = errors.New("backgroundtest: the connection broke")

// Journal is a Ledger in memory, and the place where families record their moves.
// It is safe for concurrent use.
type Journal struct {
	mu       sync.Mutex
	rand     *rand.Rand
	runs     map[background.RunID]background.Run
	moves    map[background.RunID][]background.Move
	changed  chan struct{} // closed and replaced at every change
	down     error         // what every write and read fails with
	calm     bool          // no spurious failures
	lifetime time.Duration // of operation keys; 0 is for ever
	sessions map[background.SessionID]background.Session
	breakers map[background.Target]background.Breaker
	ahead    time.Duration // of the machine's clock
	server   string
}

// NewJournal returns an empty journal whose spurious failures depend on the seed.
func NewJournal(seed uint64) *Journal {
	return &Journal{
		rand:     rand.New(rand.NewPCG(seed, seed)),
		runs:     make(map[background.RunID]background.Run),
		moves:    make(map[background.RunID][]background.Move),
		changed:  make(chan struct{}),
		sessions: make(map[background.SessionID]background.Session),
		breakers: make(map[background.Target]background.Breaker),
	}
}

// SetKeyLifetime says for how long after the first call an unknown outcome may be
// called again.
func (j *Journal) SetKeyLifetime(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lifetime = d
}

// SetCalm turns spurious failures off or on, for tests of timing.
func (j *Journal) SetCalm(calm bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calm = calm
}

// SetDown makes everything fail with err, until it is called with nil.
func (j *Journal) SetDown(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.down = err
}

// Submit adds a run as it is, with an id, an operation key and a due time when it has none.
func (j *Journal) Submit(r background.Run) background.Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.ID.IsZero() {
		r.ID = background.RunID(uuid.Must(uuid.NewV7()))
	}
	if r.Operation == ([32]byte{}) {
		copy(r.Operation[:], r.ID[:])
	}
	if r.State == "" {
		r.State = background.Pending
	}
	if r.DueAt.IsZero() {
		r.DueAt = time.Now().UTC().Truncate(time.Microsecond)
	}
	j.runs[r.ID] = r
	j.announce()
	return r
}

// AskCancel records a request to cancel a run that is running.
func (j *Journal) AskCancel(id background.RunID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.runs[id]
	r.CancelAsked, r.LastMove = true, uuid.New()
	j.runs[id] = r
	j.announce()
}

// Record applies a move. It answers a move that was the run's last one as if it
// had just been applied.
func (j *Journal) Record(m background.Move) (background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	trouble := j.trouble()
	if trouble == before {
		return background.Run{}, j.cause()
	}
	now, ok := j.runs[m.Run.ID]
	if !ok {
		return background.Run{}, background.ErrNotFound
	}
	if now.LastMove == m.ID {
		return now, nil
	}
	if m.Fact == receipts.AttemptStarted && j.expired(now, m.At) {
		return now, background.ErrKeyExpired
	}
	if s, known := j.sessions[m.Session]; m.Fact == receipts.AttemptStarted && (!known || s.Lost) {
		return now, background.ErrSessionLost
	}
	if m.Fact == receipts.AttemptStarted && now.State.Waiting() && j.braked(now) {
		return now, background.ErrBraked
	}
	after, err := m.Apply(now)
	if err == nil {
		j.runs[after.ID] = after
		j.moves[after.ID] = append(j.moves[after.ID], m)
		j.announce()
	}
	if trouble == behind {
		return background.Run{}, ErrSpurious
	}
	return after, err
}

func (j *Journal) expired(r background.Run, at time.Time) bool {
	unknown := r.Class == background.Unknown || r.UnknownOpen > 0
	return j.lifetime > 0 && unknown && r.State.Waiting() && at.Sub(r.FirstSentAt) >= j.lifetime
}

// When a write fails: not, before it took effect, or behind it.
const (
	never = iota
	before
	behind
)

func (j *Journal) trouble() int {
	switch {
	case j.down != nil:
		return before
	case j.calm:
		return never
	}
	switch j.rand.IntN(20) {
	case 0:
		return before
	case 1:
		return behind
	}
	return never
}

func (j *Journal) cause() error { return cmp.Or(j.down, ErrSpurious) }

func (j *Journal) announce() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// Find implements background.Ledger.
func (j *Journal) Find(_ context.Context, id background.RunID) (background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return background.Run{}, j.down
	}
	r, ok := j.runs[id]
	if !ok {
		return background.Run{}, background.ErrNotFound
	}
	return r, nil
}

// Waiting implements background.Ledger.
func (j *Journal) Waiting(_ context.Context, after background.Cursor, due time.Time, limit int) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var found []background.Run
	for _, r := range j.runs {
		if r.State.Waiting() && !j.braked(r) && !r.DueAt.After(due) && order(r.DueAt, r.ID, after.DueAt, after.ID) > 0 {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b background.Run) int { return order(a.DueAt, a.ID, b.DueAt, b.ID) })
	return found[:min(limit, len(found))], nil
}

func order(at time.Time, a background.RunID, bt time.Time, b background.RunID) int {
	return cmp.Or(at.Compare(bt), bytes.Compare(a[:], b[:]))
}

// Ring implements background.Ledger.
func (j *Journal) Ring(_ context.Context, runs []background.Run) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var raised []background.Run
	for _, seen := range runs {
		now := j.runs[seen.ID]
		if now.Bell != seen.Bell || !now.State.Live() {
			continue
		}
		now.Bell++
		j.runs[now.ID] = now
		raised = append(raised, now)
	}
	return raised, nil
}

// Run is a run as it is; the zero run when there is none.
func (j *Journal) Run(id background.RunID) background.Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[id]
}

// Moves are the moves of a run that took effect, in order.
func (j *Journal) Moves(id background.RunID) []background.Move {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.moves[id])
}

// Await returns the run once ok says so, or the run as it is when ctx ends.
func (j *Journal) Await(ctx context.Context, id background.RunID, ok func(background.Run) bool) (background.Run, error) {
	for {
		j.mu.Lock()
		r, changed := j.runs[id], j.changed
		j.mu.Unlock()
		if ok(r) {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

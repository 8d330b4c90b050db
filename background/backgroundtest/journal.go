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
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
)

// ErrInjected is the injected failure. The write may or may not have taken effect.
var ErrInjected = errors.New("backgroundtest: the connection broke")

// Journal is an in-memory background.Store that families record their transitions in. It is
// safe for concurrent use.
type Journal struct {
	*state
	sessionStore
	breakerStore
}

// state is what the parts of a Journal share. Its methods are called with the lock held.
type state struct {
	mu          sync.Mutex
	rand        *rand.Rand
	runs        map[background.RunID]background.Run
	transitions map[background.RunID][]background.Transition
	changed     chan struct{} // closed and replaced at every change
	down        error         // error of every read and write
	reliable    bool          // no injected failures
	keyLifetime time.Duration // of operation keys; 0 means unlimited
	sessions    map[background.SessionID]background.Session
	breakers    map[circuit.Scope]circuit.Breaker
	leases      map[background.RunID]lease.Lease
	leaseLimit  time.Duration // time limit of leased attempts
	clockOffset time.Duration // against the machine's clock
	server      string
}

// NewJournal returns an empty journal whose injected failures depend on the seed.
func NewJournal(seed uint64) *Journal {
	s := &state{
		rand:        rand.New(rand.NewPCG(seed, seed)),
		runs:        make(map[background.RunID]background.Run),
		transitions: make(map[background.RunID][]background.Transition),
		changed:     make(chan struct{}),
		sessions:    make(map[background.SessionID]background.Session),
		breakers:    make(map[circuit.Scope]circuit.Breaker),
		leases:      make(map[background.RunID]lease.Lease),
	}
	return &Journal{s, sessionStore{s}, breakerStore{s}}
}

// SetKeyLifetime sets how long after the first call a run of unknown outcome may be called
// again.
func (j *Journal) SetKeyLifetime(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keyLifetime = d
}

// SetReliable turns injected failures off or on, for tests of timing.
func (j *Journal) SetReliable(reliable bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reliable = reliable
}

// SetDown makes every read and write fail with err, until it is called with nil.
func (j *Journal) SetDown(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.down = err
}

// Submit adds a run, and sets its id, operation key, state and due time where they are zero.
func (j *Journal) Submit(r background.Run) background.Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.ID.IsZero() {
		r.ID = background.RunID(uuid.Must(uuid.NewV7()))
	}
	if r.Operation == ([32]byte{}) && !r.Remote {
		copy(r.Operation[:], r.ID[:])
	}
	if r.State == "" {
		r.State = background.Pending
	}
	if r.DueAt.IsZero() {
		r.DueAt = time.Now().UTC().Truncate(time.Microsecond)
	}
	j.runs[r.ID] = r
	j.notifyWaiters()
	return r
}

// RequestCancel records a request to cancel a running run.
func (j *Journal) RequestCancel(id background.RunID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.runs[id]
	r.CancelRequested, r.LastTransition = true, uuid.New()
	j.runs[id] = r
	j.notifyWaiters()
}

// Record applies a transition. For the run's last transition it returns the same answer again.
func (j *Journal) Record(tr background.Transition) (background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fault := j.pickFault()
	if fault == failBeforeWrite {
		return background.Run{}, j.faultErr()
	}
	now, ok := j.runs[tr.Run.ID]
	if !ok {
		return background.Run{}, background.ErrNotFound
	}
	if now.LastTransition == tr.ID {
		return now, nil
	}
	if tr.Subtype == receipts.AttemptStarted && j.expired(now, tr.At) {
		return now, background.ErrKeyExpired
	}
	if s, known := j.sessions[tr.Session]; tr.Subtype == receipts.AttemptStarted && tr.Lease == nil && (!known || s.Lost) {
		return now, background.ErrSessionLost
	}
	if tr.Subtype == receipts.AttemptStarted && now.State.Waiting() && j.blockedByBreaker(now) {
		return now, background.ErrBreakerOpen
	}
	after := now
	err := tr.Apply(&after)
	if err == nil {
		j.runs[after.ID] = after
		j.recordLease(tr, after)
		j.transitions[after.ID] = append(j.transitions[after.ID], tr)
		j.notifyWaiters()
	}
	if fault == failAfterWrite {
		return background.Run{}, ErrInjected
	}
	return after, err
}

// recordLease stores the lease of a claim, and removes it with the end of the attempt.
func (s *state) recordLease(tr background.Transition, after background.Run) {
	switch {
	case tr.Lease != nil:
		s.leases[after.ID] = *tr.Lease
	case after.State != background.Running:
		delete(s.leases, after.ID)
	}
}

func (s *state) expired(r background.Run, at time.Time) bool {
	unknown := r.Class == background.Unknown || r.UnknownOpen > 0
	return s.keyLifetime > 0 && unknown && r.State.Waiting() && at.Sub(r.FirstSentAt) >= s.keyLifetime
}

// When a write fails: never, before it took effect, or after.
const (
	noFault = iota
	failBeforeWrite
	failAfterWrite
)

func (s *state) pickFault() int {
	switch {
	case s.down != nil:
		return failBeforeWrite
	case s.reliable:
		return noFault
	}
	switch s.rand.IntN(20) {
	case 0:
		return failBeforeWrite
	case 1:
		return failAfterWrite
	}
	return noFault
}

func (s *state) faultErr() error { return cmp.Or(s.down, ErrInjected) }

func (s *state) notifyWaiters() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Find implements background.Store.
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

// DueRuns implements background.Store.
func (j *Journal) DueRuns(_ context.Context, after background.Cursor, due time.Time, limit int) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var found []background.Run
	for _, r := range j.runs {
		if r.State.Waiting() && !r.Remote && !j.blockedByBreaker(r) && !r.DueAt.After(due) && compareDue(r.DueAt, r.ID, after.DueAt, after.ID) > 0 {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b background.Run) int { return compareDue(a.DueAt, a.ID, b.DueAt, b.ID) })
	return found[:min(limit, len(found))], nil
}

func compareDue(at time.Time, a background.RunID, bt time.Time, b background.RunID) int {
	return cmp.Or(at.Compare(bt), bytes.Compare(a[:], b[:]))
}

// AdvanceNotifications implements background.Store.
func (j *Journal) AdvanceNotifications(_ context.Context, runs []background.Run) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var renewed []background.Run
	for _, seen := range runs {
		now := j.runs[seen.ID]
		if now.NotificationNumber != seen.NotificationNumber || !now.State.Live() {
			continue
		}
		now.NotificationNumber++
		j.runs[now.ID] = now
		renewed = append(renewed, now)
	}
	return renewed, nil
}

// Run returns a run; the zero run when it does not exist.
func (j *Journal) Run(id background.RunID) background.Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.runs[id]
}

// Transitions returns the applied transitions of a run, in order.
func (j *Journal) Transitions(id background.RunID) []background.Transition {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.transitions[id])
}

// Await returns the run once ok returns true for it, or the run as it is when ctx ends.
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

// RunStatuses implements background.ArchiveStore.
func (j *Journal) RunStatuses(_ context.Context, ids []background.RunID) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var out []background.Run
	for _, id := range ids {
		if r, ok := j.runs[id]; ok {
			out = append(out, r)
		}
	}
	return out, nil
}

// Family is a background.Family made of functions. Without LookupFunc every lookup is Unknown.
type Family struct {
	Journal      *Journal
	FamilyName   string        // the family's name
	AttemptLimit time.Duration // limit of one attempt
	HandleFunc   func(ctx context.Context, a background.Attempt) background.Result
	LookupFunc   func(ctx context.Context, r background.Run) background.Result
}

// Name implements background.Family.
func (f *Family) Name() string { return f.FamilyName }

// TimeLimit implements background.Family.
func (f *Family) TimeLimit() time.Duration { return f.AttemptLimit }

// Handle implements background.Family.
func (f *Family) Handle(ctx context.Context, a background.Attempt) background.Result {
	return f.HandleFunc(ctx, a)
}

// Lookup implements background.Family.
func (f *Family) Lookup(ctx context.Context, r background.Run) background.Result {
	if f.LookupFunc == nil {
		return background.Result{Class: background.Unknown, Failure: &background.Failure{Type: "lookup.none"}}
	}
	return f.LookupFunc(ctx, r)
}

// Record implements background.Family.
func (f *Family) Record(_ context.Context, tr background.Transition) (background.Run, error) {
	return f.Journal.Record(tr)
}

package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// What keeps a run from being called, in Status.WaitsFor. Of several things the one that
// has to change first is named.
const (
	WaitsForBreaker     = "circuit_breaker"   // a circuit breaker pauses it: PausedBy names it
	WaitsForCalls       = "outstanding_calls" // so many calls of it have not come back that no more are made
	WaitsForTime        = "next_attempt"      // it is not due yet: NextRetryAt
	WaitsForFamily      = "family_not_served" // no running process has its family
	WaitsForQueue       = "queue_not_served"  // no running process serves its queue
	WaitsForTarget      = "target_not_called" // no running process calls its escrow service
	WaitsForClock       = "clock"             // the processes that serve its queue claim nothing: their clocks are off
	WaitsForClaims      = "old_claims"        // the processes that serve its queue pause: their last claims grew too old
	WaitsForServers     = "servers"           // the processes that serve its queue claim nothing: their servers are not those of this database, or refuse writes
	WaitsForRedis       = "redis_unreachable" // this process can't reach Redis, so perhaps nobody is notified
	WaitsForPausedQueue = "queue_paused"      // somebody paused its queue in asynq
	WaitsForCaseLock    = "case_locked"       // another transaction, as that of a caller, holds its case
	WaitsForTurn        = "turn"              // nothing: it stands in its queue, behind the runs that Ahead counts
)

const (
	maxAheadCounted    = 10_000           // counted before a run in its queue
	sessionTimeout     = 30 * time.Second // a process of which no beat came for so long does not run
	deliveryGrace      = 2 * time.Second  // for so long a run that is due is not asked about
	queuePausedTimeout = 2 * time.Second  // how long Redis is asked whether a queue is paused
)

// addWaits adds to the status of a run that waits what it waits for.
func (s *Service) addWaits(ctx context.Context, st *Status, r background.Run) error {
	if !r.State.Waiting() {
		return nil
	}
	if err := s.addPausingBreakers(ctx, st, r); err != nil || st.WaitsFor != "" {
		return err
	}
	now := s.now()
	switch {
	case len(r.OutstandingCalls) >= background.MaxOutstandingCalls:
		st.setWait(WaitsForCalls, "%d calls of it have not come back", len(r.OutstandingCalls))
		return nil
	case r.DueAt.After(now):
		st.setWait(WaitsForTime, "its next attempt is due at %s", r.DueAt.UTC().Format(time.RFC3339Nano))
		return nil
	}
	sessions, err := s.running(ctx)
	if err != nil {
		return err
	}
	st.waitsForProcess(r, sessions)
	if st.waitsForTarget(r, sessions); st.WaitsFor != "" {
		return nil
	}
	if s.waitsForRedis(ctx, st, r); st.WaitsFor != "" {
		return nil
	}
	if now.Sub(r.DueAt) > deliveryGrace {
		locked, err := s.journal.CaseIsLocked(ctx, r.Case)
		if err != nil {
			return err
		}
		if locked {
			st.setWait(WaitsForCaseLock, "another transaction holds its case, as one of a caller that is still open")
			return nil
		}
	}
	if st.Ahead, err = s.journal.RunsAhead(ctx, r, maxAheadCounted); err != nil {
		return err
	}
	st.setWait(WaitsForTurn, "it is due, with %s before it in queue %s", runCountText(st.Ahead, maxAheadCounted), r.Queue)
	return nil
}

// running lists the sessions of processes that run.
func (s *Service) running(ctx context.Context) ([]background.Session, error) {
	if err := s.manager.MeasureClock(ctx); err != nil { // else one whose clock is off finds nobody
		return nil, err
	}
	sessions, err := s.journal.Sessions(ctx)
	since := s.now().Add(-sessionTimeout)
	return slices.DeleteFunc(sessions, func(one background.Session) bool { return one.Lost || one.BeatAt.Before(since) }), err
}

func (st *Status) setWait(what, because string, args ...any) {
	st.WaitsFor, st.WaitsBecause = what, fmt.Sprintf(because, args...)
}

// waitsForProcess tells if no process takes the run from its queue, or none of those that
// would may claim it.
func (st *Status) waitsForProcess(r background.Run, sessions []background.Session) {
	var barred []string
	family, serving := servedBy(r.Family, sessions), 0
	for _, s := range sessions {
		if !slices.Contains(s.Queues, r.Queue) {
			continue
		}
		serving++
		if s.ClaimsBlockedBy != "" {
			barred = append(barred, s.ClaimsBlockedBy)
		}
	}
	switch {
	case !family:
		st.setWait(WaitsForFamily, "no running process has the family %s", r.Family)
	case serving == 0:
		st.setWait(WaitsForQueue, "no running process serves queue %s", r.Queue)
	case len(barred) < serving:
	case slices.Contains(barred, background.BlockedByServers):
		st.setWait(WaitsForServers, "the %d processes that serve queue %s claim nothing: their readiness says what is wrong with their servers", serving, r.Queue)
	case slices.Contains(barred, background.BlockedByClock):
		st.setWait(WaitsForClock, "the %d processes that serve queue %s claim nothing: their clocks are off", serving, r.Queue)
	default:
		st.setWait(WaitsForClaims, "the %d processes that serve queue %s claim nothing for a while: their last claims grew too old to be called on", serving, r.Queue)
	}
}

// servedBy reports whether a running process has a family.
func servedBy(family string, sessions []background.Session) bool {
	return slices.ContainsFunc(sessions, func(s background.Session) bool {
		return slices.ContainsFunc(s.Queues, func(q string) bool { return strings.HasPrefix(q, family+":") })
	})
}

// waitsForRedis tells what Redis says of the queue. A process without Redis can't tell.
func (s *Service) waitsForRedis(ctx context.Context, st *Status, r background.Run) {
	ctx, cancel := context.WithTimeout(ctx, queuePausedTimeout)
	defer cancel()
	switch paused, err := s.manager.QueueIsPaused(ctx, r.Queue); {
	case errors.Is(err, ErrNoRedis):
	case err != nil:
		st.setWait(WaitsForRedis, "Redis can't be reached from here: %v", err)
	case paused:
		st.setWait(WaitsForPausedQueue, "somebody paused queue %s in asynq", r.Queue)
	}
}

func runCountText(n, most int) string {
	if n >= most {
		return fmt.Sprintf("%d runs or more", most)
	}
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}

// Unserved is how many live runs are in a queue that no process serves.
type Unserved = postgres.Unserved

// Unserved lists the queues of live runs of all tenants that no running process serves:
// nobody executes these until one does. It reads every live run.
func (s *Service) Unserved(ctx context.Context) ([]Unserved, error) {
	if err := s.manager.MeasureClock(ctx); err != nil {
		return nil, err
	}
	return s.journal.Unserved(ctx, s.now().Add(-sessionTimeout))
}

// servedFamilies remembers for a moment which families running processes have, so that a
// list of letters can be judged by it.
type servedFamilies struct {
	local   map[string]bool // of this process, whether it runs or not
	running func(context.Context) ([]background.Session, error)

	mu    sync.Mutex
	seen  []background.Session
	err   error
	until time.Time // on this machine's clock
}

// servedFamiliesTTL is for how long an answer holds, and how long it is waited for.
const servedFamiliesTTL = time.Second

// mayBeServed reports whether anybody may execute runs of a family: it is this process's, or that
// of one that runs. Where that can't be read, somebody may.
func (f *servedFamilies) mayBeServed(family string) bool {
	if f.local[family] {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.After(f.until) {
		ctx, cancel := context.WithTimeout(context.Background(), servedFamiliesTTL)
		defer cancel()
		f.seen, f.err = f.running(ctx)
		f.until = now.Add(servedFamiliesTTL)
	}
	return f.err != nil || servedBy(family, f.seen)
}

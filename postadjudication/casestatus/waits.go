package casestatus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
)

// What blocks the next attempt of a waiting run, in Status.WaitsFor. If several things block it,
// this is the one that has to change first.
const (
	WaitsForBreaker     = "circuit_breaker"   // a circuit breaker pauses it: see PausedBy
	WaitsForCalls       = "outstanding_calls" // MaxOutstandingCalls of its calls have not returned
	WaitsForService     = "accepted"          // the escrow service accepted its call and has not ended it
	WaitsForTime        = "next_attempt"      // it is not due before NextRetryAt
	WaitsForFamily      = "family_not_served" // no running process has its family
	WaitsForQueue       = "queue_not_served"  // no running process serves its queue
	WaitsForTarget      = "target_not_called" // no running process calls its escrow service
	WaitsForClock       = "clock"             // the processes that serve its queue claim nothing: their clocks are off
	WaitsForClaims      = "old_claims"        // the processes that serve its queue pause: their last claims grew too old
	WaitsForServers     = "servers"           // the processes that serve its queue claim nothing: their servers do not match this database, or refuse writes
	WaitsForRedis       = "redis_unreachable" // this process can't reach Redis, so perhaps no process is notified
	WaitsForPausedQueue = "queue_paused"      // a person paused its queue in asynq
	WaitsForCaseLock    = "case_locked"       // another transaction, such as a caller's, holds its case
	WaitsForOwner       = "receipt_removal"   // its case has a receipt beyond its head, which the owner of the schema has to remove
	WaitsForWorker      = "remote_worker"     // a remote worker has to fetch it from its queue
	WaitsForKey         = "operation_key"     // its operation key may be forgotten during an attempt, so no remote worker is given it
	WaitsForTurn        = "turn"              // nothing blocks it: Ahead runs of its queue are before it
)

const (
	maxAheadCounted    = 10_000          // runs before a run in its queue, as far as they are counted
	deliveryGrace      = 2 * time.Second // how long a run may be due before its case's lock is checked
	queuePausedTimeout = 2 * time.Second // of asking Redis whether a queue is paused
)

// addWaits sets what a waiting run waits for.
func (s *Reader) addWaits(ctx context.Context, st *Status, r background.Run) error {
	if !r.State.Waiting() {
		return nil
	}
	if err := s.addPausingBreakers(ctx, st, r); err != nil || st.WaitsFor != "" {
		return err
	}
	now := s.Applier.Now()
	switch {
	case len(r.OutstandingCalls) >= background.MaxOutstandingCalls:
		st.setWait(WaitsForCalls, "%d of its calls have not returned", len(r.OutstandingCalls))
		return nil
	case r.AwaitsEnd() && r.DueAt.After(now):
		return s.addAcceptedWait(ctx, st, r)
	case r.DueAt.After(now):
		st.setWait(WaitsForTime, "its next attempt is due at %s", r.DueAt.UTC().Format(time.RFC3339Nano))
		return nil
	}
	if blocked, err := s.Journal.Cases.IsBlocked(ctx, r.Case); err != nil || blocked {
		st.setWait(WaitsForOwner, "its case has a receipt beyond its head, which somebody wrote by hand: run recourse receipts verify; the owner of the schema removes that receipt")
		return err
	}
	if r.Remote {
		return s.addRemoteWait(ctx, st, r)
	}
	sessions, err := s.Applier.Sessions.Running(ctx)
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
		locked, err := s.Journal.Cases.IsLocked(ctx, r.Case)
		if err != nil {
			return err
		}
		if locked {
			st.setWait(WaitsForCaseLock, "another transaction holds its case, such as a caller's that is still open")
			return nil
		}
	}
	if r.AwaitsEnd() {
		return s.addAcceptedWait(ctx, st, r)
	}
	if st.Ahead, err = s.Journal.Cases.RunsAhead(ctx, r, maxAheadCounted); err != nil {
		return err
	}
	st.setWait(WaitsForTurn, "it is due, with %s before it in queue %s", runCountText(st.Ahead, maxAheadCounted), r.Queue)
	return nil
}

// addAcceptedWait sets what a run waits for whose call the escrow service has accepted.
func (s *Reader) addAcceptedWait(ctx context.Context, st *Status, r background.Run) error {
	last, err := s.Journal.Lookups.Find(ctx, r.Tenant, r.ID)
	if err != nil {
		return err
	}
	next := casework.Later(r.DueAt, last.NextAt).UTC()
	st.NextRetryAt = &next
	st.setWait(WaitsForService, "the escrow service accepted the call and has not ended it; next look at %s", next.Format(time.RFC3339Nano))
	if until := casework.AcceptedUntil(s.Applier.Settlements, &r); !until.IsZero() {
		st.WaitsBecause += ", for the last time at " + until.UTC().Format(time.RFC3339)
	}
	return nil
}

// addRemoteWait sets what a due run of remote workers waits for.
func (s *Reader) addRemoteWait(ctx context.Context, st *Status, r background.Run) error {
	sessions, err := s.Applier.Sessions.Running(ctx)
	if err != nil {
		return err
	}
	names := func(p background.Session) bool { return slices.Contains(p.Targets, escrow.RemotePrefix+r.Queue) }
	until := casework.NoWorkerUntil(s.Applier.Settlements, &r, s.Applier.Now())
	switch pays := s.Applier.Settlements.Targets.Pays(r.Queue) || slices.ContainsFunc(sessions, names); {
	case r.Family == casework.Family && !pays:
		st.setWait(WaitsForTarget, "no running process has the payment queue %s: start one with --payment-queue %[1]s, or cancel the run", r.Queue)
	case r.Family != casework.Family && pays:
		st.setWait(WaitsForQueue, "%s is a payment queue, from which workers fetch adjudications only: cancel the job, and enqueue it in another queue", r.Queue)
	case !until.IsZero():
		st.setWait(WaitsForKey, "its operation key may be forgotten during an attempt: no worker gets it before %s; to decide sooner, cancel it and submit a higher generation",
			until.UTC().Format(time.RFC3339))
	default:
		st.setWait(WaitsForWorker, "a remote worker has to fetch it from queue %s", r.Queue)
	}
	return nil
}

func (st *Status) setWait(what, because string, args ...any) {
	st.WaitsFor, st.WaitsBecause = what, fmt.Sprintf(because, args...)
}

// waitsForProcess sets the reason if no process serves the run's queue, or none of those that do
// may claim it.
func (st *Status) waitsForProcess(r background.Run, sessions []background.Session) {
	var blocked []string
	family, serving := casework.ServedBy(r.Family, sessions), 0
	for _, s := range sessions {
		if !slices.Contains(s.Queues, r.Queue) {
			continue
		}
		serving++
		if s.ClaimsBlockedBy != "" {
			blocked = append(blocked, s.ClaimsBlockedBy)
		}
	}
	switch {
	case !family:
		st.setWait(WaitsForFamily, "no running process has the family %s", r.Family)
	case serving == 0:
		st.setWait(WaitsForQueue, "no running process serves queue %s", r.Queue)
	case len(blocked) < serving:
	case slices.Contains(blocked, background.BlockedByServers):
		st.setWait(WaitsForServers, "the %d processes that serve queue %s claim nothing: see their readiness for what is wrong with their servers", serving, r.Queue)
	case slices.Contains(blocked, background.BlockedByClock):
		st.setWait(WaitsForClock, "the %d processes that serve queue %s claim nothing: their clocks are off", serving, r.Queue)
	default:
		st.setWait(WaitsForClaims, "the %d processes that serve queue %s claim nothing for a while: their last claims grew too old to call", serving, r.Queue)
	}
}

// waitsForRedis sets the reason if Redis is unreachable or the queue is paused. A process without
// Redis skips the check.
func (s *Reader) waitsForRedis(ctx context.Context, st *Status, r background.Run) {
	if s.Applier.WithoutRedis {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, queuePausedTimeout)
	defer cancel()
	switch paused, err := s.Applier.Engine.QueueIsPaused(ctx, r.Queue); {
	case err != nil:
		st.setWait(WaitsForRedis, "Redis can't be reached from here: %v", err)
	case paused:
		st.setWait(WaitsForPausedQueue, "a person paused queue %s in asynq", r.Queue)
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

// waitsForTarget sets the reason if no running process that serves the run's queue calls its target.
func (st *Status) waitsForTarget(r background.Run, sessions []background.Session) {
	calls := func(s background.Session) bool {
		return slices.Contains(s.Queues, r.Queue) && slices.Contains(s.Targets, r.Target)
	}
	if r.Family == casework.Family && st.WaitsFor == "" && !slices.ContainsFunc(sessions, calls) {
		st.setWait(WaitsForTarget, "no running process calls the escrow service %s: start one that does, or cancel the run", r.Target)
	}
}

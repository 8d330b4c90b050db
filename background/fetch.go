package background

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
)

// Fetcher gives remote runs to workers that fetch them, and records what the workers answer. It
// makes the same transitions as deliveries do, by the same decisions and guards. It needs no
// session and no Redis.
//
//	Fetch ──▶ claim with a lease ──▶ Finish ──▶ decide ──▶ record
//	               │  ▲ Extend          HandBack ─┘   │
//	               └──┘                               ▼
//	leaseReaper: no answer in time ──────────────▶ record
//
// Close of the manager ends no lease: the workers of a process that stops answer to another one.
type Fetcher struct {
	m      *Manager
	store  LeaseStore
	leases *leaseReaper
}

// ErrNotHolder: the lease is another principal's or worker's, or of another attempt, than the caller says.
var ErrNotHolder = errors.New("background: another worker holds the lease")

// ErrNoRemoteRuns: the manager was configured without LeaseStore.
var ErrNoRemoteRuns = errors.New("background: no remote runs are configured")

// Fetcher returns what gives remote runs to workers. Its methods return ErrNoRemoteRuns where
// Config.Leases is nil.
func (m *Manager) Fetcher() *Fetcher { return m.fetcher }

// remoteErr returns why no remote run may be claimed by way of this process, or nil. Redis is
// not needed.
func (g *claimGate) remoteErr() error {
	if g.blockedByConfig == nil {
		return g.clock.err()
	}
	return errors.Join(g.clock.err(), g.blockedByConfig())
}

// fetchRounds bounds the claims of one Fetch: a round is repeated when runs could not be claimed
// and were ended instead.
const fetchRounds = 3

// Fetch claims due runs for a worker. The claims are committed when it returns; each run is
// given to one worker only. It returns fewer runs than wanted when no more are due, and does not
// wait. After an error runs may be claimed; their leases end by themselves.
func (f *Fetcher) Fetch(ctx context.Context, want lease.Want) (claimed []Claimed, err error) {
	if f.store == nil {
		return nil, ErrNoRemoteRuns
	}
	if err := f.m.MeasureClock(ctx); err != nil {
		return nil, err
	}
	if err := f.m.claimGate.remoteErr(); err != nil {
		return nil, err
	}
	for range fetchRounds {
		next := want
		next.Count -= len(claimed)
		at := f.m.now()
		claims := map[RunID]Transition{}
		answered, err := f.store.ClaimDue(ctx, at, next, func(r Run) Transition {
			claims[r.ID] = f.claim(&r, want, at)
			return claims[r.ID]
		})
		if err != nil {
			return claimed, err
		}
		refused := 0
		for _, c := range answered {
			if c.Err != nil {
				refused++
				f.onRefused(ctx, c)
				continue
			}
			f.leases.onClaimed(c)
			claimed = append(claimed, c)
			if tr, isNew := claims[c.Run.ID]; isNew && f.m.cfg.OnTransition != nil { // else an earlier fetch with its key made it
				f.m.cfg.OnTransition(tr, c.Run)
			}
		}
		if refused == 0 || len(claimed) == want.Count || len(claimed) > 0 && want.Key != (lease.FetchKey{}) {
			break
		}
	}
	return claimed, nil
}

// claim returns the transition that claims a run for a worker.
func (f *Fetcher) claim(r *Run, want lease.Want, at time.Time) Transition {
	tr := f.m.recorder.newTransition(receipts.AttemptStarted, r)
	tr.At, tr.Token, tr.Worker, tr.Actor = at, f.m.cfg.NewID(), workerName(want.Worker), want.Actor
	tr.Lease = &lease.Lease{Run: r.ID, Tenant: r.Tenant, Worker: want.Worker, Principal: want.Actor, Attempt: r.Attempt + 1, At: at, Length: want.Length}
	return tr
}

// workerName returns the name of a remote worker in receipts.
func workerName(given string) string {
	if given == "" {
		return lease.Unnamed
	}
	return given
}

// onRefused ends a run that can't be executed as it is, so that it is not picked again.
func (f *Fetcher) onRefused(ctx context.Context, c Claimed) {
	reason := ""
	var unclaimable *lease.UnclaimableError
	switch {
	case errors.As(c.Err, &unclaimable):
		reason = unclaimable.Reason
	case errors.Is(c.Err, ErrKeyExpired):
		reason = ReasonOutcomeUnknown
	case errors.Is(c.Err, ErrRequestAltered):
		reason = ReasonRequestAltered
	case errors.Is(c.Err, ErrUnrecordable):
		reason = ReasonUnrecordable
	}
	if reason == "" {
		return // changed meanwhile, paused, or unreadable: the store leaves it out for a while
	}
	if _, err := f.endWaiting(ctx, &c.Run, reason); err != nil {
		f.m.log.Warn("run that cannot be fetched could not be ended", zap.Stringer("run", c.Run.ID), zap.String("reason", reason), zap.Error(err))
	}
}

// endWaiting ends a waiting run of which no attempt may start as a dead letter.
func (f *Fetcher) endWaiting(ctx context.Context, run *Run, reason string) (Run, error) {
	family := f.m.families[run.Family]
	if family == nil {
		return *run, nil // a process that has the family ends it
	}
	tr := f.m.recorder.newTransition(receipts.DeadLettered, run)
	tr.Reason = reason
	after, err := f.record(ctx, family, &tr)
	if errors.Is(err, ErrConflict) {
		err = nil // it changed meanwhile
	}
	return after, err
}

// Ended is a run after an attempt of it ended, and when the attempt did.
type Ended struct {
	Run
	At time.Time
}

// Finish records what a worker answered for a leased attempt, and returns the run after it. The
// outcome is committed when Finish returns without an error. Errors:
//
//   - ErrNotFound: the tenant has no such run that is leased, as after the end of its lease
//   - ErrNotHolder: the lease is another principal's or worker's, or of another attempt
//   - ErrConflict: the attempt ended meanwhile; the run is as it is now
//
// Of a run that moves money, held must name the attempt. What is answered for one that has ended is
// recorded as a late answer, unless it adds nothing, and the error is ErrConflict: a payment is a fact
// whenever it is told. The caller has checked that held.Actor made that attempt.
//
// After any other error it is not known whether the outcome is recorded; Finish may be repeated.
func (f *Fetcher) Finish(ctx context.Context, held lease.Held, res Result) (Ended, error) {
	res = normalizeResult(res)
	return f.endOrRecordLate(ctx, held, res, func(run Run, now time.Time) ending {
		end, _ := decide(&run, &res, nil, now)
		return end
	})
}

// HandBack ends a leased attempt that its worker will not make: the run may be fetched again at
// once, and the attempt spends no budget. The receipt has what the worker said, if that is not nil. Errors are
// those of Finish.
func (f *Fetcher) HandBack(ctx context.Context, held lease.Held, why *Failure) (Ended, error) {
	res := Result{Class: NotExecuted, Failure: why}
	return f.endOrRecordLate(ctx, held, normalizeResult(res), func(run Run, now time.Time) ending { return handBackEnding(&run, &res, now) })
}

// endOrRecordLate ends a leased attempt. If it has ended, it records what is known late.
func (f *Fetcher) endOrRecordLate(ctx context.Context, held lease.Held, res Result, decide func(Run, time.Time) ending) (Ended, error) {
	ended, err := f.end(ctx, held, decide)
	if late := errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotHolder) || errors.Is(err, ErrConflict); !late {
		return ended, err
	}
	return f.recordLate(ctx, held, res, err)
}

// recordLate records what a worker answers for an attempt of a run that moves money after the attempt
// ended. It returns cause for any other answer.
func (f *Fetcher) recordLate(ctx context.Context, held lease.Held, res Result, cause error) (Ended, error) {
	run, err := f.m.cfg.Store.Find(ctx, held.Run)
	if err != nil {
		return Ended{}, err
	}
	family := f.m.families[run.Family]
	if held.Attempt == 0 && run.Attempt == 1 {
		held.Attempt = 1 // no other can be meant
	}
	runs := held.Attempt == 0 || run.State == Running && run.Attempt == held.Attempt
	if run.Tenant != held.Tenant || !run.Remote || !run.MovesMoney() || held.Attempt > run.Attempt || runs || res.Class == Unknown || family == nil {
		return Ended{Run: run}, cause
	}
	tr := f.m.recorder.newTransition(receipts.AnsweredLate, &run)
	tr.Run.Attempt, tr.Result, tr.Worker, tr.Actor = held.Attempt, res, workerName(held.Worker), held.Actor
	after, err := f.record(ctx, family, &tr)
	if err == nil {
		err = ErrConflict
	}
	return Ended{after, tr.At}, err
}

// Extend restarts the leases that a worker holds, and sets their length unless it is 0. It
// returns those that it extended; a lease that is not held, or ended, is left out.
func (f *Fetcher) Extend(ctx context.Context, held []lease.Held, length time.Duration) ([]lease.Lease, error) {
	if f.store == nil {
		return nil, ErrNoRemoteRuns
	}
	extended, err := f.store.ExtendLeases(ctx, held, length)
	for _, l := range extended {
		f.leases.onExtended(l)
	}
	return extended, err
}

// Expire ends a waiting run that expired before an attempt of it started.
func (f *Fetcher) Expire(ctx context.Context, run Run) (Run, error) {
	family, now := f.m.families[run.Family], f.m.now()
	if family == nil || !run.Expired(now) {
		return run, nil
	}
	end := expiryEnding(&run)
	tr := f.m.recorder.endTransition(&run, &end, &callOutcome{}, now)
	after, err := f.record(ctx, family, &tr)
	if errors.Is(err, ErrConflict) {
		err = nil // fetched, cancelled or ended meanwhile
	}
	return after, err
}

// end ends a leased attempt for its holder.
func (f *Fetcher) end(ctx context.Context, held lease.Held, decide func(Run, time.Time) ending) (Ended, error) {
	if f.store == nil {
		return Ended{}, ErrNoRemoteRuns
	}
	run, by, known := f.leases.claimedHere(held.Run)
	if !known || run.Tenant != held.Tenant || !isHeldBy(held, &run, by) { // it may have been given to another since
		var err error
		if run, by, err = f.store.FindLease(ctx, held.Tenant, held.Run); err != nil {
			return Ended{Run: run}, err
		}
	}
	if !isHeldBy(held, &run, by) || held.Attempt == 0 && run.MovesMoney() {
		return Ended{Run: run}, ErrNotHolder
	}
	family := f.m.families[run.Family]
	if family == nil {
		return Ended{Run: run}, ErrUnknownFamily
	}
	return f.endLeased(ctx, family, &run, func(run Run, now time.Time) Transition {
		return f.ending(&run, by, held.Actor, decide(run, now), now)
	})
}

// isHeldBy reports whether a lease is the one that a worker names, and its principal's.
func isHeldBy(held lease.Held, run *Run, by lease.Lease) bool {
	return by.BelongsTo(held.Actor) && (held.Worker == "" || by.Worker == "" || held.Worker == by.Worker) && (held.Attempt == 0 || held.Attempt == attemptNumberForWorker(run, by))
}

// attemptNumberForWorker returns the number of the attempt that the worker of a lease was given. Of runs that
// move no money, attempts that were handed back are not counted.
func attemptNumberForWorker(run *Run, held lease.Lease) int {
	if run.MovesMoney() {
		return held.Attempt
	}
	return held.Attempt - run.HandedBack
}

// endLeased records the end of a leased attempt. The decision is made again when a cancel was
// requested meanwhile.
func (f *Fetcher) endLeased(ctx context.Context, family Family, run *Run, transition func(Run, time.Time) Transition) (Ended, error) {
	for {
		now := f.m.now()
		tr := transition(*run, now)
		after, err := f.record(ctx, family, &tr)
		if errors.Is(err, ErrConflict) && stillClaimed(&after, run) && after.CancelRequested != run.CancelRequested {
			run = &after
			continue
		}
		if err == nil || errors.Is(err, ErrConflict) {
			f.leases.onEnded(run.ID)
		}
		return Ended{after, now}, err
	}
}

// ending returns the transition that ends a leased attempt.
func (f *Fetcher) ending(run *Run, by lease.Lease, actor string, end ending, now time.Time) Transition {
	tr := f.m.recorder.endTransition(run, &end, &callOutcome{took: max(0, now.Sub(by.At))}, now)
	tr.Worker = workerName(by.Worker)
	if end.subtype != receipts.Cancelled || run.CancelBy == "" { // else whoever asked for the cancel made it
		tr.Actor = actor
	}
	return tr
}

// record records a transition once, in its reduced forms where its values can't be written, and
// sends the task of a dead letter to asynq.
func (f *Fetcher) record(ctx context.Context, family Family, tr *Transition) (Run, error) {
	whole := tr
	after, err := family.Record(ctx, *tr)
	for form := 1; errors.Is(err, ErrUnrecordable) && form <= mostReduced; form++ {
		f.m.recorder.unrecordable.Add(1)
		tr = whole.reduced(f.m.cfg.NewID(), form, err)
		after, err = family.Record(ctx, *tr)
	}
	if err != nil {
		return after, err
	}
	if f.m.cfg.OnTransition != nil {
		f.m.cfg.OnTransition(*tr, after)
	}
	if after.Letter == LetterOpen {
		f.m.NotifyAsync(ctx, after)
	}
	return after, nil
}

package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/every"
	"github.com/recourse-dev/recourse/receipts"
)

const (
	attemptsPage       = 500
	recoverConcurrency = 32
	// removeSessionAfter is longer than a claim can be on its way to the database.
	removeSessionAfter = 30 * time.Second
)

// ObserverActor is the prefix of the actor in receipts of what a process saw of others: attempts of
// lost workers, and tampering with tasks.
const ObserverActor = "observer:"

// recoverer watches the sessions of all processes. A session whose counter does not change for
// LostAfter, by this process's monotonic clock, is declared lost: no other machine's clock is
// involved. The attempts that ran under it end as interrupted, with an unknown outcome, and
// their runs continue elsewhere.
//
// A lost session is kept and scanned until every claim that was on its way when it was declared
// lost has been committed or refused.
type recoverer struct {
	m       *Manager
	seen    map[SessionID]sessionObservation
	missing *missingSessions
}

type sessionObservation struct {
	beat  int64
	since time.Time
	lost  bool
}

func newRecoverer(m *Manager) *recoverer {
	return &recoverer{m: m, seen: map[SessionID]sessionObservation{}, missing: newMissingSessions(m)}
}

func (o *recoverer) run(ctx context.Context) {
	failures := every.Failures{Log: o.m.log, Failed: "sessions cannot be checked", Again: "sessions are checked again"}
	every.Loop{Interval: o.m.cfg.BeatEvery, Failures: failures}.Run(ctx, o.scan)
}

func (o *recoverer) scan(ctx context.Context) error {
	if errors.Is(o.m.claimGate.serversErr(), ErrOtherDatabase) {
		return nil
	}
	sessions, err := o.m.cfg.Store.Sessions(ctx)
	if err != nil {
		return err
	}
	own, _, _ := o.m.session.current()
	o.m.clock.compare(sessions, own)
	now, seen := time.Now(), make(map[SessionID]sessionObservation, len(sessions))
	for _, s := range sessions {
		if s.ID == own {
			continue
		}
		last, known := o.seen[s.ID]
		if !known || last.beat != s.Beat || last.lost != s.Lost {
			last = sessionObservation{beat: s.Beat, since: now, lost: s.Lost}
			if s.Lost {
				o.m.sweeper.reportLost()
			}
		}
		seen[s.ID] = last
	}
	o.seen = seen
	o.m.redisOwner.compare(sessions, own, func(s Session) bool { return now.Sub(seen[s.ID].since) < o.m.cfg.LostAfter/2 })
	for _, s := range sessions {
		if s.ID == own {
			continue
		}
		if err := o.checkSession(ctx, s, now.Sub(seen[s.ID].since)); err != nil {
			return err
		}
	}
	return o.recoverMissing(ctx, now)
}

// recoverMissing recovers the runs of sessions that do not exist.
func (o *recoverer) recoverMissing(ctx context.Context, now time.Time) error {
	gone, err := o.missing.scan(ctx, now)
	if err != nil {
		return err
	}
	for _, id := range gone {
		attempts, err := o.m.cfg.Store.AttemptsOf(ctx, id, attemptsPage)
		if err != nil {
			return err
		}
		o.m.log.Warn("recovering runs of a missing session", zap.Stringer("session", id), zap.Int("runs", len(attempts)))
		o.recoverAll(ctx, Session{ID: id, Worker: "of a missing session"}, attempts)
	}
	return nil
}

// checkSession declares a session lost that has not changed for LostAfter, and recovers the
// runs of a lost one.
func (o *recoverer) checkSession(ctx context.Context, s Session, unchangedFor time.Duration) error {
	if !s.Lost {
		if unchangedFor < o.m.cfg.LostAfter {
			return nil
		}
		lost, err := o.m.cfg.Store.MarkLost(ctx, s)
		if err != nil || !lost {
			return err
		}
		o.m.log.Warn("session lost, recovering its runs", zap.Stringer("session", s.ID), zap.String("worker", s.Worker))
	}
	attempts, err := o.m.cfg.Store.AttemptsOf(ctx, s.ID, attemptsPage)
	if err != nil {
		return err
	}
	o.recoverAll(ctx, s, attempts)
	if s.Lost && len(attempts) == 0 && unchangedFor >= removeSessionAfter {
		return o.m.cfg.Store.Remove(ctx, s.ID)
	}
	return nil
}

// recoverAll ends the attempts of a lost process, up to recoverConcurrency at a time, and
// notifies for the runs that continue.
func (o *recoverer) recoverAll(ctx context.Context, s Session, attempts []Run) {
	limit := make(chan struct{}, recoverConcurrency)
	var all sync.WaitGroup
	for _, r := range attempts {
		f := o.m.families[r.Family]
		if f == nil {
			continue // a process that has the family recovers it
		}
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			o.recoverRun(ctx, f, s, &r)
		})
	}
	all.Wait()
}

func (o *recoverer) recoverRun(ctx context.Context, f Family, s Session, r *Run) {
	lookup, wasInterrupted := o.m.caller.lookup(f, *r)
	if wasInterrupted || ctx.Err() != nil {
		return
	}
	whole := o.lostTransition(s, r, lookup)
	tr := &whole
	after, err := f.Record(ctx, *tr)
	for form := 1; errors.Is(err, ErrUnrecordable) && form <= mostReduced; form++ {
		o.m.recorder.unrecordable.Add(1)
		tr = whole.reduced(o.m.cfg.NewID(), form, err)
		after, err = f.Record(ctx, *tr)
	}
	switch {
	case errors.Is(err, ErrConflict):
		return // another observer was first, or the process lives and ended it
	case errors.Is(err, ErrUnreadable):
		return // the journal logs it, once; a process that can read the run ends it
	case err != nil:
		o.m.log.Warn("attempt of a lost worker could not be ended yet", zap.Stringer("run", r.ID), zap.Error(err))
		return
	}
	if o.m.cfg.OnTransition != nil {
		o.m.cfg.OnTransition(*tr, after)
	}
	if after.State.Waiting() {
		if err := o.m.sweeper.resend(ctx, []Run{after}); err != nil {
			o.m.log.Warn("notification of a recovered run failed, the sweeper resends it", zap.Stringer("run", r.ID), zap.Error(err))
		}
	}
}

// lostTransition returns the transition that ends the attempt of a lost worker. The outcome of
// the worker's last call is unknown, unless the called service reports that it paid. A report
// that it did not pay proves nothing: the worker may only be slow, and its call still on its
// way. A run that moves no money is cancelled if that was asked for, as after any other attempt.
func (o *recoverer) lostTransition(s Session, r *Run, lookup Result) Transition {
	tr := o.m.recorder.newTransition(receipts.AttemptInterrupted, r)
	tr.Actor = ObserverActor + o.m.cfg.Worker
	tr.Result = unknownResult(FailureInterrupted, "the worker "+s.Worker+" was lost")
	tr.Charge, tr.NextRetryAt, tr.LeavesCallOutstanding = ChargeRecovery, tr.At, true
	switch {
	case lookup.Class == Executed:
		tr.Subtype, tr.Charge, tr.NextRetryAt, tr.Lookup = receipts.AttemptSucceeded, ChargeNothing, time.Time{}, Executed
		tr.Result.Moved, tr.Result.Reference = lookup.Moved, lookup.Reference
	case r.CancelRequested && provenUnpaid(r, &tr.Result):
		tr.Subtype, tr.Charge, tr.NextRetryAt, tr.Actor = receipts.Cancelled, ChargeNothing, time.Time{}, r.CancelBy
	case r.Recoveries+1 > o.m.cfg.MaxRecoveries || r.lastCallOutstanding():
		// The run is not recovered from this loss, so it is not counted as a recovery.
		tr.Subtype, tr.Charge, tr.NextRetryAt, tr.Reason = receipts.DeadLettered, ChargeNothing, time.Time{}, ReasonPoisonPill
	}
	return tr
}

const (
	missingPage  = 5000 // live runs read at one time
	missingPages = 4    // pages of one scan
)

// missingSessions finds sessions that running runs name and that do not exist, as after a
// restore that lost them. No claim can be made under such a session any more. Once it has been
// missing for LostAfter it counts as declared lost: by then its process has noticed, or stands
// still.
//
// Each scan continues through the live runs, page by page, where the last one stopped.
type missingSessions struct {
	m      *Manager
	cursor Cursor
	next   time.Time // of the next scan, on the monotonic clock
	pass   int
	seen   map[SessionID]missingSession
}

type missingSession struct {
	since time.Time
	pass  int // the pass that saw it last
}

func newMissingSessions(m *Manager) *missingSessions {
	return &missingSessions{m: m, seen: map[SessionID]missingSession{}}
}

// scan returns the sessions that have been missed for long enough.
func (s *missingSessions) scan(ctx context.Context, now time.Time) (gone []SessionID, err error) {
	if now.Before(s.next) {
		return nil, nil
	}
	s.next = now.Add(s.m.cfg.LostAfter / 3)
	for range missingPages {
		found, next, err := s.m.cfg.Store.MissingSessions(ctx, s.cursor, missingPage)
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			last, known := s.seen[id]
			if !known {
				last.since = now
			}
			last.pass = s.pass
			s.seen[id] = last
		}
		if s.cursor = next; next == (Cursor{}) {
			s.passDone()
			break
		}
	}
	for id, last := range s.seen {
		if now.Sub(last.since) >= s.m.cfg.LostAfter {
			gone = append(gone, id)
		}
	}
	return gone, nil
}

// passDone begins a new pass, and removes the sessions that the last one did not see.
func (s *missingSessions) passDone() {
	for id, last := range s.seen {
		if last.pass != s.pass {
			delete(s.seen, id)
		}
	}
	s.pass++
}

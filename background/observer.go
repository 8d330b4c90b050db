package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/receipts"
)

const (
	orphansPage = 500
	recoverers  = 32
	// dismissAfter is more than a claim can have been on its way.
	dismissAfter = 30 * time.Second
)

// ObserverActor begins the actor of receipts about attempts whose worker was lost.
const ObserverActor = "observer:"

// observer watches the sessions of all processes. One whose counter stands still
// for LostAfter on this process's own monotonic clock is declared lost: that depends on
// no other machine's clock. The attempts that ran under it end as
// interrupted, with an unknown outcome, and their runs continue elsewhere.
//
// A lost session is kept, and looked through, until every claim that was on its
// way when it was declared lost must have come or gone.
type observer struct {
	m       *Manager
	seen    map[SessionID]sighting
	missing *missing
}

type sighting struct {
	beat  int64
	since time.Time
	lost  bool
}

func newObserver(m *Manager) *observer {
	return &observer{m: m, seen: map[SessionID]sighting{}, missing: newMissing(m)}
}

func (o *observer) run(ctx context.Context) {
	tick := time.NewTicker(o.m.cfg.BeatEvery)
	defer tick.Stop()
	for ailing := false; ; {
		err := o.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !ailing {
			o.m.log.Error("other processes can't be watched", zap.Error(err))
		}
		ailing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (o *observer) look(ctx context.Context) error {
	if errors.Is(o.m.unsuitable(), ErrOtherLedger) {
		return nil
	}
	sessions, err := o.m.cfg.Ledger.Sessions(ctx)
	if err != nil {
		return err
	}
	own, _, _ := o.m.session.current()
	o.m.clock.compare(sessions, own)
	now, seen := time.Now(), make(map[SessionID]sighting, len(sessions))
	for _, s := range sessions {
		if s.ID == own {
			continue
		}
		last, known := o.seen[s.ID]
		if !known || last.beat != s.Beat || last.lost != s.Lost {
			last = sighting{beat: s.Beat, since: now, lost: s.Lost}
			if s.Lost {
				o.m.sweep.bereave()
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
		if err := o.judge(ctx, s, now.Sub(seen[s.ID].since)); err != nil {
			return err
		}
	}
	return o.lookForMissing(ctx, now)
}

// lookForMissing recovers what runs under sessions that are not there.
func (o *observer) lookForMissing(ctx context.Context, now time.Time) error {
	gone, err := o.missing.look(ctx, now)
	if err != nil {
		return err
	}
	for _, id := range gone {
		orphans, err := o.m.cfg.Ledger.Orphans(ctx, id, orphansPage)
		if err != nil {
			return err
		}
		o.m.log.Warn("runs were left under a session that is not there, they continue", zap.Stringer("session", id), zap.Int("runs", len(orphans)))
		o.adopt(ctx, Session{ID: id, Worker: "of a session that is not there"}, orphans)
	}
	return nil
}

// judge does what a session calls for that has not changed for some time.
func (o *observer) judge(ctx context.Context, s Session, still time.Duration) error {
	if !s.Lost {
		if still < o.m.cfg.LostAfter {
			return nil
		}
		lost, err := o.m.cfg.Ledger.Bury(ctx, s)
		if err != nil || !lost {
			return err
		}
		o.m.log.Warn("a process was lost, its runs continue", zap.Stringer("session", s.ID), zap.String("worker", s.Worker))
	}
	orphans, err := o.m.cfg.Ledger.Orphans(ctx, s.ID, orphansPage)
	if err != nil {
		return err
	}
	o.adopt(ctx, s, orphans)
	if s.Lost && len(orphans) == 0 && still >= dismissAfter {
		return o.m.cfg.Ledger.Dismiss(ctx, s.ID)
	}
	return nil
}

// adopt ends the attempts of a lost process, some at a time, and rings for the runs
// that continue.
func (o *observer) adopt(ctx context.Context, s Session, orphans []Run) {
	room := make(chan struct{}, recoverers)
	var all sync.WaitGroup
	for _, r := range orphans {
		f := o.m.families[r.Family]
		if f == nil {
			continue // a process that has the family recovers it
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			o.recover(ctx, f, s, r)
		})
	}
	all.Wait()
}

func (o *observer) recover(ctx context.Context, f Family, s Session, r Run) {
	looked, cut := o.m.lookup(f, r)
	if cut || ctx.Err() != nil {
		return
	}
	mv := o.ending(s, r, looked)
	after, err := f.Record(ctx, mv)
	for form := 1; errors.Is(err, ErrUnrecordable) && form <= narrowest; form++ {
		o.m.unrecordable.Add(1)
		mv = mv.narrowed(o.m.cfg.NewID(), form, err)
		after, err = f.Record(ctx, mv)
	}
	switch {
	case errors.Is(err, ErrLostGuard):
		return // another observer was first, or the process lives and ended it
	case errors.Is(err, ErrUnreadable):
		return // the ledger tells of it, once; a process that can read the run ends it
	case err != nil:
		o.m.log.Warn("a lost attempt could not be ended yet", zap.Stringer("run", r.ID), zap.Error(err))
		return
	}
	if o.m.cfg.OnMove != nil {
		o.m.cfg.OnMove(mv, after)
	}
	if after.State.Waiting() {
		if err := o.m.sweep.ring(ctx, []Run{after}); err != nil {
			o.m.log.Warn("a recovered run was not rung for, the sweeper will", zap.Stringer("run", r.ID), zap.Error(err))
		}
	}
}

// ending is how an attempt ends whose worker was lost. What the worker's last call
// did is unknown, unless the other side says that it paid. That it says it did not
// proves nothing: the worker may only be slow, and its call still on the way.
func (o *observer) ending(s Session, r Run, looked Result) Move {
	mv := o.m.move(receipts.AttemptInterrupted, r)
	mv.Actor = ObserverActor + o.m.cfg.Worker
	mv.Result = unknown(FailureInterrupted, "the worker "+s.Worker+" was lost")
	mv.Spend, mv.NextRetryAt, mv.CallGoesOn = SpendRecovery, mv.At, true
	switch {
	case looked.Class == Executed:
		mv.Fact, mv.Spend, mv.NextRetryAt, mv.Lookup = receipts.AttemptSucceeded, SpendNothing, time.Time{}, Executed
		mv.Result.Moved, mv.Result.Reference = looked.Moved, looked.Reference
	case r.Recoveries+1 > o.m.cfg.Recoveries:
		// Nobody recovers the run from this loss, so it is not counted as a recovery.
		mv.Fact, mv.Spend, mv.NextRetryAt, mv.Reason = receipts.DeadLettered, SpendNothing, time.Time{}, ReasonPoisonPill
	}
	return mv
}

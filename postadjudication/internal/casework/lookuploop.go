package casework

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// LookupStats counts the lookups of one process.
type LookupStats struct {
	Asked   uint64 // lookups at escrow services
	Cleared uint64 // letters and waiting runs found not executed
	Closed  uint64 // letters and waiting runs ended by a payment that was found
}

// Reasons why a letter of unknown outcome waits for a person.
const (
	LookupKeyForgotten = "forgotten"    // the escrow service may have forgotten the operation key
	LookupOtherAmount  = "other_amount" // the moved amount differs from the amount left to move
)

const (
	lookupPage    = 100    // runs per round
	maxNeverAsked = 10_000 // runs tracked before their first lookup
)

// LookupLoop asks the escrow service about open letters and waiting runs of unknown outcome, while no
// other process does:
//
//	run ─▶ no call can be in flight, by this process's own clock ─▶ lookup
//	  executed, exactly the amount left    the letter is closed, the case settled
//	  executed, another amount             the letter waits for a person
//	  executed, any amount, while it waits the run ends succeeded
//	  not executed, a second time          cleared: the letter can be forked, or adjudicated again
//	  anything else                        looked up again, until the key may be forgotten
//
// An answer is recorded only if the case has not changed since the lookup. An answer without
// new information changes only the record of the lookup.
type LookupLoop struct {
	*Applier
	worker string

	firstSeen map[journal.UnknownRun]time.Time // when this process first saw a run that was not looked up since its last attempt, monotonic
	limiters  map[string]*rate.Limiter         // by escrow service
	targets   []string                         // targets with a lookup
	slots     chan struct{}                    // one element per running lookup

	asked, cleared, closed atomic.Uint64

	mu           sync.Mutex
	skippedUntil map[background.RunID]time.Time // letters whose lookup can't be made or recorded: until when they are skipped, monotonic
}

// lookupSkipFor is how long an unreadable or unrecordable letter is skipped: it must not block
// the others in every round.
const lookupSkipFor = 10 * time.Minute

// skip skips a letter for a duration.
func (l *LookupLoop) skip(id background.RunID, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skippedUntil[id] = time.Now().Add(d)
}

// skippedNow returns the letters that are skipped now.
func (l *LookupLoop) skippedNow() map[background.RunID]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(l.skippedUntil, func(_ background.RunID, until time.Time) bool { return now.After(until) })
	return maps.Clone(l.skippedUntil)
}

// NewLookupLoop returns a loop that records answers in the name of a worker. Run starts it.
func NewLookupLoop(c *Applier, worker string) *LookupLoop {
	return &LookupLoop{Applier: c, worker: worker, firstSeen: map[journal.UnknownRun]time.Time{}, skippedUntil: map[background.RunID]time.Time{}, limiters: map[string]*rate.Limiter{}, slots: make(chan struct{}, c.Settlements.Lookups.Slots)}
}

// Stats returns the counters of this process.
func (l *LookupLoop) Stats() LookupStats {
	return LookupStats{Asked: l.asked.Load(), Cleared: l.cleared.Load(), Closed: l.closed.Load()}
}

// Run looks letters up until ctx ends.
func (l *LookupLoop) Run(ctx context.Context) {
	if l.targets = l.Settlements.lookupTargets(); len(l.targets) == 0 || l.Settlements.Lookups.Off {
		return
	}
	failing := false
	for Sleep(ctx, l.Settlements.Lookups.Every, nil) {
		_, err := l.Journal.Lookups.Exclusive(ctx, func() error { return l.round(ctx) })
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			l.Log.Error("can't look up runs of unknown outcome, retrying", zap.Error(err))
		}
		failing = err != nil
	}
}

// round looks up the letters that are due, at each escrow service's own rate.
func (l *LookupLoop) round(ctx context.Context) error {
	if err := l.Journal.Lookups.DeleteResolved(ctx); err != nil {
		return err
	}
	skipped := l.skippedNow()
	due, err := l.Journal.Lookups.Due(ctx, l.targets, l.Now(), lookupPage+len(skipped))
	if err != nil {
		return err
	}
	first, err := l.firstLookups(ctx, skipped)
	if err != nil {
		return err
	}
	by := map[string][]journal.UnknownRun{}
	for _, u := range append(due, first...) {
		if _, is := skipped[u.Run]; is {
			continue
		}
		service := l.Settlements.Targets.breakerTarget(u.Target)
		by[service] = append(by[service], u)
	}
	var all sync.WaitGroup
	for service, runs := range by {
		limiter := l.limiters[service]
		if limiter == nil {
			limiter = rate.NewLimiter(rate.Limit(l.Settlements.Lookups.PerSecond), 1)
			l.limiters[service] = limiter
		}
		all.Go(func() {
			for _, u := range runs {
				if !l.acquire(ctx, limiter) {
					return
				}
				all.Go(func() {
					defer func() { <-l.slots }()
					l.tryLookup(ctx, u)
				})
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// acquire blocks until the rate limit and a slot allow a lookup. It returns false if ctx ends first.
func (l *LookupLoop) acquire(ctx context.Context, limiter *rate.Limiter) bool {
	if limiter.Wait(ctx) != nil {
		return false
	}
	select {
	case l.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// firstLookups returns runs that were not looked up since their last attempt, which this process has known for
// so long that no call can be in flight. It uses only this process's clock.
func (l *LookupLoop) firstLookups(ctx context.Context, skipped map[background.RunID]time.Time) ([]journal.UnknownRun, error) {
	found, err := l.Journal.Lookups.NeverLookedUp(ctx, l.targets, maxNeverAsked)
	if err != nil {
		return nil, err
	}
	return l.knownForLong(found, skipped, time.Now()), nil
}

// knownForLong is firstLookups of the runs that were not looked up.
func (l *LookupLoop) knownForLong(found []journal.UnknownRun, skipped map[background.RunID]time.Time, now time.Time) (out []journal.UnknownRun) {
	f, seen := l.Settlements, make(map[journal.UnknownRun]time.Time, len(found))
	for _, u := range found {
		call := u
		call.Paused = false
		since, known := l.firstSeen[call]
		if !known {
			since = now
		}
		seen[call] = since
		bound := f.CallBound + f.CallTimeLimit + max(0, f.inFlight(u.Target))
		if _, is := skipped[u.Run]; !is && !u.Paused && now.Sub(since) >= bound && len(out) < lookupPage {
			out = append(out, u)
		}
	}
	l.firstSeen = seen
	return out
}

// tryLookup looks a run up. The next round retries after an error.
func (l *LookupLoop) tryLookup(ctx context.Context, u journal.UnknownRun) {
	id := u.Run
	err := RecoverPanic(func() error { return l.lookUpUnknown(ctx, u) })
	if errors.Is(err, refusal.ErrUnreadable) || errors.Is(err, refusal.ErrUnrecordable) {
		l.skip(id, lookupSkipFor)
	}
	if err != nil && ctx.Err() == nil && !isOfChange(err) {
		l.Log.Warn("a run of unknown outcome was not looked up", zap.Stringer("run", id), zap.Error(err))
	}
}

// isOfChange reports whether a lookup was not recorded because its run has changed meanwhile.
func isOfChange(err error) bool {
	return errors.Is(err, refusal.ErrNotFound) || errors.Is(err, ErrLetterChanged) || errors.Is(err, background.ErrConflict)
}

func (l *LookupLoop) lookUpUnknown(ctx context.Context, u journal.UnknownRun) error {
	s, was, err := l.Journal.Lookups.Unknown(ctx, u.Run)
	if err != nil {
		return err
	}
	if !l.mayAsk(&s.Run, u) {
		return nil
	}
	q, err := l.Settlements.readLookupEvidence(ctx, s.Run)
	if err != nil {
		return err
	}
	if q.outstanding { // until the call returns or its process is lost; the slot is for other runs
		l.skip(u.Run, l.Settlements.Lookups.FirstPause)
		return nil
	}
	l.asked.Add(1)
	found := l.lookUpWithTimeout(ctx, s.Run, true)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	next, believed := weigh(l.Settlements, &was, &s.Run, found, l.Now())
	switch {
	case isOtherSum(&s, found):
		next.NextAt, next.ManualReason = time.Time{}, LookupOtherAmount
	case believed && found.Class == escrow.Executed:
		return l.recordAnswer(ctx, &s, found, &l.closed)
	case believed:
		return l.recordAnswer(ctx, &s, found, &l.cleared)
	}
	return l.Journal.Lookups.Record(ctx, next)
}

// mayAsk reports whether a run can be looked up as it was listed: a call that was made since may be in flight.
func (l *LookupLoop) mayAsk(r *background.Run, listed journal.UnknownRun) bool {
	return r.Attempt == listed.Attempt && !l.Engine.BreakerOpen(*r)
}

// isOtherSum reports whether the escrow service has moved another sum than a letter has left to move.
func isOtherSum(s *journal.Snapshot, found background.Result) bool {
	return found.Class == escrow.Executed && s.Run.Letter == background.LetterOpen && found.Moved != s.Case.State.Asked-s.Case.State.Moved
}

// recordAnswer records the answer of the escrow service, unless the case has changed since s was
// read.
func (l *LookupLoop) recordAnswer(ctx context.Context, s *journal.Snapshot, found background.Result, count *atomic.Uint64) error {
	tr := background.Transition{
		ID: NewID(), Run: s.Run, Subtype: receipts.Reconciled, At: l.Now(), Actor: "lookup:" + l.worker, Lookup: found.Class,
		Result: background.Result{Class: found.Class, Moved: found.Moved, Reference: found.Reference},
	}
	_, err := l.Settlements.record(ctx, &tr, Guard{Head: &s.Case.Head})
	if err == nil {
		count.Add(1)
		l.Engine.Wake(s.Run.ID)
	}
	return err
}

// Sleep sleeps for d, or until wake is ready. It reports false if ctx is done.
func Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

package postadjudication

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
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// LookupRule says how open letters of unknown outcome are asked about without a person. The
// zero rule is the default: it is on where the executor is a Lookuper.
type LookupRule struct {
	Off        bool
	Every      time.Duration // how often letters to ask about are looked for; 5s
	FirstPause time.Duration // from the first question to the second; each further pause is twice as long; 1m
	MaxPause   time.Duration // the longest pause; 6h
	PerSecond  int           // questions to one escrow service in a second, by all processes; 5
	Slots      int           // questions at one time; 4
}

func (r LookupRule) withDefaults() LookupRule {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&r.Every, 5 * time.Second}, {&r.FirstPause, time.Minute}, {&r.MaxPause, 6 * time.Hour}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if r.PerSecond <= 0 {
		r.PerSecond = 5
	}
	if r.Slots <= 0 {
		r.Slots = 4
	}
	return r
}

// pause is how long after its nth question a letter is asked about again.
func (r LookupRule) pause(asked int) time.Duration {
	d := r.FirstPause
	for range asked - 1 {
		if d >= r.MaxPause/2 {
			return r.MaxPause
		}
		d *= 2
	}
	return min(d, r.MaxPause)
}

// LookupStats are counts of one process.
type LookupStats struct {
	Asked   uint64 // questions to escrow services
	Cleared uint64 // letters of which nothing was executed
	Closed  uint64 // letters whose payment was found
}

// Why a letter of unknown outcome waits for a person.
const (
	LookupKeyForgotten = "forgotten"    // the escrow service may have forgotten the operation key
	LookupOtherAmount  = "other_amount" // another sum was moved than was left to be moved
)

const (
	lookupPage    = 100    // letters of a round
	maxNeverAsked = 10_000 // letters that are waited for at one time, before their first question
)

// lookupLoop asks the escrow service about open letters of unknown outcome, as long as no
// other process does:
//
//	letter ─▶ nothing can be on its way, on this process's own clock ─▶ asked
//	  executed, just what is left          the letter is closed, the case settled
//	  executed, another sum                waits for a person
//	  not executed, a second time          cleared: it can be forked, or adjudicated anew
//	  anything else                        asked again, until the key may be forgotten
//
// What it does holds the letter's case as it was before the question, so that whoever moves
// it meanwhile was first. An answer that tells nothing new changes only the record of asking.
type lookupLoop struct {
	*Service
	rule LookupRule

	firstSeen map[background.RunID]time.Time // since when a letter that was never asked about is known here, monotonic
	limiters  map[string]*rate.Limiter       // of escrow services
	targets   []string                       // that can be asked
	slots     chan struct{}                  // one for each question

	asked, cleared, closed atomic.Uint64

	mu           sync.Mutex
	skippedUntil map[background.RunID]time.Time // letters about which nothing can be asked or recorded: until when they are passed over, monotonic
}

// lookupSkipFor is for how long a letter is passed over that can't be read or recorded: it must
// not stand before the others in every round.
const lookupSkipFor = 10 * time.Minute

// skip leaves a letter alone for some time.
func (l *lookupLoop) skip(id background.RunID, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skippedUntil[id] = time.Now().Add(d)
}

// skippedNow are the letters that are left alone now.
func (l *lookupLoop) skippedNow() map[background.RunID]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(l.skippedUntil, func(_ background.RunID, until time.Time) bool { return now.After(until) })
	return maps.Clone(l.skippedUntil)
}

func newLookupLoop(s *Service, rule LookupRule) *lookupLoop {
	rule = rule.withDefaults()
	return &lookupLoop{Service: s, rule: rule, firstSeen: map[background.RunID]time.Time{}, skippedUntil: map[background.RunID]time.Time{}, limiters: map[string]*rate.Limiter{}, slots: make(chan struct{}, rule.Slots)}
}

func (l *lookupLoop) stats() LookupStats {
	return LookupStats{Asked: l.asked.Load(), Cleared: l.cleared.Load(), Closed: l.closed.Load()}
}

// run asks until ctx ends.
func (l *lookupLoop) run(ctx context.Context) {
	if l.targets = l.settlements.lookupTargets(); len(l.targets) == 0 || l.rule.Off {
		return
	}
	failing := false
	for sleepOr(ctx, l.rule.Every, nil) {
		_, err := l.journal.ExclusiveLookup(ctx, func() error { return l.round(ctx) })
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			l.log.Error("letters of unknown outcome can't be looked up, trying on", zap.Error(err))
		}
		failing = err != nil
	}
}

// round asks about the letters whose time has come, each escrow service at its own pace.
func (l *lookupLoop) round(ctx context.Context) error {
	if err := l.journal.DeleteResolvedLookups(ctx); err != nil {
		return err
	}
	skipped := l.skippedNow()
	due, err := l.journal.DueLookups(ctx, l.targets, l.now(), lookupPage+len(skipped))
	if err != nil {
		return err
	}
	first, err := l.firstLookups(ctx, skipped)
	if err != nil {
		return err
	}
	by := map[string][]background.RunID{}
	for _, u := range append(due, first...) {
		if _, is := skipped[u.Run]; is {
			continue
		}
		service := l.settlements.targets.breakerTarget(u.Target)
		by[service] = append(by[service], u.Run)
	}
	var all sync.WaitGroup
	for service, ids := range by {
		limiter := l.limiters[service]
		if limiter == nil {
			limiter = rate.NewLimiter(rate.Limit(l.rule.PerSecond), 1)
			l.limiters[service] = limiter
		}
		all.Go(func() {
			for _, id := range ids {
				if !l.acquire(ctx, limiter) {
					return
				}
				all.Go(func() {
					defer func() { <-l.slots }()
					l.tryLookup(ctx, id)
				})
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// acquire waits for the pace and a slot; false when ctx ends first.
func (l *lookupLoop) acquire(ctx context.Context, limiter *rate.Limiter) bool {
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

// firstLookups are letters that were never asked about, and of which this process has
// known for so long that no call can be on its way. No two clocks are compared.
func (l *lookupLoop) firstLookups(ctx context.Context, skipped map[background.RunID]time.Time) (out []postgres.UnknownLetter, err error) {
	found, err := l.journal.NeverLookedUp(ctx, l.targets, maxNeverAsked)
	if err != nil {
		return nil, err
	}
	f, now, seen := l.settlements, time.Now(), make(map[background.RunID]time.Time, len(found))
	for _, u := range found {
		since, known := l.firstSeen[u.Run]
		if !known {
			since = now
		}
		seen[u.Run] = since
		bound := f.callBound + f.timeLimit + max(0, f.inFlight(u.Target))
		if _, is := skipped[u.Run]; !is && !u.Paused && now.Sub(since) >= bound && len(out) < lookupPage {
			out = append(out, u)
		}
	}
	l.firstSeen = seen
	return out, nil
}

// tryLookup asks about a letter. What fails is met again in the next round.
func (l *lookupLoop) tryLookup(ctx context.Context, id background.RunID) {
	err := recoverPanic(func() error { return l.lookUpLetter(ctx, id) })
	if errors.Is(err, ErrUnreadable) || errors.Is(err, ErrUnrecordable) {
		l.skip(id, lookupSkipFor)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, errPlanStale) && !errors.Is(err, background.ErrConflict) {
		l.log.Warn("a letter of unknown outcome was not looked up", zap.Stringer("run", id), zap.Error(err))
	}
}

func (l *lookupLoop) lookUpLetter(ctx context.Context, id background.RunID) error {
	s, was, err := l.journal.LetterForLookup(ctx, id)
	if err != nil {
		return err
	}
	if l.manager.BreakerOpen(s.Run) {
		return nil
	}
	q, err := l.settlements.readLookupEvidence(ctx, s.Run)
	if err != nil {
		return err
	}
	if q.outstanding { // until it comes back, or its process is gone; others have their turn meanwhile
		l.skip(id, l.rule.FirstPause)
		return nil
	}
	l.asked.Add(1)
	found := l.lookUpWithTimeout(ctx, s.Run, true)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := l.now()
	next := postgres.LookupRecord{
		Run: id, Tenant: s.Run.Tenant, Count: was.Count + 1, LookedUpAt: now, Answer: found.Class, Moved: found.Moved, NotExecutedAt: was.NotExecutedAt,
		NextAt: now.Add(l.rule.pause(was.Count + 1)),
	}
	if found.Failure != nil {
		next.FailureType = found.Failure.Type
	}
	minGap := max(l.rule.FirstPause, max(0, q.inFlight))
	switch left := s.Case.State.Asked - s.Case.State.Moved; {
	case found.Class == Executed && found.Moved == left:
		return l.recordAnswer(ctx, s, found, &l.closed)
	case found.Class == Executed:
		next.NextAt, next.ManualReason = time.Time{}, LookupOtherAmount
	case found.Class == NotExecuted && !was.NotExecutedAt.IsZero() && now.Sub(was.NotExecutedAt) >= minGap:
		return l.recordAnswer(ctx, s, found, &l.cleared)
	case found.Class == NotExecuted && was.NotExecutedAt.IsZero():
		next.NotExecutedAt, next.NextAt = now, now.Add(minGap)
	}
	if !next.NextAt.IsZero() && q.keyRetention != Forever && next.NextAt.Sub(s.Run.FirstSentAt) >= q.keyRetention-q.margin {
		next.NextAt, next.ManualReason = time.Time{}, LookupKeyForgotten
	}
	return l.journal.RecordLookup(ctx, next)
}

// recordAnswer records what the escrow service said, if nobody has moved the case since it was
// read.
func (l *lookupLoop) recordAnswer(ctx context.Context, s postgres.Snapshot, found background.Result, count *atomic.Uint64) error {
	m := background.Transition{
		ID: newID(), Run: s.Run, Event: receipts.Reconciled, At: l.now(), Actor: "lookup:" + l.worker, Lookup: found.Class,
		Result: background.Result{Class: found.Class, Moved: found.Moved, Reference: found.Reference},
	}
	_, err := l.settlements.record(ctx, m, &planGuard{head: &s.Case.Head})
	if err == nil {
		count.Add(1)
	}
	return err
}

// Lookups tells how an open letter of unknown outcome is asked about without a person.
type Lookups struct {
	Asked    int        `json:"asked"`
	AskedAt  *time.Time `json:"asked_at,omitempty"`  // the last time
	Answer   Class      `json:"answer,omitempty"`    // the last one
	Reason   string     `json:"why,omitempty"`       // of an answer that tells nothing
	Moved    int64      `json:"moved,omitempty"`     // minor units, of an answer of executed
	AbsentAt *time.Time `json:"absent_at,omitempty"` // when it was first said that nothing was executed
	NextAt   *time.Time `json:"next_at,omitempty"`   // when it is asked again; absent before the first time
	WaitsFor string     `json:"waits_for,omitempty"` // why it is not asked again, and a person has to find out: forgotten, other_amount
}

// lookupsOf tells how a letter is asked about; nil when there is nothing to be asked.
func (s *Service) lookupsOf(ctx context.Context, seen postgres.Snapshot) (*Lookups, error) {
	if openLetterGate(seen) != "" || seen.Run.UnresolvedUnknowns == 0 {
		return nil, nil
	}
	r, err := s.journal.Lookup(ctx, seen.Run.Tenant, seen.Run.ID)
	out := &Lookups{Asked: r.Count, Answer: r.Answer, Reason: r.FailureType, Moved: r.Moved, WaitsFor: r.ManualReason}
	for _, t := range []struct {
		to *(*time.Time)
		at time.Time
	}{{&out.AskedAt, r.LookedUpAt}, {&out.AbsentAt, r.NotExecutedAt}, {&out.NextAt, r.NextAt}} {
		if !t.at.IsZero() {
			*t.to = &t.at
		}
	}
	return out, err
}

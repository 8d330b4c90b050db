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
	Off       bool
	Every     time.Duration // how often letters to ask about are looked for; 5s
	First     time.Duration // from the first question to the second; each further pause is twice as long; 1m
	Longest   time.Duration // the longest pause; 6h
	PerSecond int           // questions to one escrow service in a second, by all processes; 5
	Slots     int           // questions at one time; 4
}

func (r LookupRule) withDefaults() LookupRule {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&r.Every, 5 * time.Second}, {&r.First, time.Minute}, {&r.Longest, 6 * time.Hour}} {
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
	d := r.First
	for range asked - 1 {
		if d >= r.Longest/2 {
			return r.Longest
		}
		d *= 2
	}
	return min(d, r.Longest)
}

// LookupStats are counts of one process.
type LookupStats struct {
	Asked   uint64 // questions to escrow services
	Cleared uint64 // letters of which nothing was executed
	Closed  uint64 // letters whose payment was found
}

// Why a letter of unknown outcome waits for a person.
const (
	WaitsForgotten   = "forgotten"    // the escrow service may have forgotten the operation key
	WaitsOtherAmount = "other_amount" // another sum was moved than was left to be moved
)

const (
	lookupPage = 100    // letters of a round
	lookupSeen = 10_000 // letters that are waited for at one time, before their first question
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

	seen    map[background.RunID]time.Time // since when a letter that was never asked about is known here, monotonic
	paces   map[string]*rate.Limiter       // of escrow services
	targets []string                       // that can be asked
	asking  chan struct{}                  // one for each question

	asked, cleared, closed atomic.Uint64

	mu     sync.Mutex
	passed map[background.RunID]time.Time // letters about which nothing can be asked or recorded: until when they are passed over, monotonic
}

// lookupPassed is for how long a letter is passed over that can't be read or recorded: it must
// not stand before the others in every round.
const lookupPassed = 10 * time.Minute

// passOver leaves a letter alone for some time.
func (l *lookupLoop) passOver(id background.RunID, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passed[id] = time.Now().Add(d)
}

// passedOver are the letters that are left alone now.
func (l *lookupLoop) passedOver() map[background.RunID]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(l.passed, func(_ background.RunID, until time.Time) bool { return now.After(until) })
	return maps.Clone(l.passed)
}

func newLookupLoop(s *Service, rule LookupRule) *lookupLoop {
	rule = rule.withDefaults()
	return &lookupLoop{Service: s, rule: rule, seen: map[background.RunID]time.Time{}, passed: map[background.RunID]time.Time{}, paces: map[string]*rate.Limiter{}, asking: make(chan struct{}, rule.Slots)}
}

func (l *lookupLoop) stats() LookupStats {
	return LookupStats{Asked: l.asked.Load(), Cleared: l.cleared.Load(), Closed: l.closed.Load()}
}

// run asks until ctx ends.
func (l *lookupLoop) run(ctx context.Context) {
	if l.targets = l.settlements.canAsk(); len(l.targets) == 0 || l.rule.Off {
		return
	}
	failing := false
	for pass(ctx, l.rule.Every, nil) {
		_, err := l.journal.WhileLookingUp(ctx, func() error { return l.round(ctx) })
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
	if err := l.journal.ForgetLookups(ctx); err != nil {
		return err
	}
	passed := l.passedOver()
	due, err := l.journal.LookupsDue(ctx, l.targets, l.now(), lookupPage+len(passed))
	if err != nil {
		return err
	}
	settled, err := l.settledLetters(ctx, passed)
	if err != nil {
		return err
	}
	by := map[string][]background.RunID{}
	for _, u := range append(due, settled...) {
		if _, is := passed[u.Run]; is {
			continue
		}
		service := l.settlements.targets.breaker(u.Target)
		by[service] = append(by[service], u.Run)
	}
	var all sync.WaitGroup
	for service, ids := range by {
		pace := l.paces[service]
		if pace == nil {
			pace = rate.NewLimiter(rate.Limit(l.rule.PerSecond), 1)
			l.paces[service] = pace
		}
		all.Go(func() {
			for _, id := range ids {
				if !l.begin(ctx, pace) {
					return
				}
				all.Go(func() {
					defer func() { <-l.asking }()
					l.one(ctx, id)
				})
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// begin waits for the pace and a slot; false when ctx ends first.
func (l *lookupLoop) begin(ctx context.Context, pace *rate.Limiter) bool {
	if pace.Wait(ctx) != nil {
		return false
	}
	select {
	case l.asking <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// settledLetters are letters that were never asked about, and of which this process has
// known for so long that no call can be on its way. No two clocks are compared.
func (l *lookupLoop) settledLetters(ctx context.Context, passed map[background.RunID]time.Time) (out []postgres.UnknownLetter, err error) {
	found, err := l.journal.NeverLookedUp(ctx, l.targets, lookupSeen)
	if err != nil {
		return nil, err
	}
	f, now, seen := l.settlements, time.Now(), make(map[background.RunID]time.Time, len(found))
	for _, u := range found {
		since, known := l.seen[u.Run]
		if !known {
			since = now
		}
		seen[u.Run] = since
		bound := f.callBound + f.limit + max(0, f.inFlight(u.Target))
		if _, is := passed[u.Run]; !is && !u.Paused && now.Sub(since) >= bound && len(out) < lookupPage {
			out = append(out, u)
		}
	}
	l.seen = seen
	return out, nil
}

// one asks about a letter. What fails is met again in the next round.
func (l *lookupLoop) one(ctx context.Context, id background.RunID) {
	err := survived(func() error { return l.ask(ctx, id) })
	if errors.Is(err, ErrUnreadable) || errors.Is(err, ErrUnrecordable) {
		l.passOver(id, lookupPassed)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, errPlanStale) && !errors.Is(err, background.ErrLostGuard) {
		l.log.Warn("a letter of unknown outcome was not looked up", zap.Stringer("run", id), zap.Error(err))
	}
}

func (l *lookupLoop) ask(ctx context.Context, id background.RunID) error {
	s, was, err := l.journal.LetterToLookUp(ctx, id)
	if err != nil {
		return err
	}
	if l.manager.BreakerOpen(s.Run) {
		return nil
	}
	q, err := l.settlements.inquiry(ctx, s.Run)
	if err != nil {
		return err
	}
	if q.outstanding { // until it comes back, or its process is gone; others have their turn meanwhile
		l.passOver(id, l.rule.First)
		return nil
	}
	l.asked.Add(1)
	found := l.lookedUp(ctx, s.Run, true)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := l.now()
	next := postgres.LookupRecord{
		Run: id, Tenant: s.Run.Tenant, Asked: was.Asked + 1, AskedAt: now, Answer: found.Class, Moved: found.Moved, AbsentAt: was.AbsentAt,
		NextAt: now.Add(l.rule.pause(was.Asked + 1)),
	}
	if found.Failure != nil {
		next.Why = found.Failure.Type
	}
	apart := max(l.rule.First, max(0, q.inFlight))
	switch left := s.Case.State.Asked - s.Case.State.Moved; {
	case found.Class == Executed && found.Moved == left:
		return l.settle(ctx, s, found, &l.closed)
	case found.Class == Executed:
		next.NextAt, next.WaitsFor = time.Time{}, WaitsOtherAmount
	case found.Class == NotExecuted && !was.AbsentAt.IsZero() && now.Sub(was.AbsentAt) >= apart:
		return l.settle(ctx, s, found, &l.cleared)
	case found.Class == NotExecuted && was.AbsentAt.IsZero():
		next.AbsentAt, next.NextAt = now, now.Add(apart)
	}
	if !next.NextAt.IsZero() && q.remembers != Forever && next.NextAt.Sub(s.Run.FirstSentAt) >= q.remembers-q.margin {
		next.NextAt, next.WaitsFor = time.Time{}, WaitsForgotten
	}
	return l.journal.RecordLookup(ctx, next)
}

// settle records what the escrow service said, if nobody has moved the case since it was
// read.
func (l *lookupLoop) settle(ctx context.Context, s postgres.Snapshot, found background.Result, count *atomic.Uint64) error {
	m := background.Move{
		ID: newID(), Run: s.Run, Fact: receipts.Reconciled, At: l.now(), Actor: "lookup:" + l.worker, Lookup: found.Class,
		Result: background.Result{Class: found.Class, Moved: found.Moved, Reference: found.Reference},
	}
	_, err := l.settlements.record(ctx, m, &asPlanned{head: &s.Case.Head})
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
	Why      string     `json:"why,omitempty"`       // of an answer that tells nothing
	Moved    int64      `json:"moved,omitempty"`     // minor units, of an answer of executed
	AbsentAt *time.Time `json:"absent_at,omitempty"` // when it was first said that nothing was executed
	NextAt   *time.Time `json:"next_at,omitempty"`   // when it is asked again; absent before the first time
	WaitsFor string     `json:"waits_for,omitempty"` // why it is not asked again, and a person has to find out: forgotten, other_amount
}

// lookupsOf tells how a letter is asked about; nil when there is nothing to be asked.
func (s *Service) lookupsOf(ctx context.Context, seen postgres.Snapshot) (*Lookups, error) {
	if open(seen) != "" || seen.Run.UnknownOpen == 0 {
		return nil, nil
	}
	r, err := s.journal.Lookup(ctx, seen.Run.Tenant, seen.Run.ID)
	out := &Lookups{Asked: r.Asked, Answer: r.Answer, Why: r.Why, Moved: r.Moved, WaitsFor: r.WaitsFor}
	for _, t := range []struct {
		to *(*time.Time)
		at time.Time
	}{{&out.AskedAt, r.AskedAt}, {&out.AbsentAt, r.AbsentAt}, {&out.NextAt, r.NextAt}} {
		if !t.at.IsZero() {
			*t.to = &t.at
		}
	}
	return out, err
}

package replay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/every"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Intervals and bounds of the rule runner.
const (
	roundEvery    = 3 * time.Second // interval between rounds, unless configured
	pageSize      = 100             // letters per page
	pagesPerRound = 10              // pages per rule and round
	concurrency   = 4               // letters changed at once
	failureLimit  = 8               // failing letters of a page after which the rest is left to a later round
)

// runner applies the enabled rules at intervals, while no other process does. A round is
// bounded: the next round continues a rule where it stopped, from the oldest death to the newest,
// and then starts again.
//
//	rules ─▶ letters found ─▶ as they are now ─▶ gates ─▶ fork or mark, counted in the same commit
//
// Correctness depends neither on being the only process nor on the runner's memory: each change
// is guarded by the letter's case and the rule as they were when it was decided.
type runner struct {
	store *Replayer
	page  int
	pages int

	mu      sync.Mutex
	cursors map[ruleKey]ruleCursor // where each rule continues
	failing map[ruleKey]bool       // rules whose failure was logged

	rounds, replayed, marked, failed atomic.Uint64
}

type ruleKey struct{ tenant, name string }

// ruleCursor is where a version of a rule continues.
type ruleCursor struct {
	version int64
	after   search.Position
}

// Report counts what one round of the rules did, over all tenants.
type Report struct {
	Ran      bool // false: another process applies rules, and this one did nothing
	Rules    int  // enabled rules
	Replayed int  // letters forked
	Marked   int  // letters marked
	Failed   int  // rules that failed; the next round retries
}

// Stats counts the rule runner's work in one process.
type Stats struct {
	Rounds   uint64 // completed rounds
	Replayed uint64 // letters that rules forked
	Marked   uint64 // letters that rules marked
	Failed   uint64 // failures of single rules
}

func NewReplayer(c *casework.Applier, index *deadletter.Searcher, every time.Duration, executes bool) *Replayer {
	if every <= 0 {
		every = roundEvery
	}
	r := &Replayer{journal: c.Journal, applier: c, index: index, executes: executes, every: every, now: c.Now, log: c.Log}
	r.runner = &runner{store: r, page: pageSize, pages: pagesPerRound, cursors: map[ruleKey]ruleCursor{}, failing: map[ruleKey]bool{}}
	return r
}

// Stats returns what this process did.
func (s *Replayer) Stats() Stats {
	r := s.runner
	return Stats{Rounds: r.rounds.Load(), Replayed: r.replayed.Load(), Marked: r.marked.Load(), Failed: r.failed.Load()}
}

// Run applies rules until ctx ends.
func (s *Replayer) Run(ctx context.Context) {
	failures := every.Failures{Log: s.log, Failed: "can't apply rules, retrying", Again: "rules are applied again"}
	for casework.Sleep(ctx, s.every, nil) {
		if _, err := s.Apply(ctx); !failures.Note(ctx, err) {
			return
		}
	}
}

// Apply runs one round of the enabled rules of all tenants, as Run does at intervals. A
// failing rule does not block others: it is counted and logged, and the next round retries it. Only
// one process applies rules at a time; Report.Ran reports whether this call did. Errors:
// ErrNoExecutor if this process executes nothing.
func (s *Replayer) Apply(ctx context.Context) (Report, error) {
	if !s.executes {
		return Report{}, refusal.ErrNoExecutor // only a process that executes knows what a fork's operation key must be
	}
	enabled, err := s.journal.Rules.Enabled(ctx)
	if err != nil {
		return Report{}, err
	}
	s.runner.dropRemoved(enabled)
	if len(enabled) == 0 {
		return Report{Ran: true}, nil
	}
	var out Report
	ran, err := s.journal.Rules.Exclusive(ctx, func() error {
		if err := s.index.Search.CatchUp(ctx); err != nil {
			return err
		}
		out = s.runner.round(ctx, enabled)
		return ctx.Err()
	})
	out.Ran = ran
	if ran && err == nil {
		s.runner.rounds.Add(1)
	}
	return out, err
}

// dropRemoved forgets the rules that are not enabled any more.
func (r *runner) dropRemoved(enabled []journal.Rule) {
	exists := make(map[ruleKey]bool, len(enabled))
	for _, e := range enabled {
		exists[ruleKey{e.Tenant, e.Name}] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.cursors {
		if !exists[key] {
			delete(r.cursors, key)
		}
	}
	for key := range r.failing {
		if !exists[key] {
			delete(r.failing, key)
		}
	}
}

// round applies each rule once.
func (r *runner) round(ctx context.Context, enabled []journal.Rule) Report {
	out := Report{Rules: len(enabled)}
	for _, e := range enabled {
		if ctx.Err() != nil {
			break
		}
		n, err := r.applyRule(ctx, e)
		if ctx.Err() == nil {
			r.recordResult(e, err)
		}
		if err != nil {
			out.Failed++
		}
		out.Replayed += n.replayed
		out.Marked += n.marked
	}
	return out
}

// recordResult counts a failure, and logs the first one until the rule succeeds again.
func (r *runner) recordResult(e journal.Rule, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := ruleKey{e.Tenant, e.Name}
	if err == nil {
		delete(r.failing, key)
		return
	}
	r.failed.Add(1)
	if !r.failing[key] {
		r.failing[key] = true
		r.store.log.Warn("can't apply a rule, retrying", zap.String("tenant", e.Tenant), zap.String("rule", e.Name), zap.Int64("version", e.Version), zap.Error(err))
	}
}

// applyRule applies one rule to the next letters. A panic counts as an error of that rule.
func (r *runner) applyRule(ctx context.Context, e journal.Rule) (n counts, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("replay: rule %s panicked: %v", e.Name, p)
		}
	}()
	read, err := parseStoredRule(e)
	if err != nil {
		return n, err
	}
	rule, err := newActive(read)
	if err != nil {
		return n, err
	}
	key := ruleKey{e.Tenant, e.Name}
	cursor := r.cursorOf(key, e.Version)
	defer func() { r.saveCursor(key, cursor) }()
	for range r.pages {
		at := r.store.now()
		found, more, last, err := r.store.index.Search.Search(ctx, e.Tenant, r.store.index.JournalFilter(rule.searchFilter(at), at), deadletter.Orders[deadletter.OldestFirst], cursor.after, 0, r.page)
		if err != nil {
			return n, err
		}
		if cursor.after = last; !more {
			cursor.after = search.Position{}
		}
		done, err := r.store.applyRuleToFound(ctx, &rule, found, at)
		n.replayed, n.marked = n.replayed+done.replayed, n.marked+done.marked
		r.replayed.Add(uint64(done.replayed))
		r.marked.Add(uint64(done.marked))
		if err != nil || !more || ctx.Err() != nil {
			return n, err // the rule meets letters that failed when it starts again
		}
	}
	return n, nil
}

func (r *runner) cursorOf(key ruleKey, version int64) ruleCursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.cursors[key]; p.version == version {
		return p
	}
	return ruleCursor{version: version}
}

func (r *runner) saveCursor(key ruleKey, p ruleCursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursors[key] = p
}

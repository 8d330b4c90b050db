package postadjudication

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// Times and bounds of the ruler.
const (
	ruleEvery        = 3 * time.Second // how often rules are applied, unless configured
	rulePage         = 100             // letters that are looked at together
	rulePages        = 10              // pages that one rule looks at in a round
	ruleConcurrency  = 4               // letters that are acted on at once
	ruleFailureLimit = 8               // letters of a page that fail before the rest is left for later
)

// ruleRunner applies the rules that are enabled, now and then, as long as no other process
// does. A round is bounded: a rule goes on in the next one where it stopped, from the
// oldest death to the newest, and then begins anew.
//
//	rules ─▶ letters found ─▶ as they are now ─▶ gates ─▶ fork or mark, counted in the same commit
//
// Neither the process that is alone at it nor what it remembers is needed for any of
// this to be right: whatever is done holds the letter's case and the rule as they were
// when it was decided.
type ruleRunner struct {
	service *Service
	every   time.Duration
	page    int
	pages   int

	mu      sync.Mutex
	cursors map[ruleKey]ruleCursor // where rules go on
	failing map[ruleKey]bool       // rules whose failure was told of

	rounds, replayed, marked, failed atomic.Uint64
}

type ruleKey struct{ tenant, name string }

// ruleCursor is where a rule of a version goes on.
type ruleCursor struct {
	version int64
	after   postgres.LetterPosition
}

// RuleReport is what one round of the rules did, of all tenants.
type RuleReport struct {
	Ran      bool // false: another process applies rules, and this one did nothing
	Rules    int  // that are enabled
	Replayed int  // letters that were forked
	Marked   int  // letters that were marked
	Failed   int  // rules that could not be carried through, and are tried again
}

// RuleStats are counts of one process.
type RuleStats struct {
	Rounds   uint64 // of rules that were carried through
	Replayed uint64 // letters that rules forked
	Marked   uint64 // letters that rules marked
	Failed   uint64 // failures of single rules
}

func newRuleRunner(s *Service, every time.Duration) *ruleRunner {
	if every <= 0 {
		every = ruleEvery
	}
	return &ruleRunner{service: s, every: every, page: rulePage, pages: rulePages, cursors: map[ruleKey]ruleCursor{}, failing: map[ruleKey]bool{}}
}

func (r *ruleRunner) stats() RuleStats {
	return RuleStats{Rounds: r.rounds.Load(), Replayed: r.replayed.Load(), Marked: r.marked.Load(), Failed: r.failed.Load()}
}

// run applies rules until ctx ends.
func (r *ruleRunner) run(ctx context.Context) {
	failing := false
	for sleepOr(ctx, r.every, nil) {
		_, err := r.service.ApplyRules(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			r.service.log.Error("rules can't be applied, trying on", zap.Error(err))
		}
		failing = err != nil
	}
}

// ApplyRules makes one round of the rules that are enabled, of all tenants, as Run
// does every few seconds. A rule that fails keeps no other from its turn: it is counted
// and told to the log, and tried again in the next round. Only one process applies
// rules at a time; RuleReport.Alone says whether it was this.
func (s *Service) ApplyRules(ctx context.Context) (RuleReport, error) {
	if !s.executes {
		return RuleReport{}, ErrNoExecutor // it alone knows what a fork's operation key must be
	}
	enabled, err := s.journal.EnabledRules(ctx)
	if err != nil {
		return RuleReport{}, err
	}
	s.rules.dropRemoved(enabled)
	if len(enabled) == 0 {
		return RuleReport{Ran: true}, nil
	}
	var out RuleReport
	ran, err := s.journal.ExclusiveReplay(ctx, func() error {
		if err := s.journal.CatchUpLetters(ctx); err != nil {
			return err
		}
		out = s.rules.round(ctx, enabled)
		return ctx.Err()
	})
	out.Ran = ran
	if ran && err == nil {
		s.rules.rounds.Add(1)
	}
	return out, err
}

// dropRemoved drops what is remembered of rules that there are not any more.
func (r *ruleRunner) dropRemoved(enabled []postgres.Rule) {
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

// round gives each rule its turn.
func (r *ruleRunner) round(ctx context.Context, enabled []postgres.Rule) RuleReport {
	out := RuleReport{Rules: len(enabled)}
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

// recordResult counts a turn that failed, and tells of it once until one succeeds.
func (r *ruleRunner) recordResult(e postgres.Rule, err error) {
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
		r.service.log.Warn("a rule can't be applied, trying on", zap.String("tenant", e.Tenant), zap.String("rule", e.Name), zap.Int64("version", e.Version), zap.Error(err))
	}
}

// applyRule applies one rule to the next letters. A panic is that rule's failure.
func (r *ruleRunner) applyRule(ctx context.Context, e postgres.Rule) (n ruleCounts, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("postadjudication: rule %s panicked: %v", e.Name, p)
		}
	}()
	read, err := parseStoredRule(e)
	if err != nil {
		return n, err
	}
	rule, err := newActiveRule(read)
	if err != nil {
		return n, err
	}
	key := ruleKey{e.Tenant, e.Name}
	cursor := r.cursorOf(key, e.Version)
	defer func() { r.saveCursor(key, cursor) }()
	for range r.pages {
		at := r.service.now()
		found, more, last, err := r.service.journal.Letters(ctx, e.Tenant, r.service.journalFilter(rule.searchFilter(at), at), letterOrders[OldestFirst], cursor.after, r.page)
		if err != nil {
			return n, err
		}
		if cursor.after = last; !more {
			cursor.after = postgres.LetterPosition{}
		}
		done, err := r.service.applyRuleToFound(ctx, &rule, found, at)
		n.replayed, n.marked = n.replayed+done.replayed, n.marked+done.marked
		r.replayed.Add(uint64(done.replayed))
		r.marked.Add(uint64(done.marked))
		if err != nil || !more || ctx.Err() != nil {
			return n, err // the letters that failed are met again when the rule begins anew
		}
	}
	return n, nil
}

func (r *ruleRunner) cursorOf(key ruleKey, version int64) ruleCursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.cursors[key]; p.version == version {
		return p
	}
	return ruleCursor{version: version}
}

func (r *ruleRunner) saveCursor(key ruleKey, p ruleCursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursors[key] = p
}

package postadjudication

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// replayRule returns a rule for letters that the escrow service refused.
func replayRule(most int) RuleChange {
	return RuleChange{Reason: "the bank is slow on mondays",
		Rule: Rule{Name: "refused-later", Enabled: true, Filter: deadletter.Filter{ErrorType: "http.refused"}, Delay: "0s", MaxReplays: most}}
}

func (r *rig) mustSetRule(q RuleChange) StoredRule {
	r.t.Helper()
	set, err := r.As("acme", "user:ada").Rules.Set(context.Background(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return set
}

// mustApplyRules runs one round of the rules.
func (r *rig) mustApplyRules(want RuleReport) {
	r.t.Helper()
	want.Ran = true
	if got, err := r.ApplyRules(context.Background()); err != nil || got != want {
		r.t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// withoutRuleLoop keeps Run from applying rules, so that the test does.
func withoutRuleLoop(c *Config) { c.RuleEvery = time.Hour }

func TestARuleReplaysWhatItIsForAndNothingElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	ctx, yes, no := context.Background(), true, false
	due := r.deadLetters(0, 3, func(escrow.Call) escrow.Answer { return refused() })
	kept := r.deadLetters(3, 6, func(escrow.Call) escrow.Answer { return refused() })
	kept = append(kept, r.deadLetters(6, 7, func(escrow.Call) escrow.Answer { return noAnswer() })...)
	kept = append(kept, r.deadLetters(7, 8, func(escrow.Call) escrow.Answer {
		return escrow.Answer{Class: escrow.Unknown, Type: "http.refused", Message: "who knows"}
	})...)
	kept = append(kept, r.deadLetters(8, 9, func(escrow.Call) escrow.Answer { return busy429() })...)
	if _, err := r.As("acme", "user:bob").DeadLetters.Hold(ctx, kept[0].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	for i, q := range []deadletter.Mark{{Reason: "odd", ManualReviewRequired: &yes}, {Reason: "closed", ReprocessEligible: &no}} {
		if _, err := r.As("acme", "user:bob").DeadLetters.Mark(ctx, kept[1+i].Run, q); err != nil {
			t.Fatal(err)
		}
	}
	r.mustApplyRules(RuleReport{})
	off := replayRule(3)
	off.Rule.Enabled = false
	r.mustSetRule(off)
	if _, err := r.As("other", "user:ada").Rules.Set(ctx, replayRule(3)); err != nil {
		t.Fatal(err)
	}
	r.mustApplyRules(RuleReport{Rules: 1})
	on := replayRule(3)
	on.Rule.Policy = &retrypolicy.Policy{MaxRetryAttempts: 5}
	r.mustSetRule(on)
	r.mustApplyRules(RuleReport{Rules: 2, Replayed: 3})
	r.untilNoneLive()
	for _, l := range due {
		line, err := r.Lineage(ctx, "acme", l.Run)
		if err != nil || len(line.Runs) != 2 || line.Runs[1].State != background.Succeeded || line.Runs[1].Policy.MaxRetryAttempts != 5 {
			t.Fatalf("%+v, %v", line, err)
		}
		for _, st := range line.Runs {
			if !maps.Equal(st.ByRule, map[string]int{"refused-later": 1}) || st.LastRule != "refused-later" || st.LastReplayedAt == nil || st.Total() != 1 {
				t.Errorf("%+v", st.RuleReplays)
			}
		}
		if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE run_id = $1 AND actor = 'rule:refused-later' AND subtype IN ('replayed', 'manual-retry-requested')
			AND body::json->'payload'->>'new_run' = $2 AND body::json->'payload'->>'reason' = 'replay 1 of 3 by rule refused-later, version 2: the bank is slow on mondays'`, l.Run.String(), line.Newest.String()); n != 2 {
			t.Errorf("%d receipts name the rule and the fork", n)
		}
	}
	for _, l := range kept {
		if st, err := r.Status(ctx, "acme", l.Run); err != nil || st.Letter != background.LetterOpen || st.Total() != 0 {
			t.Errorf("%+v, %v", st, err)
		}
	}
	r.mustApplyRules(RuleReport{Rules: 2})
	if s := r.Health().Stats().Rules; s != (RuleStats{Rounds: 3, Replayed: 3}) {
		t.Errorf("%+v", s)
	}
	r.mustAudit()
}

func TestARuleStopsWhenItHasReplayedALineageOftenEnough(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	first := r.mustSubmit(release(1))
	r.untilNoneLive()
	r.mustSetRule(replayRule(2))
	for _, n := range []int{1, 1, 0, 0} {
		r.mustApplyRules(RuleReport{Rules: 1, Replayed: n})
		r.untilNoneLive()
	}
	// A change of the rule, or a new rule of the same name, continues the count. A fork by hand is
	// not counted, and a higher limit allows one more replay.
	if _, err := r.As("acme", "user:ada").Rules.Delete(ctx, RuleRemoval{Name: "refused-later", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	r.mustApplyRules(RuleReport{})
	r.mustSetRule(replayRule(2))
	r.mustApplyRules(RuleReport{Rules: 1})
	line, err := r.Lineage(ctx, "acme", first.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, line.Newest, forkRequest); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	r.mustApplyRules(RuleReport{Rules: 1})
	r.mustSetRule(replayRule(3))
	r.mustApplyRules(RuleReport{Rules: 1, Replayed: 1})
	r.untilNoneLive()
	other := replayRule(1)
	other.Rule.Name = "another"
	r.mustSetRule(other)
	r.mustApplyRules(RuleReport{Rules: 2, Replayed: 1})
	r.untilNoneLive()
	want := map[string]int{"refused-later": 3, "another": 1}
	page, err := r.As("acme", "").DeadLetters.List(ctx, deadletter.Query{Limit: 10, Filter: deadletter.Filter{Status: background.LetterOpen}})
	if err != nil || len(page.Letters) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if l := page.Letters[0]; l.Replays != 5 || l.ReplayedBy != "rule:another" || !maps.Equal(l.ByRule, want) || l.LastRule != "another" || l.LastReplayedAt == nil {
		t.Errorf("%+v", l)
	}
	if st, err := r.Status(ctx, "acme", first.Run); err != nil || !maps.Equal(st.ByRule, want) || st.Replays != 5 {
		t.Errorf("%+v, %v", st, err)
	}
	r.mustAudit()
}

// The delay counts from each letter's own death.
func TestARuleWaitsForItsDelay(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	r.deadLetters(0, 2, func(escrow.Call) escrow.Answer { return refused() })
	q := replayRule(1)
	q.Rule.Delay = "PT1H"
	r.mustSetRule(q)
	k := r.retentionRig(withoutRuleLoop)
	k.at(59 * time.Minute).mustApplyRules(RuleReport{Rules: 1})
	if trial, err := k.As("acme", "").Rules.Try(context.Background(), q.Rule); err != nil || trial.Ready != 0 || trial.Refused[refusal.GateNotDue] != 2 {
		t.Errorf("%+v, %v", trial, err)
	}
	k.at(61 * time.Minute).mustApplyRules(RuleReport{Rules: 1, Replayed: 2})
	if early := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'replayed' AND at < now() + interval '1 hour'`); early != 0 {
		t.Errorf("%d replays before their time", early)
	}
}

// Many processes that find the same letters at the same time fork each once, and
// count that once.
func TestManyProcessesAtOnceReplayALetterOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	const n = 40
	r.deadLetters(0, n, func(escrow.Call) escrow.Answer { return refused() })
	r.mustSetRule(replayRule(5))
	ctx := context.Background()
	enabled, err := r.journal.Rules.Enabled(ctx)
	if err != nil || len(enabled) != 1 {
		t.Fatalf("%+v, %v", enabled, err)
	}
	if err := r.index.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	others := []*rig{r, joinRig(t, r.url, r.redis, r.escrow, withoutRuleLoop), joinRig(t, r.url, r.redis, r.escrow, withoutRuleLoop)}
	var all sync.WaitGroup
	done := make(chan RuleReport, len(others))
	for _, o := range others {
		all.Go(func() { done <- o.rules.runner.round(ctx, enabled) }) // without the exclusive lock
	}
	all.Wait()
	close(done)
	total := 0
	for d := range done {
		total += d.Replayed
		if d.Failed != 0 {
			t.Errorf("%+v", d)
		}
	}
	r.untilNoneLive()
	if total != n {
		t.Errorf("%d replays are reported", total)
	}
	if forks := r.count(`SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL`); forks != n {
		t.Errorf("%d forks of %d letters", forks, n)
	}
	if !r.queryBool(countedOnceSQL) {
		t.Error("the counts are not what the receipts say")
	}
	r.mustAudit()
}

// The counts equal those of the receipts, lineage by lineage.
const countedOnceSQL = `SELECT NOT EXISTS (SELECT FROM recourse.rule_replays c JOIN recourse.runs r ON r.id = c.root
	WHERE c.replays <> (SELECT count(*) FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.subtype = 'replayed' AND e.actor = 'rule:' || c.rule))
	AND (SELECT coalesce(sum(replays), 0) FROM recourse.rule_replays) = (SELECT count(*) FROM recourse.receipts WHERE subtype = 'replayed')`

// A change between the decision and the commit makes the commit fail, and nothing of it
// remains.
func TestWhatChangesMeanwhileKeepsARuleFromALetter(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	l := r.deadLetters(0, 1, func(escrow.Call) escrow.Answer { return refused() })[0]
	set := r.mustSetRule(replayRule(1))
	rule, err := newActiveRule(set)
	if err != nil {
		t.Fatal(err)
	}
	forkByRule := func(f journal.LetterRow, line ruleLineage) error {
		w := &ruleAction{&rule, r.settlements, map[background.RunID]ruleLineage{l.Run: line}, r.now()}
		return r.cases.ApplyAsRead(ctx, f, w.decide)
	}
	look := func() (journal.LetterRow, ruleLineage) {
		t.Helper()
		letters, lines, err := r.rules.lettersForRule(ctx, &rule, []search.Letter{{Run: background.Run{ID: l.Run}}})
		if err != nil || len(letters) != 1 {
			t.Fatalf("%+v, %v", letters, err)
		}
		return letters[0], lines[l.Run]
	}
	nothing := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
		if n := r.count(`SELECT (SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL) + (SELECT count(*) FROM recourse.receipts WHERE actor LIKE 'rule:%')`); n != 0 {
			t.Errorf("%s: %d rows were left", what, n)
		}
	}
	f, line := look()
	if _, err := r.As("acme", "user:bob").DeadLetters.Hold(ctx, l.Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	nothing("it is held", forkByRule(f, line), casework.ErrLetterChanged)
	if _, err := r.As("acme", "user:bob").DeadLetters.Release(ctx, l.Run, "it is over"); err != nil {
		t.Fatal(err)
	}
	f, line = look()
	off := replayRule(1)
	off.Rule.Enabled = false
	r.mustSetRule(off)
	nothing("the rule is off", forkByRule(f, line), journal.ErrRuleChanged)
	rule.StoredRule = r.mustSetRule(replayRule(1))
	if _, err := r.db.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, 'refused-later', 'acme', 1, now())`, l.Run.String()); err != nil {
		t.Fatal(err)
	}
	nothing("it is spent", forkByRule(f, line), journal.ErrRuleExhausted)
	if _, err := r.db.Exec(`DELETE FROM recourse.rule_replays`); err != nil {
		t.Fatal(err)
	}
	if err := forkByRule(f, line); err != nil {
		t.Fatal(err)
	}
	if err := forkByRule(f, line); !errors.Is(err, casework.ErrLetterChanged) {
		t.Errorf("the same letter again: %v", err)
	}
	r.untilNoneLive()
	r.mustAudit()
}

// After a rule was disabled it changes nothing any more, also if it was decided
// before.
func TestARuleThatWasSwitchedOffIsStillAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	const n = 120
	r.deadLetters(0, n, func(escrow.Call) escrow.Answer { return refused() })
	r.mustSetRule(replayRule(1))
	enabled, err := r.journal.Rules.Enabled(ctx)
	if err == nil {
		err = r.index.CatchUp(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if d := r.rules.runner.round(ctx, enabled); d.Failed != 0 {
			t.Errorf("%+v", d)
		}
	})
	r.until("it has begun", `SELECT count(*) > 5 FROM recourse.rule_replays`)
	off := replayRule(1)
	off.Rule.Enabled = false
	r.mustSetRule(off)
	then := r.count(`SELECT count(*) FROM recourse.rule_replays`)
	all.Wait()
	if now := r.count(`SELECT count(*) FROM recourse.rule_replays`); now != then {
		t.Errorf("%d replays when the rule was off, %d later", then, now)
	}
	if !r.queryBool(countedOnceSQL) {
		t.Error("the counts are not what the receipts say")
	}
	r.untilNoneLive()
	r.mustAudit()
}

// Tasks of plain families are replayed as settlements are.
func TestARuleReplaysTasksOfPlainFamilies(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	r := newRig(t, withoutRuleLoop, func(c *Config) {
		c.Families = []PlainFamily{{Name: "letters", Handle: func(context.Context, background.Attempt) background.Result {
			if calls.Add(1) == 1 {
				return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "http.refused", Message: "no"}}
			}
			return background.Result{Class: escrow.Executed}
		}}}
	}).startWorkers()
	task, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "letters"})
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	r.mustSetRule(replayRule(1))
	r.mustApplyRules(RuleReport{Rules: 1, Replayed: 1})
	r.untilNoneLive()
	if line, err := r.Lineage(context.Background(), "acme", task.Run); err != nil || len(line.Runs) != 2 || line.Runs[1].State != background.Succeeded || line.Runs[0].LastRule != "refused-later" {
		t.Errorf("%+v, %v", line, err)
	}
	r.mustAudit()
}

func TestARuleThatFailsKeepsNoOtherFromItsTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	r.deadLetters(0, 2, func(escrow.Call) escrow.Answer { return refused() })
	r.mustSetRule(replayRule(1))
	if _, err := r.db.Exec(`INSERT INTO recourse.rules (tenant, name, version, enabled, deleted, definition, actor, reason, at)
		VALUES ('acme', 'a-newer-one', 1, true, false, '{"name":"a-newer-one","moon":"full"}', 'user:ada', 'why not', now())`); err != nil {
		t.Fatal(err)
	}
	r.mustApplyRules(RuleReport{Rules: 2, Replayed: 2, Failed: 1})
	r.mustApplyRules(RuleReport{Rules: 2, Failed: 1})
	if s := r.Health().Stats().Rules; s != (RuleStats{Rounds: 2, Replayed: 2, Failed: 2}) {
		t.Errorf("%+v", s)
	}
	rules, err := r.As("acme", "").Rules.List(context.Background())
	if err != nil || len(rules) != 1 || rules[0].Name != "refused-later" {
		t.Errorf("%+v, %v", rules, err)
	}
	if _, err := r.As("acme", "user:ada").Rules.Delete(context.Background(), RuleRemoval{Name: "a-newer-one", Reason: "it does nothing"}); err != nil {
		t.Error(err)
	}
	r.mustApplyRules(RuleReport{Rules: 1})
}

// Letters that a rule always refuses do not block those behind them: the rule continues where
// it stopped.
func TestARuleComesToEveryLetterInBoundedRounds(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	old := r.deadLetters(0, 5, func(escrow.Call) escrow.Answer { return refused() })
	for _, l := range old {
		if _, err := r.db.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, 'refused-later', 'acme', 1, now())`, l.Run.String()); err != nil {
			t.Fatal(err)
		}
	}
	r.deadLetters(5, 8, func(escrow.Call) escrow.Answer { return refused() })
	r.mustSetRule(replayRule(1))
	r.rules.runner.page, r.rules.runner.pages = 2, 1
	for _, n := range []int{0, 0, 1, 2, 0, 0, 0} {
		r.mustApplyRules(RuleReport{Rules: 1, Replayed: n})
	}
}

func TestARuleMarksWhatNobodyHasMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx, yes, no := context.Background(), true, false
	letters := r.deadLetters(0, 3, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.As("acme", "user:bob").DeadLetters.Mark(ctx, letters[0].Run, deadletter.Mark{Reason: "seen", ManualReviewRequired: &no}); err != nil {
		t.Fatal(err)
	}
	q := replayRule(0)
	q.Rule.Mark = &RuleMark{Review: &yes, Reprocess: &yes, Reason: "refused payments are looked at"}
	r.mustSetRule(q)
	r.mustApplyRules(RuleReport{Rules: 1, Marked: 3})
	r.mustApplyRules(RuleReport{Rules: 1})
	for i, l := range letters {
		d, err := r.As("acme", "").DeadLetters.Annotations(ctx, l.Run)
		if err != nil || d.ManualReviewRequired != (i > 0) || !d.ReprocessEligible || d.MarkReason != "refused payments are looked at" {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'marked' AND actor = 'rule:refused-later' AND body::json->'payload'->>'changes' LIKE '%reprocess_eligible=true%'`); n != 3 {
		t.Errorf("%d receipts", n)
	}
	if _, err := r.As("acme", "user:bob").DeadLetters.Mark(ctx, letters[1].Run, deadletter.Mark{Reason: "seen", ManualReviewRequired: &no, ReprocessEligible: &no}); err != nil {
		t.Fatal(err)
	}
	r.mustApplyRules(RuleReport{Rules: 1})
	// A replay rule takes letters marked as eligible, and leaves those that require review.
	then := replayRule(1)
	then.Rule.Name, then.Rule.Filter = "eligible", deadletter.Filter{Reprocess: &yes}
	r.mustSetRule(then)
	r.mustApplyRules(RuleReport{Rules: 2, Replayed: 1})
	if st, err := r.Status(ctx, "acme", letters[0].Run); err != nil || st.LastRule != "eligible" {
		t.Errorf("%+v, %v", st, err)
	}
	r.untilNoneLive()
	r.mustAudit()
}

func TestRunAppliesRulesByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.RuleEvery = 10 * time.Millisecond }).startWorkers()
	joinRig(t, r.url, r.redis, r.escrow, func(c *Config) { c.RuleEvery = 10 * time.Millisecond }).startWorkers()
	r.mustSetRule(replayRule(3))
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if r.escrow.callsOf(c.OperationKey) < 3 { // the first run and its first two forks die
			return refused()
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	const n = 10
	for i := range n {
		r.mustSubmit(release(i))
	}
	r.until("all are settled", `SELECT count(*) = $1 FROM recourse.cases WHERE progression = 'settled'`, n)
	if !r.queryBool(countedOnceSQL) || r.count(`SELECT sum(replays) FROM recourse.rule_replays`) != 2*n {
		t.Error("the counts are not what the receipts say")
	}
	r.mustAudit()
}

func (e *scriptedEscrow) callsOf(k escrow.OperationKey) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[k]
}

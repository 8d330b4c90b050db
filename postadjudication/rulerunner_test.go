package postadjudication_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// replayRule returns a rule for letters that the escrow service refused.
func replayRule(most int) postadjudication.RuleChange {
	return postadjudication.RuleChange{Reason: "the bank is slow on mondays",
		Rule: postadjudication.Rule{Name: "refused-later", Enabled: true, Filter: deadletter.Filter{ErrorType: "http.refused"}, Delay: "0s", MaxReplays: most}}
}

func mustSetRule(r *rig.Rig, q postadjudication.RuleChange) postadjudication.StoredRule {
	r.T.Helper()
	set, err := r.As("acme", "user:ada").Rules.Set(context.Background(), q)
	if err != nil {
		r.T.Fatal(err)
	}
	return set
}

// mustApplyRules runs one round of the rules.
func mustApplyRules(r *rig.Rig, want postadjudication.RuleReport) {
	r.T.Helper()
	want.Ran = true
	if got, err := r.ApplyRules(context.Background()); err != nil || got != want {
		r.T.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// withoutRuleLoop keeps Run from applying rules, so that the test does.
func withoutRuleLoop(c *postadjudication.Config) { c.RuleEvery = time.Hour }

func TestARuleReplaysWhatItIsForAndNothingElse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx, yes, no := context.Background(), true, false
	due := r.DeadLetters(0, 3, rig.Refuses)
	kept := r.DeadLetters(3, 6, rig.Refuses)
	kept = append(kept, r.DeadLetters(6, 7, rig.GivesNoAnswer)...)
	kept = append(kept, r.DeadLetters(7, 8, func(escrow.Call) escrow.Answer {
		return escrow.Answer{Class: escrow.Unknown, Type: "http.refused", Message: "who knows"}
	})...)
	kept = append(kept, r.DeadLetters(8, 9, rig.RateLimits)...)
	if _, err := r.As("acme", "user:bob").DeadLetters.Hold(ctx, kept[0].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	for i, q := range []deadletter.Mark{{Reason: "odd", ManualReviewRequired: &yes}, {Reason: "closed", ReprocessEligible: &no}} {
		if _, err := r.As("acme", "user:bob").DeadLetters.Mark(ctx, kept[1+i].Run, q); err != nil {
			t.Fatal(err)
		}
	}
	mustApplyRules(r, postadjudication.RuleReport{})
	off := replayRule(3)
	off.Rule.Enabled = false
	mustSetRule(r, off)
	if _, err := r.As("other", "user:ada").Rules.Set(ctx, replayRule(3)); err != nil {
		t.Fatal(err)
	}
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1})
	on := replayRule(3)
	on.Rule.Policy = &retrypolicy.Policy{MaxRetryAttempts: 5}
	mustSetRule(r, on)
	mustApplyRules(r, postadjudication.RuleReport{Rules: 2, Replayed: 3})
	r.WaitNoneLive()
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
		if n := r.Count(`SELECT count(*) FROM recourse.receipts WHERE run_id = $1 AND actor = 'rule:refused-later' AND subtype IN ('replayed', 'manual-retry-requested')
			AND body::json->'payload'->>'new_run' = $2 AND body::json->'payload'->>'reason' = 'replay 1 of 3 by rule refused-later, version 2: the bank is slow on mondays'`, l.Run.String(), line.Newest.String()); n != 2 {
			t.Errorf("%d receipts name the rule and the fork", n)
		}
	}
	for _, l := range kept {
		if st, err := r.Status(ctx, "acme", l.Run); err != nil || st.Letter != background.LetterOpen || st.Total() != 0 {
			t.Errorf("%+v, %v", st, err)
		}
	}
	mustApplyRules(r, postadjudication.RuleReport{Rules: 2})
	if s := r.Health().Stats().Rules; s != (postadjudication.RuleStats{Rounds: 3, Replayed: 3}) {
		t.Errorf("%+v", s)
	}
	r.MustAudit()
}

func TestARuleStopsWhenItHasReplayedALineageOftenEnough(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	ctx := context.Background()
	r.Escrow.Answer(rig.Refuses)
	first := r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	mustSetRule(r, replayRule(2))
	for _, n := range []int{1, 1, 0, 0} {
		mustApplyRules(r, postadjudication.RuleReport{Rules: 1, Replayed: n})
		r.WaitNoneLive()
	}
	// A change of the rule, or a new rule of the same name, continues the count. A fork by hand is
	// not counted, and a higher limit allows one more replay.
	if _, err := r.As("acme", "user:ada").Rules.Delete(ctx, postadjudication.RuleRemoval{Name: "refused-later", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	mustApplyRules(r, postadjudication.RuleReport{})
	mustSetRule(r, replayRule(2))
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1})
	line, err := r.Lineage(ctx, "acme", first.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, line.Newest, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1})
	mustSetRule(r, replayRule(3))
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1, Replayed: 1})
	r.WaitNoneLive()
	other := replayRule(1)
	other.Rule.Name = "another"
	mustSetRule(r, other)
	mustApplyRules(r, postadjudication.RuleReport{Rules: 2, Replayed: 1})
	r.WaitNoneLive()
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
	r.MustAudit()
}

// The delay counts from each letter's own death.
func TestARuleWaitsForItsDelay(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	q := replayRule(1)
	q.Rule.Delay = "PT1H"
	mustSetRule(r, q)
	k := newRetentionRig(r, withoutRuleLoop)
	mustApplyRules(k.at(59*time.Minute).Rig, postadjudication.RuleReport{Rules: 1})
	if trial, err := k.As("acme", "").Rules.Try(context.Background(), q.Rule); err != nil || trial.Ready != 0 || trial.Refused[refusal.GateNotDue] != 2 {
		t.Errorf("%+v, %v", trial, err)
	}
	mustApplyRules(k.at(61*time.Minute).Rig, postadjudication.RuleReport{Rules: 1, Replayed: 2})
	if early := r.Count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'replayed' AND at < now() + interval '1 hour'`); early != 0 {
		t.Errorf("%d replays before their time", early)
	}
}

// Many processes that find the same letters at the same time fork each once, and
// count that once.
func TestManyProcessesAtOnceReplayALetterOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	const n = 40
	r.DeadLetters(0, n, rig.Refuses)
	mustSetRule(r, replayRule(5))
	ctx := context.Background()
	enabled, err := r.Journal().Rules.Enabled(ctx)
	if err != nil || len(enabled) != 1 {
		t.Fatalf("%+v, %v", enabled, err)
	}
	if err := r.Index().CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	others := []*rig.Rig{r, rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withoutRuleLoop), rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withoutRuleLoop)}
	var all sync.WaitGroup
	done := make(chan postadjudication.RuleReport, len(others))
	for _, o := range others {
		all.Go(func() { done <- o.RuleRound(ctx, enabled) }) // without the exclusive lock
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
	r.WaitNoneLive()
	if total != n {
		t.Errorf("%d replays are reported", total)
	}
	if forks := r.Count(`SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL`); forks != n {
		t.Errorf("%d forks of %d letters", forks, n)
	}
	if !queryBool(r, countedOnceSQL) {
		t.Error("the counts are not what the receipts say")
	}
	r.MustAudit()
}

// The counts equal those of the receipts, lineage by lineage.
const countedOnceSQL = `SELECT NOT EXISTS (SELECT FROM recourse.rule_replays c JOIN recourse.runs r ON r.id = c.root
	WHERE c.replays <> (SELECT count(*) FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.subtype = 'replayed' AND e.actor = 'rule:' || c.rule))
	AND (SELECT coalesce(sum(replays), 0) FROM recourse.rule_replays) = (SELECT count(*) FROM recourse.receipts WHERE subtype = 'replayed')`

// A change between the decision and the commit makes the commit fail, and nothing of it
// remains.
func TestWhatChangesMeanwhileKeepsARuleFromALetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	ctx := context.Background()
	l := r.DeadLetters(0, 1, rig.Refuses)[0]
	set := mustSetRule(r, replayRule(1))
	read := func() postadjudication.RulePage {
		t.Helper()
		page, err := r.ReadForRule(ctx, set, l.Run)
		if err != nil || len(page.Letters) != 1 {
			t.Fatalf("%+v, %v", page.Letters, err)
		}
		return page
	}
	nothing := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
		if n := r.Count(`SELECT (SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL) + (SELECT count(*) FROM recourse.receipts WHERE actor LIKE 'rule:%')`); n != 0 {
			t.Errorf("%s: %d rows were left", what, n)
		}
	}
	page := read()
	if _, err := r.As("acme", "user:bob").DeadLetters.Hold(ctx, l.Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	nothing("it is held", page.ApplyToOne(ctx), postadjudication.ErrLetterChanged)
	if _, err := r.As("acme", "user:bob").DeadLetters.Release(ctx, l.Run, "it is over"); err != nil {
		t.Fatal(err)
	}
	page = read()
	off := replayRule(1)
	off.Rule.Enabled = false
	mustSetRule(r, off)
	nothing("the rule is off", page.ApplyToOne(ctx), journal.ErrRuleChanged)
	set = mustSetRule(r, replayRule(1))
	page = read()
	if _, err := r.DB.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, 'refused-later', 'acme', 1, now())`, l.Run.String()); err != nil {
		t.Fatal(err)
	}
	nothing("it is spent", page.ApplyToOne(ctx), journal.ErrRuleExhausted)
	if _, err := r.DB.Exec(`DELETE FROM recourse.rule_replays`); err != nil {
		t.Fatal(err)
	}
	if err := page.ApplyToOne(ctx); err != nil {
		t.Fatal(err)
	}
	if err := page.ApplyToOne(ctx); !errors.Is(err, postadjudication.ErrLetterChanged) {
		t.Errorf("the same letter again: %v", err)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// After a rule was disabled it changes nothing any more, also if it was decided
// before.
func TestARuleThatWasSwitchedOffIsStillAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	ctx := context.Background()
	const n = 120
	r.DeadLetters(0, n, rig.Refuses)
	mustSetRule(r, replayRule(1))
	enabled, err := r.Journal().Rules.Enabled(ctx)
	if err == nil {
		err = r.Index().CatchUp(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if d := r.RuleRound(ctx, enabled); d.Failed != 0 {
			t.Errorf("%+v", d)
		}
	})
	r.WaitQuery("it has begun", `SELECT count(*) > 5 FROM recourse.rule_replays`)
	off := replayRule(1)
	off.Rule.Enabled = false
	mustSetRule(r, off)
	then := r.Count(`SELECT count(*) FROM recourse.rule_replays`)
	all.Wait()
	if now := r.Count(`SELECT count(*) FROM recourse.rule_replays`); now != then {
		t.Errorf("%d replays when the rule was off, %d later", then, now)
	}
	if !queryBool(r, countedOnceSQL) {
		t.Error("the counts are not what the receipts say")
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// Tasks of plain families are replayed as settlements are.
func TestARuleReplaysTasksOfPlainFamilies(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	r := rig.New(t, withoutRuleLoop, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "letters", Handle: func(context.Context, background.Attempt) background.Result {
			if calls.Add(1) == 1 {
				return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "http.refused", Message: "no"}}
			}
			return background.Result{Class: escrow.Executed}
		}}}
	}).StartWorkers()
	task, err := r.SubmitTask(context.Background(), postadjudication.Task{Tenant: "acme", Family: "letters"})
	if err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	mustSetRule(r, replayRule(1))
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1, Replayed: 1})
	r.WaitNoneLive()
	if line, err := r.Lineage(context.Background(), "acme", task.Run); err != nil || len(line.Runs) != 2 || line.Runs[1].State != background.Succeeded || line.Runs[0].LastRule != "refused-later" {
		t.Errorf("%+v, %v", line, err)
	}
	r.MustAudit()
}

func TestARuleThatFailsKeepsNoOtherFromItsTurn(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	mustSetRule(r, replayRule(1))
	if _, err := r.DB.Exec(`INSERT INTO recourse.rules (tenant, name, version, enabled, deleted, definition, actor, reason, at)
		VALUES ('acme', 'a-newer-one', 1, true, false, '{"name":"a-newer-one","moon":"full"}', 'user:ada', 'why not', now())`); err != nil {
		t.Fatal(err)
	}
	mustApplyRules(r, postadjudication.RuleReport{Rules: 2, Replayed: 2, Failed: 1})
	mustApplyRules(r, postadjudication.RuleReport{Rules: 2, Failed: 1})
	if s := r.Health().Stats().Rules; s != (postadjudication.RuleStats{Rounds: 2, Replayed: 2, Failed: 2}) {
		t.Errorf("%+v", s)
	}
	rules, err := r.As("acme", "").Rules.List(context.Background())
	if err != nil || len(rules) != 1 || rules[0].Name != "refused-later" {
		t.Errorf("%+v, %v", rules, err)
	}
	if _, err := r.As("acme", "user:ada").Rules.Delete(context.Background(), postadjudication.RuleRemoval{Name: "a-newer-one", Reason: "it does nothing"}); err != nil {
		t.Error(err)
	}
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1})
}

// Letters that a rule always refuses do not block those behind them: the rule continues where
// it stopped.
func TestARuleComesToEveryLetterInBoundedRounds(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	old := r.DeadLetters(0, 5, rig.Refuses)
	for _, l := range old {
		if _, err := r.DB.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, 'refused-later', 'acme', 1, now())`, l.Run.String()); err != nil {
			t.Fatal(err)
		}
	}
	r.DeadLetters(5, 8, rig.Refuses)
	mustSetRule(r, replayRule(1))
	r.LimitRuleRounds(2, 1)
	for _, n := range []int{0, 0, 1, 2, 0, 0, 0} {
		mustApplyRules(r, postadjudication.RuleReport{Rules: 1, Replayed: n})
	}
}

func TestARuleMarksWhatNobodyHasMarked(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withoutRuleLoop).StartWorkers()
	ctx, yes, no := context.Background(), true, false
	letters := r.DeadLetters(0, 3, rig.Refuses)
	if _, err := r.As("acme", "user:bob").DeadLetters.Mark(ctx, letters[0].Run, deadletter.Mark{Reason: "seen", ManualReviewRequired: &no}); err != nil {
		t.Fatal(err)
	}
	q := replayRule(0)
	q.Rule.Mark = &postadjudication.RuleMark{Review: &yes, Reprocess: &yes, Reason: "refused payments are looked at"}
	mustSetRule(r, q)
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1, Marked: 3})
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1})
	for i, l := range letters {
		d, err := r.As("acme", "").DeadLetters.Annotations(ctx, l.Run)
		if err != nil || d.ManualReviewRequired != (i > 0) || !d.ReprocessEligible || d.MarkReason != "refused payments are looked at" {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
	}
	if n := r.Count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'marked' AND actor = 'rule:refused-later' AND body::json->'payload'->>'changes' LIKE '%reprocess_eligible=true%'`); n != 3 {
		t.Errorf("%d receipts", n)
	}
	if _, err := r.As("acme", "user:bob").DeadLetters.Mark(ctx, letters[1].Run, deadletter.Mark{Reason: "seen", ManualReviewRequired: &no, ReprocessEligible: &no}); err != nil {
		t.Fatal(err)
	}
	mustApplyRules(r, postadjudication.RuleReport{Rules: 1})
	// A replay rule takes letters marked as eligible, and leaves those that require review.
	then := replayRule(1)
	then.Rule.Name, then.Rule.Filter = "eligible", deadletter.Filter{Reprocess: &yes}
	mustSetRule(r, then)
	mustApplyRules(r, postadjudication.RuleReport{Rules: 2, Replayed: 1})
	if st, err := r.Status(ctx, "acme", letters[0].Run); err != nil || st.LastRule != "eligible" {
		t.Errorf("%+v, %v", st, err)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

func TestRunAppliesRulesByItself(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.RuleEvery = 10 * time.Millisecond }).StartWorkers()
	rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, func(c *postadjudication.Config) { c.RuleEvery = 10 * time.Millisecond }).StartWorkers()
	mustSetRule(r, replayRule(3))
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if r.Escrow.Calls(c.OperationKey) < 3 { // the first run and its first two forks die
			return rig.Refused()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	const n = 10
	for i := range n {
		r.MustSubmit(rig.Release(i))
	}
	r.WaitSettled(n)
	if !queryBool(r, countedOnceSQL) || r.Count(`SELECT sum(replays) FROM recourse.rule_replays`) != 2*n {
		t.Error("the counts are not what the receipts say")
	}
	r.MustAudit()
}

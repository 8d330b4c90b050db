package replay_test

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
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func TestARuleReplaysWhatItIsForAndNothingElse(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
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
	r.MustApplyRules(replay.Report{})
	off := rig.ReplayRule(3)
	off.Rule.Enabled = false
	r.MustSetRule(off)
	if _, err := r.As("other", "user:ada").Rules.Set(ctx, rig.ReplayRule(3)); err != nil {
		t.Fatal(err)
	}
	r.MustApplyRules(replay.Report{Rules: 1})
	on := rig.ReplayRule(3)
	on.Rule.Policy = &retrypolicy.Policy{MaxRetryAttempts: 5}
	r.MustSetRule(on)
	r.MustApplyRules(replay.Report{Rules: 2, Replayed: 3})
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
		named := map[string]any{"new_run": line.Newest.String(), "reason": "replay 1 of 3 by rule refused-later, version 2: the bank is slow on mondays"}
		for _, subtype := range []receipts.Subtype{receipts.Replayed, receipts.ManualRetryRequested} {
			if n := r.CountReceipts(rig.Receipts{Run: l.Run, Actor: "rule:refused-later", Subtype: subtype, Payload: named}); n != 1 {
				t.Errorf("%d receipts %s name the rule and the fork", n, subtype)
			}
		}
	}
	for _, l := range kept {
		if st, err := r.Status(ctx, "acme", l.Run); err != nil || st.Letter != background.LetterOpen || st.Total() != 0 {
			t.Errorf("%+v, %v", st, err)
		}
	}
	r.MustApplyRules(replay.Report{Rules: 2})
	if s := r.Health().Stats().Rules; s != (replay.Stats{Rounds: 3, Replayed: 3}) {
		t.Errorf("%+v", s)
	}
	r.MustAudit()
}

func TestARuleStopsWhenItHasReplayedALineageOftenEnough(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	ctx := context.Background()
	r.Escrow.Answer(rig.Refuses)
	first := r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	r.MustSetRule(rig.ReplayRule(2))
	for _, n := range []int{1, 1, 0, 0} {
		r.MustApplyRules(replay.Report{Rules: 1, Replayed: n})
		r.WaitNoneLive()
	}
	// A change of the rule, or a new rule of the same name, continues the count. A fork by hand is
	// not counted, and a higher limit allows one more replay.
	if _, err := r.As("acme", "user:ada").Rules.Delete(ctx, replay.Removal{Name: "refused-later", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	r.MustApplyRules(replay.Report{})
	r.MustSetRule(rig.ReplayRule(2))
	r.MustApplyRules(replay.Report{Rules: 1})
	line, err := r.Lineage(ctx, "acme", first.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, line.Newest, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	r.MustApplyRules(replay.Report{Rules: 1})
	r.MustSetRule(rig.ReplayRule(3))
	r.MustApplyRules(replay.Report{Rules: 1, Replayed: 1})
	r.WaitNoneLive()
	other := rig.ReplayRule(1)
	other.Rule.Name = "another"
	r.MustSetRule(other)
	r.MustApplyRules(replay.Report{Rules: 2, Replayed: 1})
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
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	q := rig.ReplayRule(1)
	q.Rule.Delay = "PT1H"
	r.MustSetRule(q)
	r.StopWorkers()
	k, clock := r.WithClock(rig.WithoutRuleLoop)
	clock.Set(59 * time.Minute)
	k.MustApplyRules(replay.Report{Rules: 1})
	if trial, err := k.As("acme", "").Rules.Try(context.Background(), q.Rule); err != nil || trial.Ready != 0 || trial.Refused[refusal.GateNotDue] != 2 {
		t.Errorf("%+v, %v", trial, err)
	}
	clock.Set(61 * time.Minute)
	k.MustApplyRules(replay.Report{Rules: 1, Replayed: 2})
	if early := r.Count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'replayed' AND at < now() + interval '1 hour'`); early != 0 {
		t.Errorf("%d replays before their time", early)
	}
}

// Many processes that find the same letters at the same time fork each once, and
// count that once.
func TestManyProcessesAtOnceReplayALetterOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	const n = 40
	r.DeadLetters(0, n, rig.Refuses)
	r.MustSetRule(rig.ReplayRule(5))
	ctx := context.Background()
	enabled, err := storeOf(r).Journal().Rules.Enabled(ctx)
	if err != nil || len(enabled) != 1 {
		t.Fatalf("%+v, %v", enabled, err)
	}
	if err := storeOf(r).Index().CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	others := []*rig.Rig{r, rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, rig.WithoutRuleLoop), rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, rig.WithoutRuleLoop)}
	var all sync.WaitGroup
	done := make(chan replay.Report, len(others))
	for _, o := range others {
		all.Go(func() { done <- storeOf(o).Round(ctx, enabled) }) // without the exclusive lock
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
	if forks := r.CountForks(); forks != n {
		t.Errorf("%d forks of %d letters", forks, n)
	}
	checkCountedOnce(r)
	r.MustAudit()
}

// The counts equal those of the receipts, lineage by lineage.
const countedOnceSQL = `SELECT NOT EXISTS (SELECT FROM recourse.rule_replays c JOIN recourse.runs r ON r.id = c.root
	WHERE c.replays <> (SELECT count(*) FROM recourse.receipts e WHERE e.case_id = r.case_id AND e.subtype = 'replayed' AND e.actor = 'rule:' || c.rule))
	AND (SELECT coalesce(sum(replays), 0) FROM recourse.rule_replays) = (SELECT count(*) FROM recourse.receipts WHERE subtype = 'replayed')`

// checkCountedOnce checks that the counts of replays are what the receipts say.
func checkCountedOnce(r *rig.Rig) {
	r.T.Helper()
	if !r.QueryBool(countedOnceSQL) {
		r.T.Error("the counts are not what the receipts say")
	}
}

// commitsOf returns in how many commits the receipts of a subtype were written.
func commitsOf(r *rig.Rig, s receipts.Subtype) int {
	r.T.Helper()
	return r.Count(`SELECT count(DISTINCT xmin::text) FROM recourse.receipts WHERE subtype = $1`, string(s))
}

// A change between the decision and the commit makes the commit fail, and nothing of it
// remains.
func TestWhatChangesMeanwhileKeepsARuleFromALetter(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	ctx := context.Background()
	l := r.DeadLetters(0, 1, rig.Refuses)[0]
	set := r.MustSetRule(rig.ReplayRule(1))
	read := func() replay.Page {
		t.Helper()
		page, err := storeOf(r).Read(ctx, set, l.Run)
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
		if n := r.CountForks() + r.CountReceipts(rig.Receipts{ActorPrefix: "rule:"}); n != 0 {
			t.Errorf("%s: %d rows were left", what, n)
		}
	}
	page := read()
	if _, err := r.As("acme", "user:bob").DeadLetters.Hold(ctx, l.Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	nothing("it is held", page.ApplyToOne(ctx), casework.ErrLetterChanged)
	if _, err := r.As("acme", "user:bob").DeadLetters.Release(ctx, l.Run, "it is over"); err != nil {
		t.Fatal(err)
	}
	page = read()
	off := rig.ReplayRule(1)
	off.Rule.Enabled = false
	r.MustSetRule(off)
	nothing("the rule is off", page.ApplyToOne(ctx), journal.ErrRuleChanged)
	set = r.MustSetRule(rig.ReplayRule(1))
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
	if err := page.ApplyToOne(ctx); !errors.Is(err, casework.ErrLetterChanged) {
		t.Errorf("the same letter again: %v", err)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// After a rule was disabled it changes nothing any more, also if it was decided
// before.
func TestARuleThatWasSwitchedOffIsStillAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	ctx := context.Background()
	const n = 120
	r.DeadLetters(0, n, rig.Refuses)
	r.MustSetRule(rig.ReplayRule(1))
	enabled, err := storeOf(r).Journal().Rules.Enabled(ctx)
	if err == nil {
		err = storeOf(r).Index().CatchUp(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if d := storeOf(r).Round(ctx, enabled); d.Failed != 0 {
			t.Errorf("%+v", d)
		}
	})
	r.Wait("it has begun", func() bool { return r.CountRows("rule_replays") > 5 })
	off := rig.ReplayRule(1)
	off.Rule.Enabled = false
	r.MustSetRule(off)
	then := r.CountRows("rule_replays")
	all.Wait()
	if now := r.CountRows("rule_replays"); now != then {
		t.Errorf("%d replays when the rule was off, %d later", then, now)
	}
	checkCountedOnce(r)
	r.WaitNoneLive()
	r.MustAudit()
}

// Tasks of plain families are replayed as settlements are.
func TestARuleReplaysTasksOfPlainFamilies(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	r := rig.New(t, rig.WithoutRuleLoop, func(c *postadjudication.Config) {
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
	r.MustSetRule(rig.ReplayRule(1))
	r.MustApplyRules(replay.Report{Rules: 1, Replayed: 1})
	r.WaitNoneLive()
	if line, err := r.Lineage(context.Background(), "acme", task.Run); err != nil || len(line.Runs) != 2 || line.Runs[1].State != background.Succeeded || line.Runs[0].LastRule != "refused-later" {
		t.Errorf("%+v, %v", line, err)
	}
	r.MustAudit()
}

func TestARuleThatFailsKeepsNoOtherFromItsTurn(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	r.DeadLetters(0, 2, rig.Refuses)
	r.MustSetRule(rig.ReplayRule(1))
	if _, err := r.DB.Exec(`INSERT INTO recourse.rules (tenant, name, version, enabled, deleted, definition, actor, reason, at)
		VALUES ('acme', 'a-newer-one', 1, true, false, '{"name":"a-newer-one","moon":"full"}', 'user:ada', 'why not', now())`); err != nil {
		t.Fatal(err)
	}
	r.MustApplyRules(replay.Report{Rules: 2, Replayed: 2, Failed: 1})
	r.MustApplyRules(replay.Report{Rules: 2, Failed: 1})
	if s := r.Health().Stats().Rules; s != (replay.Stats{Rounds: 2, Replayed: 2, Failed: 2}) {
		t.Errorf("%+v", s)
	}
	rules, err := r.As("acme", "").Rules.List(context.Background())
	if err != nil || len(rules) != 1 || rules[0].Name != "refused-later" {
		t.Errorf("%+v, %v", rules, err)
	}
	if _, err := r.As("acme", "user:ada").Rules.Delete(context.Background(), replay.Removal{Name: "a-newer-one", Reason: "it does nothing"}); err != nil {
		t.Error(err)
	}
	r.MustApplyRules(replay.Report{Rules: 1})
}

// Letters that a rule always refuses do not block those behind them: the rule continues where
// it stopped.
func TestARuleComesToEveryLetterInBoundedRounds(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	old := r.DeadLetters(0, 5, rig.Refuses)
	for _, l := range old {
		if _, err := r.DB.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, 'refused-later', 'acme', 1, now())`, l.Run.String()); err != nil {
			t.Fatal(err)
		}
	}
	r.DeadLetters(5, 8, rig.Refuses)
	r.MustSetRule(rig.ReplayRule(1))
	storeOf(r).LimitRounds(2, 1)
	for _, n := range []int{0, 0, 1, 2, 0, 0, 0} {
		r.MustApplyRules(replay.Report{Rules: 1, Replayed: n})
	}
}

func TestARuleMarksWhatNobodyHasMarked(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	ctx, yes, no := context.Background(), true, false
	letters := r.DeadLetters(0, 3, rig.Refuses)
	if _, err := r.As("acme", "user:bob").DeadLetters.Mark(ctx, letters[0].Run, deadletter.Mark{Reason: "seen", ManualReviewRequired: &no}); err != nil {
		t.Fatal(err)
	}
	q := rig.ReplayRule(0)
	q.Rule.Mark = &replay.Mark{Review: &yes, Reprocess: &yes, Reason: "refused payments are looked at"}
	r.MustSetRule(q)
	r.MustApplyRules(replay.Report{Rules: 1, Marked: 3})
	r.MustApplyRules(replay.Report{Rules: 1})
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
	r.MustApplyRules(replay.Report{Rules: 1})
	// A replay rule takes letters marked as eligible, and leaves those that require review.
	then := rig.ReplayRule(1)
	then.Rule.Name, then.Rule.Filter = "eligible", deadletter.Filter{Reprocess: &yes}
	r.MustSetRule(then)
	r.MustApplyRules(replay.Report{Rules: 2, Replayed: 1})
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
	r.MustSetRule(rig.ReplayRule(3))
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
	checkCountedOnce(r)
	if counted := r.CountReceipts(rig.Receipts{Subtype: receipts.Replayed}); counted != 2*n {
		t.Errorf("%d replays are counted", counted)
	}
	r.MustAudit()
}

// A payment that somebody asked to stop, and that was found unpaid after it had died, is not tried again by a rule:
// a person decides.
func TestARuleReplaysNoLetterWhoseCancelWasAskedFor(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop, func(c *postadjudication.Config) { c.Policy.MaxRetryAttempts = 1 }).StartWorkers()
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	letter := r.DeadLetter(1, func(c escrow.Call) escrow.Answer {
		if _, err := r.As("acme", "user:ada").Cases.Cancel(context.Background(), c.Run, "the parties agreed"); err != nil {
			t.Error(err)
		}
		return rig.NoAnswer()
	})
	r.Escrow.ScriptLookups(nil)
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(context.Background(), letter.Run); err != nil {
		t.Fatal(err)
	}
	q := rig.ReplayRule(1)
	q.Rule.Filter = deadletter.Filter{ErrorType: "http.no_answer"}
	r.MustSetRule(q)
	r.MustApplyRules(replay.Report{Rules: 1})
	if r.LetterStatus(letter) != background.LetterOpen {
		t.Error("the rule replayed it")
	}
	r.MustFork(letter) // a person knows better
	r.WaitNoneLive()
	r.MustAudit()
}

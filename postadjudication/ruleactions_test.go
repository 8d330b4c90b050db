package postadjudication

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// actionFor reads letters as a rule does before it changes them.
func (r *rig) actionFor(set StoredRule, letters []Submitted) (*ruleAction, []journal.LetterRow) {
	r.t.Helper()
	rule, err := newActiveRule(set)
	if err != nil {
		r.t.Fatal(err)
	}
	found := make([]search.Letter, len(letters))
	for i, l := range letters {
		found[i] = search.Letter{Run: background.Run{ID: l.Run}}
	}
	due, lines, err := r.rules.lettersForRule(context.Background(), &rule, found)
	if err != nil || len(due) != len(letters) {
		r.t.Fatalf("%d letters, %v", len(due), err)
	}
	return &ruleAction{&rule, r.settlements, lines, r.now()}, due
}

// A rule changes a page of letters in one commit; each replay is counted and notified.
func TestTheReplaysOfAPageShareACommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	const n = 30
	r.deadLetters(0, n, func(escrow.Call) escrow.Answer { return refused() })
	r.mustSetRule(replayRule(1))
	r.mustApplyRules(RuleReport{Rules: 1, Replayed: n})
	if commits := r.count(`SELECT count(DISTINCT xmin::text) FROM recourse.receipts WHERE subtype = 'replayed'`); commits != 1 {
		t.Errorf("%d commits", commits)
	}
	if !r.queryBool(countedOnceSQL) {
		t.Error("the counts are not what the receipts say")
	}
	r.untilNoneLive()
	if calls := r.escrow.totalCalls(); calls != 2*n {
		t.Errorf("%d calls of %d letters, each tried again", calls, n)
	}
	r.mustAudit()
}

// Marks share a commit as well.
func TestTheMarksOfAPageShareACommit(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	const n = 12
	r.deadLetters(0, n, func(escrow.Call) escrow.Answer { return refused() })
	q := replayRule(1)
	yes := true
	q.Rule.MaxReplays, q.Rule.Mark = 0, &RuleMark{Review: &yes, Reason: "a person looks at refusals"}
	r.mustSetRule(q)
	r.mustApplyRules(RuleReport{Rules: 1, Marked: n})
	if commits := r.count(`SELECT count(DISTINCT xmin::text) FROM recourse.receipts WHERE subtype = 'marked'`); commits != 1 {
		t.Errorf("%d commits", commits)
	}
	if n := r.count(`SELECT count(*) FROM recourse.annotations WHERE manual_review_required`); n != 12 {
		t.Errorf("%d letters are marked", n)
	}
	r.mustAudit()
}

// One letter of a page that can't be replayed does not block the others: one that was changed
// meanwhile is left by the commit, and one whose replays are used up fails it, and then alone.
func TestOneLetterOfAPageKeepsNoOtherFromItsReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	letters := r.deadLetters(0, 6, func(escrow.Call) escrow.Answer { return refused() })
	w, due := r.actionFor(r.mustSetRule(replayRule(1)), letters)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, due[2].Run.ID, holdReason); err != nil {
		t.Fatal(err)
	}
	if n, err := r.rules.applyRuleToDue(ctx, w, due[:4]); err != nil || n.replayed != 3 {
		t.Errorf("with the held one: %+v, %v", n, err)
	}
	if _, err := r.db.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, $2, 'acme', 1, now())`, due[5].Run.ID.String(), w.Name); err != nil {
		t.Fatal(err)
	}
	if n, err := r.rules.applyRuleToDue(ctx, w, due[4:]); err != nil || n.replayed != 1 {
		t.Errorf("with the one whose replays are used up: %+v, %v", n, err)
	}
	for i, f := range due {
		want := background.LetterForked
		if i == 2 || i == 5 {
			want = background.LetterOpen
		}
		if got := r.letterStatus(Submitted{Run: f.Run.ID}); got != want {
			t.Errorf("letter %d is %s", i, got)
		}
	}
	if _, err := r.db.Exec(`DELETE FROM recourse.rule_replays WHERE root = $1`, due[5].Run.ID.String()); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	r.mustAudit()
}

// A rule that was changed since changes no letter.
func TestAChangedRuleMovesNoPage(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	letters := r.deadLetters(0, 3, func(escrow.Call) escrow.Answer { return refused() })
	w, due := r.actionFor(r.mustSetRule(replayRule(1)), letters)
	r.mustSetRule(replayRule(2))
	if n, err := r.rules.applyRuleToDue(context.Background(), w, due); err != nil || n != (ruleCounts{}) {
		t.Errorf("%+v, %v", n, err)
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.rule_replays) + (SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL)`); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	r.mustAudit()
}

// A letter that the database refuses to fork is the rule's failure, and the others of its page
// are replayed. A page of nothing but such letters is given up, and no fork is left.
func TestALetterThatCannotBeReplayedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	const n = 20
	letters := r.deadLetters(0, n, func(escrow.Call) escrow.Answer { return refused() })
	refuse := func(which string) {
		t.Helper()
		if _, err := r.db.Exec(`CREATE OR REPLACE FUNCTION recourse.no_fork() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.letter = 'forked' AND ` + which + ` THEN RAISE 'not this one'; END IF; RETURN NEW; END $$;
			CREATE OR REPLACE TRIGGER no_fork BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.no_fork()`); err != nil {
			t.Fatal(err)
		}
	}
	w, due := r.actionFor(r.mustSetRule(replayRule(1)), letters)
	refuse("true")
	if got, err := r.rules.applyRuleToDue(ctx, w, due); err == nil || got.replayed != 0 {
		t.Errorf("all fail: %+v, %v", got, err)
	}
	if forks := r.count(`SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL`); forks != 0 {
		t.Errorf("%d forks are left", forks)
	}
	bad := due[7].Run.ID
	refuse("NEW.id = '" + bad.String() + "'")
	if got, err := r.rules.applyRuleToDue(ctx, w, due); err == nil || !strings.Contains(err.Error(), bad.String()) || got.replayed != n-1 {
		t.Errorf("one fails: %+v, %v", got, err)
	}
	if _, err := r.db.Exec(`DROP TRIGGER no_fork ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	r.mustApplyRules(RuleReport{Rules: 1, Replayed: 1})
	if !r.queryBool(countedOnceSQL) {
		t.Error("the counts are not what the receipts say")
	}
	r.untilNoneLive()
	r.mustAudit()
}

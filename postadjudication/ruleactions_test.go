package postadjudication

import (
	"context"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// actionFor reads letters as a rule does before it changes them.
func (r *rig) actionFor(set StoredRule, letters []Submitted) (*ruleAction, []postgres.LetterRow) {
	r.t.Helper()
	rule, err := newActiveRule(set)
	if err != nil {
		r.t.Fatal(err)
	}
	found := make([]postgres.FoundLetter, len(letters))
	for i, l := range letters {
		found[i] = postgres.FoundLetter{Run: background.Run{ID: l.Run}}
	}
	due, lines, err := r.lettersForRule(context.Background(), &rule, found)
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
	r.deadLetters(0, n, func(Call) Answer { return refused() })
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
	r.deadLetters(0, n, func(Call) Answer { return refused() })
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
// meanwhile is left by the commit, one whose replays are used up is tried alone, and is
// refused.
func TestOneLetterOfAPageKeepsNoOtherFromItsReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	letters := r.deadLetters(0, 6, func(Call) Answer { return refused() })
	w, due := r.actionFor(r.mustSetRule(replayRule(1)), letters)
	if _, err := r.Hold(ctx, "acme", due[2].Run.ID, holdRequest); err != nil {
		t.Fatal(err)
	}
	n, left := r.applyRuleBatch(ctx, w, due[:4])
	if n.replayed != 3 || len(left) != 1 || left[0].Run.ID != due[2].Run.ID {
		t.Errorf("%+v, %d left", n, len(left))
	}
	if n, err := r.applyRuleEach(ctx, w, left); err != nil || n.replayed != 0 {
		t.Errorf("the held one: %+v, %v", n, err)
	}
	if _, err := r.db.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, $2, 'acme', 1, now())`, due[5].Run.ID.String(), w.Name); err != nil {
		t.Fatal(err)
	}
	if n, left = r.applyRuleBatch(ctx, w, due[4:]); n.replayed != 0 || len(left) != 2 {
		t.Errorf("%+v, %d left", n, len(left))
	}
	if n, err := r.applyRuleEach(ctx, w, left); err != nil || n.replayed != 1 {
		t.Errorf("%+v, %v", n, err)
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
	letters := r.deadLetters(0, 3, func(Call) Answer { return refused() })
	w, due := r.actionFor(r.mustSetRule(replayRule(1)), letters)
	r.mustSetRule(replayRule(2))
	if n, left := r.applyRuleBatch(context.Background(), w, due); n != (ruleCounts{}) || len(left) != 0 {
		t.Errorf("%+v, %d left", n, len(left))
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.rule_replays) + (SELECT count(*) FROM recourse.runs WHERE parent_id IS NOT NULL)`); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	r.mustAudit()
}

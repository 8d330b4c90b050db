package replay_test

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/receipts"
)

// pageFor reads letters as a rule does before it changes them.
func pageFor(r *rig.Rig, set replay.StoredRule, letters []postadjudication.Submitted) replay.Page {
	r.T.Helper()
	runs := make([]background.RunID, len(letters))
	for i, l := range letters {
		runs[i] = l.Run
	}
	page, err := storeOf(r).Read(context.Background(), set, runs...)
	if err != nil || len(page.Letters) != len(letters) {
		r.T.Fatalf("%d letters, %v", len(page.Letters), err)
	}
	return page
}

// A rule changes a page of letters in one commit; each replay is counted and notified.
func TestTheReplaysOfAPageShareACommit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	const n = 30
	r.DeadLetters(0, n, rig.Refuses)
	r.MustSetRule(rig.ReplayRule(1))
	r.MustApplyRules(replay.Report{Rules: 1, Replayed: n})
	if commits := commitsOf(r, receipts.Replayed); commits != 1 {
		t.Errorf("%d commits", commits)
	}
	checkCountedOnce(r)
	r.WaitNoneLive()
	if calls := r.Escrow.TotalCalls(); calls != 2*n {
		t.Errorf("%d calls of %d letters, each tried again", calls, n)
	}
	r.MustAudit()
}

// Marks share a commit as well.
func TestTheMarksOfAPageShareACommit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	const n = 12
	r.DeadLetters(0, n, rig.Refuses)
	q := rig.ReplayRule(1)
	yes := true
	q.Rule.MaxReplays, q.Rule.Mark = 0, &replay.Mark{Review: &yes, Reason: "a person looks at refusals"}
	r.MustSetRule(q)
	r.MustApplyRules(replay.Report{Rules: 1, Marked: n})
	if commits := commitsOf(r, receipts.Marked); commits != 1 {
		t.Errorf("%d commits", commits)
	}
	if n := len(r.Letters(deadletter.Filter{Review: &yes})); n != 12 {
		t.Errorf("%d letters are marked", n)
	}
	r.MustAudit()
}

// One letter of a page that can't be replayed does not block the others: one that was changed
// meanwhile is left by the commit, and one whose replays are used up fails it, and then alone.
func TestOneLetterOfAPageKeepsNoOtherFromItsReplay(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(0, 6, rig.Refuses)
	page := pageFor(r, r.MustSetRule(rig.ReplayRule(1)), letters)
	due := page.Letters
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, due[2].Run.ID, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	if replayed, _, err := page.Apply(ctx, due[:4]); err != nil || replayed != 3 {
		t.Errorf("with the held one: %d, %v", replayed, err)
	}
	if _, err := r.DB.Exec(`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ($1, $2, 'acme', 1, now())`, due[5].Run.ID.String(), rig.ReplayRule(1).Rule.Name); err != nil {
		t.Fatal(err)
	}
	if replayed, _, err := page.Apply(ctx, due[4:]); err != nil || replayed != 1 {
		t.Errorf("with the one whose replays are used up: %d, %v", replayed, err)
	}
	for i, f := range due {
		want := background.LetterForked
		if i == 2 || i == 5 {
			want = background.LetterOpen
		}
		if got := r.LetterStatus(postadjudication.Submitted{Run: f.Run.ID}); got != want {
			t.Errorf("letter %d is %s", i, got)
		}
	}
	if _, err := r.DB.Exec(`DELETE FROM recourse.rule_replays WHERE root = $1`, due[5].Run.ID.String()); err != nil {
		t.Fatal(err)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// A rule that was changed since changes no letter.
func TestAChangedRuleMovesNoPage(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	letters := r.DeadLetters(0, 3, rig.Refuses)
	page := pageFor(r, r.MustSetRule(rig.ReplayRule(1)), letters)
	r.MustSetRule(rig.ReplayRule(2))
	if replayed, marked, err := page.Apply(context.Background(), page.Letters); err != nil || replayed != 0 || marked != 0 {
		t.Errorf("%d replayed, %d marked, %v", replayed, marked, err)
	}
	if n := r.CountRows("rule_replays") + r.CountForks(); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	r.MustAudit()
}

// A letter that the database refuses to fork is the rule's failure, and the others of its page
// are replayed. A page of nothing but such letters is given up, and no fork is left.
func TestALetterThatCannotBeReplayedHindersNoOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	ctx := context.Background()
	const n = 20
	letters := r.DeadLetters(0, n, rig.Refuses)
	refuse := func(which string) {
		t.Helper()
		if _, err := r.DB.Exec(`CREATE OR REPLACE FUNCTION recourse.no_fork() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.letter = 'forked' AND ` + which + ` THEN RAISE 'not this one'; END IF; RETURN NEW; END $$;
			CREATE OR REPLACE TRIGGER no_fork BEFORE UPDATE ON recourse.runs FOR EACH ROW EXECUTE FUNCTION recourse.no_fork()`); err != nil {
			t.Fatal(err)
		}
	}
	page := pageFor(r, r.MustSetRule(rig.ReplayRule(1)), letters)
	refuse("true")
	if replayed, _, err := page.Apply(ctx, page.Letters); err == nil || replayed != 0 {
		t.Errorf("all fail: %d, %v", replayed, err)
	}
	if forks := r.CountForks(); forks != 0 {
		t.Errorf("%d forks are left", forks)
	}
	bad := page.Letters[7].Run.ID
	refuse("NEW.id = '" + bad.String() + "'")
	if replayed, _, err := page.Apply(ctx, page.Letters); err == nil || !strings.Contains(err.Error(), bad.String()) || replayed != n-1 {
		t.Errorf("one fails: %d, %v", replayed, err)
	}
	if _, err := r.DB.Exec(`DROP TRIGGER no_fork ON recourse.runs`); err != nil {
		t.Fatal(err)
	}
	r.MustApplyRules(replay.Report{Rules: 1, Replayed: 1})
	checkCountedOnce(r)
	r.WaitNoneLive()
	r.MustAudit()
}

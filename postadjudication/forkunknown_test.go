package postadjudication

import (
	"context"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

// What is known of a fork's money is the worst of its case: while an attempt of the letter
// before it is unresolved, a refusal of the fork clears nothing, and every list says so.
func TestAForkOfAnUnknownLetterIsUnknownUntilThatIsResolved(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	r.escrow.lookup = func(Call) Answer { return Answer{Class: Unknown, Type: "lookup.down", Message: "503"} }
	letter := r.deadLetter(1, func(Call) Answer { return noAnswer() })
	r.setAnswer(refused)
	fork, err := r.Fork(ctx, "acme", letter.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.until("the fork died", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, fork.Run.String())
	is := func(class Class, open int) {
		t.Helper()
		if err := r.DrainEvents(ctx); err != nil {
			t.Fatal(err)
		}
		if l := r.letters(LetterFilter{Status: background.LetterOpen, Class: class}); len(l) != 1 || l[0].Run != fork.Run || l[0].Class != class {
			t.Errorf("listed as %s: %+v", class, l)
		}
		if l := r.letters(LetterFilter{Status: background.LetterOpen}); len(l) != 1 || l[0].Class != class {
			t.Errorf("of all: %+v", l)
		}
		found, err := r.Inspect(ctx, "acme", fork.Run)
		if err != nil || found.Run.Class != class || found.Case.UnknownOpen != open {
			t.Errorf("%s, %d open, %v", found.Run.Class, found.Case.UnknownOpen, err)
		}
		r.mustAudit()
	}
	is(Unknown, 3)
	if p := r.payloadsOf(fork, receipts.DeadLettered); len(p) != 2 || p[1].OutcomeClass != string(Unknown) || p[1].AttemptClass != string(NotExecuted) {
		t.Errorf("%+v", p)
	}
	if p := r.payloadsOf(fork, receipts.Submitted); len(p) != 2 || p[1].OutcomeClass != string(Unknown) {
		t.Errorf("%+v", p)
	}
	r.mustSetRule(replayRule(1))
	r.mustApplyRules(RuleReport{Rules: 1})
	if _, err := r.Reconcile(ctx, "acme", fork.Run, Finding{Actor: "user:ada", Reason: "the bank's statement", Class: NotExecuted, Reference: "stmt-7"}); err != nil {
		t.Fatal(err)
	}
	is(NotExecuted, 0)
	// Resolved, a fork begins with nothing unknown.
	next, err := r.Fork(ctx, "acme", fork.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	if st := r.status(next.Run); st.Class == Unknown {
		t.Errorf("%+v", st)
	}
	r.untilNoneLive()
	r.mustAudit()
}

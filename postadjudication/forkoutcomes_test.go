package postadjudication

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// With a service that replays stored failures a fork needs a new key. While it is unknown
// whether the first key was paid it gets none, since a call under another key could pay twice.
func TestAForkOfAnUnknownLetterKeepsItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Policy.MaxRetryAttempts, c.Executor = 1, replayingEscrow{c.Executor.(*scriptedEscrow)}
	})
	keys := make(chan escrow.OperationKey, 10)
	paid := false
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		keys <- c.OperationKey
		answer := r.escrow.pay(c, c.Amount.Minor)
		if paid {
			return answer
		}
		paid = true
		return noAnswer()
	}
	r.startWorkers()
	s := r.mustSubmit(release(1))
	r.until("it is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open' AND class = 'unknown')`)
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), s.Run, forkRequest); err != nil {
		t.Fatal(err)
	}
	r.until("it is settled", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled')`)
	if first, second := <-keys, <-keys; second != first {
		t.Errorf("the fork has another key than its letter, %s and %s", second, first)
	}
	r.mustAudit()
}

// A call whose process is gone never returns. Once it can't be in flight any more, and nothing
// was executed, a fork gets a new key: under the old one the stored failure would be the answer
// forever.
func TestACallOfALostProcessKeepsNoForkAtItsKey(t *testing.T) {
	t.Parallel()
	replaying := func(c *Config) {
		c.TimeLimit, c.LostAfter, c.Policy.MaxRetryAttempts, c.Executor = 100*time.Millisecond, 3*time.Second, 1, replayingEscrow{c.Executor.(*scriptedEscrow)}
	}
	first := newRig(t, replaying)
	back, keys := make(chan struct{}), make(chan escrow.OperationKey, 10)
	defer close(back)
	s := first.mustSubmit(release(1))
	first.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if keys <- c.OperationKey; c.Run == s.Run {
			<-back
		}
		return refused()
	}
	first.startWorkers().until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	first.stopWork()

	r := joinRig(t, first.url, first.redis, first.escrow, replaying).startWorkers()
	ctx := context.Background()
	forked := func(of Submitted) Submitted {
		t.Helper()
		f, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, of.Run, forkRequest)
		if err != nil {
			t.Fatal(err)
		}
		r.until("its fork is a letter", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, f.Run.String())
		return asSubmitted(f)
	}
	fork := forked(s)
	r.untilTrue("the lookup is accepted as not executed", func() bool {
		_, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, fork.Run)
		return err == nil
	})
	forked(fork)
	if hung, refused, third := <-keys, <-keys, <-keys; refused != hung || third == hung {
		t.Errorf("the keys are %s, %s, %s", hung, refused, third)
	}
	r.mustAudit()
}

// A payment of the letter that is recorded while its fork runs also counts for the fork, since
// both have one key: the outcome of the fork's own call leaves no open letter.
func TestAForkWhoseKeyWasPaidMeanwhileLeavesNoLetter(t *testing.T) {
	t.Parallel()
	pays, called, answer := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := newRig(t, func(c *Config) { c.TimeLimit = 100 * time.Millisecond })
	ctx := context.Background()
	var forked atomic.Bool
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if !forked.Load() {
			<-pays
			return r.escrow.pay(c, c.Amount.Minor)
		}
		close(called)
		<-answer
		return noAnswer() // another attempt would get an answer
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	forked.Store(true)
	f, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	<-called
	close(pays)
	r.until("the payment is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	if st := r.status(f.Run); st.State != background.Running {
		t.Fatalf("the fork has ended: %+v", st)
	}
	close(answer)
	r.untilNoneLive()
	if st := r.status(f.Run); st.State != background.Succeeded || st.Letter != background.NoLetter || st.Class != escrow.Executed {
		t.Errorf("%+v", st)
	}
	if c := r.caseOf(release(1)); c.UnknownOpen != 0 || c.Released != 1000 || c.Progression != settlement.Settled {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}

// The outcome class of a fork is the worst of its case: while an attempt of the previous letter
// is unresolved, a refusal of the fork does not clear it, and every list shows it.
func TestAForkOfAnUnknownLetterIsUnknownUntilThatIsResolved(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop).startWorkers()
	ctx := context.Background()
	r.escrow.lookup = func(escrow.Call) escrow.Answer {
		return escrow.Answer{Class: escrow.Unknown, Type: "lookup.down", Message: "503"}
	}
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return noAnswer() })
	r.setAnswer(refused)
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.until("the fork died", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, fork.Run.String())
	is := func(class escrow.Class, open int) {
		t.Helper()
		if err := r.DrainEvents(ctx); err != nil {
			t.Fatal(err)
		}
		if l := r.letters(deadletter.Filter{Status: background.LetterOpen, Class: class}); len(l) != 1 || l[0].Run != fork.Run || l[0].Class != class {
			t.Errorf("listed as %s: %+v", class, l)
		}
		if l := r.letters(deadletter.Filter{Status: background.LetterOpen}); len(l) != 1 || l[0].Class != class {
			t.Errorf("of all: %+v", l)
		}
		found, err := r.As("acme", "").DeadLetters.Inspect(ctx, fork.Run)
		if err != nil || found.Run.Class != class || found.Case.UnknownOpen != open {
			t.Errorf("%s, %d open, %v", found.Run.Class, found.Case.UnknownOpen, err)
		}
		r.mustAudit()
	}
	is(escrow.Unknown, 3)
	if p := r.payloadsOf(asSubmitted(fork), receipts.DeadLettered); len(p) != 2 || p[1].OutcomeClass != string(escrow.Unknown) || p[1].AttemptClass != string(escrow.NotExecuted) {
		t.Errorf("%+v", p)
	}
	if p := r.payloadsOf(asSubmitted(fork), receipts.Submitted); len(p) != 2 || p[1].OutcomeClass != string(escrow.Unknown) {
		t.Errorf("%+v", p)
	}
	r.mustSetRule(replayRule(1))
	r.mustApplyRules(RuleReport{Rules: 1})
	if _, err := r.Reconcile(ctx, "acme", fork.Run, casework.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7"}); err != nil {
		t.Fatal(err)
	}
	is(escrow.NotExecuted, 0)
	// After that a new fork starts with nothing unknown.
	next, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, fork.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	if st := r.status(next.Run); st.Class == escrow.Unknown {
		t.Errorf("%+v", st)
	}
	r.untilNoneLive()
	r.mustAudit()
}

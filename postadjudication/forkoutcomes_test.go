package postadjudication_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// With a service that replays stored failures a fork needs a new key. While it is unknown
// whether the first key was paid it gets none, since a call under another key could pay twice.
func TestAForkOfAnUnknownLetterKeepsItsKey(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Policy.MaxRetryAttempts, c.Executor = 1, replayingEscrow{c.Executor.(*rig.Escrow)}
	})
	keys := make(chan escrow.OperationKey, 10)
	paid := false
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		keys <- c.OperationKey
		answer := r.Escrow.Pay(c, c.Amount.Minor)
		if paid {
			return answer
		}
		paid = true
		return rig.NoAnswer()
	})
	r.StartWorkers()
	s := r.MustSubmit(rig.Release(1))
	r.WaitStatus("it is a letter of unknown outcome", s.Run, func(s casestatus.Status) bool {
		return s.Letter == background.LetterOpen && s.Class == escrow.Unknown
	})
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), s.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	r.WaitSettled(1)
	if first, second := <-keys, <-keys; second != first {
		t.Errorf("the fork has another key than its letter, %s and %s", second, first)
	}
	r.MustAudit()
}

// A call whose process is gone never returns. Once it can't be in flight any more, and nothing
// was executed, a fork gets a new key: under the old one the stored failure would be the answer
// forever.
func TestACallOfALostProcessKeepsNoForkAtItsKey(t *testing.T) {
	t.Parallel()
	replaying := func(c *postadjudication.Config) {
		c.TimeLimit, c.LostAfter, c.Policy.MaxRetryAttempts, c.Executor = 100*time.Millisecond, 3*time.Second, 1, replayingEscrow{c.Executor.(*rig.Escrow)}
	}
	first := rig.New(t, replaying)
	back, keys := make(chan struct{}), make(chan escrow.OperationKey, 10)
	defer close(back)
	s := first.MustSubmit(rig.Release(1))
	first.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if keys <- c.OperationKey; c.Run == s.Run {
			<-back
		}
		return rig.Refused()
	})
	first.StartWorkers().WaitLetter(s.Run)
	first.StopWorkers()

	r := rig.Join(t, first.DatabaseURL, first.Redis, first.Escrow, replaying).StartWorkers()
	ctx := context.Background()
	forked := func(of postadjudication.Submitted) postadjudication.Submitted {
		t.Helper()
		f, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, of.Run, rig.ForkRequest)
		if err != nil {
			t.Fatal(err)
		}
		r.WaitLetter(f.Run)
		return rig.AsSubmitted(f)
	}
	fork := forked(s)
	r.Wait("the lookup is accepted as not executed", func() bool {
		_, err := rig.Lookup(ctx, r, "acme", fork.Run)
		return err == nil
	})
	forked(fork)
	if hung, refused, third := <-keys, <-keys, <-keys; refused != hung || third == hung {
		t.Errorf("the keys are %s, %s, %s", hung, refused, third)
	}
	r.MustAudit()
}

// A payment of the letter that is recorded while its fork runs also counts for the fork, since
// both have one key: the outcome of the fork's own call leaves no open letter.
func TestAForkWhoseKeyWasPaidMeanwhileLeavesNoLetter(t *testing.T) {
	t.Parallel()
	pays, called, answer := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = time.Second })
	ctx := context.Background()
	var forked atomic.Bool
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if !forked.Load() {
			<-pays
			return r.Escrow.Pay(c, c.Amount.Minor)
		}
		close(called)
		<-answer
		return rig.NoAnswer() // another attempt would get an answer
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitLetter(s.Run)
	forked.Store(true)
	f, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, s.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	<-called
	close(pays)
	r.WaitReceipt(s.Case, receipts.AnsweredLate)
	if st := r.StatusOf(f.Run); st.State != background.Running {
		t.Fatalf("the fork has ended: %+v", st)
	}
	close(answer)
	r.WaitNoneLive()
	if st := r.StatusOf(f.Run); st.State != background.Succeeded || st.Letter != background.NoLetter || st.Class != escrow.Executed {
		t.Errorf("%+v", st)
	}
	if c := r.CaseOf(rig.Release(1)); c.UnknownOpen != 0 || c.Released != 1000 || c.Progression != settlement.Settled {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

// The outcome class of a fork is the worst of its case: while an attempt of the previous letter
// is unresolved, a refusal of the fork does not clear it, and every list shows it.
func TestAForkOfAnUnknownLetterIsUnknownUntilThatIsResolved(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop).StartWorkers()
	ctx := context.Background()
	r.Escrow.ScriptLookups(func(escrow.Call) escrow.Answer {
		return escrow.Answer{Class: escrow.Unknown, Type: "lookup.down", Message: "503"}
	})
	letter := r.DeadLetter(1, rig.GivesNoAnswer)
	r.Escrow.Answer(rig.Refuses)
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.WaitLetter(fork.Run)
	is := func(class escrow.Class, open int) {
		t.Helper()
		if err := r.DrainEvents(ctx); err != nil {
			t.Fatal(err)
		}
		if l := r.Letters(deadletter.Filter{Status: background.LetterOpen, Class: class}); len(l) != 1 || l[0].Run != fork.Run || l[0].Class != class {
			t.Errorf("listed as %s: %+v", class, l)
		}
		if l := r.Letters(deadletter.Filter{Status: background.LetterOpen}); len(l) != 1 || l[0].Class != class {
			t.Errorf("of all: %+v", l)
		}
		found, err := r.As("acme", "").DeadLetters.Inspect(ctx, fork.Run)
		if err != nil || found.Run.Class != class || found.Case.UnknownOpen != open {
			t.Errorf("%s, %d open, %v", found.Run.Class, found.Case.UnknownOpen, err)
		}
		r.MustAudit()
	}
	is(escrow.Unknown, 3)
	if p := r.Payloads(rig.AsSubmitted(fork), receipts.DeadLettered); len(p) != 2 || p[1].OutcomeClass != string(escrow.Unknown) || p[1].AttemptClass != string(escrow.NotExecuted) {
		t.Errorf("%+v", p)
	}
	if p := r.Payloads(rig.AsSubmitted(fork), receipts.Submitted); len(p) != 2 || p[1].OutcomeClass != string(escrow.Unknown) {
		t.Errorf("%+v", p)
	}
	r.MustSetRule(rig.ReplayRule(1))
	r.MustApplyRules(replay.Report{Rules: 1})
	if _, err := r.Reconcile(ctx, "acme", fork.Run, deadletter.Finding{Reason: "the bank's statement", Class: escrow.NotExecuted, Reference: "stmt-7"}); err != nil {
		t.Fatal(err)
	}
	is(escrow.NotExecuted, 0)
	// After that a new fork starts with nothing unknown.
	next, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, fork.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	if st := r.StatusOf(next.Run); st.Class == escrow.Unknown {
		t.Errorf("%+v", st)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

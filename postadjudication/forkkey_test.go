package postadjudication

import (
	"context"
	"testing"
	"time"
)

// A service that replays stored failures makes a fork want a key of its own. While it is
// unknown whether the first key was paid, it gets none: under another one it could be
// paid twice.
func TestAForkOfAnUnknownLetterKeepsItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Policy.MaxRetryAttempts, c.Executor = 1, replayingEscrow{c.Executor.(*scriptedEscrow)}
	})
	keys := make(chan OperationKey, 10)
	paid := false
	r.escrow.lookup = func(Call) Answer { return noAnswer() }
	r.escrow.script = func(_ context.Context, c Call) Answer {
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
	if _, err := r.Fork(context.Background(), "acme", s.Run, forkRequest); err != nil {
		t.Fatal(err)
	}
	r.until("it is settled", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled')`)
	if first, second := <-keys, <-keys; second != first {
		t.Errorf("the fork has another key than its letter, %s and %s", second, first)
	}
	r.mustAudit()
}

// A call whose process is gone never comes back. Once it can't be on its way any more, and
// nothing was executed, a fork has a key of its own again: under the old one it would be
// answered with the stored failure for ever.
func TestACallOfALostProcessKeepsNoForkAtItsKey(t *testing.T) {
	t.Parallel()
	replaying := func(c *Config) {
		c.TimeLimit, c.LostAfter, c.Policy.MaxRetryAttempts, c.Executor = 100*time.Millisecond, 3*time.Second, 1, replayingEscrow{c.Executor.(*scriptedEscrow)}
	}
	first := newRig(t, replaying)
	back, keys := make(chan struct{}), make(chan OperationKey, 10)
	defer close(back)
	s := first.mustSubmit(release(1))
	first.escrow.script = func(_ context.Context, c Call) Answer {
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
		f, err := r.Fork(ctx, "acme", of.Run, forkRequest)
		if err != nil {
			t.Fatal(err)
		}
		r.until("its fork is a letter", `SELECT letter = 'open' FROM recourse.runs WHERE id = $1`, f.Run.String())
		return f
	}
	fork := forked(s)
	r.untilTrue("it is believed that nothing was executed", func() bool {
		_, err := r.ReconcileByLookup(ctx, "acme", fork.Run, "user:ada")
		return err == nil
	})
	forked(fork)
	if hung, refused, third := <-keys, <-keys, <-keys; refused != hung || third == hung {
		t.Errorf("the keys are %s, %s, %s", hung, refused, third)
	}
	r.mustAudit()
}

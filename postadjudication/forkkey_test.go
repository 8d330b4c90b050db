package postadjudication

import (
	"context"
	"testing"
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
	r.work()
	s := r.mustSubmit(release(1))
	r.until("it is a letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open' AND class = 'unknown')`)
	if _, err := r.Fork(context.Background(), "acme", s.Run, again); err != nil {
		t.Fatal(err)
	}
	r.until("it is settled", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'settled')`)
	if first, second := <-keys, <-keys; second != first {
		t.Errorf("the fork has another key than its letter, %s and %s", second, first)
	}
	r.sound()
}

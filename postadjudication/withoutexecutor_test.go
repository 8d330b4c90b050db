package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

func TestWithoutAnExecutorOneHandsOverAndLooksButRunsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Executor = nil })
	s := r.mustSubmit(release(1))
	if err := r.Run(context.Background()); !errors.Is(err, refusal.ErrNoExecutor) {
		t.Errorf("run: %v", err)
	}
	if got, err := r.Status(context.Background(), "acme", s.Run); err != nil || got.State != background.Pending {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.As("acme", "clerk").Cases.Cancel(context.Background(), s.Run, "sent in error"); err != nil || got.State != background.Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
	r.mustAudit()
}

// The late answer of an attempt is ignored for the money when it is no answer: the
// payment of the next attempt is the first of its key.
func TestALateAnswerThatPaidNothingIsNoPaymentInTheAudit(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.TimeLimit = 500 * time.Millisecond })
	late, recorded := make(chan struct{}), make(chan struct{})
	r.escrow.script = func(ctx context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt > 1 {
			<-recorded
			return r.escrow.pay(c, c.Amount.Minor)
		}
		<-ctx.Done()
		<-late
		return noAnswer()
	}
	s := r.startWorkers().mustSubmit(release(1))
	r.until("the second attempt runs", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'retry-scheduled')`)
	close(late)
	r.until("the late answer is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = $1)`, string(receipts.AnsweredLate))
	close(recorded)
	r.untilNoneLive()
	if c := r.caseOf(release(1)); c.Case != s.Case || c.Moved != 1000 {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}

// A service without a Redis reads and submits; its runs are left to the sweeper of a
// process that has one.
func TestAServiceWithoutARedisLooksAndHandsOver(t *testing.T) {
	t.Parallel()
	other := newRig(t)
	r := joinRig(t, other.url, nil, other.escrow)
	ctx := context.Background()
	made := r.mustSubmit(release(1))
	if made.Reply != Created {
		t.Fatalf("%+v", made)
	}
	if err := made.Notify(ctx); !errors.Is(err, ErrNoRedis) {
		t.Errorf("a notification: %v", err)
	}
	if _, err := r.As("acme", "ada").Breakers.Open(ctx, escrow.DefaultTarget, "looking"); err != nil {
		t.Errorf("a circuit breaker: %v", err)
	}
	if _, err := r.As("acme", "ada").Breakers.Release(ctx, escrow.DefaultTarget, "looked"); err != nil {
		t.Errorf("a circuit breaker: %v", err)
	}
	stopped := r.mustSubmit(release(2))
	if _, err := r.As("acme", "ada").Cases.Cancel(ctx, stopped.Run, "not this one"); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if err := r.Run(ctx); !errors.Is(err, ErrNoRedis) {
		t.Errorf("run: %v", err)
	}
	if err := r.Health().Check(ctx); !errors.Is(err, ErrNoRedis) {
		t.Errorf("healthy: %v", err)
	}
	other.startWorkers()
	other.untilNoneLive()
	if c := r.caseOf(release(1)); c.Progression != "settled" {
		t.Errorf("%+v", c)
	}
	r.mustAudit()
}

package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

func TestWithoutAnExecutorOneHandsOverAndLooksButRunsNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Executor = nil })
	s := r.MustSubmit(rig.Release(1))
	if err := r.Run(context.Background()); !errors.Is(err, refusal.ErrNoExecutor) {
		t.Errorf("run: %v", err)
	}
	if got, err := r.Status(context.Background(), "acme", s.Run); err != nil || got.State != background.Pending {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.As("acme", "clerk").Cases.Cancel(context.Background(), s.Run, "sent in error"); err != nil || got.State != background.Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
	r.MustAudit()
}

// The late answer of an attempt is ignored for the money when it is no answer: the
// payment of the next attempt is the first of its key.
func TestALateAnswerThatPaidNothingIsNoPaymentInTheAudit(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.TimeLimit = 500 * time.Millisecond })
	late, recorded := make(chan struct{}), make(chan struct{})
	r.Escrow.Script(func(ctx context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt > 1 {
			<-recorded
			return r.Escrow.Pay(c, c.Amount.Minor)
		}
		<-ctx.Done()
		<-late
		return rig.NoAnswer()
	})
	s := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitReceipt(s.Case, receipts.RetryScheduled)
	close(late)
	r.WaitReceipt(s.Case, receipts.AnsweredLate)
	close(recorded)
	r.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Case != s.Case || c.Moved != 1000 {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

// A service without a Redis reads and submits; its runs are left to the sweeper of a
// process that has one.
func TestAServiceWithoutARedisLooksAndHandsOver(t *testing.T) {
	t.Parallel()
	other := rig.New(t)
	r := rig.Join(t, other.DatabaseURL, nil, other.Escrow)
	ctx := context.Background()
	made := r.MustSubmit(rig.Release(1))
	if made.Reply != postadjudication.Created {
		t.Fatalf("%+v", made)
	}
	if err := made.Notify(ctx); err != nil {
		t.Errorf("a notification, which is left to the sweeper: %v", err)
	}
	if _, err := r.As("acme", "ada").Breakers.Open(ctx, escrow.DefaultTarget, "looking"); err != nil {
		t.Errorf("a circuit breaker: %v", err)
	}
	if _, err := r.As("acme", "ada").Breakers.Release(ctx, escrow.DefaultTarget, "looked"); err != nil {
		t.Errorf("a circuit breaker: %v", err)
	}
	stopped := r.MustSubmit(rig.Release(2))
	if _, err := r.As("acme", "ada").Cases.Cancel(ctx, stopped.Run, "not this one"); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if err := r.Run(ctx); !errors.Is(err, postadjudication.ErrNoRedis) {
		t.Errorf("run: %v", err)
	}
	if err := r.Health().Check(ctx); !errors.Is(err, postadjudication.ErrNoRedis) {
		t.Errorf("healthy: %v", err)
	}
	other.StartWorkers()
	other.WaitNoneLive()
	if c := r.CaseOf(rig.Release(1)); c.Progression != "settled" {
		t.Errorf("%+v", c)
	}
	r.MustAudit()
}

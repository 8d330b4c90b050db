package postadjudication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// stallUntilClaimsAreStale starts workers while evidence can't be written, until a claim is too
// old.
func stallUntilClaimsAreStale(r *rig.Rig, lostAfter time.Duration) {
	r.T.Helper()
	unlock := testkit.LockTables(r.T, r.DB, `recourse.receipts IN EXCLUSIVE MODE`)
	r.StartWorkers()
	r.WaitBlockedOn("receipts")
	<-time.After(background.MaxClaimAge(lostAfter)) // which the test is about
	unlock()
}

// A stall of Postgres is not blamed on the escrow service: a claim that it makes too old is not
// called, however long the keys live, spends no budget and opens no circuit breaker.
func TestAStallOfPostgresSpendsNothingAndOpensNoBreaker(t *testing.T) {
	t.Parallel()
	const lostAfter, runs = 5 * time.Second, 40
	r := rig.New(t, func(c *postadjudication.Config) {
		c.LostAfter, c.Breaker = lostAfter, postadjudication.BreakerRule{}
		c.Policy.MaxRetryAttempts = 1
	})
	for n := range runs {
		r.MustSubmit(rig.Release(n))
	}
	stallUntilClaimsAreStale(r, lostAfter)
	r.WaitSettled(40)
	stale := r.CountReceipts(rig.Receipts{Subtype: receipts.AttemptInterrupted})
	if stale == 0 {
		t.Error("no claim grew old: the stall was none")
	}
	say := map[string]any{"error": map[string]string{"type": background.FailureStaleClaim}, "attempt_class": escrow.NotExecuted}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.AttemptInterrupted, Payload: say}); n != stale {
		t.Errorf("%d interrupted attempts say something else", stale-n)
	}
	if n := r.Count(`SELECT count(*) FROM recourse.runs WHERE budget_spent > 0 OR recoveries > 0 OR letter <> ''`); n > 0 {
		t.Errorf("%d runs spent a budget", n)
	}
	if n := r.CountRows("circuit_breakers"); n > 0 {
		t.Errorf("%d circuit breakers were opened", n)
	}
	if n := r.Escrow.TotalCalls(); n != runs {
		t.Errorf("%d calls", n)
	}
	if n := r.Health().Stats().StaleClaims; int(n) < stale {
		t.Errorf("%d stale claims counted of %d", n, stale)
	}
	r.MustAudit()
}

// An executor gets what it needs to send no call of a stale claim, and to have the escrow service
// refuse one; a settlement whose claim's age is unknown is not called.
func TestAnExecutorIsAskedToBeSureOfItsClaim(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	second := rig.Release(1)
	second.Generation = 3
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		limit := background.MaxClaimAge(15*time.Second) + 5*time.Second
		left, off := time.Until(c.NotAfter), background.MaxClockOffset // NotAfter is on the database's clock
		if c.Fresh == nil || c.Fresh() != nil || c.Generation != 3 || left > limit+off || left < 5*time.Second-off {
			t.Errorf("call %+v", c)
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	s := r.StartWorkers().MustSubmit(second)
	r.WaitNoneLive()
	seen, err := r.Journal().Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	for name, fresh := range map[string]func() error{"no age": nil, "too old": func() error { return background.ErrStaleClaim }} {
		r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
			if err := c.Fresh(); errors.Is(err, background.ErrStaleClaim) {
				return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.unsent"}
			}
			t.Errorf("%s: called", name)
			return rig.Refused()
		})
		if got := r.Family().Handle(ctx, background.Attempt{Run: seen.Run, Number: 1, Fresh: fresh}); got.Class != escrow.NotExecuted {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r.MustAudit()
}

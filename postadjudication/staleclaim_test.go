package postadjudication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// stallUntilClaimsAreStale starts workers while evidence can't be written, until a claim is too
// old.
func (r *rig) stallUntilClaimsAreStale(lostAfter time.Duration) {
	r.t.Helper()
	tx, err := r.db.Begin()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := tx.Exec(`LOCK TABLE recourse.receipts IN EXCLUSIVE MODE`); err != nil {
		r.t.Fatal(err)
	}
	r.startWorkers()
	r.until("a claim waits for the lock", `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'recourse.receipts'::regclass AND NOT granted)`)
	<-time.After(background.MaxClaimAge(lostAfter)) // which the test is about
	if err := tx.Rollback(); err != nil {
		r.t.Fatal(err)
	}
}

// A stall of Postgres is not blamed on the escrow service: a claim that it makes too old is not
// called, however long the keys live, spends no budget and opens no circuit breaker.
func TestAStallOfPostgresSpendsNothingAndOpensNoBreaker(t *testing.T) {
	t.Parallel()
	const lostAfter, runs = 5 * time.Second, 40
	r := newRig(t, func(c *Config) { c.LostAfter, c.Breaker = lostAfter, BreakerRule{}; c.Policy.MaxRetryAttempts = 1 })
	for n := range runs {
		r.mustSubmit(release(n))
	}
	r.stallUntilClaimsAreStale(lostAfter)
	r.until("all settled", `SELECT count(*) = 40 FROM recourse.cases WHERE progression = 'settled'`)
	stale := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'attempt-interrupted'`)
	if stale == 0 {
		t.Error("no claim grew old: the stall was none")
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'attempt-interrupted' AND
		(body::json->'payload'->'error'->>'type' IS DISTINCT FROM $1 OR body::json->'payload'->>'attempt_class' IS DISTINCT FROM 'not_executed')`, background.FailureStaleClaim); n > 0 {
		t.Errorf("%d interrupted attempts say something else", n)
	}
	if n := r.count(`SELECT count(*) FROM recourse.runs WHERE budget_spent > 0 OR recoveries > 0 OR letter <> ''`); n > 0 {
		t.Errorf("%d runs spent a budget", n)
	}
	if n := r.count(`SELECT count(*) FROM recourse.circuit_breakers`); n > 0 {
		t.Errorf("%d circuit breakers were opened", n)
	}
	if n := r.escrow.totalCalls(); n != runs {
		t.Errorf("%d calls", n)
	}
	if n := r.Health().Stats().StaleClaims; int(n) < stale {
		t.Errorf("%d stale claims counted of %d", n, stale)
	}
	r.mustAudit()
}

// An executor gets what it needs to send no call of a stale claim, and to have the escrow service
// refuse one; a settlement whose claim's age is unknown is not called.
func TestAnExecutorIsAskedToBeSureOfItsClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	second := release(1)
	second.Generation = 3
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		limit := background.MaxClaimAge(15*time.Second) + 5*time.Second
		left, off := time.Until(c.NotAfter), background.MaxClockOffset // NotAfter is on the database's clock
		if c.Fresh == nil || c.Fresh() != nil || c.Generation != 3 || left > limit+off || left < 5*time.Second-off {
			t.Errorf("call %+v", c)
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	s := r.startWorkers().mustSubmit(second)
	r.untilNoneLive()
	seen, err := r.journal.Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	for name, fresh := range map[string]func() error{"no age": nil, "too old": func() error { return background.ErrStaleClaim }} {
		r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
			if err := c.Fresh(); errors.Is(err, background.ErrStaleClaim) {
				return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.unsent"}
			}
			t.Errorf("%s: called", name)
			return refused()
		}
		if got := r.settlements.Handle(ctx, background.Attempt{Run: seen.Run, Number: 1, Fresh: fresh}); got.Class != escrow.NotExecuted {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r.mustAudit()
}

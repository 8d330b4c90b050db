package postadjudication

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// inTransaction opens a caller's transaction that submits an adjudication and stays open.
func (r *rig) inTransaction(a Adjudication) *sql.Tx {
	r.t.Helper()
	tx, err := r.db.Begin()
	if err != nil {
		r.t.Fatal(err)
	}
	if s, err := r.SubmitTx(context.Background(), tx, a); err != nil || s.Reply != Created {
		r.t.Fatalf("%+v, %v", s, err)
	}
	return tx
}

// sharedEscrow returns an adjudication of a part of one large escrow.
func sharedEscrow(n int) Adjudication {
	a := release(n)
	a.EscrowReference, a.Held = "esc_shared", euros(100_000_000)
	return a
}

// withTenant returns an adjudication for another tenant.
func withTenant(tenant string, a Adjudication) Adjudication {
	a.Tenant = tenant
	return a
}

// While a caller's transaction holds an escrow, runs of other cases of that escrow end in part,
// and another tenant submits to known escrows and works on its dead letters: only submissions for
// that escrow wait for the transaction.
func TestAnOpenTransactionKeepsOnlySubmissionsForItsEscrowWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		switch {
		case c.Tenant == "acme":
			return r.escrow.pay(c, 400) // in part
		case c.Amount.Minor == 999:
			return refused()
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	const parts, others = 500, 50
	for n := 1000; n < 1000+parts; n++ {
		r.mustSubmit(sharedEscrow(n))
	}
	known := func(n int) Adjudication {
		a := withTenant("other", release(n))
		a.EscrowReference, a.Held = fmt.Sprintf("esc_%d", n%others), euros(2000)
		return a
	}
	for n := range others {
		r.mustSubmit(known(n))
	}
	dead := withTenant("other", release(5000))
	dead.Amount = euros(999)
	letter := r.mustSubmit(dead)

	tx := r.inTransaction(sharedEscrow(999))
	r.startWorkers()
	var waiting sync.WaitGroup
	for n := 2000; n < 2020; n++ { // these may wait, and must not block the others
		waiting.Go(func() {
			if s, err := r.Submit(ctx, sharedEscrow(n)); err != nil || s.Reply != Busy {
				t.Errorf("a submission for the held escrow: %s, %v", s.Reply, err)
			}
		})
	}
	for n := range others {
		if s := r.mustSubmit(known(others + n)); s.Reply != Created {
			t.Errorf("another tenant's submission: %s", s.Reply)
		}
	}
	r.until("the parts ended and the other tenant's settled", `SELECT count(*) FILTER (WHERE progression = 'partially-settled') = $1
		AND count(*) FILTER (WHERE tenant = 'other' AND progression = 'settled') = $2 FROM recourse.cases`, parts, 2*others)
	r.until("the other tenant's letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	for range 10 {
		if _, err := r.As("other", "user:ada").DeadLetters.Hold(ctx, letter.Run, "court"); err != nil {
			t.Errorf("hold: %v", err)
		}
		if _, err := r.As("other", "user:ada").DeadLetters.Release(ctx, letter.Run, "court"); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if err := r.manager.Healthy(); err != nil {
		t.Error(err)
	}
	waiting.Wait()
	if n := r.count(`SELECT open FROM recourse.escrow_sums WHERE reference = 'esc_shared' AND tenant = 'acme'`); n != -600*parts {
		t.Errorf("%d is open of the held escrow, want %d", n, -600*parts)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.until("the deltas are folded", `SELECT NOT EXISTS (SELECT FROM recourse.escrow_deltas)`)
	r.untilNoneLive()
	r.mustAudit()
}

// Of many submissions for an escrow that a caller's transaction holds, one waits for it and
// holds a connection; the others are answered Busy.
func TestOneSubmissionOfAnEscrowWaitsForAnOpenTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tx := r.inTransaction(sharedEscrow(1))
	var all sync.WaitGroup
	done := make(chan struct{})
	for n := 2; n < 42; n++ {
		all.Go(func() {
			if s, err := r.Submit(context.Background(), sharedEscrow(n)); err != nil || s.Reply != Busy {
				t.Errorf("%s, %v", s.Reply, err)
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	most := 0
	r.untilTrue("all were answered", func() bool {
		most = max(most, r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`))
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	if most != 1 {
		t.Errorf("%d waited at once", most)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if s := r.mustSubmit(sharedEscrow(2)); s.Reply != Created {
		t.Errorf("after the transaction: %s", s.Reply)
	}
}

// However many callers wait for cases that transactions hold, an action on another case
// is not Busy.
func TestActionsOnHeldCasesKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	var held []Submitted
	for n := range 6 {
		held = append(held, r.mustSubmit(release(n)))
	}
	free := r.mustSubmit(withTenant("other", release(100)))
	r.startWorkers()
	r.until("all are letters", `SELECT count(*) = 7 FROM recourse.runs WHERE letter = 'open'`)
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT FROM recourse.cases WHERE tenant = 'acme' FOR NO KEY UPDATE`); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for _, s := range held {
		waiting.Go(func() {
			for {
				_, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, s.Run, "court")
				if err == nil {
					return
				}
				if !errors.Is(err, background.ErrBusy) {
					t.Error(err)
					return
				}
			}
		})
	}
	r.until("the lane is full", `SELECT count(*) >= 4 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	for range 10 {
		if _, err := r.As("other", "user:ada").DeadLetters.Hold(ctx, free.Run, "court"); err != nil {
			t.Errorf("hold: %v", err)
		}
		if _, err := r.As("other", "user:ada").DeadLetters.Release(ctx, free.Run, "court"); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	r.mustAudit()
}

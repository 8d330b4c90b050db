package postadjudication_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/settlement"
)

// inTransaction opens a caller's transaction that submits an adjudication and stays open.
func inTransaction(r *rig.Rig, a postadjudication.Adjudication) *sql.Tx {
	r.T.Helper()
	tx, err := r.DB.Begin()
	if err != nil {
		r.T.Fatal(err)
	}
	if s, err := r.SubmitTx(context.Background(), tx, a); err != nil || s.Reply != postadjudication.Created {
		r.T.Fatalf("%+v, %v", s, err)
	}
	return tx
}

// sharedEscrow returns an adjudication of a part of one large escrow.
func sharedEscrow(n int) postadjudication.Adjudication {
	a := rig.Release(n)
	a.EscrowReference, a.Held = "esc_shared", rig.Euros(100_000_000)
	return a
}

// withTenant returns an adjudication for another tenant.
func withTenant(tenant string, a postadjudication.Adjudication) postadjudication.Adjudication {
	a.Tenant = tenant
	return a
}

// While a caller's transaction holds an escrow, runs of other cases of that escrow end in part,
// and another tenant submits to known escrows and works on its dead letters: only submissions for
// that escrow wait for the transaction.
func TestAnOpenTransactionKeepsOnlySubmissionsForItsEscrowWaiting(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		switch {
		case c.Tenant == "acme":
			return r.Escrow.Pay(c, 400) // in part
		case c.Amount.Minor == 999:
			return rig.Refused()
		}
		return r.Escrow.Pay(c, c.Amount.Minor)
	})
	const parts, others = 500, 50
	for n := 1000; n < 1000+parts; n++ {
		r.MustSubmit(sharedEscrow(n))
	}
	known := func(n int) postadjudication.Adjudication {
		a := withTenant("other", rig.Release(n))
		a.EscrowReference, a.Held = fmt.Sprintf("esc_%d", n%others), rig.Euros(2000)
		return a
	}
	for n := range others {
		r.MustSubmit(known(n))
	}
	dead := withTenant("other", rig.Release(5000))
	dead.Amount = rig.Euros(999)
	letter := r.MustSubmit(dead)

	tx := inTransaction(r, sharedEscrow(999))
	r.StartWorkers()
	var waiting sync.WaitGroup
	for n := 2000; n < 2020; n++ { // these may wait, and must not block the others
		waiting.Go(func() {
			if s, err := r.Submit(ctx, sharedEscrow(n)); err != nil || s.Reply != postadjudication.Busy {
				t.Errorf("a submission for the held escrow: %s, %v", s.Reply, err)
			}
		})
	}
	for n := range others {
		if s := r.MustSubmit(known(others + n)); s.Reply != postadjudication.Created {
			t.Errorf("another tenant's submission: %s", s.Reply)
		}
	}
	r.WaitCases(parts, rig.Cases{Progression: settlement.PartiallySettled})
	r.WaitCases(2*others, rig.Cases{Tenant: "other", Progression: settlement.Settled})
	r.WaitRuns(1, rig.Runs{Tenant: "other", Letter: background.LetterOpen})
	for range 10 {
		if _, err := r.As("other", "user:ada").DeadLetters.Hold(ctx, letter.Run, "court"); err != nil {
			t.Errorf("hold: %v", err)
		}
		if _, err := r.As("other", "user:ada").DeadLetters.Release(ctx, letter.Run, "court"); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if err := r.Engine().Healthy(); err != nil {
		t.Error(err)
	}
	waiting.Wait()
	if n := r.EscrowSums("acme", "esc_shared").Open; n != -600*parts {
		t.Errorf("%d is open of the held escrow, want %d", n, -600*parts)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.WaitDeltasFolded()
	r.WaitNoneLive()
	r.MustAudit()
}

// Of many submissions for an escrow that a caller's transaction holds, one waits for it and
// holds a connection; the others are answered Busy.
func TestOneSubmissionOfAnEscrowWaitsForAnOpenTransaction(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	tx := inTransaction(r, sharedEscrow(1))
	var all sync.WaitGroup
	done := make(chan struct{})
	for n := 2; n < 42; n++ {
		all.Go(func() {
			if s, err := r.Submit(context.Background(), sharedEscrow(n)); err != nil || s.Reply != postadjudication.Busy {
				t.Errorf("%s, %v", s.Reply, err)
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	most := 0
	r.Wait("all were answered", func() bool {
		most = max(most, r.Blocked())
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
	if s := r.MustSubmit(sharedEscrow(2)); s.Reply != postadjudication.Created {
		t.Errorf("after the transaction: %s", s.Reply)
	}
}

// However many callers wait for cases that transactions hold, an action on another case
// is not Busy.
func TestActionsOnHeldCasesKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	r.Escrow.Answer(rig.Refuses)
	var held []postadjudication.Submitted
	for n := range 6 {
		held = append(held, r.MustSubmit(rig.Release(n)))
	}
	free := r.MustSubmit(withTenant("other", rig.Release(100)))
	r.StartWorkers()
	r.WaitRuns(7, rig.Runs{Letter: background.LetterOpen})
	tx, err := r.DB.Begin()
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
	r.WaitBlocked(4) // the slow path is full
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
	r.MustAudit()
}

// A transaction of another database is refused before anything is written: also where neither database has its
// identity yet, where the other one has no schema, and for an adjudication that is refused anyway.
func TestSubmitTxRefusesATransactionOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	r, other := rig.New(t), rig.New(t)
	refused := func(where string, db *sql.DB, a postadjudication.Adjudication) {
		t.Helper()
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.SubmitTx(context.Background(), tx, a); !errors.Is(err, background.ErrOtherDatabase) || s.Reply != "" {
			t.Errorf("%s: %+v, %v", where, s, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	refused("installed", other.DB, rig.Release(1))
	refused("a target that is refused", other.DB, withTarget("elsewhere", rig.Release(2)))
	empty := testkit.OpenAsOwner(t, testkit.Database(t))
	refused("no schema", empty, rig.Release(1))
	for _, db := range []*sql.DB{r.DB, other.DB} {
		testkit.Tamper(t, db, `DELETE FROM recourse.installation`)
	}
	refused("not installed", other.DB, rig.Release(1))
	for _, table := range []string{"runs", "cases", "escrows", "receipts"} {
		if n, m := r.CountRows(table), other.CountRows(table); n != 0 || m != 0 {
			t.Errorf("%d and %d rows of %s", n, m, table)
		}
	}
	if s, err := inOwnTx(r); err != nil || s.Reply != postadjudication.Created {
		t.Errorf("in its own database: %+v, %v", s, err)
	}
}

// The caller's transaction is as durable as the answer promises, whatever its connection has chosen; the connection keeps its choice.
func TestSubmitTxMakesTheCallersCommitDurable(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for chosen, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		conn, err := r.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		commits := func(q interface {
			QueryRowContext(context.Context, string, ...any) *sql.Row
		}) (is string) {
			if err := q.QueryRowContext(t.Context(), `SELECT current_setting('synchronous_commit')`).Scan(&is); err != nil {
				t.Fatal(err)
			}
			return is
		}
		if _, err := conn.ExecContext(t.Context(), `SET synchronous_commit = `+chosen); err != nil {
			t.Fatal(err)
		}
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.SubmitTx(t.Context(), tx, rig.Release(1)); err != nil || s.Reply != postadjudication.Created || commits(tx) != want {
			t.Errorf("%s: %+v, %v, commits with %s", chosen, s, err, commits(tx))
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if is := commits(conn); is != chosen {
			t.Errorf("the connection has %s, and chose %s", is, chosen)
		}
	}
}

// inOwnTx submits in a transaction of the service's own database, and commits.
func inOwnTx(r *rig.Rig) (postadjudication.Submitted, error) {
	tx, err := r.DB.Begin()
	if err != nil {
		return postadjudication.Submitted{}, err
	}
	s, err := r.SubmitTx(context.Background(), tx, rig.Release(1))
	return s, errors.Join(err, tx.Commit())
}

// In a caller's transaction, too, a higher generation reserves no more than its escrow has left.
func TestAHigherGenerationInACallersTransactionFitsItsEscrow(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	r.Escrow.Answer(rig.Refuses)
	first, other := rig.Release(1), rig.Release(2)
	other.EscrowReference = first.EscrowReference
	first.Held, other.Held = rig.Euros(2000), rig.Euros(2000)
	letter := r.MustSubmit(first)
	r.WaitLetter(letter.Run)
	r.MustSubmit(other)
	next := first
	next.Generation, next.AdjudicationID = 2, "adj_1_2"
	for minor, want := range map[int64]postadjudication.Reply{1001: postadjudication.ExceedsHeld, 1000: postadjudication.Created} {
		next.Amount = rig.Euros(minor)
		tx, err := r.DB.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.SubmitTx(t.Context(), tx, next); err != nil || s.Reply != want {
			t.Errorf("%d of 1000: %+v, %v", minor, s, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

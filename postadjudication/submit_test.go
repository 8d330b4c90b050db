package postadjudication_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func TestFiftySubmittersMakeOneRun(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	replies := make([]postadjudication.Submitted, 50)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = r.MustSubmit(rig.Release(1)) })
	}
	all.Wait()
	created := 0
	for _, s := range replies {
		switch {
		case s.Reply == postadjudication.Created:
			created++
		case s.Reply != postadjudication.Deduplicated && s.Reply != postadjudication.AlreadyExecuted:
			t.Errorf("reply %s", s.Reply)
		}
		if s.Run != replies[0].Run {
			t.Errorf("run %s, and %s", s.Run, replies[0].Run)
		}
	}
	if created != 1 {
		t.Errorf("%d created", created)
	}
	r.WaitNoneLive()
	if n := r.Escrow.TotalCalls(); n != 1 {
		t.Errorf("%d calls of the escrow service", n)
	}
	r.MustAudit()
}

// Every reply of the table is given in the state that it is for.
func TestRepliesOfASubmission(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	first := r.MustSubmit(rig.Release(1))
	expect := func(what string, want postadjudication.Reply, a postadjudication.Adjudication) {
		t.Helper()
		got := r.MustSubmit(a)
		if got.Reply != want {
			t.Errorf("%s: %s, want %s", what, got.Reply, want)
		}
		if want != postadjudication.Created && want != postadjudication.ExceedsHeld && want != postadjudication.EscrowMismatch && got.Run != first.Run {
			t.Errorf("%s names run %s, not %s", what, got.Run, first.Run)
		}
	}
	change := func(f func(*postadjudication.Adjudication)) postadjudication.Adjudication {
		a := rig.Release(1)
		f(&a)
		return a
	}
	expect("the same", postadjudication.Deduplicated, rig.Release(1))
	expect("another outcome", postadjudication.Conflicting, rig.Refund(1))
	expect("a higher generation while live", postadjudication.Conflicting, change(func(a *postadjudication.Adjudication) { a.Generation = 2 }))
	expect("other content", postadjudication.RetryKeyMismatch, change(func(a *postadjudication.Adjudication) { a.AdjudicationID = "adj_other" }))
	expect("another sum held", postadjudication.EscrowMismatch, change(func(a *postadjudication.Adjudication) { a.Held = rig.Euros(2000) }))
	expect("another escrow", postadjudication.EscrowMismatch, change(func(a *postadjudication.Adjudication) { a.EscrowReference = "esc_other" }))
	over := rig.Release(2)
	over.EscrowReference = "esc_1"
	over.Amount = rig.Euros(1)
	expect("an escrow that is committed", postadjudication.ExceedsHeld, over)

	r.StartWorkers()
	r.WaitNoneLive()
	expect("again after it settled", postadjudication.AlreadyExecuted, rig.Release(1))
	expect("another outcome after it settled", postadjudication.CaseEnded, rig.Refund(1))
	expect("another escrow after it settled", postadjudication.CaseEnded, change(func(a *postadjudication.Adjudication) { a.EscrowReference = "esc_other" }))
	if again := r.MustSubmit(rig.Release(1)); again.Settlement.Released != 1000 || again.Settlement.Moved != 1000 || again.Settlement.Currency != "EUR" {
		t.Errorf("the sums: %+v", again)
	}
	r.MustAudit()
}

// An adjudication that contradicts an ended case is never accepted, and leaves one receipt per
// content and day, however often it is submitted, and by how many at once.
func TestAReversalOfAnEndedCaseIsRefusedWithAReceipt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	settled := r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	back, other := rig.Refund(1), rig.Release(1)
	back.Generation, back.AdjudicationID, back.Actor = 2, "adj_reversal", "user:ben"
	other.Generation, other.Amount = 3, rig.Euros(1)
	ctx := context.Background()
	var all sync.WaitGroup
	for range 10 {
		for _, a := range []postadjudication.Adjudication{back, other} {
			all.Go(func() {
				s, err := r.Submit(ctx, a)
				if err != nil || s.Reply != postadjudication.CaseEnded || s.Reply.Accepted() || s.Run != settled.Run {
					t.Errorf("%+v, %v", s, err)
				}
			})
		}
	}
	all.Wait()
	refusals := func() (out []receipts.Payload) {
		trail, err := r.Receipts(ctx, "acme", settled.Case, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range trail {
			if e.Subtype != receipts.Refused {
				continue
			}
			p, err := e.Payload()
			if err != nil || p.AskedFor != "submit" || p.RefusedBy != "case_ended" || e.Source != receipts.SourceDeadLetter ||
				(p.AdjudicationID == "adj_reversal") != (e.Actor == "user:ben") || (e.Actor == "user:ben") != (p.Outcome == "refund") {
				t.Errorf("%+v %+v, %v", e, p, err)
			}
			out = append(out, p)
		}
		return out
	}
	if found := refusals(); len(found) != 2 {
		t.Errorf("%d refusals", len(found))
	}
	if n := r.CountRows("runs"); n != 1 {
		t.Errorf("%d runs", n)
	}
	if s, err := r.RefuseLater(ctx, other, settled.Case, 24*time.Hour); err != nil || s.Reply != postadjudication.CaseEnded || len(refusals()) != 3 {
		t.Errorf("a day later: %+v, %v, %d refusals", s, err, len(refusals()))
	}
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.AlreadyExecuted {
		t.Errorf("%+v", s)
	}
	r.MustAudit()
}

// In a caller's transaction, too, the refusal's receipt is kept, also if the transaction is rolled
// back, and SubmitTx does not wait for other transactions.
func TestARefusalInACallersTransactionIsKept(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	settled := r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	back := rig.Refund(1)
	back.Generation = 2
	inTx := func(want postadjudication.Reply) {
		t.Helper()
		tx, err := r.DB.Begin()
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.SubmitTx(context.Background(), tx, back)
		if err != nil || s.Reply != want {
			t.Errorf("%+v, %v", s, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(`SELECT FROM recourse.cases WHERE id = $1 FOR UPDATE`, settled.Case.String()); err != nil {
		t.Fatal(err)
	}
	inTx(postadjudication.Busy)
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	inTx(postadjudication.CaseEnded)
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.Refused}); n != 1 {
		t.Errorf("%d receipts", n)
	}
	r.MustAudit()
}

func TestRepliesToADeadLetterAndAfterIt(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Answer(rig.Refuses)
	dead := r.StartWorkers().MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.DeadLettered || s.Run != dead.Run {
		t.Errorf("the same: %+v", s)
	}
	r.Escrow.Script(nil)
	higher := rig.Refund(1)
	higher.Generation = 3
	s := r.MustSubmit(higher)
	if s.Reply != postadjudication.Created {
		t.Fatalf("a higher generation: %s", s.Reply)
	}
	r.WaitNoneLive()
	lower := rig.Release(1)
	lower.Generation = 2
	if s := r.MustSubmit(lower); s.Reply != postadjudication.StaleGeneration || s.Reply.Accepted() {
		t.Errorf("a lower generation: %s", s.Reply)
	}
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.Superseded || !s.Reply.Accepted() || s.Run != dead.Run || s.State != background.DeadLettered || s.Settlement.Generation != 3 {
		t.Errorf("the one that was accepted before: %+v", s)
	}
	old, err := r.Status(context.Background(), "acme", dead.Run)
	if err != nil || old.Letter != background.LetterSuperseded {
		t.Errorf("the old letter: %+v, %v", old, err)
	}
	r.MustAudit()
}

func TestOppositeOutcomesAndOverHeldAmountsRace(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	var all sync.WaitGroup
	replies := make([]postadjudication.Submitted, 60)
	for i := range replies {
		all.Go(func() {
			a := rig.Release(i % 20) // 20 cases, each submitted three times
			if i >= 40 {
				a.Outcome = "refund"
			}
			a.EscrowReference, a.Held = "esc_shared", rig.Euros(7500) // enough for seven
			replies[i] = r.MustSubmit(a)
		})
	}
	all.Wait()
	r.WaitNoneLive()
	created := 0
	for _, s := range replies {
		if s.Reply == postadjudication.Created {
			created++
		}
	}
	if n := r.Count(`SELECT committed / 1000 FROM recourse.escrows WHERE reference = 'esc_shared'`); created != 7 || n != 7 {
		t.Errorf("%d created, %d committed, 7 fit", created, n)
	}
	r.MustAudit()
}

func TestSubmitTxIsWrittenIfAndOnlyIfTheCallerCommits(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	for n, commit := range map[int]bool{1: true, 2: false} {
		tx, err := r.DB.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.SubmitTx(ctx, tx, rig.Release(n))
		if err != nil || s.Reply != postadjudication.Created {
			t.Fatalf("%+v, %v", s, err)
		}
		again, err := r.SubmitTx(ctx, tx, rig.Release(n))
		if err != nil || again.Reply != postadjudication.Deduplicated || again.Run != s.Run {
			t.Errorf("again in the same transaction: %+v, %v", again, err)
		}
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Notify(ctx); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitSettled(1)
	if n := r.CountRows("cases"); n != 1 {
		t.Errorf("%d cases", n)
	}
	r.MustAudit()
}

// Without Notify the sweeper enqueues the run.
func TestSubmitTxWithoutNotifyIsSweptUp(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) { c.Sweep = 50 * time.Millisecond }).StartWorkers()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitTx(context.Background(), tx, rig.Release(1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.WaitSettled(1)
	r.MustAudit()
}

// A transaction that stays open locks its own case and escrow, and no other.
func TestAnOpenTransactionHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.SubmitTx(ctx, tx, rig.Release(1)); err != nil || s.Reply != postadjudication.Created {
		t.Fatalf("%+v, %v", s, err)
	}
	for n := 2; n < 42; n++ {
		if s := r.MustSubmit(rig.Release(n)); s.Reply != postadjudication.Created {
			t.Errorf("case %d: %s", n, s.Reply)
		}
	}
	r.WaitSettled(40)

	other, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.SubmitTx(ctx, other, rig.Release(1)); err != nil || s.Reply != postadjudication.Busy {
		t.Errorf("the same case in another transaction: %+v, %v", s, err)
	}
	sameEscrow := rig.Release(50)
	sameEscrow.EscrowReference = "esc_1"
	if s, err := r.SubmitTx(ctx, other, sameEscrow); err != nil || s.Reply != postadjudication.Busy {
		t.Errorf("the same escrow in another transaction: %+v, %v", s, err)
	}
	var one int
	if err := other.QueryRow(`SELECT 1`).Scan(&one); err != nil {
		t.Errorf("the caller's transaction is poisoned: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.Busy {
		t.Errorf("waiting for the open transaction ended with %s", s.Reply)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.Deduplicated && s.Reply != postadjudication.AlreadyExecuted {
		t.Errorf("after the commit: %s", s.Reply)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

func TestSubmitTxAnswersIsolationAsAValue(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx, err := r.DB.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.SubmitTx(context.Background(), tx, rig.Release(1)); err != nil || s.Reply != postadjudication.IsolationUnsupported {
			t.Errorf("%s: %+v, %v", level, s, err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("%s: the caller's transaction is poisoned: %v", level, err)
		}
	}
	if n := r.CountRows("runs"); n != 0 {
		t.Errorf("%d runs", n)
	}
}

// Four processes submit and execute the same adjudications in different orders.
func TestShuffledBatchesFromFourProcessesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	first := rig.New(t).StartWorkers()
	rigs := []*rig.Rig{first}
	for range 3 {
		rigs = append(rigs, rig.Join(t, first.DatabaseURL, first.Redis, first.Escrow).StartWorkers())
	}
	const n = 300
	first.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			return rig.RateLimited()
		}
		return first.Escrow.Pay(c, c.Amount.Minor)
	})
	var all sync.WaitGroup
	for i, r := range rigs {
		all.Go(func() {
			as := make([]postadjudication.Adjudication, n)
			for k := range as {
				as[k] = rig.Release((k*(2*i+7) + i*31) % n)
				as[k].EscrowReference, as[k].Held = "esc_"+string(rune('a'+k%5)), rig.Euros(1_000_000)
				as[k].EscrowReference = "esc_" + string(rune('a'+as[k].TransactionReceiptID[len(as[k].TransactionReceiptID)-1]%5))
			}
			_, errs := r.SubmitBatch(context.Background(), as)
			for _, err := range errs {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	first.WaitNoneLive()
	cases := first.CountRows("cases")
	if settled := first.CountCases(rig.Cases{Progression: settlement.Settled}); settled != cases || cases == 0 {
		t.Errorf("%d of %d settled", settled, cases)
	}
	if d := first.Count(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); d != 0 {
		t.Errorf("%d deadlocks", d)
	}
	first.MustAudit()
}

// After the rollback of a transaction that named an escrow with a wrong sum, the right sum is
// accepted, also from the next transaction.
func TestSubmitTxCorrectsAnEscrowThatNobodyUses(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	submitTx := func(a postadjudication.Adjudication, end func(*sql.Tx) error) postadjudication.Reply {
		tx, err := r.DB.Begin()
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.SubmitTx(ctx, tx, a)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		return s.Reply
	}
	wrong := rig.Release(1)
	wrong.Held = rig.Euros(5000)
	if reply := submitTx(wrong, (*sql.Tx).Rollback); reply != postadjudication.Created {
		t.Fatalf("the wrong sum: %s", reply)
	}
	if reply := submitTx(rig.Release(1), (*sql.Tx).Rollback); reply != postadjudication.Created {
		t.Errorf("the right sum, rolled back: %s", reply)
	}
	if reply := submitTx(rig.Release(1), (*sql.Tx).Commit); reply != postadjudication.Created {
		t.Errorf("the right sum: %s", reply)
	}
	wrong.TransactionReceiptID = "txr_2"
	if reply := submitTx(wrong, (*sql.Tx).Commit); reply != postadjudication.EscrowMismatch {
		t.Errorf("a wrong sum of an escrow in use: %s", reply)
	}
	r.StartWorkers().WaitNoneLive()
	r.MustAudit()
}

// An escrow that Postgres has lost, as in a failover to a standby that lagged, is recorded again
// by the next submission, though this process has it cached.
func TestAnEscrowThatPostgresLostIsNamedAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	lose := func() {
		t.Helper()
		for _, table := range []string{"outbox", "receipts", "operations", "runs", "cases", "escrows"} {
			testkit.Tamper(t, r.DB, `DELETE FROM recourse.`+table)
		}
	}
	r.MustSubmit(rig.Release(1))
	lose()
	if s := r.MustSubmit(rig.Release(1)); s.Reply != postadjudication.Created {
		t.Errorf("submitted again: %s", s.Reply)
	}
	lose()
	tx, err := r.DB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.SubmitTx(context.Background(), tx, rig.Release(1)); err != nil || s.Reply != postadjudication.Created {
		t.Errorf("submitted again in a transaction: %s, %v", s.Reply, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.StartWorkers().WaitNoneLive()
	r.MustAudit()
}

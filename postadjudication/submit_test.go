package postadjudication

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/receipts"
)

func TestFiftySubmittersMakeOneRun(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	replies := make([]Submitted, 50)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = r.mustSubmit(release(1)) })
	}
	all.Wait()
	created := 0
	for _, s := range replies {
		switch {
		case s.Reply == Created:
			created++
		case s.Reply != Deduplicated && s.Reply != AlreadyExecuted:
			t.Errorf("reply %s", s.Reply)
		}
		if s.Run != replies[0].Run {
			t.Errorf("run %s, and %s", s.Run, replies[0].Run)
		}
	}
	if created != 1 {
		t.Errorf("%d created", created)
	}
	r.untilNoneLive()
	if n := r.escrow.totalCalls(); n != 1 {
		t.Errorf("%d calls of the escrow service", n)
	}
	r.mustAudit()
}

// Every reply of the table is given in the state that it is for.
func TestRepliesOfASubmission(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.mustSubmit(release(1))
	expect := func(what string, want Reply, a Adjudication) {
		t.Helper()
		got := r.mustSubmit(a)
		if got.Reply != want {
			t.Errorf("%s: %s, want %s", what, got.Reply, want)
		}
		if want != Created && want != ExceedsHeld && want != EscrowMismatch && got.Run != first.Run {
			t.Errorf("%s names run %s, not %s", what, got.Run, first.Run)
		}
	}
	change := func(f func(*Adjudication)) Adjudication { a := release(1); f(&a); return a }
	expect("the same", Deduplicated, release(1))
	expect("another outcome", Conflicting, refund(1))
	expect("a higher generation while live", Conflicting, change(func(a *Adjudication) { a.Generation = 2 }))
	expect("other content", RetryKeyMismatch, change(func(a *Adjudication) { a.AdjudicationID = "adj_other" }))
	expect("another sum held", EscrowMismatch, change(func(a *Adjudication) { a.Held = euros(2000) }))
	expect("another escrow", EscrowMismatch, change(func(a *Adjudication) { a.EscrowReference = "esc_other" }))
	over := release(2)
	over.EscrowReference = "esc_1"
	over.Amount = euros(1)
	expect("an escrow that is committed", ExceedsHeld, over)

	r.startWorkers()
	r.untilNoneLive()
	expect("again after it settled", AlreadyExecuted, release(1))
	expect("another outcome after it settled", CaseEnded, refund(1))
	expect("another escrow after it settled", CaseEnded, change(func(a *Adjudication) { a.EscrowReference = "esc_other" }))
	if again := r.mustSubmit(release(1)); again.Settlement.Released != 1000 || again.Settlement.Moved != 1000 || again.Settlement.Currency != "EUR" {
		t.Errorf("the sums: %+v", again)
	}
	r.mustAudit()
}

// An adjudication that contradicts an ended case is never accepted, and leaves one receipt per
// content and day, however often it is submitted, and by how many at once.
func TestAReversalOfAnEndedCaseIsRefusedWithAReceipt(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	settled := r.mustSubmit(release(1))
	r.untilNoneLive()
	back, other := refund(1), release(1)
	back.Generation, back.AdjudicationID, back.Actor = 2, "adj_reversal", "user:ben"
	other.Generation, other.Amount = 3, euros(1)
	ctx := context.Background()
	var all sync.WaitGroup
	for range 10 {
		for _, a := range []Adjudication{back, other} {
			all.Go(func() {
				s, err := r.Submit(ctx, a)
				if err != nil || s.Reply != CaseEnded || s.Reply.Accepted() || s.Run != settled.Run {
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
	if n := r.count(`SELECT count(*) FROM recourse.runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
	tomorrow := r.admissionAt(other, 24*time.Hour)
	if s, err := r.completeReply(ctx, &tomorrow, Submitted{Reply: CaseEnded, Case: settled.Case}, true); err != nil || s.Reply != CaseEnded || len(refusals()) != 3 {
		t.Errorf("a day later: %+v, %v, %d refusals", s, err, len(refusals()))
	}
	if s := r.mustSubmit(release(1)); s.Reply != AlreadyExecuted {
		t.Errorf("%+v", s)
	}
	r.mustAudit()
}

// admissionAt returns an admission, some time from now.
func (r *rig) admissionAt(a Adjudication, ahead time.Duration) admission {
	r.t.Helper()
	out, err := r.admission(context.Background(), a)
	if err != nil {
		r.t.Fatal(err)
	}
	out.at = out.at.Add(ahead)
	return out
}

// In a caller's transaction, too, the refusal's receipt is kept, also if the transaction is rolled
// back, and SubmitTx does not wait for other transactions.
func TestARefusalInACallersTransactionIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	settled := r.mustSubmit(release(1))
	r.untilNoneLive()
	back := refund(1)
	back.Generation = 2
	inTx := func(want Reply) {
		t.Helper()
		tx, err := r.db.Begin()
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
	holder, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(`SELECT FROM recourse.cases WHERE id = $1 FOR UPDATE`, settled.Case.String()); err != nil {
		t.Fatal(err)
	}
	inTx(Busy)
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	inTx(CaseEnded)
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'refused'`); n != 1 {
		t.Errorf("%d receipts", n)
	}
	r.mustAudit()
}

func TestRepliesToADeadLetterAndAfterIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	dead := r.startWorkers().mustSubmit(release(1))
	r.untilNoneLive()
	if s := r.mustSubmit(release(1)); s.Reply != DeadLettered || s.Run != dead.Run {
		t.Errorf("the same: %+v", s)
	}
	r.escrow.mu.Lock()
	r.escrow.script = nil
	r.escrow.mu.Unlock()
	higher := refund(1)
	higher.Generation = 3
	s := r.mustSubmit(higher)
	if s.Reply != Created {
		t.Fatalf("a higher generation: %s", s.Reply)
	}
	r.untilNoneLive()
	lower := release(1)
	lower.Generation = 2
	if s := r.mustSubmit(lower); s.Reply != StaleGeneration || s.Reply.Accepted() {
		t.Errorf("a lower generation: %s", s.Reply)
	}
	if s := r.mustSubmit(release(1)); s.Reply != Superseded || !s.Reply.Accepted() || s.Run != dead.Run || s.State != background.DeadLettered || s.Settlement.Generation != 3 {
		t.Errorf("the one that was accepted before: %+v", s)
	}
	old, err := r.Status(context.Background(), "acme", dead.Run)
	if err != nil || old.Letter != background.LetterSuperseded {
		t.Errorf("the old letter: %+v, %v", old, err)
	}
	r.mustAudit()
}

func TestOppositeOutcomesAndOverHeldAmountsRace(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	var all sync.WaitGroup
	replies := make([]Submitted, 60)
	for i := range replies {
		all.Go(func() {
			a := release(i % 20) // 20 cases, each submitted three times
			if i >= 40 {
				a.Outcome = "refund"
			}
			a.EscrowReference, a.Held = "esc_shared", euros(7500) // enough for seven
			replies[i] = r.mustSubmit(a)
		})
	}
	all.Wait()
	r.untilNoneLive()
	created := 0
	for _, s := range replies {
		if s.Reply == Created {
			created++
		}
	}
	if n := r.count(`SELECT committed / 1000 FROM recourse.escrows WHERE reference = 'esc_shared'`); created != 7 || n != 7 {
		t.Errorf("%d created, %d committed, 7 fit", created, n)
	}
	r.mustAudit()
}

func TestSubmitTxIsWrittenIfAndOnlyIfTheCallerCommits(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	for n, commit := range map[int]bool{1: true, 2: false} {
		tx, err := r.db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.SubmitTx(ctx, tx, release(n))
		if err != nil || s.Reply != Created {
			t.Fatalf("%+v, %v", s, err)
		}
		again, err := r.SubmitTx(ctx, tx, release(n))
		if err != nil || again.Reply != Deduplicated || again.Run != s.Run {
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
	r.until("the committed one settled", `SELECT count(*) = 1 FROM recourse.cases WHERE progression = 'settled'`)
	if n := r.count(`SELECT count(*) FROM recourse.cases`); n != 1 {
		t.Errorf("%d cases", n)
	}
	r.mustAudit()
}

// Without Notify the sweeper enqueues the run.
func TestSubmitTxWithoutNotifyIsSweptUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Sweep = 50 * time.Millisecond }).startWorkers()
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitTx(context.Background(), tx, release(1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.until("settled", `SELECT count(*) = 1 FROM recourse.cases WHERE progression = 'settled'`)
	r.mustAudit()
}

// A transaction that stays open locks its own case and escrow, and no other.
func TestAnOpenTransactionHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.SubmitTx(ctx, tx, release(1)); err != nil || s.Reply != Created {
		t.Fatalf("%+v, %v", s, err)
	}
	for n := 2; n < 42; n++ {
		if s := r.mustSubmit(release(n)); s.Reply != Created {
			t.Errorf("case %d: %s", n, s.Reply)
		}
	}
	r.until("the others settled", `SELECT count(*) = 40 FROM recourse.cases WHERE progression = 'settled'`)

	other, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.SubmitTx(ctx, other, release(1)); err != nil || s.Reply != Busy {
		t.Errorf("the same case in another transaction: %+v, %v", s, err)
	}
	sameEscrow := release(50)
	sameEscrow.EscrowReference = "esc_1"
	if s, err := r.SubmitTx(ctx, other, sameEscrow); err != nil || s.Reply != Busy {
		t.Errorf("the same escrow in another transaction: %+v, %v", s, err)
	}
	var one int
	if err := other.QueryRow(`SELECT 1`).Scan(&one); err != nil {
		t.Errorf("the caller's transaction is poisoned: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if s := r.mustSubmit(release(1)); s.Reply != Busy {
		t.Errorf("waiting for the open transaction ended with %s", s.Reply)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if s := r.mustSubmit(release(1)); s.Reply != Deduplicated && s.Reply != AlreadyExecuted {
		t.Errorf("after the commit: %s", s.Reply)
	}
	r.untilNoneLive()
	r.mustAudit()
}

func TestSubmitTxAnswersIsolationAsAValue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx, err := r.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := r.SubmitTx(context.Background(), tx, release(1)); err != nil || s.Reply != IsolationUnsupported {
			t.Errorf("%s: %+v, %v", level, s, err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("%s: the caller's transaction is poisoned: %v", level, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.runs`); n != 0 {
		t.Errorf("%d runs", n)
	}
}

// Four processes submit and execute the same adjudications in different orders.
func TestShuffledBatchesFromFourProcessesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	first := newRig(t).startWorkers()
	rigs := []*rig{first}
	for range 3 {
		rigs = append(rigs, joinRig(t, first.url, first.redis, first.escrow).startWorkers())
	}
	const n = 300
	first.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Attempt == 1 {
			return busy429()
		}
		return first.escrow.pay(c, c.Amount.Minor)
	}
	var all sync.WaitGroup
	for i, r := range rigs {
		all.Go(func() {
			as := make([]Adjudication, n)
			for k := range as {
				as[k] = release((k*(2*i+7) + i*31) % n)
				as[k].EscrowReference, as[k].Held = "esc_"+string(rune('a'+k%5)), euros(1_000_000)
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
	first.untilNoneLive()
	cases := first.count(`SELECT count(*) FROM recourse.cases`)
	if settled := first.count(`SELECT count(*) FROM recourse.cases WHERE progression = 'settled'`); settled != cases || cases == 0 {
		t.Errorf("%d of %d settled", settled, cases)
	}
	if d := first.count(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); d != 0 {
		t.Errorf("%d deadlocks", d)
	}
	first.mustAudit()
}

// After the rollback of a transaction that named an escrow with a wrong sum, the right sum is
// accepted, also from the next transaction.
func TestSubmitTxCorrectsAnEscrowThatNobodyUses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	submitTx := func(a Adjudication, end func(*sql.Tx) error) Reply {
		tx, err := r.db.Begin()
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
	wrong := release(1)
	wrong.Held = euros(5000)
	if reply := submitTx(wrong, (*sql.Tx).Rollback); reply != Created {
		t.Fatalf("the wrong sum: %s", reply)
	}
	if reply := submitTx(release(1), (*sql.Tx).Rollback); reply != Created {
		t.Errorf("the right sum, rolled back: %s", reply)
	}
	if reply := submitTx(release(1), (*sql.Tx).Commit); reply != Created {
		t.Errorf("the right sum: %s", reply)
	}
	wrong.TransactionReceiptID = "txr_2"
	if reply := submitTx(wrong, (*sql.Tx).Commit); reply != EscrowMismatch {
		t.Errorf("a wrong sum of an escrow in use: %s", reply)
	}
	r.startWorkers().untilNoneLive()
	r.mustAudit()
}

// An escrow that Postgres has lost, as in a failover to a standby that lagged, is recorded again
// by the next submission, though this process has it cached.
func TestAnEscrowThatPostgresLostIsNamedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lose := func() {
		t.Helper()
		for _, table := range []string{"outbox", "receipts", "operations", "runs", "cases", "escrows"} {
			testkit.Tamper(t, r.db, `DELETE FROM recourse.`+table)
		}
	}
	r.mustSubmit(release(1))
	lose()
	if s := r.mustSubmit(release(1)); s.Reply != Created {
		t.Errorf("submitted again: %s", s.Reply)
	}
	lose()
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.SubmitTx(context.Background(), tx, release(1)); err != nil || s.Reply != Created {
		t.Errorf("submitted again in a transaction: %s, %v", s.Reply, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.startWorkers().untilNoneLive()
	r.mustAudit()
}

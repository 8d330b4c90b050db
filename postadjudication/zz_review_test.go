package postadjudication

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func (r *rig) zzMove(id background.RunID, fact receipts.Subtype, f func(*background.Move)) (background.Run, background.Move, error) {
	r.t.Helper()
	s, err := r.journal.Snapshot(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	m := background.Move{ID: uuid.New(), Run: s.Run, Fact: fact, At: r.now(), Token: s.Run.Token, Worker: "zz"}
	switch fact {
	case receipts.AttemptStarted:
		m.Token = uuid.New()
	case receipts.RetryScheduled:
		m.NextRetryAt, m.Spend = m.At, background.SpendAttempt
		m.Result = background.Result{Class: Unknown, Failure: &background.Failure{Type: "x"}}
	}
	if f != nil {
		f(&m)
	}
	run, err := (&family{journal: r.journal, executor: r.escrow, limit: time.Second}).Record(context.Background(), m)
	return run, m, err
}

func (r *rig) zzAudit() {
	a, err := r.Audit(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range Invariants {
		if v := a.Verdict(n); v != "ok" {
			r.t.Logf("AUDIT %q: %s", n, v)
		}
	}
}

// 1: a repeated late answer of generation 1 ends the waiting run of generation 2.
func TestZZ1LostGeneration(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TimeLimit = 150 * time.Millisecond })
	hold := make(chan struct{})
	r.escrow.script = func(_ context.Context, c Call) Answer {
		if c.Amount.Minor == 600 {
			a := busy429()
			a.RetryAfter = 2 * time.Minute
			return a
		}
		if c.Attempt == 1 {
			<-hold
		}
		return r.escrow.pay(c, 400)
	}
	a := r.work().mustSubmit(release(1))
	r.until("partially", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression='partially-settled')`)
	b := release(1)
	b.Generation, b.Amount = 2, euros(600)
	s := r.mustSubmit(b)
	t.Log("gen 2", s.Reply)
	r.until("B scheduled", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state='scheduled' AND id=$1)`, s.Run.String())
	close(hold)
	r.until("late", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype='answered-late')`)
	st, _ := r.Status(context.Background(), "acme", s.Run)
	c := r.caseOf(release(1))
	t.Logf("A=%v B: state=%s class=%s; case %+v", a.Run, st.State, st.Class, c.State)
	r.zzAudit()
	higher := b
	higher.Generation = 3
	x, err := r.Submit(context.Background(), higher)
	t.Logf("gen 3: %v %v; the same again: ", x.Reply, err)
	x, err = r.Submit(context.Background(), b)
	t.Logf("gen 2 again: %v %v", x.Reply, err)
}

// 1b: paid both ways and not counted
func TestZZ1bHidden(t *testing.T) {
	r := newRig(t)
	a := r.mustSubmit(release(1))
	must := func(run background.Run, _ background.Move, err error) background.Run {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	first := must(r.zzMove(a.Run, receipts.AttemptStarted, nil))
	must(r.zzMove(a.Run, receipts.DeadLettered, func(m *background.Move) {
		m.Spend, m.Reason, m.Lookup = background.SpendAttempt, "final", NotExecuted
		m.Result = background.Result{Class: Unknown, Failure: &background.Failure{Type: "x"}}
	}))
	b := refund(1)
	b.Generation = 2
	s := r.mustSubmit(b)
	bfirst := must(r.zzMove(s.Run, receipts.AttemptStarted, nil))
	got := must(r.zzMove(s.Run, receipts.RetryScheduled, nil))
	t.Logf("B unknown open %d", got.UnknownOpen)
	must(r.zzMove(a.Run, receipts.AnsweredLate, func(m *background.Move) {
		m.Run = first
		m.Result = background.Result{Class: Executed, Moved: 1000}
	}))
	t.Logf("after A's late payment %+v", r.caseOf(b).State)
	st, _ := r.Status(context.Background(), "acme", s.Run)
	t.Logf("B: %s class %s", st.State, st.Class)
	must(r.zzMove(s.Run, receipts.AnsweredLate, func(m *background.Move) {
		m.Run = bfirst
		m.Result = background.Result{Class: Executed, Moved: 1000}
	}))
	c := r.caseOf(b)
	t.Logf("after B's late payment %+v; breaches %d", c.State, r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype='conservation-breach'`))
	r.zzAudit()
}

// 2
func TestZZ2ExceedsHeldInsteadOfDeduplicated(t *testing.T) {
	r := newRig(t)
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.SubmitTx(context.Background(), tx, release(1))
	t.Log(s.Reply, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		x, err := r.Submit(context.Background(), release(1))
		t.Logf("the same, submitted while the other's commit was awaited: %s, %v", x.Reply, err)
	})
	time.Sleep(700 * time.Millisecond)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	x, err := r.Submit(context.Background(), release(1))
	t.Logf("again: %s, %v", x.Reply, err)
}

// 3
func TestZZ3PoisonAmount(t *testing.T) {
	r := newRig(t)
	r.escrow.script = func(_ context.Context, c Call) Answer {
		if c.Amount.Minor == 600 {
			return Answer{Class: Executed, Moved: settlement.MaxMinor}
		}
		return r.escrow.pay(c, min(400, c.Amount.Minor))
	}
	r.work().mustSubmit(release(1))
	r.atRest()
	b := release(1)
	b.Generation, b.Amount = 2, euros(600)
	s := r.mustSubmit(b)
	time.Sleep(time.Second)
	other := r.mustSubmit(release(2))
	time.Sleep(2 * time.Second)
	st, _ := r.Status(context.Background(), "acme", s.Run)
	so, _ := r.Status(context.Background(), "acme", other.Run)
	t.Logf("B %s; other %s; healthy: %v", st.State, so.State, r.Healthy(context.Background()))
}

// 4
func TestZZ4OpenTxStopsProcess(t *testing.T) {
	r := newRig(t)
	r.escrow.script = func(_ context.Context, c Call) Answer {
		if c.Amount.Minor == 1000 {
			time.Sleep(500 * time.Millisecond)
			return r.escrow.pay(c, 400)
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	a := release(1)
	a.Held = euros(5000)
	r.work().mustSubmit(a)
	r.until("running", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state='running')`)
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	b := release(2)
	b.EscrowReference, b.Held, b.Amount = "esc_1", euros(5000), euros(10)
	s, err := r.SubmitTx(context.Background(), tx, b)
	t.Log(s.Reply, err)
	time.Sleep(3500 * time.Millisecond)
	c := release(3)
	c.Amount = euros(7)
	o := r.mustSubmit(c)
	time.Sleep(2 * time.Second)
	st, _ := r.Status(context.Background(), "acme", o.Run)
	t.Logf("unrelated case 2s after submit: %s attempts %d; healthy: %v", st.State, st.Attempts, r.Healthy(context.Background()))
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	r.atRest()
}

// 5
func TestZZ5CancelAskedForEver(t *testing.T) {
	r := newRig(t)
	s := r.mustSubmit(release(1))
	if _, _, err := r.zzMove(s.Run, receipts.AttemptStarted, nil); err != nil {
		t.Fatal(err)
	}
	st, err := r.cancel(s)
	t.Log("asked", st.State, st.CancelAsked, err)
	if _, _, err := r.zzMove(s.Run, receipts.RetryScheduled, nil); err != nil {
		t.Fatal(err)
	}
	st, err = r.cancel(s)
	t.Log("unknown, scheduled: want reconcile_first:", st.State, st.Class, err)
	if _, _, err := r.zzMove(s.Run, receipts.Reconciled, func(m *background.Move) { m.Result.Class, m.Lookup = NotExecuted, NotExecuted }); err != nil {
		t.Fatal(err)
	}
	st, err = r.cancel(s)
	t.Log("cleared, scheduled: want cancelled:", st.State, st.Class, err)
}

// 6
func TestZZ6LaneFull(t *testing.T) {
	r := newRig(t)
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.SubmitTx(context.Background(), tx, release(1)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	counts := map[string]int{}
	var longest time.Duration
	var wg sync.WaitGroup
	for n := 2; n < 62; n++ {
		wg.Go(func() {
			began := time.Now()
			a := release(n)
			a.EscrowReference = "esc_1"
			x, err := r.Submit(context.Background(), a)
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(began))
			if err != nil {
				counts[err.Error()]++
			} else {
				counts[string(x.Reply)]++
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	wg.Wait()
	t.Log(counts, longest)
	_ = tx.Rollback()
}

// 7
func TestZZ7CallPastKeyLifetime(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TimeLimit = 100 * time.Millisecond; c.Policy.BaseDelay = 500 * time.Millisecond })
	r.escrow.life = 2 * time.Second
	var mu sync.Mutex
	var at []time.Time
	r.escrow.lookup = func(Call) Answer { return noAnswer() }
	r.escrow.script = func(_ context.Context, c Call) Answer {
		mu.Lock()
		at = append(at, time.Now())
		mu.Unlock()
		return noAnswer()
	}
	r.work().mustSubmit(release(1))
	r.until("scheduled", `SELECT EXISTS (SELECT FROM recourse.runs WHERE state='scheduled')`)
	tx, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`SELECT FROM recourse.cases FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	_ = tx.Rollback()
	r.atRest()
	mu.Lock()
	defer mu.Unlock()
	for i := range at {
		t.Logf("call %d at +%s (lifetime 2s)", i+1, at[i].Sub(at[0]))
	}
}

// 8
func TestZZ8FalseBreach(t *testing.T) {
	r := newRig(t)
	r.escrow.script = func(_ context.Context, c Call) Answer { return r.escrow.pay(c, 1500) }
	a := release(1)
	a.Held = euros(10000)
	r.work().mustSubmit(a)
	r.atRest()
	t.Log("breach receipts", r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype='conservation-breach'`),
		"breached in escrow", r.count(`SELECT breached FROM recourse.escrows`), "committed", r.count(`SELECT committed FROM recourse.escrows`))
}

// 9: the gap between retry-scheduled and reconciled
func TestZZ9ExecutedButScheduled(t *testing.T) {
	for _, minor := range []int64{400, 1000} {
		r := newRig(t)
		r.escrow.life = time.Minute
		s := r.mustSubmit(release(1))
		first, _, err := r.zzMove(s.Run, receipts.AttemptStarted, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = r.zzMove(s.Run, receipts.RetryScheduled, nil)
		second, _, err := r.zzMove(s.Run, receipts.AttemptStarted, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = r.zzMove(s.Run, receipts.AnsweredLate, func(m *background.Move) {
			m.Run = first
			m.Result = background.Result{Class: Executed, Moved: minor}
		})
		if err != nil {
			t.Fatal(err)
		}
		run, _, err := r.zzMove(s.Run, receipts.RetryScheduled, func(m *background.Move) { m.Run = second })
		t.Logf("moved %d: attempt 2 ends unknown: %s letter %q class %s %v; case %s", minor, run.State, run.Letter, run.Class, err, r.caseOf(release(1)).Progression)
		r.zzAudit()
		if run.State.Waiting() {
			run, _, err = r.zzMove(s.Run, receipts.AttemptStarted, func(m *background.Move) { m.At = m.At.Add(time.Hour) })
			t.Logf("claim an hour later, key lifetime a minute: %s %v", run.State, err)
		}
	}
}

// 10
func TestZZ10LateTwice(t *testing.T) {
	r := newRig(t)
	s := r.mustSubmit(release(1))
	first, _, _ := r.zzMove(s.Run, receipts.AttemptStarted, nil)
	_, _, _ = r.zzMove(s.Run, receipts.RetryScheduled, nil)
	_, m, err := r.zzMove(s.Run, receipts.AnsweredLate, func(m *background.Move) {
		m.Run = first
		m.Result = background.Result{Class: NotExecuted, Failure: &background.Failure{Type: "x"}}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.zzMove(s.Run, receipts.AttemptStarted, nil); err != nil {
		t.Fatal(err)
	}
	_, err = (&family{journal: r.journal, executor: r.escrow, limit: time.Second}).Record(context.Background(), m)
	t.Log(err, "answered-late receipts of one move:", r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype='answered-late'`))
}

// 11: one unreadable row
func TestZZ11OneBadRow(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Sweep = 100 * time.Millisecond })
	s := r.mustSubmit(release(1))
	if _, err := r.db.Exec(`UPDATE recourse.runs SET policy='{"from":"the future"}' WHERE id=$1`, s.Run.String()); err != nil {
		t.Fatal(err)
	}
	tx, _ := r.db.Begin()
	_, _ = r.SubmitTx(context.Background(), tx, release(2))
	_ = tx.Commit()
	r.work()
	time.Sleep(2 * time.Second)
	t.Log("states", r.count(`SELECT count(*) FROM recourse.runs WHERE state='pending'`), "pending; healthy:", r.Healthy(context.Background()))
}

// 12: audit while others write
func TestZZ12AuditWhileWriting(t *testing.T) {
	r := newRig(t)
	var as []Adjudication
	for n := range 400 {
		a := release(n)
		a.EscrowReference, a.Held = "esc_shared", euros(100_000_000)
		as = append(as, a)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < len(as); i += 20 {
			_, _ = r.SubmitBatch(context.Background(), as[i:i+20])
		}
	}()
	bad, n := 0, 0
	for {
		a, err := r.Audit(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		n++
		if !a.OK() {
			bad++
			if bad == 1 {
				t.Log(a.Broken)
			}
		}
		select {
		case <-done:
			t.Logf("%d of %d audits were false alarms", bad, n)
			return
		default:
		}
	}
}

// 13: the judge of the rig
func TestZZ13LongReference(t *testing.T) {
	r := newRig(t)
	ref := strings.Repeat("r", 200)
	r.escrow.script = func(_ context.Context, c Call) Answer {
		a := r.escrow.pay(c, 1000)
		a.Reference = ref
		return a
	}
	s := r.work().mustSubmit(release(1))
	r.atRest()
	trail, _ := r.Receipts(context.Background(), "acme", s.Case, 0, 10)
	p, _ := trail[2].Payload()
	t.Log("reference kept:", len(p.Reference), "of", len(ref))
	_ = errors.New
}

package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/settlement"
)

// conclude is right in every combination of its inputs.
func TestWhatTheAnswerOfALookupMeans(t *testing.T) {
	t.Parallel()
	const reach, flight, clocks, margin = 13 * time.Second, time.Minute, 2 * background.MaxClockOffset, 5 * time.Second
	type traffic struct {
		name          string
		q             lookupEvidence
		stated, other string // why it is not believed, if the executor states its in-flight time, and if it does not
	}
	calls := []traffic{
		{"a call is outstanding", lookupEvidence{outstanding: true, sinceLastCall: time.Hour}, lookupOutstanding, lookupOutstanding},
		{"just come back", lookupEvidence{}, lookupPremature, ""},
		{"nearly over", lookupEvidence{sinceLastCall: reach + flight + clocks - 1}, lookupPremature, ""},
		{"over", lookupEvidence{sinceLastCall: reach + flight + clocks}, "", ""},
		{"a worker just lost", lookupEvidence{lostCall: true}, lookupPremature, lookupPremature},
		{"a worker lost, call bound and time limit nearly over", lookupEvidence{sinceLastCall: time.Hour, lostCall: true, sinceLost: reach + clocks - 1}, lookupPremature, lookupPremature},
		{"a worker lost, call bound and time limit over", lookupEvidence{sinceLastCall: time.Hour, lostCall: true, sinceLost: reach + clocks}, lookupPremature, ""},
		{"a worker lost for long", lookupEvidence{sinceLastCall: time.Hour, lostCall: true, sinceLost: time.Hour}, "", ""},
		{"a worker lost for long, another call just back", lookupEvidence{lostCall: true, sinceLost: time.Hour}, lookupPremature, ""},
	}
	keys := []struct {
		name      string
		q         lookupEvidence
		forgotten bool
	}{
		{"none is known", lookupEvidence{called: true}, true},
		{"known for ever", lookupEvidence{called: true, keyAge: 1000 * time.Hour, keyRetention: escrow.Forever}, false},
		{"known for ever, clock before", lookupEvidence{called: true, keyAge: -time.Hour, keyRetention: escrow.Forever}, false},
		{"clock before the first call", lookupEvidence{called: true, keyAge: -1, keyRetention: time.Hour}, true},
		{"fresh", lookupEvidence{called: true, keyRetention: time.Hour}, false},
		{"known to the margin", lookupEvidence{called: true, keyAge: time.Hour - margin - 1, keyRetention: time.Hour}, false},
		{"within the margin", lookupEvidence{called: true, keyAge: time.Hour - margin, keyRetention: time.Hour}, true},
		{"long forgotten", lookupEvidence{called: true, keyAge: 24 * time.Hour, keyRetention: time.Hour}, true},
		{"a life shorter than the margin", lookupEvidence{called: true, keyAge: 1, keyRetention: margin}, true},
		{"never called", lookupEvidence{keyAge: 24 * time.Hour, keyRetention: time.Hour}, false},
	}
	for _, answer := range []escrow.Class{escrow.Executed, escrow.NotExecuted, escrow.Unknown, ""} {
		for _, c := range calls {
			for _, k := range keys {
				for _, inFlight := range []time.Duration{flight, 0, -1} {
					q := c.q
					q.answer, q.maxSendDelay, q.inFlight, q.called, q.keyAge, q.keyRetention, q.margin = answer, reach, inFlight, k.q.called, k.q.keyAge, k.q.keyRetention, margin
					class, why := escrow.NotExecuted, c.stated
					if inFlight <= 0 {
						why = c.other
					}
					if k.forgotten && why != lookupOutstanding {
						why = lookupForgotten
					}
					if why != "" {
						class = escrow.Unknown
					}
					if answer == escrow.Executed {
						class, why = escrow.Executed, ""
					} else if answer != escrow.NotExecuted {
						class, why = escrow.Unknown, ""
					}
					if got, because := q.conclude(); got != class || because != why {
						t.Errorf("%q, %s, key %s, in flight %s: %s %q, want %s %q", answer, c.name, k.name, inFlight, got, because, class, why)
					}
				}
			}
		}
	}
}

// If nobody states how long a call can be in flight, a lookup that finds nothing is
// not conclusive, however long ago the call was.
func TestACallThatIsOnItsWayForEverIsNeverOver(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]settlementFamily{
		"stated":  {executor: &scriptedEscrow{inFlight: escrow.Forever}, targets: targetsOf(&Config{})},
		"nearly":  {executor: &scriptedEscrow{inFlight: escrow.Forever - time.Second}, targets: targetsOf(&Config{})},
		"assumed": {defaultInFlight: escrow.Forever},
	} {
		for _, longest := range []time.Duration{10 * time.Second, maxTimeLimit} {
			for _, quiet := range []time.Duration{0, time.Hour, 50 * 365 * 24 * time.Hour, escrow.Forever / 2} {
				q := lookupEvidence{answer: escrow.NotExecuted, maxSendDelay: background.MaxClaimAge(15*time.Second) + longest, inFlight: f.inFlight(escrow.DefaultTarget), keyRetention: escrow.Forever, sinceLastCall: quiet, lostCall: true, sinceLost: quiet}
				if class, why := q.conclude(); class != escrow.Unknown || why != lookupPremature {
					t.Errorf("%s, quiet for %s: %s %q", name, quiet, class, why)
				}
			}
		}
	}
}

// uncheckedLookup is an escrow service whose lookups do not wait for calls.
type uncheckedLookup struct {
	*scriptedEscrow
	answer *atomic.Value // func(Call) Answer
}

func (u uncheckedLookup) Lookup(_ context.Context, c escrow.Call) escrow.Answer {
	return u.answer.Load().(func(escrow.Call) escrow.Answer)(c)
}

// A lookup by a person returns even if the executor's lookup panics, or hangs and ignores its
// context: the outcome stays unknown.
func TestALookupThatHangsOrPanicsHoldsUpNobodyWhoAsks(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	var answer atomic.Value
	answer.Store(func(escrow.Call) escrow.Answer { return answerUnknown })
	r := newRig(t, func(c *Config) {
		c.TimeLimit, c.Policy.MaxRetryAttempts, c.Lookups.Off, c.Executor = limit, 1, true, uncheckedLookup{c.Executor.(*scriptedEscrow), &answer}
	})
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return noAnswer() }
	s := r.startWorkers().mustSubmit(release(1))
	r.untilNoneLive()
	never := make(chan struct{})
	defer close(never)
	for words, lookup := range map[string]func(escrow.Call) escrow.Answer{
		"panicked":             func(escrow.Call) escrow.Answer { panic("a bug") },
		"the lookup timed out": func(escrow.Call) escrow.Answer { <-never; return escrow.Answer{Class: escrow.Unknown} },
	} {
		answer.Store(lookup)
		asked := make(chan error, 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					asked <- fmt.Errorf("panic: %v", p)
				}
			}()
			_, err := r.As("acme", "user:ada").DeadLetters.Lookup(context.Background(), s.Run)
			asked <- err
		}()
		select {
		case err := <-asked:
			var refusal *RefusedError
			if !errors.As(err, &refusal) || refusal.Gate != GateReconcileFirst || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", words, err)
			}
		case <-time.After(50 * limit):
			t.Errorf("%s: the lookup still blocks", words)
		}
	}
}

// A service that has forgotten a key finds nothing, whatever it has paid.
func TestAForgottenKeyIsNotTakenForNotExecuted(t *testing.T) {
	t.Parallel()
	const life = 2 * time.Second
	r := newRig(t, func(c *Config) {
		c.TimeLimit = 100 * time.Millisecond
		c.Policy.MaxRetryAttempts, c.Policy.BaseDelay = 3, life
		c.Executor.(*scriptedEscrow).keyLifetime = life
	})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		r.escrow.pay(c, c.Amount.Minor)
		if c.Attempt == 1 {
			return noAnswer() // it paid, and the answer was lost
		}
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor}
	}
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return escrow.Answer{Class: escrow.NotExecuted} } // the key is forgotten
	s := r.startWorkers().mustSubmit(release(1))
	r.untilNoneLive()
	ctx := context.Background()
	st, err := r.Status(ctx, "acme", s.Run)
	if err != nil || r.escrow.totalCalls() != 1 || st.Letter != background.LetterOpen || st.Class != escrow.Unknown || st.ReasonCode != background.ReasonOutcomeUnknown {
		t.Errorf("%d calls; %+v, %v", r.escrow.totalCalls(), st, err)
	}
	var refusal *RefusedError
	if _, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); !errors.As(err, &refusal) || refusal.Gate != GateReconcileFirst || !strings.Contains(err.Error(), "only a finding counts") {
		t.Errorf("lookup by a person: %v", err)
	}
	b, err := r.As("acme", "user:ada").Bulk.Plan(ctx, BulkRequest{Reason: "ask", Action: BulkReconcile, Filter: LetterFilter{}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").Bulk.Run(ctx, b.ID, b.Hash); err != nil {
		t.Fatal(err)
	}
	r.until("the plan is done", `SELECT state = 'done' FROM recourse.bulks`)
	if n := r.count(`SELECT count(*) FROM recourse.bulk_items WHERE outcome = 'refused:reconcile_first'`); n != 1 {
		t.Errorf("lookup by a plan: %d refused", n)
	}
	if n := r.count(`SELECT unknown_open FROM recourse.cases`); n != 1 {
		t.Errorf("%d unknown", n)
	}
	// A service whose lookups know keys for longer than it accepts them is believed.
	r.escrow.lookupLifetime = time.Hour
	r.escrow.lookup = nil
	if c, err := r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); err != nil || c.Progression != settlement.Settled {
		t.Errorf("%+v, %v", c, err)
	}
	r.mustAudit()
}

// The same at the end of a run, where the lookup is made before the death.
func TestAForgottenKeyLeavesItsLetterUnknown(t *testing.T) {
	t.Parallel()
	for life, class := range map[time.Duration]escrow.Class{0: escrow.Unknown, time.Hour: escrow.NotExecuted} {
		t.Run(life.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Policy.MaxRetryAttempts = 1; c.Executor.(*scriptedEscrow).keyLifetime = life })
			r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return noAnswer() }
			s := r.startWorkers().mustSubmit(release(1))
			r.untilNoneLive()
			if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Class != class {
				t.Errorf("%+v, %v", st, err)
			}
			r.mustAudit()
		})
	}
}

// The call of a lost process may be in flight for a bounded time.
func TestTheCallOfALostWorkerIsOnItsWayForAWhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Worker, c.TimeLimit, c.Grace, c.Policy.MaxRetryAttempts = "first", 50*time.Millisecond, 10*time.Millisecond, 1
	})
	hang := make(chan struct{})
	defer close(hang)
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { <-hang; return noAnswer() } // ignores its context
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	later := func(d time.Duration) *rig {
		return joinRig(t, r.url, r.redis, newEscrow(), func(c *Config) {
			c.Worker, c.Simulated, c.Now = "second", true, func() time.Time { return time.Now().Add(d) }
		})
	}
	var refusal *RefusedError
	if _, err := later(24*time.Hour).As("acme", "user:ada").DeadLetters.Lookup(context.Background(), s.Run); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "has not returned") {
		t.Errorf("while the process lives: %v", err)
	}
	r.stopWork()
	if _, err := later(0).As("acme", "user:ada").DeadLetters.Lookup(context.Background(), s.Run); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "look up again in") {
		t.Errorf("just after the process ended: %v", err)
	}
	year := later(365 * 24 * time.Hour)
	if c, err := year.As("acme", "user:ada").DeadLetters.Lookup(context.Background(), s.Run); err != nil || c.UnknownOpen != 0 {
		t.Errorf("a year after the process ended: %+v, %v", c, err)
	}
	if st, err := year.Status(context.Background(), "acme", s.Run); err != nil || len(st.OutstandingCalls) != 0 || st.Class != escrow.NotExecuted {
		t.Errorf("%+v, %v", st, err)
	}
	year.mustAudit()
}

// A worker was lost during its call, and its letter is looked up.
func TestALetterOfALostWorkerIsClearedByALookup(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.LostAfter, c.TimeLimit, c.Policy.MaxRetryAttempts = 3*time.Second, 50*time.Millisecond, 1
		c.Executor.(*scriptedEscrow).keyLifetime = 0
	})
	ctx := context.Background()
	s := r.mustSubmit(release(1))
	seen, err := r.journal.Cases.Snapshot(ctx, s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.claimRun(seen.Run); err != nil {
		t.Fatal(err)
	}
	r.startWorkers()
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	r.escrow.lookupLifetime = escrow.Forever
	var refusal *RefusedError
	_, err = r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
	for err != nil && strings.Contains(err.Error(), "the lookup timed out") { // of a slow machine; go test bounds it
		_, err = r.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run)
	}
	if !errors.As(err, &refusal) || !strings.Contains(err.Error(), "look up again in") {
		t.Errorf("just after the loss: %v", err)
	}
	if _, err := r.Reconcile(ctx, "acme", s.Run, Finding{actor: "user:ada", Reason: "r", Reference: "x", Class: escrow.NotExecuted}); !errors.As(err, &refusal) || refusal.Gate != GateCallOutstanding {
		t.Errorf("found just after the loss: %v", err)
	}
	day := joinRig(t, r.url, r.redis, r.escrow, func(c *Config) {
		c.LostAfter, c.Simulated, c.Now = 3*time.Second, true, func() time.Time { return time.Now().Add(24 * time.Hour) }
	})
	if c, err := day.As("acme", "user:ada").DeadLetters.Lookup(ctx, s.Run); err != nil || c.UnknownOpen != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	day.mustAudit()
}

// A person who finds that nothing was executed must confirm it while a call may be outstanding.
func TestAFindingWhileACallIsOutstandingSaysThatItKnows(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.TimeLimit = 50 * time.Millisecond; c.Policy.MaxRetryAttempts = 1 })
	answer := make(chan escrow.Answer)
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return <-answer }
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	ctx := context.Background()
	f := Finding{actor: "user:ada", Reason: "bank statement", Reference: "stmt-7", Class: escrow.NotExecuted}
	var refusal *RefusedError
	if _, err := r.Reconcile(ctx, "acme", s.Run, f); !errors.As(err, &refusal) || refusal.Gate != GateCallOutstanding || !strings.Contains(err.Error(), "has not returned") {
		t.Errorf("%v", err)
	}
	opposite := refund(1)
	opposite.Generation = 2
	if got := r.mustSubmit(opposite); got.Reply != ReconcileFirst {
		t.Errorf("before a finding: %s", got.Reply)
	}
	var field *FieldError
	if _, err := r.Reconcile(ctx, "acme", s.Run, Finding{actor: "user:ada", Reason: "r", Reference: "x", Class: escrow.Executed, Moved: 1000, CallOutstanding: true}); !errors.As(err, &field) || field.Field != "call_outstanding" {
		t.Errorf("%v", err)
	}
	f.CallOutstanding = true
	if c, err := r.Reconcile(ctx, "acme", s.Run, f); err != nil || c.UnknownOpen != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if n := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'reconciled' AND body LIKE '%"call_outstanding":true%'`); n != 1 {
		t.Errorf("%d receipts confirm the outstanding call", n)
	}
	close(answer) // an empty answer: unknown, which the finding resolved
	if got := r.mustSubmit(opposite); got.Reply != Created {
		t.Errorf("after the finding: %s", got.Reply)
	}
}

// A letter of an older version may have an outstanding call without an unknown outcome: it blocks the
// next generation.
func TestAnOutstandingCallKeepsTheNextGenerationOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Policy.MaxRetryAttempts = 1 })
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	r.stopWork()
	if _, err := r.db.Exec(`UPDATE recourse.runs SET outstanding_calls = '{1}'`); err != nil {
		t.Fatal(err)
	}
	opposite := refund(1)
	opposite.Generation = 2
	if got := r.mustSubmit(opposite); got.Reply != ReconcileFirst {
		t.Errorf("%s", got.Reply)
	}
	if _, err := r.Reconcile(context.Background(), "acme", s.Run, Finding{actor: "user:ada", Reason: "r", Reference: "x", Class: escrow.NotExecuted, CallOutstanding: true}); err != nil {
		t.Fatal(err)
	}
	if got := r.mustSubmit(opposite); got.Reply != Created {
		t.Errorf("%s", got.Reply)
	}
}

// A fork of a refused run gets a new key once the lifetime of the old one has expired: the
// service may count the lifetime from the refusals.
func TestAForkLaterThanTheKeyLifetimeHasAllItsAttempts(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Executor.(*scriptedEscrow).keyLifetime = 24 * time.Hour })
	letter := background.RunID{}
	keys := map[escrow.OperationKey]int{}
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		keys[c.OperationKey]++
		switch {
		case c.Run == letter || letter.IsZero():
			return refused()
		case c.Attempt == 1:
			r.escrow.pay(c, c.Amount.Minor)
			return noAnswer()
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	s := r.startWorkers().mustSubmit(release(1))
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	back := func(by string) {
		if _, err := r.db.Exec(`UPDATE recourse.cases SET first_sent_at = first_sent_at - $1::interval`, by); err != nil {
			t.Fatal(err)
		}
	}
	back("1 day")
	letter = s.Run
	f, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), s.Run, forkRequest)
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if st, err := r.Status(context.Background(), "acme", f.Run); err != nil || st.State != background.Succeeded || st.Attempts != 2 || len(keys) != 2 {
		t.Errorf("%d keys; %+v, %v", len(keys), st, err)
	}
	r.mustAudit()
	back("1 s")
	if a, err := r.Audit(context.Background()); err != nil || !strings.Contains(a.Verdict(audit.InvariantFold), "first sent at") {
		t.Errorf("a changed time of the first call is not found: %+v, %v", a, err)
	}
}

// A run paused by a breaker is not looked up, and does not die of its key meanwhile.
func TestAPausedRunDoesNotDieOfItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Policy.BaseDelay = 100 * time.Millisecond
		c.Executor.(*scriptedEscrow).keyLifetime = 0
	})
	ctx := context.Background()
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer {
		if _, err := r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "maintenance"); err != nil {
			t.Error(err)
		}
		return noAnswer()
	}
	lookups := 0
	r.escrow.lookup = func(c escrow.Call) escrow.Answer {
		lookups++
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor}
	}
	paused := r.Stats().PausedDeliveries
	s := r.startWorkers().mustSubmit(release(1))
	r.untilTrue("its delivery is postponed", func() bool { return r.Stats().PausedDeliveries > paused })
	if st, err := r.Status(ctx, "acme", s.Run); err != nil || st.State != background.Scheduled || lookups != 0 {
		t.Errorf("%d lookups, %+v, %v", lookups, st, err)
	}
	if _, err := r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "over"); err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	if st, err := r.Status(ctx, "acme", s.Run); err != nil || st.State != background.Succeeded || lookups != 1 {
		t.Errorf("%d lookups, %+v, %v", lookups, st, err)
	}
}

// A wrapper that hides its executor's InFlight does not make early answers of not executed
// believed.
func TestAnExecutorThatStatesNoSpanIsGivenTheAssumedOne(t *testing.T) {
	t.Parallel()
	type wrapper struct {
		escrow.Executor
		escrow.Lookuper
	}
	e := newEscrow()
	for name, tc := range map[string]struct {
		executor escrow.Executor
		want     time.Duration
	}{
		"stated":  {e, 0},
		"hidden":  {wrapper{e, e}, time.Minute},
		"no call": {nil, time.Minute},
	} {
		f := settlementFamily{executor: tc.executor, targets: targetsOf(&Config{}), defaultInFlight: escrow.DefaultInFlight}
		if got := f.inFlight(escrow.DefaultTarget); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

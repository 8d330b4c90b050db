package postadjudication

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// untilOthersSettle submits ten others and waits until the same worker has settled them.
func (r *rig) untilOthersSettle() {
	r.t.Helper()
	for n := 100; n < 110; n++ {
		r.mustSubmit(release(n))
	}
	r.until("all others settle", `SELECT count(*) = 10 FROM recourse.cases WHERE progression = 'settled' AND subject LIKE 'txr_1__'`)
	if err := r.manager.Healthy(); err != nil || r.Health().Stats().Unrecordable == 0 {
		r.t.Errorf("healthy %v, %d unrecordable", err, r.Health().Stats().Unrecordable)
	}
}

// untilUnrecordable waits until a run becomes a dead letter because its outcome can't be
// recorded, and returns that receipt.
func (r *rig) untilUnrecordable(run background.RunID) receipts.Payload {
	r.t.Helper()
	r.until("the letter", `SELECT letter = 'open' AND reason = 'unrecordable' FROM recourse.runs WHERE id = $1`, run.String())
	s, err := r.Status(context.Background(), "acme", run)
	if err != nil {
		r.t.Fatal(err)
	}
	trail, err := r.Receipts(context.Background(), "acme", s.Case, 0, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := trail[len(trail)-1].Payload()
	if err != nil || p.ReasonCode != background.ReasonUnrecordable || p.Error.Type != background.FailureUnrecordable {
		r.t.Fatalf("%+v, %v", p, err)
	}
	return p
}

// A payment that makes the sum of a case overflow is stated in words, and the run becomes a dead
// letter with its money unknown; the worker continues.
func TestAPaymentThatCanNotBeSummedIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.allowOverpaid = true
	big := release(1)
	big.Held, big.Amount = euros(settlement.MaxMinor), euros(settlement.MaxMinor)
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		switch c.Amount.Minor {
		case settlement.MaxMinor:
			return r.escrow.pay(c, settlement.MaxMinor-10)
		case 10:
			return r.escrow.pay(c, 100)
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	r.mustSubmit(big)
	r.startWorkers()
	r.until("partially settled", `SELECT EXISTS (SELECT FROM recourse.cases WHERE progression = 'partially-settled')`)
	rest := big
	rest.Generation, rest.Amount = 2, euros(10)
	s := r.mustSubmit(rest)
	p := r.untilUnrecordable(s.Run)
	if p.OutcomeClass != string(escrow.Unknown) || p.Error.Code != string(escrow.Executed) || !strings.Contains(p.Error.Message, "100 minor units were moved") {
		t.Errorf("%+v", p)
	}
	r.untilOthersSettle()
	ctx := context.Background()
	higher := rest
	higher.Generation = 3
	if got := r.mustSubmit(higher); got.Reply != ReconcileFirst {
		t.Errorf("a higher generation: %s", got.Reply)
	}
	r.mustAudit()
	found := casework.Finding{Reason: "paid 90 too much, claimed back", Class: escrow.Executed, Moved: 10, Reference: "stmt-7"}
	if c, err := r.Reconcile(ctx, "acme", s.Run, found); err != nil || c.Progression != settlement.Settled || c.UnknownOpen != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A value that Postgres refuses is no outage: the outcome is written in its narrowest form, and
// the worker continues.
func TestAnOutcomeThatPostgresRefusesIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	for name, law := range map[string]string{
		"its code": `ALTER TABLE recourse.runs ADD CONSTRAINT refused CHECK (error_code <> '777')`,
		"its text": `ALTER TABLE recourse.runs ADD CONSTRAINT refused CHECK (error_code <> '777' AND (reason <> 'unrecordable' OR error_text = ''))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if _, err := r.db.Exec(law); err != nil {
				t.Fatal(err)
			}
			r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
				if c.Amount.Minor == 7 {
					return escrow.Answer{Class: escrow.NotExecuted, Retry: true, Type: "http.odd", Code: "777", Message: "odd"}
				}
				return r.escrow.pay(c, c.Amount.Minor)
			}
			odd := release(1)
			odd.Amount = euros(7)
			s := r.startWorkers().mustSubmit(odd)
			p := r.untilUnrecordable(s.Run)
			if p.OutcomeClass != string(escrow.NotExecuted) || p.Error.Code != string(escrow.NotExecuted) || strings.Contains(p.Error.Message, "http.odd: 777 odd") != (name == "its code") {
				t.Errorf("%+v", p)
			}
			r.untilOthersSettle()
			r.mustAudit()
		})
	}
}

// The same for a claim that can't be written: the run is not tried for ever.
func TestAClaimThatPostgresRefusesIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t, withTargets("odd"))
	if _, err := r.db.Exec(`ALTER TABLE recourse.runs ADD CONSTRAINT refused CHECK (state <> 'running' OR target <> 'odd')`); err != nil {
		t.Fatal(err)
	}
	odd := release(1)
	odd.Target = "odd"
	s := r.startWorkers().mustSubmit(odd)
	r.untilUnrecordable(s.Run)
	if r.escrow.totalCalls() != 0 {
		t.Error("it was called")
	}
	for n := 100; n < 110; n++ {
		r.mustSubmit(release(n))
	}
	r.until("all others settle", `SELECT count(*) = 10 FROM recourse.cases WHERE progression = 'settled'`)
	r.mustAudit()
}

// A task that reports a moved amount beyond the maximum sum stops no worker.
func TestAnAbsurdAmountOfATaskIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Families = []PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.Executed, Moved: 1 << 60}
		}}}
	}).startWorkers()
	s, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "chores", RetryKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if p := r.untilUnrecordable(s.Run); !strings.Contains(p.Error.Message, "1'152'921'504'606'846'976") {
		t.Errorf("%+v", p)
	}
	r.untilOthersSettle()
	r.mustAudit()
}

// A late answer that makes a sum overflow makes the money unknown, for a person.
func TestALateAnswerThatCanNotBeRecordedMakesTheMoneyUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.TimeLimit = 50e6; c.Policy.MaxRetryAttempts = 1 })
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return escrow.Answer{Class: escrow.Unknown, Type: "x", Message: "x"} }
	if _, err := r.db.Exec(`ALTER TABLE recourse.cases ADD CONSTRAINT refused CHECK (released <> 7)`); err != nil {
		t.Fatal(err)
	}
	answer := make(chan struct{})
	r.escrow.script = func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 7 {
			<-answer
		}
		return r.escrow.pay(c, c.Amount.Minor)
	}
	odd := release(1)
	odd.Amount = euros(7)
	s := r.startWorkers().mustSubmit(odd)
	r.until("letter", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'open')`)
	close(answer)
	r.until("the late answer is recorded", `SELECT EXISTS (SELECT FROM recourse.receipts WHERE subtype = 'answered-late')`)
	r.until("nothing is out", `SELECT outstanding_calls IS NULL FROM recourse.runs WHERE id = $1`, s.Run.String())
	if st, err := r.Status(context.Background(), "acme", s.Run); err != nil || st.Class != escrow.Unknown || st.Letter != background.LetterOpen {
		t.Errorf("%+v, %v", st, err)
	}
	r.untilOthersSettle()
	r.mustAudit()
}

package postadjudication_test

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// The audit compares columns that can keep a run from being called, or an operation log from
// being found.
func TestTheAuditDetectsWhatKeepsARunFromBeingCalled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := rig.New(t, withDailyRetries).StartWorkers()
	waitingUnknownRun(r, 1, false)
	r.OnePerson("nobody else is there")
	if _, err := r.As("acme", "user:root").People.Set(ctx, postadjudication.PeopleChange{People: 2, Reason: "ada is back"}); err != nil {
		t.Fatal(err)
	}
	r.StopWorkers()
	r.MustAudit()
	for _, c := range []struct{ what, harm, mend string }{
		{"due time of a run that is scheduled", `UPDATE recourse.runs SET due_at = due_at + interval '1000 years'`, `UPDATE recourse.runs SET due_at = due_at - interval '1000 years'`},
		{"mark of being live of a run that is scheduled", `ALTER TABLE recourse.runs DROP CONSTRAINT live_is_state, DROP CONSTRAINT active_is_state; UPDATE recourse.runs SET live = false`, `UPDATE recourse.runs SET live = true`},
		{"mark of being active of a run that is scheduled", `UPDATE recourse.runs SET active = false`, `UPDATE recourse.runs SET active = true`},
		{"how many people a plan takes, without its operation log", `WITH g AS (DELETE FROM recourse.operation_logs WHERE subject = 'people') DELETE FROM recourse.people`, ``},
	} {
		testkit.Tamper(t, r.DB, c.harm)
		a, err := r.Audit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if a.OK() {
			t.Errorf("%s: the audit reports no break", c.what)
		}
		if c.mend != "" {
			testkit.Tamper(t, r.DB, c.mend)
		}
	}
}

// Each column that decides or that a list shows matches the receipts, or the audit names it,
// whoever changed it and even if all other rows were changed to match.
func TestTheAuditFindsEveryColumnThatDecides(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	// Case 0 is a forked letter, case 1 a letter, case 2 is settled, case 3 has a second generation, case 4 waits.
	for n := range 4 {
		r.MustSubmit(withPayee(n))
	}
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if strings.Contains(string(c.Request), "txr_2") {
			return r.Escrow.Pay(c, c.Amount.Minor)
		}
		return rig.Refused()
	})
	w := r.OtherProcess().StartWorkers()
	w.WaitNoneLive()
	for _, l := range w.Letters(deadletter.Filter{}) {
		switch l.Transaction {
		case "txr_0":
			r.MustFork(postadjudication.Submitted{Run: l.Run})
		case "txr_3":
			a := rig.Refund(3)
			a.Generation = 2
			r.MustSubmit(a)
		}
	}
	w.WaitNoneLive()
	w.StopWorkers()
	r.MustSubmit(withPayee(4))
	verdict := func() map[string]string {
		t.Helper()
		if err := r.DrainEvents(ctx); err != nil {
			t.Fatal(err)
		}
		if err := r.Index().CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
		a, err := r.Audit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return a.Broken
	}
	if broken := verdict(); len(broken) > 0 {
		t.Fatalf("before: %v", broken)
	}
	for _, c := range []struct{ what, table, harm, word string }{
		{"request", "operations", `request = convert_to(replace(convert_from(request,'UTF8'), 'honest', 'mallory'), 'UTF8')`, "digest of the request"},
		{"operation key of a run", "runs", `operation_key = (SELECT min(key::text)::bytea FROM recourse.operations)`, "operation key"},
		{"retry key", "runs", `retry_key = retry_key || 'x'`, "retry key"},
		{"target", "runs", `target = 'mallory'`, "target"},
		{"queue", "runs", `queue = 'nobody:9'`, "queue"},
		{"policy", "runs", `policy = replace(policy, '"max_retry_attempts":3', '"max_retry_attempts":9')`, "policy"},
		{"parent", "runs", `parent_id = gen_random_uuid()`, "parent run"},
		{"family", "runs", `family = 'chores'`, "family"},
		{"due time of what waits", "runs", `due_at = due_at + interval '1 year'`, "due time"},
		{"reason of a death", "runs", `reason = 'framed' WHERE letter <> ''`, "reason"},
		{"failure of a death", "runs", `error_text = 'framed' WHERE letter <> ''`, "failure"},
		{"subject", "cases", `subject = subject || 'x'`, "subject"},
		{"submission", "cases", `submission = 'sub_x'`, "submission"},
		{"content", "cases", `content = sha256('x')`, "content"},
		{"epoch", "cases", `epoch = 7`, "epoch"},
		{"time of the first call", "cases", `first_sent_at = now() + interval '1 year'`, "first sent at"},
		{"sum held", "escrows", `held = held * 10`, "sum held"},
		{"currency held", "escrows", `currency = 'SEK'`, "currency held"},
		{"reference", "escrows", `reference = reference || 'x'`, "escrow"},
		{"amount of a letter", "letters", `amount = amount + 1`, "other columns"},
		{"money at risk of a letter", "letters", `at_risk = 0`, "other columns"},
		{"attempts of a letter", "letters", `attempts = 9`, "other columns"},
		{"transaction of a letter", "letters", `transaction = 'txr_x'`, "other columns"},
		{"submission of a letter", "letters", `submission = 'sub_x'`, "other columns"},
		{"escrow of a letter", "letters", `escrow = 'esc_x'`, "other columns"},
		{"tenant of listed letters", "facet_groups", `tenant = 'nobody'`, "other columns"},
		{"job type of listed letters", "facet_groups", `job_type = 'mail.send'`, "other columns"},
		{"outcome of listed letters", "facet_groups", `outcome = 'refund'`, "other columns"},
		{"currency of listed letters", "facet_groups", `currency = 'SEK'`, "other columns"},
		{"hold of listed letters", "facet_groups", `held = true`, "other columns"},
	} {
		testkit.Tamper(t, r.DB, `CREATE TABLE kept AS TABLE recourse.`+c.table, `UPDATE recourse.`+c.table+` SET `+c.harm)
		if broken := verdict(); !strings.Contains(broken[audit.InvariantFold]+broken[audit.InvariantLetters], c.word) {
			t.Errorf("%s: %v", c.what, broken)
		}
		columns := storedColumns(t, r.DB, c.table)
		testkit.Tamper(t, r.DB, `DELETE FROM recourse.`+c.table, `INSERT INTO recourse.`+c.table+` (`+columns+`) OVERRIDING SYSTEM VALUE SELECT `+columns+` FROM kept`, `DROP TABLE kept`)
	}
	testkit.Tamper(t, r.DB, `CREATE TABLE kept AS TABLE recourse.letters`, `DELETE FROM recourse.letters WHERE run_id = (SELECT id FROM recourse.runs WHERE letter = 'open' LIMIT 1)`)
	if broken := verdict(); !strings.Contains(broken[audit.InvariantLetters], "is not in the list of letters") {
		t.Errorf("a letter missing from the list: %v", broken)
	}
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.letters`, `INSERT INTO recourse.letters TABLE kept`, `UPDATE recourse.letters SET run_id = gen_random_uuid() WHERE run_id = (SELECT id FROM recourse.runs WHERE letter = 'forked')`)
	if broken := verdict(); !strings.Contains(broken[audit.InvariantLetters], "list of letters") {
		t.Errorf("a list entry without a letter: %v", broken)
	}
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.letters`, `INSERT INTO recourse.letters TABLE kept`)
	if broken := verdict(); len(broken) > 0 {
		t.Errorf("afterwards: %v", broken)
	}
}

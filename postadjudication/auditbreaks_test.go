package postadjudication_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// Rows of cases without runs, however many, hide no case behind them from the audit.
func TestCasesWithoutRunsHideNoOther(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	s := r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	r.MustAudit()
	r.StopWorkers()
	testkit.Tamper(t, r.DB, `INSERT INTO recourse.cases SELECT (jsonb_populate_record(c, jsonb_build_object('id', lpad(n::text, 32, '0')::uuid, 'subject', 'none_' || n, 'reserved', 0, 'released', 0))).*
		FROM recourse.cases c, generate_series(1, 1100) n WHERE c.subject = 'txr_1'`,
		`UPDATE recourse.runs SET queue = 'nobody' WHERE id = '`+s.Run.String()+`'`)
	a, err := r.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if a.Runs != 1 || !strings.Contains(fmt.Sprint(a.Breaks), "nobody") {
		t.Errorf("%d runs: %+v", a.Runs, a.Breaks)
	}
}

// Every break is reported with its tenant, case and run, not only the first of each kind.
func TestTheAuditListsEveryBreak(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	var dead [4]postadjudication.Submitted
	for n := range dead {
		dead[n] = r.DeadLetter(n, rig.Refuses)
	}
	r.MustAudit()
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Index().CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	r.StopWorkers()
	of := func(n int) string { return ` = '` + dead[n].Run.String() + `'` }
	caseOf := func(n int) string { return `(SELECT case_id FROM recourse.runs WHERE id` + of(n) + `)` }
	testkit.Tamper(t, r.DB,
		`UPDATE recourse.runs SET queue = 'nobody', reason = 'framed' WHERE id`+of(0), `UPDATE recourse.runs SET queue = 'nobody' WHERE id`+of(1),
		`DELETE FROM recourse.letters WHERE run_id`+of(2), `UPDATE recourse.letters SET attempts = 9 WHERE run_id`+of(3),
		`UPDATE recourse.receipts SET body = replace(body, '"txr_3', '"TXR_3') WHERE seq IN (1, 2) AND case_id = `+caseOf(3),
		`DELETE FROM recourse.event_log WHERE last IN (2, 3)`)
	a, err := r.Audit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	countBreaks := func(invariant string, run postadjudication.Submitted, what string) (n int) {
		for _, b := range a.Breaks {
			if b.Invariant == invariant && b.Run == run.Run && strings.Contains(b.What, what) {
				if b.Tenant != "acme" || b.Case.IsZero() {
					t.Errorf("whose is %+v?", b)
				}
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		invariant string
		run       postadjudication.Submitted
		what      string
	}{
		{audit.InvariantFold, dead[0], "queue"}, {audit.InvariantFold, dead[0], "stored reason"}, {audit.InvariantFold, dead[1], "queue"},
		{audit.InvariantLetters, dead[2], "is not in the list"}, {audit.InvariantLetters, dead[3], "other columns"}, {audit.InvariantLetters, dead[0], "other columns"},
	} {
		if n := countBreaks(c.invariant, c.run, c.what); n != 1 {
			t.Errorf("%s of run %s is reported %d times: %+v", c.what, c.run.Run, n, a.Breaks)
		}
	}
	broken, gaps := 0, 0
	for _, b := range a.Breaks {
		switch {
		case b.Invariant == audit.InvariantChains && b.Receipt == fmt.Sprintf("%s.1", b.Case) && strings.Contains(b.What, ".1: link does not follow"):
			broken++
		case b.Invariant == audit.InvariantOrder && strings.Contains(b.What, "numbers 2 to 3 are missing") || b.Invariant == audit.InvariantOrder && strings.Contains(b.What, "is missing"):
			gaps++
		}
	}
	if broken != 1 || gaps != 2 || // one in the tenant's order, one in the order of all tenants
		a.TotalBreaks != len(a.Breaks) || a.Omitted() != 0 {
		t.Errorf("%d broken receipts, %d gaps, %d of %d breaks: %+v", broken, gaps, len(a.Breaks), a.TotalBreaks, a.Breaks)
	}
}

// Progress is reported as the number of cases done, out of all.
func TestAnAuditReportsItsProgress(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	const every = 100 // cases
	const cases = 2*every + 1
	for n := range cases {
		r.MustSubmit(rig.Release(n))
	}
	progress := map[string][]int{}
	_, err := audit.Run(context.Background(), r.AuditReader(), audit.Query{Progress: func(part string, done, of int) {
		if of != cases {
			t.Errorf("%s: of %d", part, of)
		}
		progress[part] = append(progress[part], done)
	}})
	if err != nil || fmt.Sprint(progress["cases"]) != fmt.Sprint([]int{every, 2 * every}) || fmt.Sprint(progress["the order of events"]) != fmt.Sprint([]int{cases}) {
		t.Errorf("%v, %v", progress, err)
	}
}

// AuditCase checks one case: it ignores breaks elsewhere and reports those that concern the
// case.
func TestOneCaseIsAuditedWithWhatDependsOnIt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	mine, other := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.Refuses)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, mine.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	r.MustAudit()
	if err := r.Index().CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	r.StopWorkers()
	auditCase := func() *audit.Report {
		t.Helper()
		s, err := r.Status(ctx, "acme", mine.Run)
		if err != nil {
			t.Fatal(err)
		}
		a, err := audit.Case(ctx, r.AuditReader(), "acme", s.Case, r.AuditQuery())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.letters WHERE run_id = '`+other.Run.String()+`'`, `UPDATE recourse.escrows SET committed = 1 WHERE reference = 'esc_2'`)
	if a := auditCase(); !a.OK() || a.Chains != 1 || a.Cases != 1 {
		t.Errorf("%+v", a.Breaks)
	}
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.letters WHERE run_id = '`+mine.Run.String()+`'`, `UPDATE recourse.escrows SET committed = 1 WHERE reference = 'esc_1'`,
		`UPDATE recourse.annotations SET hold_reason = 'other' WHERE run_id = '`+mine.Run.String()+`'`)
	a := auditCase()
	for invariant, word := range map[string]string{audit.InvariantLetters: "is not in the list", audit.InvariantEscrows: "escrow esc_1 of acme", audit.InvariantFold: "letter " + mine.Run.String()} {
		if !strings.Contains(a.Verdict(invariant), word) {
			t.Errorf("%s: %s", invariant, a.Verdict(invariant))
		}
	}
	if len(a.Breaks) != 3 {
		t.Errorf("%+v", a.Breaks)
	}
	if _, err := audit.Case(ctx, r.AuditReader(), "bank", receipts.CaseID(a.Breaks[0].Case), r.AuditQuery()); err == nil {
		t.Error("another tenant audited it")
	}
}

// The audit of one case makes every check of its rows that the audit of its tenant makes.
func TestOneCaseIsAuditedForEveryRowOfIt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	mine, other := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.Refuses)
	plan := r.MustPlan(bulk.Request{Reason: "perhaps", Action: bulk.Hold, Filter: deadletter.Filter{Transaction: "txr_1"}})
	r.MustAudit()
	if err := r.Index().CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	r.StopWorkers()
	s, err := r.Status(ctx, "acme", mine.Run)
	if err != nil {
		t.Fatal(err)
	}
	id := `'` + mine.Run.String() + `'`
	for _, c := range []struct{ what, harm, mend, invariant, word string }{
		{"a request to cancel", `UPDATE recourse.runs SET cancel_requested = true, cancel_by = 'user:bob' WHERE id IN (` + id + `, '` + other.Run.String() + `')`, `UPDATE recourse.runs SET cancel_requested = false, cancel_by = ''`, audit.InvariantFold, "to be cancelled by user:bob"},
		{"a handler", `INSERT INTO recourse.handlers (letter, run, tenant) VALUES (` + id + `, gen_random_uuid(), 'acme')`, `DELETE FROM recourse.handlers`, audit.InvariantLetters, "do not refer to each other"},
		{"an operation", `CREATE TABLE kept AS TABLE recourse.operations; DELETE FROM recourse.operations`, `INSERT INTO recourse.operations TABLE kept`, audit.InvariantAccounted, "refers to operation"},
		{"an item of a plan", `UPDATE recourse.bulk_items SET outcome = 'done' WHERE bulk_id = '` + plan.ID.String() + `'`, `UPDATE recourse.bulk_items SET outcome = ''`, audit.InvariantFold, "and the receipts say that the plan did nothing"},
		{"an annotation", `INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason) VALUES (` + id + `, 'acme', true, 'x')`, `DELETE FROM recourse.annotations`, audit.InvariantFold, "is held, marked or announced, and no receipt says so"},
		{"its escrow", `CREATE TABLE kept_escrows AS TABLE recourse.escrows; DELETE FROM recourse.escrows`, `INSERT INTO recourse.escrows OVERRIDING SYSTEM VALUE TABLE kept_escrows`, audit.InvariantAccounted, "refers to escrow"},
		{"a breach", `UPDATE recourse.escrows SET breached = 7`, `UPDATE recourse.escrows SET breached = 0`, audit.InvariantEscrows, "stored as breached by 7"},
	} {
		testkit.Tamper(t, r.DB, c.harm)
		a, err := audit.Case(ctx, r.AuditReader(), "acme", s.Case, r.AuditQuery())
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		found := 0
		for _, b := range a.Breaks {
			if b.Invariant == c.invariant && strings.Contains(b.What, c.word) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %+v", c.what, a.Breaks)
		}
		testkit.Tamper(t, r.DB, c.mend)
	}
	if a, err := audit.Case(ctx, r.AuditReader(), "acme", s.Case, r.AuditQuery()); err != nil || !a.OK() {
		t.Errorf("afterwards: %+v, %v", a, err)
	}
}

// The sum that an escrow holds is reported once, however many of its cases differ. An edited
// column is reported with its value and the one in the body.
func TestABreakSaysWhatIsStoredAndWhatIsExpected(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	var first postadjudication.Submitted
	for n := range 3 {
		a := rig.Release(n)
		a.EscrowReference, a.Held.Minor = "esc_shared", 9000
		if s := r.MustSubmit(a); n == 0 {
			first = s
		}
	}
	r.WaitNoneLive()
	r.StopWorkers()
	testkit.Tamper(t, r.DB, `UPDATE recourse.escrows SET held = 9001`, `UPDATE recourse.receipts SET actor = 'user:eve', link = sha256(link) WHERE seq = 2 AND case_id = '`+first.Case.String()+`'`)
	a, err := r.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	held, actor := 0, 0
	for _, b := range a.Breaks {
		switch {
		case strings.Contains(b.What, "stored sum held"):
			if held++; b.Stored != "9001" || b.Expected != "9000" || !strings.Contains(b.What, "escrow esc_shared of acme") {
				t.Errorf("%+v", b)
			}
		case strings.Contains(b.What, "column actor is user:eve, the body says"):
			actor++
		}
	}
	if held != 1 || actor != 1 {
		t.Errorf("%d of the sum held, %d of the actor: %+v", held, actor, a.Breaks)
	}
}

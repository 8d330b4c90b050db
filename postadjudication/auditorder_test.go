package postadjudication_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// Missing positions are reported by number. If one tenant is audited, the report says that
// numbers are shared; for an unknown tenant nothing is missing.
func TestAGapInTheOrderOfEventsIsReportedByItsNumbers(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	for n := 1; n <= 3; n++ {
		r.MustSubmit(rig.Release(n))
		if err := r.DrainEvents(ctx); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.event_log WHERE last = 2`)
	reports := func(want bool, word string, tenants ...string) {
		t.Helper()
		a, err := r.Audit(ctx, tenants...)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, b := range a.Breaks {
			found = found || strings.Contains(b.What, word)
		}
		if found != want || a.OK() == want {
			t.Errorf("%q of %v: %t, want %t: %+v", word, tenants, found, want, a.Breaks)
		}
	}
	reports(true, "number 2 is missing in the order of events; all tenants share these numbers", "acme")
	reports(true, "receipt 1 (submitted) has no place in the order of events")
	reports(false, "missing", "nobody")
}

// An audit of one case says that it did not look at the order of events. So does one of an operation
// log.
func TestAnAuditOfOneCaseSaysThatTheOrderIsNotChecked(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	s := r.MustSubmit(rig.Release(1))
	if _, err := r.As("acme", "user:ada").Policies.Set(ctx, postadjudication.PolicyChange{Family: postadjudication.Family, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	var log receipts.CaseID
	if err := r.DB.QueryRow(`SELECT id FROM recourse.cases WHERE kind = 'operations'`).Scan((*uuid.UUID)(&log)); err != nil {
		t.Fatal(err)
	}
	testkit.Tamper(t, r.DB, `DELETE FROM recourse.event_log`)
	for _, id := range []receipts.CaseID{s.Case, log} {
		a, err := audit.Case(ctx, r.AuditReader(), "acme", id, r.AuditQuery())
		if err != nil {
			t.Fatal(err)
		}
		if !a.OK() || !slices.Equal(a.NotChecked, []string{audit.InvariantOrder}) || a.Verdict(audit.InvariantOrder) == "ok" || a.Verdict(audit.InvariantChains) != "ok" {
			t.Errorf("case %s: %s, not checked: %q", id, a.Verdict(audit.InvariantOrder), a.NotChecked)
		}
	}
}

// A tenant of which only the positions of its receipts are left is audited with all tenants.
func TestATenantThatWasDeletedIsDetectedByItsPositions(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	r.MustSubmit(rig.Release(1))
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	var gone []string
	for _, table := range []string{"receipts", "runs", "operations", "cases", "escrows"} {
		gone = append(gone, "DELETE FROM recourse."+table)
	}
	testkit.Tamper(t, r.DB, gone...)
	a, err := r.Audit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if said := a.Verdict(audit.InvariantOrder); !strings.Contains(said, "which is not there") {
		t.Errorf("%q: %+v", said, a.Breaks)
	}
}

// execAsOwner executes what the triggers would refuse, as only an owner of the tables can.
func execAsOwner(r *rig.Rig, statement string) {
	r.T.Helper()
	testkit.Tamper(r.T, r.DB, statement)
}

// The audit reports every row that refers to a missing row.
func TestARowWithoutWhatItRefersToIsFound(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	verdict := func(tenants ...string) string {
		t.Helper()
		a, err := r.Audit(ctx, tenants...)
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict(audit.InvariantAccounted)
	}
	breaks := []struct{ tenant, harm, row, misses string }{
		{"caseless", `DELETE FROM recourse.operations WHERE case_id IN (SELECT case_id FROM recourse.runs WHERE tenant = 'caseless'); DELETE FROM recourse.cases WHERE tenant = 'caseless'`, "run ", "case "},
		{"escrowless", `DELETE FROM recourse.escrows WHERE tenant = 'escrowless'`, "case ", "escrow "},
		{"runless", `DELETE FROM recourse.runs WHERE tenant = 'runless'`, "case ", "run "},
		{"requestless", `DELETE FROM recourse.operations WHERE key IN (SELECT operation_key FROM recourse.runs WHERE tenant = 'requestless')`, "run ", "operation "},
		{"exchanged", `UPDATE recourse.cases SET escrow_id = (SELECT id FROM recourse.escrows WHERE tenant = 'whole') WHERE tenant = 'exchanged'`, "case ", "escrow "},
		{"strayed", `INSERT INTO recourse.escrow_deltas SELECT id, gen_random_uuid(), 1, 5 FROM recourse.escrows WHERE tenant = 'strayed'`, "delta ", "escrow "},
	}
	for i, b := range breaks {
		a := rig.Release(i)
		a.Tenant = b.tenant
		r.MustSubmit(a)
	}
	whole := rig.Release(len(breaks))
	whole.Tenant = "whole"
	r.MustSubmit(whole)
	r.WaitNoneLive()
	r.MustAudit()
	r.StopWorkers() // otherwise a delta could be folded before the audit reads it

	execAsOwner(r, `INSERT INTO recourse.operations (key, case_id, request) VALUES (sha256('x'), gen_random_uuid(), 'x')`)
	if v := verdict(); !strings.HasPrefix(v, "operation ") || !strings.Contains(v, "refers to case ") {
		t.Errorf("an operation without its case: %s", v)
	}
	execAsOwner(r, `DELETE FROM recourse.operations WHERE request = 'x'`)
	r.MustAudit()

	for _, b := range breaks {
		execAsOwner(r, b.harm)
		if v := verdict(b.tenant); !strings.HasPrefix(v, b.row) || !strings.Contains(v, " of "+b.tenant+" refers to "+b.misses) {
			t.Errorf("%s: %s", b.tenant, v)
		}
		if b.tenant == breaks[0].tenant { // its case no longer exists
			if v := verdict(); !strings.Contains(v, " of "+b.tenant) {
				t.Errorf("among all tenants, %s: %s", b.tenant, v)
			}
		}
	}
	if v := verdict("whole"); v != "ok" {
		t.Errorf("the untouched tenant: %s", v)
	}
}

// Two receipts of one case that change places in the order of events are found, although the order has each once.
func TestReceiptsOfACaseThatChangedPlacesAreFound(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	s := r.MustSubmit(rig.Release(1))
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").Cases.Cancel(ctx, s.Run, "not wanted"); err != nil {
		t.Fatal(err)
	}
	if err := r.DrainEvents(ctx); err != nil {
		t.Fatal(err)
	}
	r.MustAudit()
	testkit.Tamper(t, r.DB, `CREATE TABLE kept AS TABLE recourse.event_log`,
		`UPDATE recourse.event_log l SET seqs = k.seqs FROM kept k WHERE l.last + k.last = 3`)
	a, err := r.Audit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if a.OK() || a.Breaks[0].Invariant != audit.InvariantOrder {
		t.Errorf("%+v", a.Breaks)
	}
}

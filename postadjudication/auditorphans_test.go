package postadjudication

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// execAsOwner does what the triggers refuse, as only an owner of the tables can.
func (r *rig) execAsOwner(statement string) {
	r.t.Helper()
	testkit.Tamper(r.t, r.db, statement)
}

// What rows refer to is there, or the audit names what misses what.
func TestARowWithoutWhatItRefersToIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	ctx := context.Background()
	verdict := func(tenants ...string) string {
		t.Helper()
		a, err := r.Audit(ctx, tenants...)
		if err != nil {
			t.Fatal(err)
		}
		return a.Verdict(InvariantAccounted)
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
		a := release(i)
		a.Tenant = b.tenant
		r.mustSubmit(a)
	}
	whole := release(len(breaks))
	whole.Tenant = "whole"
	r.mustSubmit(whole)
	r.untilNoneLive()
	r.mustAudit()
	r.stopWork() // else a delta would be folded before it is found

	r.execAsOwner(`INSERT INTO recourse.operations (key, case_id, request) VALUES (sha256('x'), gen_random_uuid(), 'x')`)
	if v := verdict(); !strings.HasPrefix(v, "operation ") || !strings.Contains(v, "refers to case ") {
		t.Errorf("an operation without its case: %s", v)
	}
	r.execAsOwner(`DELETE FROM recourse.operations WHERE request = 'x'`)
	r.mustAudit()

	for _, b := range breaks {
		r.execAsOwner(b.harm)
		if v := verdict(b.tenant); !strings.HasPrefix(v, b.row) || !strings.Contains(v, " of "+b.tenant+" refers to "+b.misses) {
			t.Errorf("%s: %s", b.tenant, v)
		}
		if b.tenant == breaks[0].tenant { // of which there is no case any more
			if v := verdict(); !strings.Contains(v, " of "+b.tenant) {
				t.Errorf("among all tenants, %s: %s", b.tenant, v)
			}
		}
	}
	if v := verdict("whole"); v != "ok" {
		t.Errorf("what was left alone: %s", v)
	}
}

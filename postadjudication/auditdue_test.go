package postadjudication

import (
	"context"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// What keeps a run from ever being called, or a register from being found, decides. So the
// audit compares it with the receipts.
func TestTheAuditDetectsWhatKeepsARunFromBeingCalled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := newRig(t, withDailyRetries).startWorkers()
	r.waitingUnknownRun(1, false)
	if _, err := r.SetPeople(ctx, PeopleChange{Tenant: "acme", People: 1, Actor: "user:root", Reason: "nobody else is there"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetPeople(ctx, PeopleChange{Tenant: "acme", People: 2, Actor: "user:root", Reason: "ada is back"}); err != nil {
		t.Fatal(err)
	}
	r.stopWork()
	r.mustAudit()
	for _, c := range []struct{ what, harm, mend string }{
		{"due time of a run that is scheduled", `UPDATE recourse.runs SET due_at = due_at + interval '1000 years'`, `UPDATE recourse.runs SET due_at = due_at - interval '1000 years'`},
		{"how many people it took, without its register", `WITH g AS (DELETE FROM recourse.registers WHERE subject = 'people') DELETE FROM recourse.people`, ``},
	} {
		testkit.Tamper(t, r.db, c.harm)
		a, err := r.Audit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if a.OK() {
			t.Errorf("%s: the audit says ok", c.what)
		}
		if c.mend != "" {
			testkit.Tamper(t, r.db, c.mend)
		}
	}
}

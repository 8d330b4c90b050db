package postadjudication

import (
	"context"
	"errors"
	"testing"
)

// Whoever names another tenant, or none, is told that there is nothing, whatever is
// asked for.
func TestARunOfAnotherTenantIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Executor = nil })
	s := r.mustSubmit(release(1))
	ctx := context.Background()
	for _, tenant := range []string{"globex", ""} {
		_, status := r.Status(ctx, tenant, s.Run)
		_, cancelled := r.Cancel(ctx, tenant, s.Run, "clerk", "not mine")
		_, forked := r.Fork(ctx, tenant, s.Run, ForkRequest{Actor: "clerk", Reason: "not mine"})
		_, byID := r.CaseByID(ctx, tenant, s.Case)
		_, found := r.Reconcile(ctx, tenant, s.Run, Finding{Actor: "clerk", Reason: "not mine", Class: NotExecuted, Reference: "none"})
		for what, err := range map[string]error{"status": status, "cancel": cancelled, "fork": forked, "case": byID, "finding": found} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s of tenant %q: %v", what, tenant, err)
			}
		}
		if rs, err := r.Receipts(ctx, tenant, s.Case, 0, 10); err != nil || len(rs) != 0 {
			t.Errorf("receipts of tenant %q: %d, %v", tenant, len(rs), err)
		}
	}
	if _, err := r.Status(ctx, "acme", s.Run); err != nil {
		t.Errorf("its own tenant: %v", err)
	}
}

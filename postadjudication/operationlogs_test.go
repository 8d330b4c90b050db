package postadjudication_test

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// The operation logs of keys, plans, circuit breakers and refusals can be read page by page: by
// whom, when and why.
func TestOperationLogsCanBeRead(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	_, key, err := r.As("acme", "user:root").Keys.Create(ctx, postadjudication.NewKey{Principal: "user:ada", Roles: []postadjudication.AccessRole{access.Operator}, ExpiresAt: r.Now().Add(day), Reason: "on call"})
	if err == nil {
		_, err = r.As("acme", "user:root").Keys.Revoke(ctx, key.Prefix, "left")
	}
	if err != nil {
		t.Fatal(err)
	}
	r.DeadLetter(1, rig.Refuses)
	plan := r.RunPlan(r.MustPlan(bulk.Request{Reason: "in court", Action: bulk.Hold, All: true}))
	for _, tenant := range []string{"acme", postadjudication.AllTenants} {
		if _, err := r.As(tenant, "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "their bank is down"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.As("acme", "user:bob").Breakers.Release(ctx, escrow.DefaultTarget, "it is up"); err != nil {
		t.Fatal(err)
	}
	words := func(found []postadjudication.OperationLogEntry, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range found {
			if e.At.IsZero() || e.Receipt == "" {
				t.Errorf("%+v", e)
			}
			all = append(all, e.Actor+" "+string(e.Subtype)+" "+e.Key+e.Bulk+" "+e.Changes+": "+e.Reason)
		}
		return strings.Join(all, "\n")
	}
	for of, want := range map[postadjudication.OperationLog][]string{
		postadjudication.OperationLogKeys: {"user:root key-created " + key.Prefix + " user:ada as operator", "user:root key-revoked " + key.Prefix + " : left"},
		postadjudication.OperationLogBulks: {"user:ada bulk-changed " + plan.ID.String() + " none to planned: in court", "user:bob bulk-changed " + plan.ID.String() + " planned to running",
			"system:bulk bulk-changed " + plan.ID.String() + " running to done"},
		postadjudication.OperationLogRefusals: {""},
	} {
		entries := words(r.As("acme", "").OperationLogs.History(ctx, of, 0, 100))
		for _, w := range want {
			if !strings.Contains(entries, w) {
				t.Errorf("%s: no %q in\n%s", of, w, entries)
			}
		}
		if lines := strings.Count(entries, "\n") + 1; lines != len(want) {
			t.Errorf("%s: %d lines, want %d", of, lines, len(want))
		}
	}
	if entries := words(r.As("acme", "").Breakers.History(ctx, escrow.DefaultTarget, 0, 100)); entries != "user:ada breaker-opened  closed to open: their bank is down\nuser:bob breaker-released  open to closed: it is up" {
		t.Error(entries)
	}
	if entries := words(r.As(postadjudication.AllTenants, "").Breakers.History(ctx, escrow.DefaultTarget, 0, 100)); entries != "user:ada breaker-opened  closed to open: their bank is down" {
		t.Error(entries)
	}
	if entries := words(r.As("acme", "").OperationLogs.History(ctx, postadjudication.OperationLogBulks, 1, 1)); !strings.Contains(entries, "planned to running") || strings.Contains(entries, "\n") {
		t.Errorf("the second alone: %s", entries)
	}
	if entries := words(r.As("bank", "").OperationLogs.History(ctx, postadjudication.OperationLogKeys, 0, 100)); entries != "" {
		t.Errorf("another tenant's: %s", entries)
	}
	if _, err := r.As("", "").OperationLogs.History(ctx, postadjudication.OperationLogKeys, 0, 100); err == nil {
		t.Error("an empty tenant reads the log of all tenants")
	}
	r.MustAudit()
}

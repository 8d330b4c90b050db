package postadjudication

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

// What was done with keys, plans and circuit breakers, and what keys were refused, can be
// read: by whom, when and why, a page at a time.
func TestRegistersCanBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	ctx := context.Background()
	_, key, err := r.CreateKey(ctx, NewKey{Tenant: "acme", Principal: "user:ada", Roles: []AccessRole{access.Operator}, ExpiresAt: r.now().Add(day), Actor: "user:root", Reason: "on call"})
	if err == nil {
		_, err = r.RevokeKey(ctx, "acme", key.Prefix, "user:root", "left")
	}
	if err != nil {
		t.Fatal(err)
	}
	r.dead(1, func(Call) Answer { return refused() })
	plan := r.ran(r.planned(BulkRequest{Tenant: "acme", Actor: "user:ada", Reason: "in court", Action: BulkHold, All: true}))
	for _, tenant := range []string{"acme", AllTenants} {
		if _, err := r.PullBrake(ctx, tenant, DefaultTarget, "user:ada", "their bank is down"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.ReleaseBrake(ctx, "acme", DefaultTarget, "user:bob", "it is up"); err != nil {
		t.Fatal(err)
	}
	words := func(found []RegisterEntry, err error) string {
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
	for of, want := range map[Register][]string{
		RegisterKeys: {"user:root key-created " + key.Prefix + " user:ada as operator", "user:root key-revoked " + key.Prefix + " : left"},
		RegisterBulks: {"user:ada bulk-changed " + plan.ID.String() + " none to planned: in court", "user:bob bulk-changed " + plan.ID.String() + " planned to running",
			"system:bulk bulk-changed " + plan.ID.String() + " running to done"},
		RegisterRefusals: {""},
	} {
		said := words(r.History(ctx, "acme", of, 0, 100))
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: no %q in\n%s", of, w, said)
			}
		}
		if lines := strings.Count(said, "\n") + 1; lines != len(want) {
			t.Errorf("%s: %d lines, want %d", of, lines, len(want))
		}
	}
	if said := words(r.BrakeHistory(ctx, "acme", DefaultTarget, 0, 100)); said != "user:ada brake-pulled  closed to open: their bank is down\nuser:bob brake-released  open to closed: it is up" {
		t.Error(said)
	}
	if said := words(r.BrakeHistory(ctx, AllTenants, DefaultTarget, 0, 100)); said != "user:ada brake-pulled  closed to open: their bank is down" {
		t.Error(said)
	}
	if said := words(r.History(ctx, "acme", RegisterBulks, 1, 1)); !strings.Contains(said, "planned to running") || strings.Contains(said, "\n") {
		t.Errorf("the second alone: %s", said)
	}
	if said := words(r.History(ctx, "bank", RegisterKeys, 0, 100)); said != "" {
		t.Errorf("another tenant's: %s", said)
	}
	if _, err := r.History(ctx, "", RegisterKeys, 0, 100); err == nil {
		t.Error("no tenant means everybody's")
	}
	r.sound()
}

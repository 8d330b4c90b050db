package postadjudication

import (
	"context"
	"errors"
	"testing"
)

// Each change of a rule is a version of its history, whatever happens to other rules in
// between; a rule of a name that begins alike is another.
func TestARuleHasAHistory(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop)
	ctx := context.Background()
	first := r.mustSetRule(replayRule(1))
	alike := replayRule(4)
	alike.Rule.Name += ".2"
	r.mustSetRule(alike)
	second := replayRule(3)
	second.Reason = "more patience"
	r.mustSetRule(second)
	if _, err := r.DeleteRule(ctx, RuleRemoval{Tenant: "acme", Name: first.Name, Actor: "user:bob", Reason: "no longer"}); err != nil {
		t.Fatal(err)
	}
	r.mustSetRule(replayRule(2))
	history, err := r.RuleHistory(ctx, "acme", first.Name, 0, 100)
	if err != nil || len(history) != 4 {
		t.Fatalf("%+v, %v", history, err)
	}
	for i, want := range []RuleVersion{
		{StoredRule: StoredRule{Actor: first.Actor, Reason: first.Reason}, Changes: "made"},
		{StoredRule: StoredRule{Actor: first.Actor, Reason: "more patience"}, Changes: "max_replays 1 to 3"},
		{StoredRule: StoredRule{Actor: "user:bob", Reason: "no longer"}, Changes: "deleted", Deleted: true},
		{StoredRule: StoredRule{Actor: first.Actor, Reason: first.Reason}, Changes: "made"},
	} {
		v := history[i]
		if v.Version != int64(i+1) || v.Name != first.Name || v.Tenant != "acme" || v.Actor != want.Actor || v.Reason != want.Reason || v.Deleted != want.Deleted || v.Changes != want.Changes ||
			v.Receipt == "" || v.At.IsZero() {
			t.Errorf("version %d: %+v", i+1, v)
		}
	}
	if history[1].MaxReplays != 3 || history[3].MaxReplays != 2 || history[0].Filter != first.Filter {
		t.Errorf("%+v", history)
	}
	now, err := r.Rules(ctx, "acme")
	if err != nil || now[0].Name != first.Name || now[0].Version != history[3].Version {
		t.Errorf("the last of the history is not what there is: %+v, %v", now, err)
	}
	if some, err := r.RuleHistory(ctx, "acme", first.Name, 1, 2); err != nil || len(some) != 2 || some[0].Version != 2 || some[1].Version != 3 {
		t.Errorf("%+v, %v", some, err)
	}
	for tenant, name := range map[string]string{"other": first.Name, "acme": "none"} {
		if some, err := r.RuleHistory(ctx, tenant, name, 0, 10); err != nil || len(some) != 0 {
			t.Errorf("%s of %s: %+v, %v", name, tenant, some, err)
		}
	}
	var bad *FieldError
	if _, err := r.RuleHistory(ctx, "", first.Name, 0, 10); !errors.As(err, &bad) || bad.Field != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
	if _, err := r.RuleHistory(ctx, "acme", first.Name, 0, 0); !errors.As(err, &bad) || bad.Field != "limit" {
		t.Errorf("no limit: %v", err)
	}
	r.mustAudit()
}

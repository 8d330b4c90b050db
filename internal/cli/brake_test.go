package cli_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestBrakeIsPulledListedAndReleased(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	order := func(verb string, more ...string) said {
		return p.run("", append([]string{"brake", verb, "--tenant", "acme", "--actor", "kim", "--reason", "they asked us to"}, more...)...)
	}
	if none := p.run("", "brake", "list", "--tenant", "acme"); none.code != 0 || !strings.Contains(none.out, "No circuit breaker of acme") {
		t.Errorf("%+v", none)
	}
	order("release").wants(t, "nothing to release", 1, "not open")
	pulled := order("pull", "--json")
	pulled.wants(t, "pull", 0, "")
	if v := pulled.object(t); v["state"] != "open" || v["by_hand"] != true || v["target"] != "escrow" || v["actor"] != "kim" {
		t.Errorf("%v", v)
	}
	list := p.run("", "brake", "list", "--tenant", "acme")
	list.wants(t, "list", 0, "")
	for _, word := range []string{"escrow", "open by hand", "kim", "they asked us to"} {
		if !strings.Contains(list.out, word) {
			t.Errorf("%q is not in %s", word, list.out)
		}
	}
	if v := p.run("", "brake", "list", "--tenant", "other", "--json").object(t); len(v["brakes"].([]any)) != 0 {
		t.Errorf("another tenant sees %v", v)
	}
	submitted := p.run(line+"\n", "submit", "-", "--json")
	submitted.wants(t, "submit", 0, "")
	if status := p.run("", "status", "--tenant", "acme", "txr_1"); status.code != 0 || !strings.Contains(strings.Join(strings.Fields(status.out), " "), "paused: the circuit breaker of escrow for acme is open by hand since") {
		t.Errorf("%+v", status)
	}
	if said := order("release"); said.code != 0 || !strings.Contains(said.out, "closed") {
		t.Errorf("%+v", said)
	}
	verify := p.run("", "receipts", "verify", "--tenant", "acme", "--json")
	verify.wants(t, "verify", 0, "")
	if v := verify.object(t); v["ok"] != true || v["receipts"] != 3.0 || v["chains_verified"] != 2.0 {
		t.Errorf("%v", v)
	}
}

func TestABreakerOverAllTenantsIsMovedByHand(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	order := func(verb string) said {
		return p.run("", "brake", verb, "--all-tenants", "--actor", "kim", "--reason", "they asked us to", "--json")
	}
	for _, step := range []struct{ verb, state string }{{"pull", "open"}, {"release", "half_open"}, {"release", "closed"}} {
		said := order(step.verb)
		said.wants(t, step.verb, 0, "")
		if v := said.object(t); v["state"] != step.state || v["tenant"] != "*" {
			t.Errorf("%s: %v", step.verb, v)
		}
	}
	order("release").wants(t, "nothing to release", 1, "not open")
	if list := p.run("", "brake", "list", "--tenant", "acme"); list.code != 0 || !strings.Contains(list.out, "all tenants") {
		t.Errorf("a tenant does not see it: %+v", list)
	}
	p.run("", "brake", "pull", "--all-tenants", "--tenant", "acme", "--actor", "a", "--reason", "b").wants(t, "both", 2, "exclude")
}

func TestBrakeOrdersThatNameTooLittleAreBadUsage(t *testing.T) {
	t.Parallel()
	for args, word := range map[string]string{
		"brake frobnicate":                                  "frobnicate",
		"brake list":                                        "--tenant is missing",
		"brake list acme":                                   "too many",
		"brake pull --tenant t":                             "--actor and --reason",
		"brake pull --actor a --reason b":                   "--tenant is missing",
		"brake release --tenant t --actor a":                "--actor and --reason",
		"brake release --tenant t --actor a --reason b x":   "too many",
		"brake release --actor a --reason b --target other": "--tenant is missing",
	} {
		execute(t.Context(), nil, strings.NewReader(""), strings.Fields(args)...).wants(t, args, 2, word)
	}
}
